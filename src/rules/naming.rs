//! The names that the reference's statistics give a rule by what was asked: `detailed_metric`, `value_to_metric` and
//! `share_threshold` put values of the request, or the patterns that they share, into them.

use super::matcher::{Step, Tree, Via};
use crate::descriptor::Entry;

/// The name of the rule that a descriptor matches; `None` where it matches none or the name is the rule's full key.
pub(crate) fn stat_key(tree: &Tree, domain: &[u8], entries: &[Entry]) -> Option<String> {
    let steps = tree.walk(domain, entries)?;
    let rule = steps.last()?.node.rule.as_ref()?;
    let shares = steps.iter().any(|step| step.shared_pattern().is_some());
    let mut name = domain.to_vec();
    for (step, entry) in steps.iter().zip(entries) {
        name.push(b'.');
        name.extend_from_slice(&entry.key);
        let shown = if rule.detailed_metric { detailed(step, entry, shares) } else { enhanced(step, entry) };
        if let Some(shown) = shown {
            name.push(b'_');
            name.extend_from_slice(shown);
        }
    }
    let name = String::from_utf8_lossy(&name).into_owned();
    (*rule.full_key != *name).then_some(name)
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
