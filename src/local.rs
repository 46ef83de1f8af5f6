//! What this node knows of counters by itself, in front of the store: which keys are refused anyway, and which are hot.
//!
//! Knows nothing of what a refusal means for a request, and asks no store: it is told what came of what was asked.
//!
//! **Invariant:** what is said without the store is what the store would have said, as far as this node can know: see
//! [`memo`] for how long a change made elsewhere may go unseen.

pub mod lease;
pub mod memo;
pub mod sketch;
mod top;

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;
use smallvec::SmallVec;

use self::{
    lease::Leases,
    memo::{Found, Memo},
    sketch::{Rate, Sketch},
};
use crate::{
    clock::{Clock, UnixMicros},
    key::KeyId,
    limit::{Algorithm, Charged, Cost, Hits, Limit, Scale},
    store::{Charge, StoreError},
};
pub use top::{Row, Top};

/// Charges that are given back after an answer are at the store within this time, if the store is well.
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(50);

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `None`: no refusal is remembered.
    pub memo: Option<memo::Options>,
    /// `None`: no key is leased.
    pub leases: Option<lease::Options>,
    pub sketch: SketchKeeps,
}

/// What is kept of the keys that are asked for most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SketchKeeps {
    /// Nothing, and no rate of any key is known.
    Nothing,
    /// All but their names, which hold what clients sent.
    Unnamed,
    #[default]
    Named,
}

/// What all workers of this node know together.
#[derive(Debug)]
pub struct Local {
    keeps: SketchKeeps,
    memo: Option<Memo>,
    leases: Option<Leases>,
    /// One for each worker.
    sketches: RwLock<Vec<Arc<Sketch>>>,
}

/// What is known of one charge before the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Nothing,
    /// It is over its limit until then, and the store need not be asked.
    Refused(UnixMicros),
    /// It was over its limit when the store was asked last; this request asks, on behalf of those that keep the old answer.
    Asks,
    /// It was paid out of a lease.
    Leased(Charged),
}

/// What becomes of the hits that a fixed window refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedHits {
    Counted,
    /// The request charges all of its counters or none.
    Spared,
}

/// What is known of each charge of a request, in their order; empty if nothing is known of any.
pub type Knowledge = SmallVec<[Known; 4]>;

impl Local {
    pub fn new(options: Options) -> Self {
        Self {
            keeps: options.sketch,
            memo: options.memo.map(Memo::new),
            leases: options.leases.map(Leases::new),
            sketches: RwLock::default(),
        }
    }

    /// The sketch of one more worker; `None` if there is to be none.
    pub fn add_worker(&self) -> Option<Arc<Sketch>> {
        if self.keeps == SketchKeeps::Nothing {
            return None;
        }
        let sketch = Arc::new(Sketch::new(self.keeps));
        self.sketches.write().push(Arc::clone(&sketch));
        Some(sketch)
    }

