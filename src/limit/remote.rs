//! Counters that are kept somewhere else: what a script needs to take the same step as the pure functions, and what it
//! tells them to say the same of it.
//!
//! A script only moves state. What a counter says is computed here, from the state that the script found, by the very
//! functions that the memory store runs.

use std::time::Duration;

use super::{
    Algorithm, Charged, Cost, Hits, Limit, MAX_LOG_HITS, Scale, State,
    fixed_window::FixedWindow,
    gcra::{Gcra, Rate, Span},
    leaky_bucket::Queue,
    room_to_lend,
    sliding_window::SlidingWindow,
};
use crate::clock::UnixMicros;

/// A span or a moment as a bucket counts it: whole microseconds, and a rest in shares of 1 / `requests_per_unit`.
pub type Parts = (u64, u32);

/// One step of a bucket, in numbers that need no division any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStep {
    /// The debt is cut to this first.
    pub full: Parts,
    /// A charge is admitted when the debt is then at most this; `None`: never.
    pub allowed: Option<Parts>,
    /// What a charge adds to the debt, or a refund takes off it.
    pub change: Parts,
}

impl BucketStep {
    /// Nothing changes and nothing is allowed where the limit is zero, and for the other algorithms.
    pub fn of(limit: &Limit, cost: Cost, max_wait: Duration) -> Self {
        let scale = Scale::of(limit);
        let charges = matches!(cost, Cost::Charge(_));
        let Some(rate) = Rate::of(scale) else {
            return Self { full: (0, 0), allowed: (!charges).then_some((0, 0)), change: (0, 0) };
        };
        let capacity = u64::from(scale.capacity);
        let allowed = match limit.algorithm {
            // Looks and refunds are never refused.
            _ if !charges => Some(rate.span(capacity)),
            Algorithm::TokenBucket { .. } => {
                capacity.checked_sub(cost.hits().get()).map(|free| rate.span(free))
            }
            Algorithm::LeakyBucket { burst, max_delay } => {
                let queue = Queue::new(scale, burst, max_delay, max_wait);
                queue.wait_allowed(rate, cost.hits().get())
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => None,
        };
        let change = match cost {
            Cost::Charge(hits) if allowed.is_some() => hits.get(),
            Cost::Refund(hits) => hits.get().min(capacity),
            Cost::Charge(_) | Cost::Peek => 0,
        };
        Self {
            full: parts(rate.span(capacity)),
            allowed: allowed.map(parts),
            change: parts(rate.span(change)),
        }
    }

    /// The step that charges so many hits where all of them may be lent at once ([`super::slice`]).
    pub fn lending(limit: &Limit, wanted: Hits) -> Self {
        let step = |hits| Self::of(limit, Cost::charge(hits), Duration::MAX);
        Self { allowed: step(room_to_lend(wanted)).allowed, ..step(wanted) }
    }
}

fn parts(span: Span) -> Parts {
    (span.micros, span.rest)
}

/// What a script found before its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    FixedWindow {
        window: u64,
        count: Hits,
    },
    SlidingWindow {
        window: u64,
        current: u32,
        previous: u32,
    },
    Bucket {
        empty_at: u64,
        rest: u32,
    },
    /// A log as it was settled at the moment of the charge: its hits, its newest time *after* the charge (0: none), and the
    /// time of the hit that must leave for a refused cost to fit (0: not refused).
    SlidingLog {
        total: Hits,
        newest: u64,
        frees: u64,
    },
}

impl Found {
    /// What the counter says to `cost`, charged at `now` in the state that was found.
    pub fn charge(self, limit: &Limit, now: UnixMicros, cost: Cost, max_wait: Duration) -> Charged {
        let mut state = match self {
            Self::FixedWindow { window, count } => State::FixedWindow(FixedWindow::standing(window, count)),
            Self::SlidingWindow { window, current, previous } => {
                State::SlidingWindow(SlidingWindow::standing(window, current, previous))
            }
            Self::Bucket { empty_at, rest } => match limit.algorithm {
                Algorithm::LeakyBucket { .. } => State::LeakyBucket(Gcra::standing(empty_at, rest)),
                _ => State::TokenBucket(Gcra::standing(empty_at, rest)),
            },
            Self::SlidingLog { total, newest, frees } => return log(limit, now, cost, total, newest, frees),
        };
        state.charge(limit, now, cost, max_wait)
    }
}

/// What a sliding log says, as far as it does not take the log itself.
fn log(limit: &Limit, now: UnixMicros, cost: Cost, total: Hits, newest: u64, frees: u64) -> Charged {
    let length = limit.window.micros();
    let most = Hits::new(u64::from(limit.requests_per_unit.min(MAX_LOG_HITS)));
    let used_after = cost.applied_to(total);
    let admitted = used_after <= most;
    let refused = !admitted && matches!(cost, Cost::Charge(_));
    let reset_at = match cost {
        Cost::Charge(hits) if refused && hits > most => now.get() + length,
        Cost::Charge(_) if refused => frees + length,
        _ if newest == 0 => now.get(),
        _ => newest + length,
    };
    Charged {
        admitted,
        used_before: total,
        used_after,
        remaining: most.minus(if refused { total } else { used_after }),
        reset_after: Duration::from_micros(reset_at.saturating_sub(now.get())),
        delay: Duration::ZERO,
    }
}
