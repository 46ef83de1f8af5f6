//! `leaky_bucket`: hits leave one by one, W / L apart; an answer is held until its slot, or refused if that is too far.
//!
//! In the terms of [`super::gcra`] the state is the time of the next free slot, and the debt at now is the wait for it. With
//! `slots = burst + 1` (as many hits as may wait, and the one whose turn it is), at most L × (100 years div W), and the
//! capacity the larger of slots and L, bounded alike:
//! 1. `d` = the debt at now: the wait.
//! 2. The wait allowed to a cost h: the smallest of `max_delay`, of what the caller has left, and of span(slots − h), which
//!    is nothing when h ≥ slots.
//! 3. A charge of h is admitted when h ≤ L and d is at most the wait allowed to it. It is held for up(d), takes h slots, and
//!    `d` grows by span(h). So a cost larger than the queue gets in when nothing is in front of it. A refund
//!    gives slots back as in `token_bucket`.
//!
//! With `max_delay: 0s` that is strict spacing: in only when the slot is free, never held.
//!
//! Used: hits_up(d), the slots taken. Remaining: how many single hits would get in if they came now: with A the wait
//! allowed to one hit (the caller's own left aside), hits_down(A − d) + 1 if d ≤ A, at most L; else none. Reset of an admitted cost:
//! up(d), when the next slot is at once. Reset of a refused one: up(d − the wait allowed to it). A cost above L: W.
//! L = 0: as in `token_bucket`.
//!
//! Bound: slots begin at least W / L apart, a slot for each hit; never more than slots − 1 hits wait.

use std::time::Duration;

use super::{
    Charged, Cost, Hits, Scale, Window,
    gcra::{Gcra, Rate, Span},
    state::refillable,
    token_bucket::{given_back, nothing_allowed},
};
use crate::clock::UnixMicros;

/// How many hits can wait at once if none of them waits longer than `max_delay`: the queue depth for which the delay alone
/// decides. None by a limit of zero or without a delay.
pub fn queue_within(max_delay: Duration, requests_per_unit: u32, window: Window) -> u32 {
    let hits = max_delay
        .as_micros()
        .saturating_mul(u128::from(requests_per_unit))
        .div_ceil(u128::from(window.micros()));
    u32::try_from(hits).unwrap_or(u32::MAX)
}

/// The limit, and how long this caller may be held.
#[derive(Debug)]
pub(super) struct Queue {
    scale: Scale,
    slots: u64,
    max_delay: Span,
    max_wait: Span,
}

impl Queue {
    pub(super) fn new(scale: Scale, burst: u32, max_delay: Duration, max_wait: Duration) -> Self {
        let slots = u64::from(refillable(scale.requests, scale.window_secs, burst.saturating_add(1)));
        Self { scale, slots, max_delay: whole(max_delay), max_wait: whole(max_wait) }
    }

    /// The longest wait that a cost of so many hits may have in front of it, as far as the limit goes.
    fn allowed(&self, rate: Rate, hits: u64) -> Span {
        rate.span(self.slots.saturating_sub(hits)).min(self.max_delay)
    }

    /// The longest wait that a cost of so many hits may have in front of it; `None` if it never fits.
    pub(super) fn wait_allowed(&self, rate: Rate, hits: u64) -> Option<Span> {
        (hits <= u64::from(self.scale.requests)).then(|| self.allowed(rate, hits).min(self.max_wait))
    }

    /// How many single hits would get in now.
    fn remaining(&self, rate: Rate, wait: Span) -> Hits {
        let allowed = self.allowed(rate, 1);
        let more = if wait <= allowed { rate.hits_down(rate.minus(allowed, wait)) + 1 } else { 0 };
        Hits::new(more.min(u64::from(self.scale.requests)))
    }
}

pub(super) fn charge(bucket: &mut Gcra, queue: &Queue, now: UnixMicros, cost: Cost) -> Charged {
    let scale = queue.scale;
    let Some(rate) = Rate::of(scale) else {
        *bucket = Gcra::default();
        return nothing_allowed(scale, cost);
    };
    let wait = bucket.debt(rate, rate.span(u64::from(scale.capacity)), now);
    let hits = cost.hits().get();
    let allowed = queue.wait_allowed(rate, hits);
    let charges = matches!(cost, Cost::Charge(_));
    let admitted = !charges || allowed.is_some_and(|allowed| wait <= allowed);
    let after = match cost {
        Cost::Charge(hits) if admitted => rate.plus(wait, rate.span(hits.get())),
        Cost::Refund(hits) => given_back(rate, wait, hits, scale.capacity()),
        Cost::Charge(_) | Cost::Peek => wait,
    };
    *bucket = Gcra::owing(after, now);
    let used_before = Hits::new(rate.hits_up(wait));
    let used = Hits::new(rate.hits_up(after));
    Charged {
        admitted,
        used_before,
        used_after: if admitted { used } else { used_before.plus(cost.hits()) },
        remaining: queue.remaining(rate, after),
        reset_after: match allowed {
            _ if admitted => after.up(),
            Some(allowed) => rate.minus(wait, allowed).up(),
            None => Duration::from_micros(scale.window()),
        },
        delay: if charges && admitted { wait.up() } else { Duration::ZERO },
    }
}

fn whole(span: Duration) -> Span {
    Span { micros: u64::try_from(span.as_micros()).unwrap_or(u64::MAX), rest: 0 }
}
