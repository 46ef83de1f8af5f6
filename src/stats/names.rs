//! The names that callers bring: rules with `detailed_metric` or `value_to_metric`, limits of requests, unknown domains.
//!
//! **Invariant:** however many names callers make up, so many are kept; the others are counted together. A name that nobody
//! uses for an hour makes room.

use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use foldhash::{HashMap, HashMapExt as _, fast::RandomState};
use parking_lot::Mutex;

use crate::{
    clock::UnixMicros,
    rules::{Counted, StatKey},
};

/// The part of a name under which what is not kept apart is counted together.
pub const OTHER: &str = "_other";

/// Names of rules and of requests' limits kept apart, unless the operator says otherwise: at some 400 bytes each, 4 MB.
pub const MAX_NAMES: usize = 10_000;

/// Unknown domains kept apart: enough to see who has a typo. Each is a family of its own to Prometheus.
const MAX_DOMAINS: usize = 100;

/// The longest name kept, in bytes: a value of 4 MiB must not become a line of 4 MiB.
const MAX_LENGTH: usize = 512;

/// A name that was not used for so long makes room for another one, in seconds: several scrapes have seen it.
const IDLE: u64 = 3_600;

/// How often it is looked for such names, at most, in seconds.
const SWEEP_INTERVAL: u64 = 60;

/// Parts of a table with a lock each.
const SHARDS: usize = 16;

/// All names that callers bring.
#[derive(Debug)]
pub struct Names {
    hits: Table<Counted>,
    unknown_domains: Table<u64>,
}

impl Default for Names {
    fn default() -> Self {
        Self::at_most(MAX_NAMES)
    }
}

impl Names {
    /// Keeps so many names of rules and of requests' limits apart.
    pub fn at_most(max: usize) -> Self {
        Self { hits: Table::new(max), unknown_domains: Table::new(MAX_DOMAINS) }
    }

    /// Counts a decision under its name.
    pub fn decided(&self, name: StatKey, hits: Counted, now: UnixMicros) {
        let other = |name: &StatKey| {
            let mut other = StatKey::domain(name.parts().next().unwrap_or_default());
            other.level(OTHER.as_bytes(), None);
            other
        };
        self.hits.with(name, other, now, |sum| *sum += hits);
    }

    /// Counts descriptors that asked in a domain that no rules are for.
    pub fn unknown_domain(&self, domain: &[u8], n: u64, now: UnixMicros) {
        let other = |_: &StatKey| StatKey::domain(OTHER.as_bytes());
        self.unknown_domains.with(StatKey::domain(domain), other, now, |sum| *sum = sum.wrapping_add(n));
    }

    /// Every name with its hits, those that are counted together among them.
    pub fn each_hits(&self, see: impl FnMut(&StatKey, &Counted)) {
        self.hits.each(see);
    }

    /// Every unknown domain and how many descriptors asked there.
    pub fn each_unknown_domain(&self, see: impl FnMut(&StatKey, &u64)) {
        self.unknown_domains.each(see);
    }

    /// How often something was counted together with others because its name could not be kept.
    pub fn folded(&self) -> u64 {
        self.hits.folded.load(Relaxed).wrapping_add(self.unknown_domains.folded.load(Relaxed))
    }

    /// How many names are kept apart.
    pub fn len(&self) -> usize {
        self.hits.n.load(Relaxed) + self.unknown_domains.n.load(Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Values by name, bounded.
#[derive(Debug)]
struct Table<V> {
    max: usize,
    shards: [Mutex<Shard<V>>; SHARDS],
    /// Names kept apart, of all shards.
    n: AtomicUsize,
    /// What is counted together; bounded by the domains that there are rules for.
    others: Mutex<HashMap<StatKey, V>>,
    folded: AtomicU64,
    hasher: RandomState,
}

#[derive(Debug)]
struct Shard<V> {
    kept: HashMap<StatKey, Kept<V>>,
    /// Unix seconds.
    swept: u64,
}

#[derive(Debug, Default)]
struct Kept<V> {
    value: V,
    /// Unix seconds.
    used: u64,
}

impl<V: Default> Table<V> {
    fn new(max: usize) -> Self {
        Self {
            max,
            shards: std::array::from_fn(|_| Mutex::new(Shard { kept: HashMap::new(), swept: 0 })),
            n: AtomicUsize::new(0),
            others: Mutex::new(HashMap::new()),
            folded: AtomicU64::new(0),
            hasher: RandomState::default(),
        }
    }

    /// Changes the value of a name, or of the one that stands for all that are not kept.
    fn with(
        &self,
        name: StatKey,
        other: impl FnOnce(&StatKey) -> StatKey,
        now: UnixMicros,
        change: impl FnOnce(&mut V),
    ) {
        let [first, ..] = &self.shards;
        let hash = usize::try_from(self.hasher.hash_one(&name)).unwrap_or_default();
        let mut shard = self.shards.get(hash % SHARDS).unwrap_or(first).lock();
        let now = now.secs();
        if let Some(kept) = shard.kept.get_mut(&name) {
            kept.used = now;
            return change(&mut kept.value);
        }
        if name.len() <= MAX_LENGTH && self.has_room(&mut shard, now) {
            let kept = shard.kept.entry(name).or_default();
            kept.used = now;
            return change(&mut kept.value);
        }
        drop(shard);
        self.folded.fetch_add(1, Relaxed);
        change(self.others.lock().entry(other(&name)).or_default());
    }

    /// Takes a place for one more name, if there is one or one can be made.
    fn has_room(&self, shard: &mut Shard<V>, now: u64) -> bool {
        let take = || self.n.fetch_update(Relaxed, Relaxed, |n| (n < self.max).then_some(n + 1)).is_ok();
        if take() {
            return true;
        }
        if now.saturating_sub(shard.swept) < SWEEP_INTERVAL {
            return false;
        }
        shard.swept = now;
        let before = shard.kept.len();
        shard.kept.retain(|_, kept| now.saturating_sub(kept.used) < IDLE);
        self.n.fetch_sub(before - shard.kept.len(), Relaxed);
        take()
    }

    fn each(&self, mut see: impl FnMut(&StatKey, &V)) {
        for shard in &self.shards {
            shard.lock().kept.iter().for_each(|(name, kept)| see(name, &kept.value));
        }
        self.others.lock().iter().for_each(|(name, value)| see(name, value));
    }
}

#[cfg(test)]
mod tests;
