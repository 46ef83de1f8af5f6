//! What the two buckets have in common (GCRA): one moment, at which the bucket is empty again, drained at an even rate.
//!
//! With W the window in microseconds and L the requests per window, one hit takes W / L microseconds to drain: a fraction.
//! So spans are pairs `(micros, rest)`, worth `micros + rest / L` microseconds, `rest < L`; they are compared micros first.
//!
//! - **span(h)**, how long h hits drain: the quotient and the rest of `h × W` by L.
//! - **hits_up(d)**: the smallest u with span(u) ≥ d. **hits_down(d)**: the largest u with span(u) ≤ d.
//! - **full**: span(capacity), the most that a bucket holds. The capacity is bounded so that this is at most 100 years.
//! - **debt at now**: from now to the moment in the state, at least nothing and at most full. A longer one (the clock went
//!   back, or the limit was changed) is full from then on: the state is set to it, whatever else the charge comes to.
//!   A rest that is not below L (the limit was changed) counts as a whole microsecond.
//! - **up(d)**: d in whole microseconds, rounded up.
//!
//! In doubles `h × W` would be rounded, so split it. With `Q = W div L`, `R = W mod L`, and h at most the capacity:
//! ```text
//! x = (h div 65536) × R             < 2^48
//! y = (x mod L) × 65536 + (h mod 65536) × R     < 2^49
//! span(h) = (h × Q + (x div L) × 65536 + y div L,  y mod L)
//! ```
//! hits_up and hits_down are found from a guess, `(micros + rest / L) × L / W` in doubles, rounded down, and put right with
//! span: with at most 2^32 hits its error is below 2^-19, so that hits_up is at most one below the guess or two above it.
//!
//! State: the moment as such a pair. An empty bucket is (0, 0).

use std::{cmp::Ordering, time::Duration};

use super::{Hits, Scale};
use crate::clock::UnixMicros;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gcra {
    /// Microseconds since the epoch.
    empty_at: u64,
    rest: u32,
}

/// `micros + rest / L` microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) micros: u64,
    pub(super) rest: u32,
}

impl Span {
    pub(super) const ZERO: Self = Self { micros: 0, rest: 0 };

    pub(super) fn up(self) -> Duration {
        Duration::from_micros(self.micros + u64::from(self.rest > 0))
    }
}

/// An even rate: `requests`, never zero, per `window` microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    requests: u32,
    window: u64,
}

impl Rate {
    /// `None` when nothing is allowed at all.
    pub(super) fn of(scale: Scale) -> Option<Self> {
        (scale.requests > 0).then(|| Self { requests: scale.requests, window: scale.window() })
    }

    /// How long so many hits drain. The hits are at most the capacity.
    pub(super) fn span(self, hits: u64) -> Span {
        let by = u64::from(self.requests);
        let (micros, rest) = match hits.checked_mul(self.window) {
            Some(product) => (product / by, product % by),
            None => wide_div(u128::from(hits) * u128::from(self.window), by),
        };
        Span { micros, rest: low(rest) }
    }

    /// The fewest hits that take at least so long.
    pub(super) fn hits_up(self, span: Span) -> u64 {
        let (hits, rest) = self.hits(span);
        hits + u64::from(rest > 0)
    }

    /// The most hits that take at most so long.
    pub(super) fn hits_down(self, span: Span) -> u64 {
        self.hits(span).0
    }

    /// `(micros + rest / L) / (W / L)`: quotient and rest of `micros × L + rest` by W.
    fn hits(self, span: Span) -> (u64, u64) {
        let requests = u64::from(self.requests);
        let product =
            span.micros.checked_mul(requests).and_then(|product| product.checked_add(u64::from(span.rest)));
        match product {
            Some(product) => (product / self.window, product % self.window),
            None => {
                wide_div(u128::from(span.micros) * u128::from(requests) + u128::from(span.rest), self.window)
            }
        }
    }

    pub(super) fn plus(self, a: Span, b: Span) -> Span {
        let rest = u64::from(a.rest) + u64::from(b.rest);
        let requests = u64::from(self.requests);
        let carry = rest >= requests;
        Span {
            micros: a.micros + b.micros + u64::from(carry),
            rest: low(if carry { rest - requests } else { rest }),
        }
    }

    /// Down to nothing.
    pub(super) fn minus(self, a: Span, b: Span) -> Span {
        match a.cmp(&b) {
            Ordering::Less | Ordering::Equal => Span::ZERO,
            Ordering::Greater => {
                let borrow = a.rest < b.rest;
                let rest =
                    u64::from(a.rest) + if borrow { u64::from(self.requests) } else { 0 } - u64::from(b.rest);
                Span { micros: a.micros - b.micros - u64::from(borrow), rest: low(rest) }
            }
        }
    }
}

impl Gcra {
    pub(super) fn standing(empty_at: u64, rest: u32) -> Self {
        Self { empty_at, rest }
    }

    /// What is still to drain at `now`, at most `full`.
    pub(super) fn debt(&self, rate: Rate, full: Span, now: UnixMicros) -> Span {
        let whole = self.rest >= rate.requests;
        let empty_at = self.empty_at + u64::from(whole);
        let rest = if whole { 0 } else { self.rest };
        match empty_at.checked_sub(now.get()) {
            Some(micros) => Span { micros, rest }.min(full),
            None => Span::ZERO,
        }
    }

    /// A bucket that has so much to drain from `now` on.
    pub(super) fn owing(debt: Span, now: UnixMicros) -> Self {
        if debt == Span::ZERO {
            Self::default()
        } else {
            Self { empty_at: now.get() + debt.micros, rest: debt.rest }
        }
    }

    pub(super) fn used(&self, scale: Scale, now: UnixMicros) -> Hits {
        Rate::of(scale).map_or(Hits::ZERO, |rate| {
            let full = rate.span(u64::from(scale.capacity));
            Hits::new(rate.hits_up(self.debt(rate, full, now)))
        })
    }

    pub(super) fn ends_at(&self) -> u64 {
        self.empty_at + u64::from(self.rest > 0)
    }
}

/// A quotient that fits, and its rest.
fn wide_div(dividend: u128, by: u64) -> (u64, u64) {
    let by = u128::from(by);
    (u64::try_from(dividend / by).unwrap_or(u64::MAX), u64::try_from(dividend % by).unwrap_or(u64::MAX))
}

/// A rest below the requests of a rate, which are a `u32`.
fn low(rest: u64) -> u32 {
    u32::try_from(rest).unwrap_or(u32::MAX)
}
