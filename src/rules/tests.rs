mod counters;
mod limits;
mod matching;
mod names;
mod refusals;
mod warnings;
mod yaml;

use bytes::Bytes;

use super::*;

fn file(name: &str, bytes: impl Into<Vec<u8>>) -> RuleFile {
    RuleFile { name: name.to_owned(), bytes: bytes.into() }
}

fn load(yaml: impl Into<Vec<u8>>) -> Result<Loaded, Problems> {
    RuleSet::load(&[file("limits.yaml", yaml)], &LoadOptions::default())
}

fn rules(yaml: impl Into<Vec<u8>>) -> RuleSet {
    load(yaml).unwrap_or_else(|problems| panic!("{problems}")).rules
}

fn entries<K: AsRef<[u8]>, V: AsRef<[u8]>>(pairs: &[(K, V)]) -> Vec<Entry> {
    let bytes = |slice: &[u8]| Bytes::copy_from_slice(slice);
    pairs
        .iter()
        .map(|(key, value)| Entry { key: bytes(key.as_ref()), value: bytes(value.as_ref()) })
        .collect()
}

/// The rule that a descriptor matches.
fn matched<'r>(rules: &'r RuleSet, domain: &str, pairs: &[(&str, &str)]) -> Option<Match<'r>> {
    match rules.lookup(domain.as_bytes(), &entries(pairs)) {
        Lookup::Found(found) => Some(found),
        Lookup::NoRule | Lookup::UnknownDomain => None,
    }
}

/// The number of the limit that a descriptor matches.
fn number(rules: &RuleSet, domain: &str, pairs: &[(&str, &str)]) -> Option<u32> {
    matched(rules, domain, pairs).and_then(|found| match found.rule.grant {
        Grant::Limited(limit) => Some(limit.requests_per_unit),
        Grant::Unlimited => None,
    })
}
