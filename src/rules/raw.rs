//! A rules file as written: the fields of each level with their types checked, before anything is known of what they mean
//! together.
//!
//! A control plane's resources are turned into the same (`rules::xds`), so that what follows is one code for both.
//!
//! A field that appears twice is read twice, in order, so that the last value counts; a `rate_limit` or `metadata` goes on
//! filling what the first one began. All of them are checked.

use std::{borrow::Cow, rc::Rc};

use super::{
    Leasing, Metadata,
    keys::{self, Level, Origin},
    metadata,
    pairs::{Pair, Pairs},
    problem::{At, Path, Report, quoted},
    scalar::Meaning,
    tree::{Mapping, Node, Shape},
};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub value: T,
    pub at: At,
}

/// The root of a file.
#[derive(Debug, Default)]
pub(crate) struct RawFile {
    pub domain: Option<Spanned<Vec<u8>>>,
    pub charge: Option<Spanned<Vec<u8>>>,
    pub descriptors: Vec<RawDescriptor>,
    /// Something here was not understood, and reported: what is missing is probably that.
    pub incomplete: bool,
}

#[derive(Debug)]
pub(crate) struct RawDescriptor {
    pub at: At,
    pub key: Option<Spanned<Vec<u8>>>,
    /// Empty when there is none.
    pub value: Vec<u8>,
    pub rate_limit: Option<RawLimit>,
    pub descriptors: Vec<RawDescriptor>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub detailed_metric: bool,
    pub value_to_metric: bool,
    pub share_threshold: Option<Spanned<bool>>,
    pub metadata: Option<Metadata>,
    /// As [`RawFile::incomplete`].
    pub incomplete: bool,
}

#[derive(Debug)]
pub(crate) struct RawLimit {
    pub at: At,
    pub unit: Option<Spanned<String>>,
    pub requests_per_unit: Option<Spanned<u32>>,
    pub unlimited: bool,
    pub name: String,
    pub replaces: Vec<Spanned<String>>,
    pub unit_multiplier: Option<Spanned<u32>>,
    pub algorithm: Option<Spanned<String>>,
    pub burst: Option<Spanned<u32>>,
    pub max_delay: Option<Spanned<String>>,
    pub on_store_failure: Option<Spanned<String>>,
    pub lease: Option<Spanned<Leasing>>,
    /// As [`RawFile::incomplete`].
    pub incomplete: bool,
}

impl RawDescriptor {
    pub fn new(at: At) -> Self {
        Self {
            at,
            key: None,
            value: Vec::new(),
            rate_limit: None,
            descriptors: Vec::new(),
            shadow_mode: false,
            quota_mode: false,
            detailed_metric: false,
            value_to_metric: false,
            share_threshold: None,
            metadata: None,
            incomplete: false,
        }
    }

    /// The key; empty if there is none.
    pub fn key_bytes(&self) -> &[u8] {
        self.key.as_ref().map_or(b"", |key| &key.value)
    }

    pub fn key_at(&self) -> At {
        self.key.as_ref().map_or(self.at, |key| key.at)
    }

    /// The part that this adds to a full key: `key`, or `key_value`.
    pub fn composite(&self) -> Vec<u8> {
        composite(self.key_bytes(), &self.value)
    }
}

impl RawLimit {
    pub fn new(at: At) -> Self {
        Self {
            at,
            unit: None,
            requests_per_unit: None,
            unlimited: false,
            name: String::new(),
            replaces: Vec::new(),
            unit_multiplier: None,
            algorithm: None,
            burst: None,
            max_delay: None,
            on_store_failure: None,
            lease: None,
            incomplete: false,
        }
    }
}

fn composite(key: &[u8], value: &[u8]) -> Vec<u8> {
    if value.is_empty() { key.to_vec() } else { [key, b"_", value].concat() }
}

/// A descriptor's part of the full key, read off its mapping for messages: empty if it has no key.
pub(crate) fn label(mapping: &Mapping) -> String {
    let field = |name: &str| {
        let named = mapping.iter().rev().find(|(key, _)| key.key_text() == Some(name));
        named.and_then(|(_, value)| value.scalar()).map_or(b"".as_slice(), |scalar| scalar.bytes())
    };
    let key = field("key");
    if key.is_empty() {
        String::new()
    } else {
        String::from_utf8_lossy(&composite(key, field("value"))).into_owned()
    }
}

