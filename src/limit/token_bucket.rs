//! `token_bucket`: a bucket of `burst` tokens that refills at an even rate of L per W; a hit takes a token.
//!
//! In the terms of [`super::gcra`], with B the capacity: `burst`, at most L × (100 years div W) so that it refills
//! within a human's life.
//! 1. `d` = the debt at now; `used = hits_up(d)`.
//! 2. A charge is admitted when used + cost is at most B: `d` grows by span(cost). A refund takes span(cost) off, down to
//!    nothing; one of B or more empties the debt.
//!
//! Remaining: B − hits_up(d), which is the number of whole tokens. Reset of an admitted cost: up(d), when the bucket is full of
//! tokens again. Reset of a refused one: up(d + span(cost) − full), when `cost` tokens are there. A cost above B: W.
//! L = 0: every charge is refused for ever, the bucket stays empty.
//!
//! Bound: in any span t at most B + t × L / W.

use std::time::Duration;

use super::{
    Charged, Cost, Hits, Scale,
    gcra::{Gcra, Rate, Span},
};
use crate::clock::UnixMicros;

pub(super) fn charge(bucket: &mut Gcra, scale: Scale, now: UnixMicros, cost: Cost) -> Charged {
    let Some(rate) = Rate::of(scale) else {
        *bucket = Gcra::default();
        return nothing_allowed(scale, cost);
    };
    let capacity = scale.capacity();
    let full = rate.span(capacity.get());
    let before = bucket.debt(rate, full, now);
    let used_before = Hits::new(rate.hits_up(before));
    let used_after = used_before.plus(cost.hits());
    let admitted = used_after <= capacity;
    let after = match cost {
        Cost::Charge(hits) if admitted => rate.plus(before, rate.span(hits.get())),
        Cost::Refund(hits) => given_back(rate, before, hits, capacity),
        Cost::Charge(_) | Cost::Peek => before,
    };
    *bucket = Gcra::owing(after, now);
    let used = Hits::new(rate.hits_up(after));
    Charged {
        admitted,
        used_before,
        used_after: if admitted { used } else { used_after },
        remaining: capacity.minus(used),
        reset_after: match cost {
            Cost::Charge(hits) if hits > capacity => Duration::from_micros(scale.window()),
            Cost::Charge(hits) if !admitted => {
                rate.minus(rate.plus(before, rate.span(hits.get())), full).up()
            }
            _ => after.up(),
        },
        delay: Duration::ZERO,
    }
}

/// The debt after a refund.
pub(super) fn given_back(rate: Rate, debt: Span, hits: Hits, capacity: Hits) -> Span {
    if hits >= capacity { Span::ZERO } else { rate.minus(debt, rate.span(hits.get())) }
}

/// A limit of zero: every charge is over, and a look finds nothing used and nothing left.
pub(super) fn nothing_allowed(scale: Scale, cost: Cost) -> Charged {
    let admitted = cost.hits() == Hits::ZERO;
    Charged {
        admitted,
        used_before: Hits::ZERO,
        used_after: cost.hits(),
        remaining: Hits::ZERO,
        reset_after: if admitted { Duration::ZERO } else { Duration::from_micros(scale.window()) },
        delay: Duration::ZERO,
    }
}
