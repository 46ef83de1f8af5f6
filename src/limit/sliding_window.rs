//! `sliding_window`: an estimate of the hits in the trailing window, from the counts of this window and the previous one.
//!
//! With W the window in microseconds, S in seconds (W = 1,000,000 S), L the limit:
//! 1. `n = now div W`. The counter goes on if it stands in window n or n + 1. If it stands in n − 1, its current count
//!    becomes the previous one. Else it starts at zero in window n. From here on n is the counter's window.
//! 2. The elapsed share, in millionths: `e = (now − n W) div S`; 0 if the window has not begun.
//! 3. The estimate: `current + (previous × (1,000,000 − e) + 999,999) div 1,000,000`. Both roundings are against the client.
//! 4. A charge is admitted and added to the current count when estimate + cost is at most L. A refund is taken off the
//!    current count, what is left of it off the previous one.
//!
//! Remaining: L − estimate, down to zero. Reset of an admitted cost: (n + 2) W if the current count is not zero, else
//! (n + 1) W if the previous one is not, else now. Reset of a refused one: the first moment at which estimate + cost is at
//! most L. With `room = L − current − cost`: if room ≥ 0 that is `n W + S × m`, `m = 1,000,000 − (room × 1,000,000) div previous`;
//! else the same in the next window, where the current count is the previous one: `(n + 1) W + S × m`, `m = 1,000,000 − ((L − cost) × 1,000,000) div current`.
//! A cost above L: W from now.
//!
//! Products stay below 2^32 × 10^6 < 2^53.
//!
//! State: the window's number and two counts, each at most L at the time of its charge, so below 2^32.
//! Bound: at most L in a window, less than 2 L in any span as long as one: the estimate takes the previous hits as evenly spread.

use std::time::Duration;

use super::{Charged, Cost, Hits, Limit};
use crate::clock::UnixMicros;

/// Parts of a window that the elapsed share is counted in.
const PARTS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindow {
    window: u64,
    current: u32,
    previous: u32,
}

impl SlidingWindow {
    pub(super) fn standing(window: u64, current: u32, previous: u32) -> Self {
        Self { window, current, previous }
    }

    pub(super) fn charge(&mut self, limit: &Limit, now: UnixMicros, cost: Cost) -> Charged {
        let (length, most) = (limit.window.micros(), u64::from(limit.requests_per_unit));
        let mut counter = self.at(now.get() / length);
        let used_before = counter.estimate(length, now);
        let fits = used_before.plus(cost.hits()).get() <= most;
        match cost {
            // What fits is at most the limit, a u32.
            Cost::Charge(hits) if fits => counter.current = counter.current.saturating_add(narrow(hits)),
            Cost::Refund(hits) => counter.refund(hits),
            Cost::Charge(_) | Cost::Peek => {}
        }
        let used = counter.estimate(length, now);
        let refused = !fits && cost.hits() > Hits::ZERO;
        let reset_at = match cost.hits().get() {
            hits if refused && hits > most => now.get() + length,
            hits if refused => counter.fits_at(length, most, hits),
            _ => counter.ends_at(length),
        };
        *self = if counter.current == 0 && counter.previous == 0 { Self::default() } else { counter };
        Charged {
            admitted: !refused && used.get() <= most,
            used_before,
            used_after: if refused { used.plus(cost.hits()) } else { used },
            remaining: Hits::new(most).minus(used),
            reset_after: Duration::from_micros(reset_at.saturating_sub(now.get())),
            delay: Duration::ZERO,
        }
    }

    pub(super) fn used(&self, length: u64, now: UnixMicros) -> Hits {
        self.at(now.get() / length).estimate(length, now)
    }

    pub(super) fn ends_at(&self, length: u64) -> u64 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => (self.window + 1) * length,
            _ => (self.window + 2) * length,
        }
    }

    /// The counter as it stands in window `n`, or in the one after it if the clock stepped back.
    fn at(self, n: u64) -> Self {
        let empty = self.current == 0 && self.previous == 0;
        if !empty && (self.window == n || self.window == n + 1) {
            self
        } else if !empty && self.window + 1 == n {
            Self { window: n, current: 0, previous: self.current }
        } else {
            Self { window: n, current: 0, previous: 0 }
        }
    }

    fn estimate(self, length: u64, now: UnixMicros) -> Hits {
        let elapsed = now.get().saturating_sub(self.window * length) / (length / PARTS);
        let weighted = (u64::from(self.previous) * PARTS.saturating_sub(elapsed)).div_ceil(PARTS);
        Hits::new(u64::from(self.current) + weighted)
    }

    /// The first moment at which a refused cost, itself at most the limit, fits.
    fn fits_at(self, length: u64, most: u64, cost: u64) -> u64 {
        let (window, counted, room) = match (most - cost).checked_sub(u64::from(self.current)) {
            Some(room) => (self.window, self.previous, room),
            None => (self.window + 1, self.current, most - cost),
        };
        let part = PARTS.saturating_sub((room * PARTS).checked_div(u64::from(counted)).unwrap_or(PARTS));
        window * length + part * (length / PARTS)
    }

    fn refund(&mut self, hits: Hits) {
        let from_current = narrow(hits).min(self.current);
        self.current -= from_current;
        self.previous = self.previous.saturating_sub(narrow(hits.minus(Hits::new(u64::from(from_current)))));
    }
}

fn narrow(hits: Hits) -> u32 {
    u32::try_from(hits.get()).unwrap_or(u32::MAX)
}
