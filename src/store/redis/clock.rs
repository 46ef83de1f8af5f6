//! The node's estimate of a shard's clock, and the number of the window that stands by it.
//!
//! **Invariant:** a window's number goes back only when the shard's clock went back by more than one window: a smaller
//! step is held, as the pure function of `fixed_window` holds it.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use crate::clock::UnixMicros;

#[derive(Debug, Default)]
pub struct ShardClock {
    /// Microseconds that the shard's clock is ahead of this process's.
    ahead: AtomicI64,
    /// The latest estimate that was used.
    latest: AtomicU64,
    /// In microseconds: how long the latest reading took.
    uncertain: AtomicU64,
}

impl ShardClock {
    /// Takes over a reading of the shard's clock that was asked for at `asked` of this process's and took `round_trip`.
    ///
    /// The reading is right within half a round trip, so a difference smaller than that says nothing and is dropped.
    pub fn sample(&self, asked: UnixMicros, round_trip: Duration, reading: UnixMicros) {
        let half = signed(u64::try_from(round_trip.as_micros() / 2).unwrap_or(u64::MAX));
        let ahead = signed(reading.get()).saturating_sub(signed(asked.get())).saturating_sub(half);
        let known = self.ahead.load(Ordering::Relaxed);
        self.uncertain.store(2 * half.unsigned_abs(), Ordering::Relaxed);
        if ahead.abs_diff(known) > half.unsigned_abs() {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }

    /// Microseconds that the shard's clock is ahead of this process's; negative if behind.
    pub fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// How far the estimate can be from what the shard's clock shows: a reading is right within half its round trip, and one
    /// that differs by no more than that was not taken over.
    pub fn uncertainty(&self) -> Duration {
        Duration::from_micros(self.uncertain.load(Ordering::Relaxed))
    }

    /// What the shard's clock shows when this process's shows `now`.
    pub fn at(&self, now: UnixMicros) -> UnixMicros {
        UnixMicros::new(now.get().saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// The window, so many microseconds long, that `moment` is counted in: its own, or the one after it if that had begun.
    pub fn window(&self, moment: UnixMicros, length: u64) -> u64 {
        let latest = self.latest.load(Ordering::Relaxed);
        if latest < moment.get() {
            self.latest.fetch_max(moment.get(), Ordering::Relaxed);
        }
        let number = |micros: u64| micros.checked_div(length).unwrap_or(0);
        let own = number(moment.get());
        if number(latest) == own + 1 { own + 1 } else { own }
    }
}

/// Moments are below 2^53.
fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_reading_is_set_against_the_middle_of_its_round_trip() {
        let clock = ShardClock::default();
        let asked = UnixMicros::from_secs(100);
        clock.sample(asked, Duration::from_millis(2), UnixMicros::new(asked.get() + 5_001_000));
        assert_eq!(clock.ahead(), 5_000_000);
        assert_eq!(clock.at(asked).secs(), 105);
        clock.sample(asked, Duration::from_secs(2), UnixMicros::new(asked.get() + 5_900_000));
        assert_eq!(clock.ahead(), 5_000_000, "half a second more, by a reading that is a second uncertain");
        clock.sample(asked, Duration::ZERO, UnixMicros::new(asked.get() - 7));
        assert_eq!(clock.ahead(), -7);
    }

    #[test]
    fn a_small_step_back_is_held_and_a_large_one_is_not() {
        let clock = ShardClock::default();
        let at = |secs| clock.window(UnixMicros::from_secs(secs), 10 * SECOND);
        assert_eq!(at(100), 10);
        assert_eq!(at(99), 10, "held");
        assert_eq!(at(85), 8, "more than one window");
        assert_eq!(at(101), 10);
        assert_eq!(at(110), 11);
    }
}
