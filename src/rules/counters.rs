//! What a rule counts about itself: decisions by verdict, and hits as the reference's statistics split them.
//!
//! Counters outlive a reload: a rule of the same full key goes on where its predecessor stopped.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::per_worker::PerWorker;

/// What was decided for one descriptor by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    OverLimit,
    /// Over the limit, and not enforced.
    Shadow,
    /// The store could not say.
    StoreFailure,
}

impl Verdict {
    pub const ALL: [Self; 4] = [Self::Ok, Self::OverLimit, Self::Shadow, Self::StoreFailure];

    /// The label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OverLimit => "over_limit",
            Self::Shadow => "shadow",
            Self::StoreFailure => "store_failure",
        }
    }
}

/// Hits of one decision, split as the reference's statistics are (its §"rule statistics"; all in hits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub total: u64,
    pub over_limit: u64,
    pub near_limit: u64,
    pub within_limit: u64,
    pub shadow_mode: u64,
    /// The part of `over_limit` that was refused from memory, without asking the store.
    pub over_limit_with_local_cache: u64,
}

/// How many kinds of hits there are.
const KINDS: usize = 6;

impl Counted {
    /// The kinds by the reference's names, in the order of its documentation.
    pub const NAMES: [&str; KINDS] = [
        "total_hits",
        "over_limit",
        "near_limit",
        "within_limit",
        "shadow_mode",
        "over_limit_with_local_cache",
    ];

    /// The hits of each kind, in the order of [`Counted::NAMES`].
    pub fn fields(self) -> [u64; KINDS] {
        let Self { total, over_limit, near_limit, within_limit, shadow_mode, over_limit_with_local_cache } =
            self;
        [total, over_limit, near_limit, within_limit, shadow_mode, over_limit_with_local_cache]
    }

    fn of(fields: [u64; KINDS]) -> Self {
        let [total, over_limit, near_limit, within_limit, shadow_mode, over_limit_with_local_cache] = fields;
        Self { total, over_limit, near_limit, within_limit, shadow_mode, over_limit_with_local_cache }
    }
}

impl AddAssign for Counted {
    /// Wraps, as counters do.
    fn add_assign(&mut self, more: Self) {
        let mut sums = self.fields();
        sums.iter_mut().zip(more.fields()).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
        *self = Self::of(sums);
    }
}

#[derive(Debug, Default)]
struct Sums {
    decisions: [AtomicU64; 4],
    hits: [AtomicU64; KINDS],
}

/// The counters of one rule.
#[derive(Debug, Default)]
pub struct RuleCounters(PerWorker<Sums>);

impl RuleCounters {
    pub fn record(&self, verdict: Verdict, hits: Counted) {
        let mine = self.0.mine();
        if let Some(decisions) = mine.decisions.get(verdict as usize) {
            decisions.fetch_add(1, Ordering::Relaxed);
        }
        for (counter, n) in mine.hits.iter().zip(hits.fields()) {
            if n > 0 {
                counter.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// Decisions of this verdict so far.
    pub fn decisions(&self, verdict: Verdict) -> u64 {
        self.0.all().filter_map(|copy| copy.decisions.get(verdict as usize)).map(load).sum()
    }

    /// Hits so far.
    pub fn hits(&self) -> Counted {
        let mut sums = [0_u64; KINDS];
        for copy in self.0.all() {
            for (sum, counter) in sums.iter_mut().zip(&copy.hits) {
                *sum = sum.wrapping_add(load(counter));
            }
        }
        Counted::of(sums)
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_record_adds_up() {
        let counters = RuleCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters
                            .record(Verdict::Ok, Counted { total: 2, within_limit: 2, ..Counted::default() });
                    }
                    counters.record(
                        Verdict::Shadow,
                        Counted { total: 1, over_limit: 1, shadow_mode: 1, ..Counted::default() },
                    );
                });
            }
        });
        assert_eq!(Verdict::ALL.map(|verdict| counters.decisions(verdict)), [800, 0, 8, 0]);
        assert_eq!(
            counters.hits(),
            Counted { total: 1608, over_limit: 8, within_limit: 1600, shadow_mode: 8, ..Counted::default() }
        );
    }
}