    /// What is known of these charges. Empty if nothing is known of any of them, as of nearly all.
    pub fn look(&self, charges: &[Charge<'_>], now: UnixMicros) -> Knowledge {
        let mut all = Knowledge::new();
        let Some(memo) = &self.memo else { return all };
        for (place, charge) in charges.iter().enumerate() {
            let known = match charge.cost {
                // Of a peek, which is less than any cost, nothing is known; but it may concern what is.
                Cost::Charge(_) | Cost::Peek => {
                    match memo.look(charge.key.id(), charge.limit, charge.cost.hits(), now) {
                        Found::Nothing => Known::Nothing,
                        Found::Refused { admits_at } => Known::Refused(admits_at),
                        Found::Ended => Known::Asks,
                    }
                }
                Cost::Refund(_) => {
                    memo.lift(charge.key.id(), now);
                    Known::Nothing
                }
            };
            if known != Known::Nothing || !all.is_empty() {
                all.resize(place, Known::Nothing);
                all.push(known);
            }
        }
        all
    }

    /// Takes what the store said. `asks`: whether a charge was made on behalf of others; empty if none was.
    pub fn learn(
        &self,
        charges: &[Charge<'_>],
        asks: &[bool],
        outcomes: &[Result<Charged, StoreError>],
        refused_hits: RefusedHits,
        now: UnixMicros,
        clock: &Clock,
    ) {
        let Some(memo) = &self.memo else { return };
        for (place, (charge, outcome)) in charges.iter().zip(outcomes).enumerate() {
            match (charge.cost, outcome) {
                (Cost::Charge(hits), Ok(charged)) if !charged.admitted && says_the_limit(charge) => {
                    let least = least_refused(charge.limit, hits, charged, refused_hits);
                    let is_first = !asks.get(place).copied().unwrap_or(false);
                    let at = if is_first { self.aged(charge, now) } else { now };
                    let reset_after = at.until(now.after(charged.reset_after));
                    memo.remember(charge.key.id(), charge.limit, least, at, reset_after);
                }
                (Cost::Charge(_), Ok(charged))
                    if charged.admitted && asks.get(place).copied().unwrap_or(false) =>
                {
                    memo.lift(charge.key.id(), now);
                }
                // What was refused while this was under way may have been refused before it.
                (Cost::Refund(_), _) => memo.lift(charge.key.id(), clock.now()),
                _ => {}
            }
        }
    }

    /// These charges are given back, soon: no refusal from before that is remembered.
    pub fn giving_back(&self, charges: &[Charge<'_>], clock: &Clock) {
        let Some(memo) = &self.memo else { return };
        let until = clock.now().after(GIVEN_BACK_WITHIN);
        charges.iter().for_each(|charge| memo.lift(charge.key.id(), until));
    }

    /// A first refusal is taken as so old that it is asked about again when what other nodes had leased is back.
    fn aged(&self, charge: &Charge<'_>, now: UnixMicros) -> UnixMicros {
        let is_fixed = charge.limit.algorithm == Algorithm::FixedWindow;
        let (Some(leases), Some(memo), true) = (&self.leases, &self.memo, is_fixed) else { return now };
        let age = memo.horizon().saturating_sub(leases.options().ttl);
        UnixMicros::new(now.get().saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The leases of this node; `None` if there are to be none.
    pub fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }

    /// Whether all workers together are asked for a key so often that it is leased; `sketch` is one worker's, which tells of
    /// most keys that they are not.
    pub fn is_hot(&self, key: KeyId, sketch: &Sketch, now: UnixMicros) -> bool {
        let Some(leases) = &self.leases else { return false };
        let n_workers = u32::try_from(self.sketches.read().len()).unwrap_or(u32::MAX);
        let mine = sketch.rate(key, now).hits_per_second * f64::from(n_workers);
        leases.options().is_hot(mine) && leases.options().is_hot(self.rate(key, now).hits_per_second)
    }

    pub fn memo(&self) -> Option<&Memo> {
        self.memo.as_ref()
    }

    /// How often this node is asked for a key, by all its workers.
    pub fn rate(&self, key: KeyId, now: UnixMicros) -> Rate {
        let sketches = self.sketches.read();
        sketches.iter().map(|sketch| sketch.rate(key, now)).fold(Rate::default(), Rate::plus)
    }

    /// The keys that are asked for and refused most, `n` of each at most, by all workers.
    pub fn top(&self, n: usize, now: UnixMicros) -> Top {
        let sketches = self.sketches.read().clone();
        Top::of(&sketches, n, now)
    }
}

/// Whether a refusal says something of the limit, not only of how long this caller can wait.
fn says_the_limit(charge: &Charge<'_>) -> bool {
    match charge.limit.algorithm {
        Algorithm::LeakyBucket { max_delay, .. } => charge.max_wait >= max_delay,
        _ => true,
    }
}

/// The smallest cost that is refused as this one was: in a fixed window that is full, any. One that counts what it refuses is
/// full from then on.
fn least_refused(limit: &Limit, hits: Hits, charged: &Charged, refused_hits: RefusedHits) -> Hits {
    let used = match refused_hits {
        RefusedHits::Counted => charged.used_after,
        RefusedHits::Spared => charged.used_before,
    };
    let is_full = limit.algorithm == Algorithm::FixedWindow && used >= Scale::of(limit).capacity();
    if is_full { hits.min(Hits::new(1)) } else { hits }
}

/// What the store would have said to a charge of `hits` that is refused until `admits_at`.
///
/// Where that depends on the cost, the reset is that of the smallest cost that was refused: a lower bound.
pub fn refusal(limit: &Limit, hits: Hits, admits_at: UnixMicros, now: UnixMicros) -> Charged {
    let capacity = Scale::of(limit).capacity();
    Charged {
        admitted: false,
        used_before: capacity,
        used_after: capacity.plus(hits),
        remaining: Hits::ZERO,
        reset_after: now.until(admits_at),
        delay: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
