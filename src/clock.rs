//! Counting time: which moment it is for a limit. Knows nothing of waiting, which is `tokio::time`'s.
//!
//! **Invariant:** one request reads the clock once and uses that moment for all its descriptors.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A moment: microseconds since the Unix epoch. Below 2^53, so that a double holds it exactly (until the year 2255).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMicros(u64);

impl UnixMicros {
    /// The last moment that a double still holds exactly.
    const MAX: u64 = (1 << 53) - 1;

    /// A moment `micros` microseconds after the epoch; later than 2^53 − 1 is taken as that.
    pub fn new(micros: u64) -> Self {
        Self(micros.min(Self::MAX))
    }

    pub fn from_secs(secs: u64) -> Self {
        Self::new(secs.saturating_mul(1_000_000))
    }

    pub fn get(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub fn secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// This moment and `span` later, to the microsecond.
    pub fn after(self, span: Duration) -> Self {
        Self::new(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long until `later`; zero if it is past.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

/// A moment of a clock that nobody sets, in microseconds: only the span between two of them means something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// This moment and `span` later, to the microsecond.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long until `later`; zero if it is past.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

/// Where moments come from: the process's own clock, or one that a test turns by hand.
#[derive(Clone)]
pub struct Clock(Arc<Source>);

enum Source {
    /// The wall clock at the start plus monotonic time since. `offset` is the wall time, in microseconds, of `start`.
    Process {
        start: Instant,
        offset: AtomicU64,
    },
    Manual(AtomicU64),
}

impl Clock {
    /// How far the wall clock may be from ours before we take it over: more than a slew, less than a second's window.
    const TOLERANCE: Duration = Duration::from_millis(50);

    /// The clock of this process. It never moves by itself other than monotonically; [`Clock::follow_wall`] takes over steps.
    pub fn process() -> Self {
        Self(Arc::new(Source::Process { start: Instant::now(), offset: AtomicU64::new(wall_micros()) }))
    }

    /// A clock that stands still until it is set.
    pub fn manual(at: UnixMicros) -> Self {
        Self(Arc::new(Source::Manual(AtomicU64::new(at.get()))))
    }

    pub fn now(&self) -> UnixMicros {
        UnixMicros::new(match &*self.0 {
            Source::Process { start, offset } => {
                offset.load(Ordering::Relaxed).saturating_add(elapsed_micros(*start))
            }
            Source::Manual(at) => at.load(Ordering::Relaxed),
        })
    }

    /// The time on a clock that no step of the wall clock moves; by a manual clock the same as [`Clock::now`].
    pub fn tick(&self) -> Tick {
        Tick(match &*self.0 {
            Source::Process { start, .. } => elapsed_micros(*start),
            Source::Manual(at) => at.load(Ordering::Relaxed),
        })
    }

    /// Takes over a step of the wall clock, forwards or backwards; call it about once a second.
    ///
    /// A step back is taken over here at once and held where it matters: a counter stays in the later window, for at
    /// most one window (see `limit`).
    pub fn follow_wall(&self) {
        if let Source::Process { start, offset } = &*self.0 {
            let (wall, ours) = (wall_micros(), self.now().get());
            if Duration::from_micros(wall.abs_diff(ours)) > Self::TOLERANCE {
                offset.store(wall.saturating_sub(elapsed_micros(*start)), Ordering::Relaxed);
            }
        }
    }

    /// Turns a manual clock; does nothing to the process's.
    pub fn set(&self, to: UnixMicros) {
        if let Source::Manual(at) = &*self.0 {
            at.store(to.get(), Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

fn elapsed_micros(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
fn wall_micros() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_still_until_it_is_set() {
        let clock = Clock::manual(UnixMicros::from_secs(7));
        clock.follow_wall();
        assert_eq!(clock.now(), UnixMicros::from_secs(7));
        clock.set(UnixMicros::from_secs(3));
        assert_eq!(clock.now().secs(), 3);
    }

    #[test]
    fn the_process_clock_starts_at_the_wall_clock_and_takes_over_its_steps() {
        let clock = Clock::process();
        let Source::Process { offset, .. } = &*clock.0 else { unreachable!("a process clock") };
        let close = |clock: &Clock| clock.now().get().abs_diff(wall_micros()) < 5_000_000;
        assert!(close(&clock));
        for stepped in [|o: u64| o + 3_600_000_000, |o: u64| o - 3_600_000_000] {
            offset.store(stepped(offset.load(Ordering::Relaxed)), Ordering::Relaxed);
            assert!(!close(&clock));
            clock.follow_wall();
            assert!(close(&clock));
        }
    }

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let end = UnixMicros::new(u64::MAX);
        assert_eq!(end.get(), (1 << 53) - 1);
        assert_eq!(end.after(Duration::MAX), end);
        assert_eq!(end.until(UnixMicros::from_secs(0)), Duration::ZERO);
    }
}
