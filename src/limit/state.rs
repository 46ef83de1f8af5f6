//! The state of one counter, whichever algorithm it counts by, and what a charge makes of it.
//!
//! **Invariant:** a state never outgrows 24 bytes (a sliding log keeps its hits on the heap, at most [`super::MAX_LOG_HITS`]
//! of them).

use std::time::Duration;

use super::{
    Algorithm, Cost, Hits, Limit, Window,
    fixed_window::FixedWindow,
    gcra::Gcra,
    leaky_bucket,
    sliding_log::{MAX_LOG_HITS, SlidingLog},
    sliding_window::SlidingWindow,
    token_bucket,
};
use crate::clock::UnixMicros;

/// What a counter said to one charge. Never about a peek's or refund's own cost: these are always admitted unless the
/// counter stands above its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Whether the cost fits. For a peek or refund: whether the counter then stands at or below its limit.
    pub admitted: bool,
    /// Hits that counted just before, and just after had the cost been counted. A fixed window counts a refused cost
    /// too, as the reference does; elsewhere `used_after` is then what it would have been.
    pub used_before: Hits,
    pub used_after: Hits,
    /// Hits still to be had now; in a leaky bucket one by one.
    pub remaining: Hits,
    /// Admitted: until the counter would be as good as new; zero if it is. Refused: until this cost fits, or the whole
    /// period if it never can. A fixed window always says the end of its window. To the microsecond, rounded up.
    pub reset_after: Duration,
    /// leaky_bucket: how long the answer is to be held. Zero elsewhere.
    pub delay: Duration,
}

/// The numbers of a limit that its counter is measured with: enough to tell how full it is and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub(super) requests: u32,
    pub(super) window_secs: u32,
    /// The most hits that the counter can hold.
    pub(super) capacity: u32,
}

impl Scale {
    pub fn of(limit: &Limit) -> Self {
        let requests = limit.requests_per_unit;
        let window_secs = u32::try_from(limit.window.secs()).unwrap_or(u32::MAX);
        let capacity = match limit.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => requests,
            Algorithm::SlidingLog => requests.min(MAX_LOG_HITS),
            Algorithm::TokenBucket { burst } => refillable(requests, window_secs, burst),
            Algorithm::LeakyBucket { burst, .. } => {
                refillable(requests, window_secs, burst.saturating_add(1).max(requests))
            }
        };
        Self { requests, window_secs, capacity }
    }

    /// The most hits that the counter can hold.
    pub fn capacity(self) -> Hits {
        Hits::new(u64::from(self.capacity))
    }

    /// In microseconds.
    pub(super) fn window(self) -> u64 {
        u64::from(self.window_secs) * 1_000_000
    }

    /// How far ahead of now the end of a counter can be, when the clock went back by one window at most.
    pub fn horizon(self) -> Duration {
        let full = u128::from(self.capacity) * u128::from(self.window()) / u128::from(self.requests.max(1));
        Duration::from_micros(3 * self.window().max(u64::try_from(full).unwrap_or(u64::MAX / 3)))
    }
}

/// So much of `hits` as refills within [`Window::MAX_SECS`], counted in whole windows: what keeps the moments of a bucket
/// within 2^53 microseconds. Binds only a burst of several windows' worth.
pub(super) fn refillable(requests: u32, window_secs: u32, hits: u32) -> u32 {
    let windows = Window::MAX_SECS / u64::from(window_secs.max(1));
    u32::try_from(u64::from(requests).saturating_mul(windows)).map_or(hits, |most| most.min(hits))
}

/// A counter: what it takes to go on counting one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(Box<SlidingLog>),
    TokenBucket(Gcra),
    LeakyBucket(Gcra),
}

impl State {
    /// An empty counter.
    pub fn new(limit: &Limit) -> Self {
        match limit.algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::default()),
            Algorithm::SlidingLog => Self::SlidingLog(Box::default()),
            Algorithm::TokenBucket { .. } => Self::TokenBucket(Gcra::default()),
            Algorithm::LeakyBucket { .. } => Self::LeakyBucket(Gcra::default()),
        }
    }

    /// Adds `cost` if it fits, and says what came of it.
    ///
    /// `max_wait` is the longest that a leaky bucket may hold the answer of this caller, on top of the limit's own
    /// `max_delay`; the others never wait. A state of another algorithm than the limit's starts afresh.
    pub fn charge(&mut self, limit: &Limit, now: UnixMicros, cost: Cost, max_wait: Duration) -> Charged {
        match (&mut *self, limit.algorithm) {
            (Self::FixedWindow(state), Algorithm::FixedWindow) => state.charge(limit, now, cost),
            (Self::SlidingWindow(state), Algorithm::SlidingWindow) => state.charge(limit, now, cost),
            (Self::SlidingLog(state), Algorithm::SlidingLog) => state.charge(limit, now, cost),
            (Self::TokenBucket(state), Algorithm::TokenBucket { .. }) => {
                token_bucket::charge(state, Scale::of(limit), now, cost)
            }
            (Self::LeakyBucket(state), Algorithm::LeakyBucket { burst, max_delay }) => {
                let queue = leaky_bucket::Queue::new(Scale::of(limit), burst, max_delay, max_wait);
                leaky_bucket::charge(state, &queue, now, cost)
            }
            _ => {
                *self = Self::new(limit);
                self.charge(limit, now, cost, max_wait)
            }
        }
    }

    /// From when on the counter is as good as new; the epoch if it is empty.
    pub fn expires_at(&self, scale: Scale) -> UnixMicros {
        UnixMicros::new(match self {
            Self::FixedWindow(state) => state.ends_at(scale.window()),
            Self::SlidingWindow(state) => state.ends_at(scale.window()),
            Self::SlidingLog(state) => state.ends_at(scale.window()),
            Self::TokenBucket(state) | Self::LeakyBucket(state) => state.ends_at(),
        })
    }

    /// The hits that count at `now`, at most the capacity. A sliding log says what it held when it was charged last, as
    /// long as any of it counts.
    pub fn used(&self, scale: Scale, now: UnixMicros) -> Hits {
        let used = match self {
            Self::FixedWindow(state) => state.used(scale.window(), now),
            Self::SlidingWindow(state) => state.used(scale.window(), now),
            Self::SlidingLog(state) => state.used(scale.window(), now),
            Self::TokenBucket(state) | Self::LeakyBucket(state) => state.used(scale, now),
        };
        used.min(scale.capacity())
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::FixedWindow(state) => *state == FixedWindow::default(),
            Self::SlidingWindow(state) => *state == SlidingWindow::default(),
            Self::SlidingLog(state) => **state == SlidingLog::default(),
            Self::TokenBucket(state) | Self::LeakyBucket(state) => *state == Gcra::default(),
        }
    }
}
