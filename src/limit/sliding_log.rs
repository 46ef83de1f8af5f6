//! `sliding_log`: exactly the hits of the trailing window, each with its time.
//!
//! With W the window in microseconds, L the limit, at most [`MAX_LOG_HITS`]:
//! 1. If the newest hit is later than now + W, the log starts empty. Else the moment is `t = max(now, newest)`: the log's
//!    time never goes back.
//! 2. Hits at `t − W` and before leave. A hit at `a` counts from a up to, not including, a + W.
//! 3. A charge is admitted and noted at t when total + cost is at most L; hits of one moment are one element. A refund
//!    takes hits off the newest first.
//!
//! Remaining: L − total, down to zero. Reset of an admitted cost: newest + W; now if the log is empty. Reset of a refused
//! one: a + W, where a is the first (oldest first) at which so many hits have left that total + cost is at most L. A cost above
//! L: W from now.
//!
//! State: elements of (time, hits) in the order of time, and their total.
//! Bound: at most L in any span shorter than W. Size: 16 bytes an element, at most L elements.

use std::{collections::VecDeque, time::Duration};

use super::{Charged, Cost, Hits, Limit};
use crate::clock::UnixMicros;

/// The most hits that one log keeps: 160 kB a key. A larger limit by this algorithm counts as this one.
pub const MAX_LOG_HITS: u32 = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLog {
    hits: VecDeque<Hit>,
    total: u64,
}

/// Hits of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hit {
    at: u64,
    n: u32,
}

impl SlidingLog {
    pub(super) fn charge(&mut self, limit: &Limit, now: UnixMicros, cost: Cost) -> Charged {
        let (length, most) = (limit.window.micros(), u64::from(limit.requests_per_unit.min(MAX_LOG_HITS)));
        let moment = self.settle(length, now.get());
        let used_before = Hits::new(self.total);
        let used_after = cost.applied_to(used_before);
        let admitted = used_after.get() <= most;
        let reset_at = match cost {
            Cost::Charge(hits) if !admitted && hits.get() > most => now.get() + length,
            Cost::Charge(_) if !admitted => self.fits_at(length, used_after.get() - most),
            Cost::Charge(hits) => {
                self.note(moment, hits);
                self.ends_at(length)
            }
            Cost::Refund(hits) => {
                self.refund(hits);
                self.ends_at(length)
            }
            Cost::Peek => self.ends_at(length),
        };
        Charged {
            admitted,
            used_before,
            used_after,
            remaining: Hits::new(most.saturating_sub(self.total)),
            reset_after: Duration::from_micros(reset_at.saturating_sub(now.get())),
            delay: Duration::ZERO,
        }
    }

    pub(super) fn used(&self, length: u64, now: UnixMicros) -> Hits {
        let counts = self
            .hits
            .back()
            .is_some_and(|newest| now.get() < newest.at + length && newest.at <= now.get() + length);
        if counts { Hits::new(self.total) } else { Hits::ZERO }
    }

    pub(super) fn ends_at(&self, length: u64) -> u64 {
        self.hits.back().map_or(0, |newest| newest.at + length)
    }

    /// Lets go of what does not count at `now`, and says what time it is for this log.
    fn settle(&mut self, length: u64, now: u64) -> u64 {
        let newest = self.hits.back().map_or(0, |newest| newest.at);
        if newest > now + length {
            self.hits.clear();
            self.total = 0;
            return now;
        }
        let moment = now.max(newest);
        while let Some(oldest) = self.hits.front().filter(|oldest| oldest.at + length <= moment) {
            self.total -= u64::from(oldest.n);
            self.hits.pop_front();
        }
        moment
    }

    /// Adds hits that fit. `at` is not before the newest.
    fn note(&mut self, at: u64, hits: Hits) {
        self.total += hits.get();
        let n = u32::try_from(hits.get()).unwrap_or(u32::MAX);
        match self.hits.back_mut() {
            Some(newest) if newest.at == at => newest.n += n,
            _ => self.hits.push_back(Hit { at, n }),
        }
    }

    fn refund(&mut self, hits: Hits) {
        let mut left = hits.get().min(self.total);
        self.total -= left;
        while left > 0
            && let Some(newest) = self.hits.back_mut()
        {
            let taken = newest.n.min(u32::try_from(left).unwrap_or(u32::MAX));
            newest.n -= taken;
            left -= u64::from(taken);
            if newest.n == 0 {
                self.hits.pop_back();
            }
        }
    }

    /// When the oldest hits, as many as are too many, have left.
    fn fits_at(&self, length: u64, too_many: u64) -> u64 {
        let mut left = 0;
        let last = self.hits.iter().find(|hit| {
            left += u64::from(hit.n);
            left >= too_many
        });
        last.map_or(0, |hit| hit.at) + length
    }
}