/// The domain of a file, for messages.
pub(crate) fn domain_of(root: &Node) -> String {
    let Shape::Mapping(mapping) = &root.shape else { return String::new() };
    let domain = mapping.iter().rev().find(|(key, _)| key.key_text() == Some("domain"));
    let text =
        domain.and_then(|(_, value)| value.scalar()).map(|scalar| String::from_utf8_lossy(scalar.bytes()));
    text.map(Cow::into_owned).unwrap_or_default()
}

/// Reads a file's root mapping.
pub(crate) fn read(mapping: &Mapping, path: &Path<'_>, report: &mut Report) -> RawFile {
    let mut file = RawFile::default();
    let misspelt = each_field(mapping, Level::Root, path, report, |name, node, path, report| match name {
        "domain" => {
            file.domain = text(node, path, report);
            file.incomplete |= is_lost(file.domain.as_ref(), node);
        }
        "charge" => file.charge = text(node, path, report),
        "descriptors" => file.descriptors = descriptors(node, path, report),
        _ => {}
    });
    file.incomplete |= misspelt;
    file
}

fn descriptors(node: &Node, path: &Path<'_>, report: &mut Report) -> Vec<RawDescriptor> {
    let mut read = Vec::new();
    for (index, item, mapping) in maps_of(node, "- key: …", path, report) {
        read.push(descriptor(item, mapping, &path.descriptor(index, &label(mapping)), report));
    }
    read
}

fn descriptor(node: &Node, mapping: &Mapping, path: &Path<'_>, report: &mut Report) -> RawDescriptor {
    let mut raw = RawDescriptor::new(node.at);
    let misspelt =
        each_field(mapping, Level::Descriptor, path, report, |name, node, path, report| match name {
            "key" => {
                raw.key = text(node, path, report);
                raw.incomplete |= is_lost(raw.key.as_ref(), node);
            }
            "value" => raw.value = text(node, path, report).map(|text| text.value).unwrap_or_default(),
            "rate_limit" => rate_limit(&mut raw.rate_limit, node, path, report),
            "descriptors" => raw.descriptors = descriptors(node, path, report),
            "shadow_mode" => raw.shadow_mode = is_true(boolean(node, path, report).as_ref()),
            "quota_mode" => raw.quota_mode = is_true(boolean(node, path, report).as_ref()),
            "detailed_metric" => raw.detailed_metric = is_true(boolean(node, path, report).as_ref()),
            "value_to_metric" => raw.value_to_metric = is_true(boolean(node, path, report).as_ref()),
            "share_threshold" => raw.share_threshold = boolean(node, path, report),
            "metadata" => metadata::read(&mut raw.metadata, node, path, report),
            _ => {}
        });
    raw.incomplete |= misspelt;
    raw
}

/// Goes on with the limit that an earlier `rate_limit` of the same descriptor began; null takes it away.
fn rate_limit(limit: &mut Option<RawLimit>, node: &Node, path: &Path<'_>, report: &mut Report) {
    match &node.shape {
        Shape::Mapping(mapping) => {
            fill_limit(limit.get_or_insert_with(|| RawLimit::new(node.at)), mapping, path, report);
        }
        // To the reference's reader `Null` and `NULL` are not the null that means "none" but an empty limit, which it
        // then refuses for its unit. So do we: a rule that is switched off must not depend on a spelling.
        Shape::Scalar(scalar) if matches!(&*scalar.text, "Null" | "NULL") && node.is_null() => {
            *limit = Some(RawLimit::new(node.at));
        }
        _ if node.is_null() => *limit = None,
        _ => wrong_type(node, "a map", path, report),
    }
}

