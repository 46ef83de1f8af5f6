//! Which keys a worker is asked for most, and which it refuses most, in fixed memory, whatever clients send.
//!
//! Every call is counted, none is sampled. A call counts half after [`HALF_LIFE`]: instead of taking from what was counted,
//! what comes later weighs more. Time is given from outside.
//!
//! Each worker has a sketch of its own; they are put together when they are read. A worker never waits for a reader: what it
//! would have to wait for goes uncounted.

mod summary;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

pub use self::summary::{Listed, MAX_NAME, Summary};
use super::SketchKeeps;
use crate::{
    clock::UnixMicros,
    key::{CounterKey, KeyId},
    rules::RuleCounters,
};

/// After this time a call counts half: short enough to see a flood within a second, long enough that a key of a few calls a
/// second shows a steady rate.
pub const HALF_LIFE: Duration = Duration::from_secs(2);

/// Keys that have a counter, and cells for the others. A key that makes more than 1/128 of the calls is among them.
const HOTTEST: summary::Size = summary::Size { n_counters: 256, n_cells: 4096 };

/// The same for refused calls, which are fewer.
const REFUSED: summary::Size = summary::Size { n_counters: 64, n_cells: 1024 };

/// The weight is reckoned anew after this time, in microseconds: by then it has grown by a third of a per cent.
const STEP: u64 = 10_000;

/// A clock that is so far behind has stepped back; less is a request that took its time.
const STEPPED_BACK: u64 = 10_000_000;

/// After so many half-lives all is made smaller by as much.
const RESCALE_AFTER: f64 = 64.0;

/// How often a key is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    pub calls_per_second: f64,
    pub hits_per_second: f64,
}

impl Rate {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls_per_second: self.calls_per_second + other.calls_per_second,
            hits_per_second: self.hits_per_second + other.hits_per_second,
        }
    }
}

/// One charge that was decided.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub key: &'a CounterKey,
    /// The counters of the rule that it is for; `None` for a limit that came with the request.
    pub rule: Option<&'a Arc<RuleCounters>>,
    pub hits: u64,
    pub refused: bool,
}

/// One worker's sketch.
#[derive(Debug)]
pub struct Sketch {
    keeps: SketchKeeps,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    decay: Decay,
    hottest: Summary,
    refused: Summary,
}

/// Both parts of a sketch, as they were at one moment; a weight of one is a call of that moment.
#[derive(Clone, Debug)]
pub struct Reading {
    pub hottest: Summary,
    pub refused: Summary,
}

impl Sketch {
    pub fn new(keeps: SketchKeeps) -> Self {
        let state =
            State { decay: Decay::default(), hottest: Summary::new(HOTTEST), refused: Summary::new(REFUSED) };
        Self { keeps, state: Mutex::new(state) }
    }

    /// Counts what was decided at `now`. Never waits.
    pub fn record<'a>(&self, now: UnixMicros, seen: impl Iterator<Item = Seen<'a>>) {
        let Some(mut state) = self.state.try_lock() else { return };
        let State { decay, hottest, refused } = &mut *state;
        if let Some(factor) = decay.advance(now) {
            hottest.scale(factor);
            refused.scale(factor);
        }
        for one in seen {
            hottest.add(&one, decay.weight, self.keeps);
            if one.refused {
                refused.add(&one, decay.weight, self.keeps);
            }
        }
    }

    /// How often this worker is asked for a key; a lower bound, zero for a key that is none of the hottest.
    ///
    /// An average over the last seconds: after a key's traffic began, half of it shows after [`HALF_LIFE`].
    pub fn rate(&self, key: KeyId, now: UnixMicros) -> Rate {
        let state = self.state.lock();
        let Some((calls, hits)) = state.hottest.find(key) else { return Rate::default() };
        let per_second = per_second(state.decay.weight_at(now));
        Rate { calls_per_second: calls * per_second, hits_per_second: hits * per_second }
    }

    /// All that is known at `now`.
    pub fn read(&self, now: UnixMicros) -> Reading {
        let (mut hottest, mut refused, weight) = {
            let state = self.state.lock();
            (state.hottest.clone(), state.refused.clone(), state.decay.weight_at(now))
        };
        hottest.scale(1.0 / weight);
        refused.scale(1.0 / weight);
        Reading { hottest, refused }
    }

    /// Its memory, which never changes.
    pub fn bytes(&self) -> usize {
        let state = self.state.lock();
        size_of::<Self>() + state.hottest.bytes() + state.refused.bytes()
    }
}

/// The calls a second that a decayed count stands for, when the last of them had this weight: what calls at an even rate add
/// up to is that of the mean lifetime, which is the half-life divided by ln 2.
pub(super) fn per_second(weight: f64) -> f64 {
    std::f64::consts::LN_2 / HALF_LIFE.as_secs_f64() / weight
}

/// What a call weighs.
#[derive(Debug)]
struct Decay {
    /// When a call weighed one; in microseconds.
    origin: i128,
    /// When `weight` was right.
    at: u64,
    weight: f64,
}

impl Default for Decay {
    fn default() -> Self {
        Self { origin: 0, at: 0, weight: 1.0 }
    }
}

impl Decay {
    /// Takes the time over; the factor that all is to be scaled by, if it is.
    fn advance(&mut self, now: UnixMicros) -> Option<f64> {
        let now = now.get();
        if now.abs_diff(self.at) < STEP || (now < self.at && self.at - now < STEPPED_BACK) {
            return None;
        }
        self.take(now)
    }

    #[cold]
    fn take(&mut self, now: u64) -> Option<f64> {
        if now < self.at {
            self.origin -= i128::from(self.at - now);
        }
        self.at = now;
        let halvings = self.halvings(now);
        if halvings < RESCALE_AFTER {
            self.weight = halvings.exp2();
            return None;
        }
        (self.origin, self.weight) = (i128::from(now), 1.0);
        Some((-halvings).exp2())
    }

    fn weight_at(&self, now: UnixMicros) -> f64 {
        if now.get() > self.at { self.halvings(now.get()).exp2() } else { self.weight }.max(f64::MIN_POSITIVE)
    }

    fn halvings(&self, now: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "of 2^53 microseconds at most none is lost")]
        let since = (i128::from(now) - self.origin) as f64;
        since / (HALF_LIFE.as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests;
