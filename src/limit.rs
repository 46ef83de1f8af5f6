//! How much per which window, by which algorithm, and the pure functions that count.
//!
//! Clock-free and store-free: `(state, now, cost) → (state', Charged)`. The memory store runs this code; the scripts of
//! the Redis store are a second implementation of the same functions.
//!
//! **Invariant:** no history of times and costs, steps back of the clock included, makes an algorithm admit more than its
//! definition says. Costs and counts saturate at [`Hits::MAX`], which a double holds exactly.
//!
//! What all five have in common:
//! - Every number is whole, and every intermediate result stays below 2^53 (until the year 2155), so that a language which
//!   has only doubles computes the same. `a div b` and `a mod b` are the quotient rounded down and its rest; for whole `a`
//!   and `b` below 2^53 `floor(a / b)` and `a - floor(a / b) * b` in doubles are exactly these.
//! - An empty counter is as good as no counter: whether a store keeps it never shows. What has ended is not remembered
//!   for a clock that comes back to it.
//! - A clock that steps back is held for at most one window: a counter that stands in the window after that of `now` goes
//!   on there; one that stands further ahead is taken as bogus and starts afresh.
//! - A refused cost is not charged (but see `fixed_window`); a peek and a refund are admitted while the counter stands at
//!   or below its limit; a refund ends at an empty counter.

mod fixed_window;
mod gcra;
mod leaky_bucket;
mod remote;
mod slice;
mod sliding_log;
mod sliding_window;
mod state;
#[cfg(test)]
mod tests;
mod token_bucket;

use std::{fmt, num::NonZeroU32, time::Duration};

pub use leaky_bucket::queue_within;
pub use remote::{BucketStep, Found, Parts};
pub use slice::{most_lent, room_to_lend, slice};
pub use sliding_log::MAX_LOG_HITS;
pub use state::{Charged, Scale, State};

/// A number of hits, at most 2^53 − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hits(u64);

impl Hits {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self((1 << 53) - 1);

    /// `n` hits; more than [`Hits::MAX`] is taken as that.
    pub const fn new(n: u64) -> Self {
        if n > Self::MAX.0 { Self::MAX } else { Self(n) }
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// Saturates at [`Hits::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::new(self.0.saturating_add(other.0))
    }

    /// Floored at zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// What one check charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Looks without consuming (`hits_addend: 0` on the descriptor).
    Peek,
    /// Consumes; never zero hits.
    Charge(Hits),
    /// Gives back (`is_negative_hits`), floored at an empty counter.
    Refund(Hits),
}

impl Cost {
    /// A charge of `hits`, or a peek when there are none.
    pub const fn charge(hits: Hits) -> Self {
        if hits.0 == 0 { Self::Peek } else { Self::Charge(hits) }
    }

    /// A refund of `hits`, or a peek when there are none.
    pub const fn refund(hits: Hits) -> Self {
        if hits.0 == 0 { Self::Peek } else { Self::Refund(hits) }
    }

    /// The hits that this would add to a counter: none for a peek or a refund.
    pub const fn hits(self) -> Hits {
        match self {
            Self::Charge(hits) => hits,
            Self::Peek | Self::Refund(_) => Hits::ZERO,
        }
    }

    /// What a plain count of `before` comes to with this.
    const fn applied_to(self, before: Hits) -> Hits {
        match self {
            Self::Peek => before,
            Self::Charge(hits) => before.plus(hits),
            Self::Refund(hits) => before.minus(hits),
        }
    }
}

/// The reference's units. Months and years are blocks of 30 and 365 days from the epoch, not calendar ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    pub const fn secs(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        }
    }

    /// The name in upper case, as the wire and `/rlconfig` show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }
}

/// The length of a window: a unit times a multiplier, at least one second and at most [`Window::MAX_SECS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    unit: Unit,
    multiplier: NonZeroU32,
}

impl Window {
    /// 100 years of 365 days: with two such windows after now, every moment still fits a double in microseconds.
    pub const MAX_SECS: u64 = 100 * 31_536_000;

    /// `None` when the window would be longer than [`Window::MAX_SECS`].
    pub fn new(unit: Unit, multiplier: NonZeroU32) -> Option<Self> {
        let window = Self { unit, multiplier };
        (window.secs() <= Self::MAX_SECS).then_some(window)
    }

    pub fn of(unit: Unit) -> Self {
        Self { unit, multiplier: NonZeroU32::MIN }
    }

    pub fn unit(self) -> Unit {
        self.unit
    }

    pub fn multiplier(self) -> NonZeroU32 {
        self.multiplier
    }

    pub fn secs(self) -> u64 {
        u64::from(self.unit.secs()) * u64::from(self.multiplier.get())
    }

    pub fn micros(self) -> u64 {
        self.secs() * 1_000_000
    }

    pub fn length(self) -> Duration {
        Duration::from_secs(self.secs())
    }
}

/// How a limit counts; each definition is in its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    /// `burst`: the capacity in hits.
    TokenBucket {
        burst: u32,
    },
    /// `burst`: how many hits may wait; `max_delay`: how long one may.
    LeakyBucket {
        burst: u32,
        max_delay: Duration,
    },
}

impl Algorithm {
    /// The name in the rules file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::TokenBucket { .. } => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
        }
    }
}

/// How much per which window, by which algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    pub requests_per_unit: u32,
    pub window: Window,
    pub algorithm: Algorithm,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.window.unit().name().to_ascii_lowercase();
        match self.window.multiplier().get() {
            1 => write!(f, "{}/{unit}", self.requests_per_unit),
            n => write!(f, "{}/{n} {unit}s", self.requests_per_unit),
        }
    }
}
