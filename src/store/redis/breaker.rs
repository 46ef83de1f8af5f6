//! When to stop asking a shard: closed → open → one probe → closed. Knows neither Redis nor what an error means.
//!
//! **Invariant:** while it is not closed at most one call at a time is let through, and none in the first `PAUSE`. As long
//! as all goes well, asking it writes nothing.

use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Failures in a row that open it: more than one dropped packet or one lost connection, less than a second's worth of
/// anything that is really broken.
const FAILURES: u32 = 5;

/// Between a failure that opens it and the next probe: short, because recovery is to be seen within two seconds.
const PAUSE: Duration = Duration::from_millis(250);

/// A probe that is not heard of for so long is taken as lost (its caller went away).
const PROBE_LOST: Duration = Duration::from_secs(1);

/// What a breaker says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    Go,
    /// This call decides whether it closes.
    Probe,
    Stop,
}

/// For metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open,
    Probing,
}

impl BreakerState {
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Probing];

    /// The label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Probing => "probing",
        }
    }
}

#[derive(Debug)]
pub struct Breaker {
    state: Mutex<State>,
    /// [`QUIET`], or that the lock has to be taken.
    mood: AtomicU8,
    trips: AtomicU64,
}

/// Closed, and no failure since the last success.
const QUIET: u8 = 0;
const UNQUIET: u8 = 1;

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        failures: u32,
    },
    /// `untried`: there is a new connection since.
    Open {
        until: Instant,
        untried: bool,
    },
    Probing {
        since: Instant,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: Mutex::new(State::Closed { failures: 0 }),
            mood: AtomicU8::new(QUIET),
            trips: AtomicU64::new(0),
        }
    }
}

impl Breaker {
    /// Asks for leave; an answer other than [`Permit::Stop`] is owed a [`Breaker::success`] or a [`Breaker::failure`].
    pub fn permit(&self, now: Instant) -> Permit {
        if self.mood.load(Ordering::Relaxed) == QUIET {
            return Permit::Go;
        }
        let mut state = self.state.lock();
        match *state {
            State::Closed { .. } => Permit::Go,
            State::Open { until, .. } if now < until => Permit::Stop,
            State::Probing { since } if now < since + PROBE_LOST => Permit::Stop,
            State::Open { .. } | State::Probing { .. } => {
                *state = State::Probing { since: now };
                Permit::Probe
            }
        }
    }

    /// The shard answered. Says whether that closed the breaker.
    pub fn success(&self) -> bool {
        if self.mood.load(Ordering::Relaxed) == QUIET {
            return false;
        }
        let mut state = self.state.lock();
        let closes = match *state {
            State::Closed { .. } => false,
            // A straggler from before: not what was asked.
            State::Open { .. } => return false,
            State::Probing { .. } => true,
        };
        *state = State::Closed { failures: 0 };
        self.mood.store(QUIET, Ordering::Relaxed);
        closes
    }

    /// The shard failed. Says whether that opened the breaker.
    pub fn failure(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        self.mood.store(UNQUIET, Ordering::Relaxed);
        let open = State::Open { until: now + PAUSE, untried: false };
        match *state {
            State::Closed { failures } if failures + 1 < FAILURES => {
                *state = State::Closed { failures: failures + 1 };
                false
            }
            State::Closed { .. } => {
                *state = open;
                self.trips.fetch_add(1, Ordering::Relaxed);
                true
            }
            State::Probing { .. } => {
                *state = open;
                false
            }
            State::Open { .. } => false,
        }
    }

    /// There is a new connection: the next call may try it.
    pub fn reconnected(&self, now: Instant) {
        let mut state = self.state.lock();
        if let State::Open { .. } = *state {
            *state = State::Open { until: now, untried: true };
        }
    }

    pub fn state(&self) -> BreakerState {
        match *self.state.lock() {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::Probing { .. } => BreakerState::Probing,
        }
    }

    /// Whether it failed too often, as far as is known: a new connection may do better.
    pub fn is_tripped(&self) -> bool {
        match *self.state.lock() {
            State::Closed { .. } => false,
            State::Open { untried, .. } => !untried,
            State::Probing { .. } => true,
        }
    }

    /// How often it opened since the start.
    pub fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> Breaker {
        let breaker = Breaker::default();
        for n in 1..=FAILURES {
            assert_eq!(breaker.permit(now), Permit::Go);
            assert_eq!(breaker.failure(now), n == FAILURES);
        }
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_probe_closes_it() {
        let start = Instant::now();
        let breaker = opened(start);
        assert_eq!((breaker.state(), breaker.trips()), (BreakerState::Open, 1));
        assert_eq!(breaker.permit(start + PAUSE - Duration::from_millis(1)), Permit::Stop);
        let later = start + PAUSE;
        assert_eq!(breaker.permit(later), Permit::Probe);
        assert_eq!(breaker.permit(later), Permit::Stop);
        assert!(breaker.success());
        assert_eq!(breaker.permit(later), Permit::Go);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_success_between_makes_the_count_start_again() {
        let now = Instant::now();
        let breaker = Breaker::default();
        for _ in 0..3 {
            for _ in 1..FAILURES {
                assert!(!breaker.failure(now));
            }
            assert!(!breaker.success());
        }
        assert_eq!(breaker.trips(), 0);
    }

    #[test]
    fn a_failed_probe_opens_it_again_and_is_no_new_trip() {
        let start = Instant::now();
        let breaker = opened(start);
        assert_eq!(breaker.permit(start + PAUSE), Permit::Probe);
        assert!(!breaker.failure(start + PAUSE));
        assert_eq!(breaker.permit(start + PAUSE), Permit::Stop);
        assert_eq!(breaker.permit(start + 2 * PAUSE), Permit::Probe);
        assert_eq!(breaker.trips(), 1);
    }

    #[test]
    fn a_lost_probe_is_followed_by_another() {
        let start = Instant::now();
        let breaker = opened(start);
        assert_eq!(breaker.permit(start + PAUSE), Permit::Probe);
        assert_eq!(breaker.permit(start + PAUSE + PROBE_LOST), Permit::Probe);
    }

    #[test]
    fn a_straggler_does_not_close_it_and_a_new_connection_brings_the_probe_forward() {
        let start = Instant::now();
        let breaker = opened(start);
        assert!(!breaker.success());
        assert_eq!(breaker.permit(start), Permit::Stop);
        breaker.reconnected(start);
        assert_eq!(breaker.permit(start), Permit::Probe);
    }
}
