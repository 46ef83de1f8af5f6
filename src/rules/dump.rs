//! The rules as `/rlconfig` lists them: the reference's line for each, and after it what we know beyond.

use std::fmt::{self, Write};

use super::{Grant, Leasing, Rule};
use crate::limit::{Algorithm, Limit};

/// One line for each rule, sorted. `number_of` tells the number that was written beside `unlimited: true`.
pub(crate) fn dump<'r>(rules: impl Iterator<Item = &'r Rule>, number_of: impl Fn(&Rule) -> u32) -> String {
    let mut lines: Vec<String> =
        rules.map(|rule| Line { rule, leftover: number_of(rule) }.to_string()).collect();
    lines.sort_unstable();
    lines.concat()
}

struct Line<'r> {
    rule: &'r Rule,
    leftover: u32,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { full_key, shadow_mode, quota_mode, .. } = self.rule;
        let (unit, number) = match self.rule.grant {
            Grant::Limited(limit) => (limit.window.unit().name(), limit.requests_per_unit),
            Grant::Unlimited => ("UNKNOWN", self.leftover),
        };
        write!(
            f,
            "{full_key}: unit={unit} requests_per_unit={number}, shadow_mode: {shadow_mode}, quota_mode: {quota_mode}"
        )?;
        if let Grant::Limited(limit) = self.rule.grant {
            ours(limit, f)?;
        }
        if let Some(posture) = self.rule.on_store_failure {
            write!(f, ", on_store_failure: {}", posture.name())?;
        }
        match self.rule.lease {
            Leasing::Auto => {}
            Leasing::On => f.write_str(", lease: on")?,
            Leasing::Off => f.write_str(", lease: off")?,
        }
        f.write_char('\n')
    }
}

/// What the reference has no word for.
fn ours(limit: Limit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let multiplier = limit.window.multiplier().get();
    if multiplier != 1 {
        write!(f, ", unit_multiplier: {multiplier}")?;
    }
    match limit.algorithm {
        Algorithm::FixedWindow => Ok(()),
        Algorithm::SlidingWindow | Algorithm::SlidingLog => {
            write!(f, ", algorithm: {}", limit.algorithm.name())
        }
        Algorithm::TokenBucket { burst } => {
            write!(f, ", algorithm: {}, burst: {burst}", limit.algorithm.name())
        }
        Algorithm::LeakyBucket { burst, max_delay } => {
            write!(f, ", algorithm: {}, burst: {burst}, max_delay: ", limit.algorithm.name())?;
            if max_delay.is_zero() { f.write_str("0s") } else { write!(f, "{max_delay:?}") }
        }
    }
}