fn fill_limit(limit: &mut RawLimit, mapping: &Mapping, path: &Path<'_>, report: &mut Report) {
    let misspelt =
        each_field(mapping, Level::RateLimit, path, report, |name, node, path, report| match name {
            "unit" => {
                limit.unit = utf8(node, path, report);
                limit.incomplete |= is_lost(limit.unit.as_ref(), node);
            }
            "requests_per_unit" => {
                let number = number(node, path, report);
                // One that cannot be read was reported, and is not missing.
                let lost = is_lost(number.as_ref(), node).then_some(Spanned { value: 0, at: node.at });
                limit.requests_per_unit = number.or(lost);
            }
            "unlimited" => limit.unlimited = is_true(boolean(node, path, report).as_ref()),
            "name" => limit.name = utf8(node, path, report).map(|name| name.value).unwrap_or_default(),
            "replaces" => limit.replaces = replaces(node, path, report),
            "unit_multiplier" => limit.unit_multiplier = number(node, path, report),
            "algorithm" => limit.algorithm = utf8(node, path, report),
            "burst" => limit.burst = number(node, path, report),
            "max_delay" => {
                limit.max_delay = utf8(node, path, report);
                limit.incomplete |= is_lost(limit.max_delay.as_ref(), node);
            }
            "on_store_failure" => limit.on_store_failure = utf8(node, path, report),
            "lease" => limit.lease = lease(node, path, report),
            _ => {}
        });
    limit.incomplete |= misspelt;
}

/// `on` and `off` are booleans to a YAML 1.1 reader unless they are quoted; both ways of writing mean the same here.
fn lease(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<Spanned<Leasing>> {
    let scalar = node.scalar();
    let value = match scalar.map(|scalar| (&scalar.meaning, scalar.bytes())) {
        Some((Meaning::Null, _)) => return None,
        Some((Meaning::Bool(true), _) | (_, b"on")) => Leasing::On,
        Some((Meaning::Bool(false), _) | (_, b"off")) => Leasing::Off,
        Some((_, b"auto")) => Leasing::Auto,
        _ => {
            let found = scalar.map_or_else(|| node.describe(), |scalar| quoted(&scalar.text));
            report.problem(node.at, path, format!("invalid lease {found}"), "expected auto, on or off");
            return None;
        }
    };
    Some(Spanned { value, at: node.at })
}

/// The names that a limit replaces; an item without a name is an empty one, which is refused later.
fn replaces(node: &Node, path: &Path<'_>, report: &mut Report) -> Vec<Spanned<String>> {
    let mut names = Vec::new();
    for (index, item, mapping) in maps_of(node, "- name: …", path, report) {
        let mut name = Spanned { value: String::new(), at: item.at };
        each_field(mapping, Level::Replaces, &path.item(index), report, |_, node, path, report| {
            if let Some(read) = utf8(node, path, report) {
                name = read;
            }
        });
        names.push(name);
    }
    names
}

/// The maps of a list, each of which is written as `item`; null is an empty list. Items of other kinds were reported by the
/// first look.
fn maps_of<'t>(
    node: &'t Node,
    item: &str,
    path: &Path<'_>,
    report: &mut Report,
) -> impl Iterator<Item = (usize, &'t Node, &'t Mapping)> + use<'t> {
    let items: &[Rc<Node>] = match &node.shape {
        Shape::List(items) => items,
        _ if node.is_null() => &[],
        _ => {
            wrong_type(node, &format!("a list: write '{item}' for each item"), path, report);
            &[]
        }
    };
    items.iter().enumerate().filter_map(|(index, item)| match &item.shape {
        Shape::Mapping(mapping) => Some((index, &**item, mapping.as_slice())),
        _ => None,
    })
}

/// Calls `field` with each field that has a meaning at this level, in order; says what has none, and what is repeated.
/// Whether there are keys of unknown name, which the first look reports.
fn each_field<'t>(
    mapping: &'t Mapping,
    level: Level,
    path: &Path<'_>,
    report: &mut Report,
    mut field: impl FnMut(&'t str, &'t Node, &Path<'_>, &mut Report),
) -> bool {
    let mut misspelt = false;
    for pair in Pairs::of(mapping).pairs {
        let Some(name) = pair.key.key_text() else { continue };
        let Some(known) = keys::find(name) else {
            misspelt = true;
            continue;
        };
        if known.levels.contains(&level) {
            say_if_repeated(name, &pair, path, report);
            field(name, pair.value, &path.key(name), report);
        } else {
            wrong_level(known, &pair, level, path, report);
        }
    }
    misspelt
}

