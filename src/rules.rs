//! The rules: what a domain's descriptors are limited to. Read from files or sent by a control plane, immutable once built,
//! found by matching.
//!
//! **Invariant:** a [`RuleSet`] is whole: every problem of every file was reported and none was left, or there is no set.

mod bigrams;
mod compile;
mod counters;
mod dump;
mod grant;
mod keys;
mod matcher;
mod metadata;
mod naming;
mod pairs;
mod pattern;
mod problem;
mod raw;
pub mod reload;
mod scalar;
pub mod source;
mod text;
mod tree;
mod vet;
pub mod xds;

use std::{fmt, sync::Arc, time::Duration};

use foldhash::{HashMap, HashSet};
use smallvec::SmallVec;

pub use counters::{Counted, RuleCounters, Verdict};
pub use naming::StatKey;
pub(crate) use problem::nearest;
pub use problem::{Problem, Problems};

use self::{
    compile::Compiler,
    matcher::Tree,
    problem::{At, Path, Report},
    raw::RawFile,
    tree::{Document, Shape, Unreadable},
};
use crate::{descriptor::Entry, limit::Limit};

/// Free-form data of a rule, returned to Envoy with a passed descriptor.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// A rules file as it was read: the name that messages and metrics use, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Where in the files a rule stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Or the control plane's resource.
    pub file: Arc<str>,
    /// From 1; 0 in a resource, which has no lines.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "another descriptor of {}", problem::one_line(&self.file)),
            line => write!(f, "line {line} of {}", problem::one_line(&self.file)),
        }
    }
}

/// What a rule answers when the store cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posture {
    Error,
    Allow,
    Deny,
    Local,
}

/// When the counters of a request are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    #[default]
    Always,
    /// Only if the request is admitted (`charge: admitted`).
    Admitted,
}

/// Whether hits of a limit may be lent to a node, which then spends them without asking the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leasing {
    /// Where the algorithm allows it exactly: fixed_window.
    #[default]
    Auto,
    On,
    Off,
}

/// Which algorithms rules may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithms {
    #[default]
    All,
    /// The store counts fixed windows only (`COUNTER_KEYS=envoyproxy`).
    FixedWindow,
}

/// What a rule grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Unlimited,
    Limited(Limit),
}

/// One node of the rules file that can match and grants something.
#[derive(Debug)]
pub struct Rule {
    /// `domain.key_value.key…`: the reference's name for it, in statistics and `/rlconfig`. Wildcards keep their `*`.
    pub full_key: Box<str>,
    /// Where in the full key the domain and each level end, in bytes: a domain, key or value may hold dots itself.
    pub ends: Box<[u32]>,
    pub grant: Grant,
    /// Comes back as `current_limit.name`, and is what `replaces` of other rules may name.
    pub name: Option<Arc<str>>,
    /// Names of limits that do not count when this rule matches in the same request.
    pub replaces: Box<[Box<str>]>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    /// The name in statistics shows the values of every entry: see [`RuleSet::stat_key`].
    pub detailed_metric: bool,
    /// The name in statistics shows the values of some entries: this rule has `value_to_metric`, or one that it is nested in.
    pub value_to_metric: bool,
    /// `None`: the process's default.
    pub on_store_failure: Option<Posture>,
    pub lease: Leasing,
    pub metadata: Option<Metadata>,
    pub place: Place,
    pub counters: Arc<RuleCounters>,
}

impl Rule {
    /// Whether its name in statistics shows what was asked: it is then counted by such names, not by its full key.
    pub fn names_values(&self) -> bool {
        self.detailed_metric || self.value_to_metric
    }
}

/// What the rules say to one descriptor.
#[derive(Debug)]
pub enum Lookup<'r> {
    UnknownDomain,
    /// The domain is known, and no rule applies: no match, or a match that grants nothing.
    NoRule,
    Found(Match<'r>),
}

/// A rule that matched, and for each entry of the descriptor the pattern that its counter is shared under
/// (`share_threshold`), in the order of the entries; empty when no entry shares.
#[derive(Debug)]
pub struct Match<'r> {
    pub rule: &'r Rule,
    pub shared: SmallVec<[Option<&'r [u8]>; 4]>,
}

/// How files become a rule set.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions<'p> {
    /// Whether files may share a domain, each adding its top-level descriptors (`MERGE_DOMAIN_CONFIG`).
    pub merge_domains: bool,
    pub algorithms: Algorithms,
    /// The set that is replaced: a rule of the same full key goes on with its predecessor's counters.
    pub previous: Option<&'p RuleSet>,
}

/// A rule set, and what is odd in its files without being wrong.
#[derive(Debug)]
pub struct Loaded {
    pub rules: RuleSet,
    /// In the order of the files and of their lines; the first 1,000.
    pub warnings: Vec<Problem>,
}

/// All rules of all files. Immutable; lookups allocate nothing unless a descriptor of more than four entries shares a
/// counter.
#[derive(Debug, Default)]
pub struct RuleSet {
    tree: Tree,
    /// The numbers written beside `unlimited: true`, by full key: they mean nothing, and the reference shows them.
    leftovers: HashMap<Box<str>, u32>,
    /// The domains with `charge: admitted`.
    charging_admitted: HashSet<Box<[u8]>>,
}

