//! The names that the reference's statistics give a rule by what was asked: `detailed_metric`, `value_to_metric` and
//! `share_threshold` put values of the request, or the patterns that they share, into them.

use std::fmt;

use smallvec::SmallVec;

use super::{
    Rule,
    matcher::{Step, Tree, Via},
};
use crate::descriptor::Entry;

/// A name in statistics, as it was asked for: the domain, then a part for each level. Raw bytes: a part may hold anything,
/// dots too, so where each ends is kept. Names of up to 120 bytes and 5 levels allocate nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatKey {
    /// The parts, joined by dots.
    text: SmallVec<[u8; 120]>,
    ends: SmallVec<[u32; 6]>,
}

impl StatKey {
    /// The name of a domain alone.
    pub fn domain(domain: &[u8]) -> Self {
        let mut key = Self { text: SmallVec::new(), ends: SmallVec::new() };
        key.text.extend_from_slice(domain);
        key.end();
        key
    }

    /// The name under which a limit that came with these entries is counted: an empty value leaves no trace.
    pub fn entries(domain: &[u8], entries: &[Entry]) -> Self {
        let mut key = Self::domain(domain);
        for entry in entries {
            key.level(&entry.key, Some(&*entry.value).filter(|value| !value.is_empty()));
        }
        key
    }

    /// A rule's own name: its full key.
    pub fn rule(rule: &Rule) -> Self {
        Self { text: SmallVec::from_slice(rule.full_key.as_bytes()), ends: SmallVec::from_slice(&rule.ends) }
    }

    /// Adds a level: `key`, or `key_value`.
    pub fn level(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.text.push(b'.');
        self.text.extend_from_slice(key);
        if let Some(value) = value {
            self.text.push(b'_');
            self.text.extend_from_slice(value);
        }
        self.end();
    }

    /// In bytes, the dots between the parts among them.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The domain, then each level.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            let part = self.text.get(start..end).unwrap_or_default();
            start = end.saturating_add(1);
            part
        })
    }

    fn end(&mut self) {
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }
}

impl fmt::Display for StatKey {
    /// The parts joined by dots; what is not UTF-8 is replaced.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// The name of the rule that a descriptor matches; `None` where it matches none or the name is the rule's full key.
pub(crate) fn stat_key(tree: &Tree, domain: &[u8], entries: &[Entry]) -> Option<StatKey> {
    let steps = tree.walk(domain, entries)?;
    let rule = steps.last()?.node.rule.as_ref()?;
    let shares = steps.iter().any(|step| step.shared_pattern().is_some());
    let mut name = StatKey::domain(domain);
    for (step, entry) in steps.iter().zip(entries) {
        let shown = if rule.detailed_metric { detailed(step, entry, shares) } else { enhanced(step, entry) };
        name.level(&entry.key, shown);
    }
    (*rule.full_key != *String::from_utf8_lossy(&name.text)).then_some(name)
}

/// Every level shows its value; where any level is shared, an empty value leaves no trace.
fn detailed<'a>(step: &Step<'a>, entry: &'a Entry, shares: bool) -> Option<&'a [u8]> {
    match step.shared_pattern() {
        Some(pattern) => Some(pattern),
        None if shares && entry.value.is_empty() => None,
        None => Some(&entry.value),
    }
}

/// A level shows the pattern that is shared, the value asked for, the pattern, or nothing.
fn enhanced<'a>(step: &Step<'a>, entry: &'a Entry) -> Option<&'a [u8]> {
    let shown = match (step.shared_pattern(), step.via) {
        (Some(pattern), _) => Some(pattern),
        (None, Via::Exact) => Some(&*entry.value),
        (None, Via::Pattern | Via::Any) if step.node.shows_value => Some(&*entry.value),
        (None, Via::Pattern) => step.node.value.as_deref(),
        (None, Via::Any) => None,
    };
    shown.filter(|shown| !shown.is_empty())
}
