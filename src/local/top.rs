//! The keys that a node is asked for and refuses most: the sketches of all workers, put together.
//!
//! **Invariant:** a key's true rate is at most what is said, and at least that less the error.

use std::{cmp::Ordering, sync::Arc};

use foldhash::HashMap;

use super::sketch::{Listed, Reading, Sketch, Summary, per_second};
use crate::{clock::UnixMicros, key::KeyId, rules::RuleCounters};

/// Rates are averages over the last seconds, in calls a second.
#[derive(Clone, Debug, Default)]
pub struct Top {
    /// Of all keys together: every descriptor that was counted is a call.
    pub calls: f64,
    pub refusals: f64,
    /// A key that is in no list was called at most so often, and refused at most so often.
    pub most_unlisted: f64,
    pub most_unlisted_refusals: f64,
    /// Hottest first; shares are those of all calls.
    pub hottest: Vec<Row>,
    /// Most refused first; rates are those of refusals, shares those of all refusals.
    pub most_refused: Vec<Row>,
}

#[derive(Clone, Debug)]
pub struct Row {
    /// The counter's key, its middle left out if it is long; empty if names are not kept.
    pub key: String,
    pub rule: Option<Arc<RuleCounters>>,
    /// At most.
    pub rate: f64,
    /// At most so much less.
    pub error: f64,
    /// 0 to 1.
    pub share: f64,
    /// The share of its own calls that was refused, 0 to 1.
    pub refused_share: f64,
}

/// A key as several workers know it.
struct Merged<'s> {
    name: String,
    rule: Option<&'s Arc<RuleCounters>>,
    weight: f64,
    error: f64,
    counted: f64,
    refused: f64,
}

impl Top {
    pub(super) fn of(sketches: &[Arc<Sketch>], n: usize, now: UnixMicros) -> Self {
        let readings: Vec<Reading> = sketches.iter().map(|sketch| sketch.read(now)).collect();
        let (calls, most_unlisted, hottest) = merge(&readings, |reading| &reading.hottest, n);
        let (refusals, most_unlisted_refusals, most_refused) =
            merge(&readings, |reading| &reading.refused, n);
        Self { calls, refusals, most_unlisted, most_unlisted_refusals, hottest, most_refused }
    }
}

/// The rate of all, the most that an unlisted key can have, and the `n` heaviest.
fn merge(readings: &[Reading], part: fn(&Reading) -> &Summary, n: usize) -> (f64, f64, Vec<Row>) {
    let per_second = per_second(1.0);
    let mut keys: HashMap<KeyId, Merged<'_>> = HashMap::default();
    for listed in readings.iter().flat_map(|reading| part(reading).listed()) {
        let Listed { id, name, rule, weight, error, refused_share } = listed;
        let counted = weight - error;
        let merged = keys.entry(id).or_insert(Merged {
            name,
            rule,
            weight: 0.0,
            error: 0.0,
            counted: 0.0,
            refused: 0.0,
        });
        merged.weight += weight;
        merged.error += error;
        merged.counted += counted;
        merged.refused += refused_share * counted;
    }
    // What a worker does not list may still have been asked there.
    for (id, merged) in &mut keys {
        let more: f64 = readings.iter().map(|reading| part(reading).most_unlisted(*id)).sum();
        merged.weight += more;
        merged.error += more;
    }
    let total: f64 = readings.iter().map(|reading| part(reading).total()).sum();
    let mut rows: Vec<Row> = keys
        .into_values()
        .map(|merged| Row {
            key: merged.name,
            rule: merged.rule.cloned(),
            rate: merged.weight * per_second,
            error: merged.error * per_second,
            share: merged.weight / total.max(f64::MIN_POSITIVE),
            refused_share: merged.refused / merged.counted.max(f64::MIN_POSITIVE),
        })
        .collect();
    rows.sort_unstable_by(|a, b| b.rate.partial_cmp(&a.rate).unwrap_or(Ordering::Equal));
    rows.truncate(n);
    let most_unlisted: f64 = readings.iter().map(|reading| part(reading).most_of_any_unlisted()).sum();
    (total * per_second, most_unlisted * per_second, rows)
}

#[cfg(test)]
mod tests;