impl RuleSet {
    /// Reads and checks rules files. They are taken in the order of their names, whatever the order given; none at all is
    /// an empty set.
    ///
    /// Errors: every problem of every file.
    /// Bounds: a file holds at most 5,000,000 values, aliases add at most 400,000, nesting is at most 512 levels deep.
    pub fn load(files: &[RuleFile], options: &LoadOptions<'_>) -> Result<Loaded, Problems> {
        let mut in_order: Vec<&RuleFile> = files.iter().collect();
        in_order.sort_by(|a, b| a.name.cmp(&b.name));
        let mut report = Report::new();
        let mut compiler = Compiler::new(options);
        for file in in_order {
            read_file(file, &mut compiler, &mut report);
        }
        let warnings = report.finish()?;
        Ok(Loaded { rules: compiler.finish(), warnings })
    }

    /// The same for what came without a file, in the order given.
    fn of_resources(
        resources: &[(Arc<str>, RawFile)],
        options: &LoadOptions<'_>,
    ) -> Result<Loaded, Problems> {
        let mut report = Report::new();
        let mut compiler = Compiler::new(options);
        for (name, raw) in resources {
            report.enter(name);
            compiler.add(name, raw, &mut report);
        }
        let warnings = report.finish()?;
        Ok(Loaded { rules: compiler.finish(), warnings })
    }

    /// What the rules say to a descriptor: the rule that it matches at exactly its depth.
    pub fn lookup(&self, domain: &[u8], entries: &[Entry]) -> Lookup<'_> {
        self.tree.lookup(domain, entries)
    }

    /// Whether there are rules for a domain, be it only that it is named.
    pub fn has_domain(&self, name: &[u8]) -> bool {
        self.tree.has_domain(name)
    }

    /// When the counters of this domain are charged.
    pub fn charging(&self, domain: &[u8]) -> Charging {
        if !self.charging_admitted.is_empty() && self.charging_admitted.contains(domain) {
            Charging::Admitted
        } else {
            Charging::Always
        }
    }

    /// Every rule that grants something, in the order of declaration. Rules of one full key (a dot in a domain or key can
    /// make two) share their counters.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.tree.rules()
    }

    /// The name that the reference's statistics have for the rule that a descriptor matches, if that is not its full key.
    ///
    /// Only a rule with `detailed_metric` or `value_to_metric` has such names. They grow with the values that callers send:
    /// whoever keeps them must bound them. Walks the tree again, and may allocate.
    pub fn stat_key(&self, domain: &[u8], entries: &[Entry]) -> Option<StatKey> {
        naming::stat_key(&self.tree, domain, entries)
    }

    pub fn n_domains(&self) -> usize {
        self.tree.n_domains()
    }

    /// Whether there is no domain at all.
    pub fn is_empty(&self) -> bool {
        self.n_domains() == 0
    }

    /// The rules as `/rlconfig` shows them: a line for each, sorted.
    pub fn dump(&self) -> String {
        dump::dump(self.rules(), |rule| self.leftovers.get(&rule.full_key).copied().unwrap_or(0))
    }
}

fn read_file(file: &RuleFile, compiler: &mut Compiler<'_>, report: &mut Report) {
    let name: Arc<str> = Arc::from(file.name.as_str());
    report.enter(&name);
    let nowhere = Path::root("");
    let Document { root, ignored } = match tree::read(&file.bytes) {
        Ok(document) => document,
        Err(Unreadable { at, found, advice }) => {
            report.problem(at, &nowhere, format!("error loading config file: {found}"), advice);
            return;
        }
    };
    if let Some((at, n)) = ignored {
        let found = format!("{n} more YAML document{} in this file ignored", if n == 1 { "" } else { "s" });
        report.warning(at, &nowhere, found, "only the first counts: put each in a file of its own");
    }
    let Some(root) = root.filter(|root| !root.is_null()) else {
        compiler.add(&name, &RawFile::default(), report);
        return;
    };
    let Shape::Mapping(mapping) = &root.shape else {
        let found = format!("error loading config file: the root is {}", root.describe());
        report.problem(At::START, &nowhere, found, "expected a map with 'domain' and 'descriptors'");
        return;
    };
    if let Some(at) = kubernetes_object(mapping) {
        let found = "config error, unknown key 'apiVersion': the file is an object of Kubernetes, not rules";
        let advice =
            "in a ConfigMap the rules are the texts under 'data': check each of them as a file of its own";
        report.problem(at, &nowhere, found, advice);
        return;
    }
    let domain = raw::domain_of(&root);
    let path = Path::root(&domain);
    vet::vet(mapping, &path, report);
    let raw = raw::read(mapping, &path, report);
    compiler.add(&name, &raw, report);
}

/// Where the `apiVersion` of an object of Kubernetes stands. Rules have no such key.
fn kubernetes_object(mapping: &tree::Mapping) -> Option<At> {
    let key = |name| mapping.iter().find(|(key, _)| key.key_text() == Some(name)).map(|(key, _)| key.at);
    key("kind").and(key("apiVersion"))
}

/// The longest wait that `leaky_bucket` may ask for without a warning: Envoy waits 20 ms in all.
pub const MAX_DELAY_WARNING: Duration = Duration::from_millis(15);

#[cfg(test)]
mod tests;
