//! `fixed_window`: the hits of the current window, windows being aligned to the epoch. What the reference does.
//!
//! With W the window in microseconds, L the limit:
//! 1. `n = now div W`. The counter goes on if it stands in window n or n + 1; else it starts at zero in window n.
//! 2. A charge is added, refused or not; a refund is taken off, down to zero.
//! 3. Admitted when the count is then at most L.
//!
//! Remaining: L − count, down to zero. Reset, always: the end of the counter's window.
//!
//! State: the window's number and its count; the count saturates at [`Hits::MAX`].
//! Bound: at most L in a window, so at most 2 L across the border of two.

use std::time::Duration;

use super::{Charged, Cost, Hits, Limit};
use crate::clock::UnixMicros;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindow {
    window: u64,
    /// An empty counter has window 0 too.
    count: Hits,
}

impl FixedWindow {
    pub(super) fn standing(window: u64, count: Hits) -> Self {
        Self { window, count }
    }

    pub(super) fn charge(&mut self, limit: &Limit, now: UnixMicros, cost: Cost) -> Charged {
        let (length, most) = (limit.window.micros(), Hits::new(u64::from(limit.requests_per_unit)));
        let Self { window, count: used_before } = self.at(now.get() / length);
        let used_after = cost.applied_to(used_before);
        *self = if used_after == Hits::ZERO { Self::default() } else { Self { window, count: used_after } };
        Charged {
            admitted: used_after <= most,
            used_before,
            used_after,
            remaining: most.minus(used_after),
            reset_after: Duration::from_micros((window + 1) * length - now.get()),
            delay: Duration::ZERO,
        }
    }

    pub(super) fn used(&self, length: u64, now: UnixMicros) -> Hits {
        self.at(now.get() / length).count
    }

    pub(super) fn ends_at(&self, length: u64) -> u64 {
        if self.count == Hits::ZERO { 0 } else { (self.window + 1) * length }
    }

    /// The counter as it stands in window `n`, or in the one after it if the clock stepped back.
    fn at(self, n: u64) -> Self {
        let goes_on = self.count > Hits::ZERO && (self.window == n || self.window == n + 1);
        if goes_on { self } else { Self { window: n, count: Hits::ZERO } }
    }
}
