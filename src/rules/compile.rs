//! Files as written become rules: what only shows when rules stand beside each other is checked here.

use std::{collections::hash_map::Entry, sync::Arc};

use foldhash::{HashMap, HashSet};

use super::{
    Charging, Grant, LoadOptions, Place, Rule, RuleCounters, RuleSet, grant,
    matcher::{Node, NodeId, Tree},
    problem::{At, Path, Report, one_line, quoted},
    raw::{RawDescriptor, RawFile, RawLimit, Spanned},
};

/// Builds a rule set out of files, one after the other.
pub(crate) struct Compiler<'o> {
    options: &'o LoadOptions<'o>,
    /// The file that is being added.
    file: Arc<str>,
    tree: Tree,
    leftovers: HashMap<Box<str>, u32>,
    charging_admitted: HashSet<Box<[u8]>>,
    /// The file that first declared each domain.
    domains: HashMap<Vec<u8>, Arc<str>>,
    /// What is already below each node, by composite key.
    composites: HashMap<(NodeId, Vec<u8>), Declared>,
    /// By full key: those of the previous set and those of the rules so far.
    counters: HashMap<Box<str>, Arc<RuleCounters>>,
}

struct Declared {
    place: Place,
    key: Vec<u8>,
}

/// The node that descriptors are added to.
#[derive(Clone, Copy)]
struct Parent<'a> {
    id: NodeId,
    full_key: &'a str,
    /// Where each part of the full key ends.
    ends: &'a [u32],
    /// It, or one above it, has `value_to_metric`.
    shows_value: bool,
}

/// The descriptor that is looked at.
#[derive(Clone, Copy)]
struct Here<'a> {
    raw: &'a RawDescriptor,
    full_key: &'a str,
    ends: &'a [u32],
    path: &'a Path<'a>,
}

impl<'o> Compiler<'o> {
    pub fn new(options: &'o LoadOptions<'o>) -> Self {
        let previous = options.previous.into_iter().flat_map(RuleSet::rules);
        Self {
            options,
            file: Arc::from(""),
            tree: Tree::default(),
            leftovers: HashMap::default(),
            charging_admitted: HashSet::default(),
            domains: HashMap::default(),
            composites: HashMap::default(),
            counters: previous.map(|rule| (rule.full_key.clone(), Arc::clone(&rule.counters))).collect(),
        }
    }

    pub fn finish(mut self) -> RuleSet {
        self.tree.index();
        RuleSet { tree: self.tree, leftovers: self.leftovers, charging_admitted: self.charging_admitted }
    }

    /// Adds a file's rules. What is wrong is reported, and the rest is looked at all the same.
    pub fn add(&mut self, file: &Arc<str>, raw: &RawFile, report: &mut Report) {
        self.file = Arc::clone(file);
        let Some(domain) = raw.domain.as_ref().filter(|domain| !domain.value.is_empty()) else {
            if !raw.incomplete {
                let at = raw.domain.as_ref().map_or(At::START, |domain| domain.at);
                let advice = "write 'domain: …' at the root of the file";
                report.problem(at, &Path::root(""), "config file cannot have empty domain", advice);
            }
            return;
        };
        let name = String::from_utf8_lossy(&domain.value);
        let path = Path::root(&name);
        let id = self.domain(domain, &path, report);
        if let Some(charge) = &raw.charge
            && grant::charging(charge, &path, report) == Charging::Admitted
        {
            self.charging_admitted.insert(domain.value.as_slice().into());
        }
        let parent = Parent { id, full_key: &name, ends: &[end_of(&name)], shows_value: false };
        self.add_all(parent, &raw.descriptors, &path.key("descriptors"), report);
    }

    fn domain(&mut self, domain: &Spanned<Vec<u8>>, path: &Path<'_>, report: &mut Report) -> NodeId {
        let first = self.domains.entry(domain.value.clone()).or_insert_with(|| Arc::clone(&self.file));
        if Arc::ptr_eq(first, &self.file) || self.options.merge_domains {
            return self.tree.add_domain(&domain.value);
        }
        let found =
            format!("duplicate domain {} in config file", quoted(&String::from_utf8_lossy(&domain.value)));
        let advice = format!(
            "it is in {} too; put all of it in one file, or set MERGE_DOMAIN_CONFIG=true",
            one_line(first)
        );
        report.problem(domain.at, &path.key("domain"), found, advice);
        // Its rules are looked at for themselves, beside the tree.
        self.tree.add(Node::root(b""))
    }

    fn add_all(&mut self, parent: Parent<'_>, raws: &[RawDescriptor], path: &Path<'_>, report: &mut Report) {
        for (index, raw) in raws.iter().enumerate() {
            let composite = raw.composite();
            let label = String::from_utf8_lossy(&composite);
            let path = path.descriptor(index, &label);
            let full_key = format!("{}.{label}", parent.full_key);
            let mut ends = parent.ends.to_vec();
            ends.push(end_of(&full_key));
            let here = Here { raw, full_key: &full_key, ends: &ends, path: &path };
            let shows_value = parent.shows_value || raw.value_to_metric;
            self.check_unique(parent.id, here, composite.to_vec(), report);
            check_stars(here, report);
            check_shadow(here, report);
            let rule = self.rule(here, shows_value, report);
            let id = self.tree.add(Node {
                parent: Some(parent.id),
                key: raw.key_bytes().into(),
                value: (!raw.value.is_empty()).then(|| raw.value.as_slice().into()),
                shares: raw.share_threshold.as_ref().is_some_and(|share| share.value),
                shows_value: raw.value_to_metric,
                rule,
            });
            let parent = Parent { id, full_key: &full_key, ends: &ends, shows_value };
            self.add_all(parent, &raw.descriptors, &path.key("descriptors"), report);
        }
    }