fn say_if_repeated(name: &str, pair: &Pair<'_>, path: &Path<'_>, report: &mut Report) {
    let Some(first) = pair.repeats else { return };
    let what_counts = match name {
        "rate_limit" | "metadata" => "the two are merged, and what is in both counts as it is here",
        _ => "the last value counts",
    };
    let found = format!("'{name}' stands here and on line {}", first.at.line);
    report.warning(pair.key.at, path, found, format!("{what_counts}; keep one"));
}

fn wrong_level(known: &keys::Known, pair: &Pair<'_>, level: Level, path: &Path<'_>, report: &mut Report) {
    let Some(right) = known.levels.first() else { return };
    let advice = format!("it belongs {}", right.place());
    match known.origin {
        Origin::Reference => {
            let found = format!("'{}' does nothing {}", known.name, level.place());
            report.warning(pair.key.at, path, found, advice);
        }
        Origin::Ours => {
            let found = format!("config error, key '{}' does not belong {}", known.name, level.place());
            report.problem(pair.key.at, path, found, advice);
        }
        Origin::Later => {}
    }
}

/// A text field: what is written, whatever it looks like. `None` for null.
fn text(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<Spanned<Vec<u8>>> {
    let Some(scalar) = node.scalar() else {
        wrong_type(node, "text", path, report);
        return None;
    };
    (scalar.meaning != Meaning::Null).then(|| Spanned { value: scalar.bytes().to_vec(), at: node.at })
}

/// A text field that must be UTF-8, which only `!!binary` can fail to be.
fn utf8(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<Spanned<String>> {
    let Spanned { value, at } = text(node, path, report)?;
    match String::from_utf8(value) {
        Ok(value) => Some(Spanned { value, at }),
        Err(_) => {
            wrong_type(node, "text in UTF-8", path, report);
            None
        }
    }
}

fn boolean(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<Spanned<bool>> {
    match node.scalar().map(|scalar| &scalar.meaning) {
        Some(Meaning::Bool(value)) => Some(Spanned { value: *value, at: node.at }),
        Some(Meaning::Null) => None,
        _ => {
            wrong_type(node, &unquoted(node, "true or false"), path, report);
            None
        }
    }
}

/// Whether something was written and could not be read.
fn is_lost<T>(field: Option<&T>, node: &Node) -> bool {
    field.is_none() && !node.is_null()
}

fn is_true(flag: Option<&Spanned<bool>>) -> bool {
    flag.is_some_and(|flag| flag.value)
}

/// A whole number. One with a fraction, or too large for the reader, was reported by the first look, unless a later value
/// takes its place.
fn number(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<Spanned<u32>> {
    let value = match node.scalar().map(|scalar| &scalar.meaning) {
        Some(Meaning::Int(n)) => u32::try_from(*n).ok(),
        Some(Meaning::Null | Meaning::Float(_) | Meaning::Uint(_)) => return None,
        _ => None,
    };
    if value.is_none() {
        let expected = format!("a whole number from 0 to {}", u32::MAX);
        wrong_type(node, &unquoted(node, &expected), path, report);
    }
    value.map(|value| Spanned { value, at: node.at })
}

/// What is expected of a value that quotes make a text.
fn unquoted(node: &Node, expected: &str) -> String {
    let quotes = if quoted_text(node).is_some() { ", without quotes" } else { "" };
    format!("{expected}{quotes}")
}

fn quoted_text(node: &Node) -> Option<&str> {
    let scalar = node.scalar().filter(|scalar| !scalar.plain && scalar.meaning == Meaning::Text)?;
    Some(&scalar.text)
}

fn wrong_type(node: &Node, expected: &str, path: &Path<'_>, report: &mut Report) {
    let found = match quoted_text(node) {
        Some(text) => format!("{} (quoted text)", quoted(text)),
        None => node.describe(),
    };
    report.problem(
        node.at,
        path,
        format!("error loading config file: found {found}"),
        format!("expected {expected}"),
    );
}