    fn check_unique(&mut self, parent: NodeId, here: Here<'_>, composite: Vec<u8>, report: &mut Report) {
        let at = here.raw.key_at();
        let key = here.raw.key_bytes();
        if key.is_empty() {
            if !here.raw.incomplete {
                report.problem(at, here.path, "descriptor has empty key", "write 'key: …'");
            }
            return;
        }
        let first = match self.composites.entry((parent, composite)) {
            Entry::Occupied(first) => first.into_mut(),
            Entry::Vacant(free) => {
                let place = Place { file: Arc::clone(&self.file), line: at.line };
                free.insert(Declared { place, key: key.to_vec() });
                return;
            }
        };
        let found = format!("duplicate descriptor composite key {}", quoted(here.full_key));
        let advice = if first.key == key {
            format!("it is already on {}; a key and value have one limit: keep one", first.place)
        } else {
            let other = quoted(&String::from_utf8_lossy(&first.key));
            format!("key {other} on {} reads the same together with its value: rename one", first.place)
        };
        report.problem(at, here.path, found, advice);
    }

    /// The rule of a descriptor that has a limit.
    fn rule(&mut self, here: Here<'_>, shows_value: bool, report: &mut Report) -> Option<Rule> {
        let Here { raw, full_key, ends, path } = here;
        let limit = raw.rate_limit.as_ref()?;
        let path = path.key("rate_limit");
        let on_store_failure = grant::posture(limit, &path, report);
        let lease = grant::leasing(limit, &path, report);
        let grant = grant::grant(limit, &path, report)?;
        grant::check_algorithm(grant, self.options.algorithms, limit, &path, report);
        self.note_leftover(limit, grant, full_key);
        Some(Rule {
            full_key: full_key.into(),
            ends: ends.into(),
            grant,
            name: Some(limit.name.as_str()).filter(|name| !name.is_empty()).map(Arc::from),
            replaces: limit.replaces.iter().map(|replaced| replaced.value.as_str().into()).collect(),
            shadow_mode: raw.shadow_mode,
            quota_mode: raw.quota_mode,
            detailed_metric: raw.detailed_metric,
            value_to_metric: shows_value,
            on_store_failure,
            lease,
            metadata: raw.metadata.clone(),
            place: Place { file: Arc::clone(&self.file), line: raw.at.line },
            counters: Arc::clone(self.counters.entry(full_key.into()).or_default()),
        })
    }

    fn note_leftover(&mut self, limit: &RawLimit, grant: Grant, full_key: &str) {
        if let (Grant::Unlimited, Some(number)) = (grant, &limit.requests_per_unit) {
            self.leftovers.insert(full_key.into(), number.value);
        }
    }
}

/// The length of a text that a file holds.
fn end_of(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

/// A star means something in a value only.
fn check_stars(Here { raw, path, .. }: Here<'_>, report: &mut Report) {
    let (key, in_value) = (raw.key_bytes(), raw.value.contains(&b'*'));
    let in_key = key.contains(&b'*');
    // Envoy Gateway writes key and value alike, and both are sent as they stand.
    if in_key && key != raw.value {
        let found =
            format!("the * in key {} is an ordinary character", quoted(&String::from_utf8_lossy(key)));
        report.warning(
            raw.key_at(),
            &path.key("key"),
            found,
            "only a * in a value stands for other characters",
        );
    }
    let Some(share) = raw.share_threshold.as_ref().filter(|share| share.value && !in_value) else { return };
    let path = path.key("share_threshold");
    if in_key {
        report.warning(share.at, &path, "share_threshold does nothing here", "it needs a * in the value");
    } else {
        let composite = raw.composite();
        let composite = quoted(&String::from_utf8_lossy(&composite));
        let found = format!(
            "share_threshold can only be used with wildcard values (containing '*'), but found key {composite}"
        );
        report.problem(share.at, &path, found, "write a * in the value, or remove share_threshold");
    }
}

/// `shadow_mode` on a descriptor without a limit does nothing, which matters if a limit below it is enforced.
fn check_shadow(Here { raw, path, .. }: Here<'_>, report: &mut Report) {
    if raw.shadow_mode && raw.rate_limit.is_none() && !raw.incomplete && raw.descriptors.iter().any(enforces)
    {
        let advice = "it is not inherited: write it beside each rate_limit that is not to be enforced";
        report.warning(raw.at, path, "shadow_mode does nothing on a descriptor without rate_limit", advice);
    }
}

fn enforces(raw: &RawDescriptor) -> bool {
    (raw.rate_limit.is_some() && !raw.shadow_mode) || raw.descriptors.iter().any(enforces)
}
