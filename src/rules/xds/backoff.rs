//! How long to wait before the next attempt. Knows nothing of what is attempted.

use std::time::Duration;

/// What a wait grows by each time, unless it is set.
const GROWTH: f32 = 2.0;

/// The share of a wait that is random, unless it is set.
const RANDOM_SHARE: f32 = 0.5;

/// No wait is shorter, whatever is set: a server that ends every stream must not be asked without a pause.
const LEAST: Duration = Duration::from_millis(10);

/// Waits that grow from `initial` to `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    pub initial: Duration,
    pub max: Duration,
    /// Up to 1: the share of each wait that is random. Above: what a wait grows by. Zero or less: neither.
    pub factor: f32,
    pub jitter: Jitter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    Random,
    None,
}

/// A schedule, and how far along it we are.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    schedule: Schedule,
    next: Duration,
    random: Random,
}

impl Backoff {
    pub fn new(schedule: Schedule) -> Self {
        Self { next: schedule.initial, schedule, random: Random::new() }
    }

    /// The attempt before was good: the next wait is the first one again.
    pub fn reset(&mut self) {
        self.next = self.schedule.initial;
    }

    /// How long to wait now.
    pub fn wait(&mut self) -> Duration {
        let Schedule { max, factor, jitter, .. } = self.schedule;
        let wait = self.next.min(max).max(LEAST);
        let growth = if factor > 1.0 { factor } else { GROWTH };
        self.next = scaled(wait, growth).unwrap_or(max);
        let share = if factor > 0.0 && factor <= 1.0 { factor } else { RANDOM_SHARE };
        match jitter {
            Jitter::None => wait,
            Jitter::Random => scaled(wait, 1.0 - share * self.random.next()).unwrap_or(wait).max(LEAST),
        }
    }
}

fn scaled(wait: Duration, by: f32) -> Option<Duration> {
    Duration::try_from_secs_f32(wait.as_secs_f32() * by).ok()
}

/// Numbers from 0 to 1 that differ from process to process; good enough to keep replicas apart, and for nothing else.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        Self(RandomState::new().hash_one(0_u8))
    }

    /// SplitMix64.
    #[expect(clippy::cast_precision_loss, reason = "the upper 24 bits are exact in a float")]
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1_u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Schedule = Schedule {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(60),
        factor: 0.5,
        jitter: Jitter::Random,
    };

    fn waits(schedule: Schedule, n: usize) -> Vec<Duration> {
        let mut backoff = Backoff::new(schedule);
        (0..n).map(|_| backoff.wait()).collect()
    }

    #[test]
    fn waits_double_up_to_the_longest_and_start_anew_after_success() {
        let schedule = Schedule { jitter: Jitter::None, ..DEFAULTS };
        assert_eq!(waits(schedule, 5), [10, 20, 40, 60, 60].map(Duration::from_secs));
        let mut backoff = Backoff::new(schedule);
        backoff.wait();
        backoff.wait();
        backoff.reset();
        assert_eq!(backoff.wait(), Duration::from_secs(10));
    }

    #[test]
    fn by_default_a_random_half_of_a_wait_is_left_out() {
        for _ in 0..200 {
            for (wait, most) in waits(DEFAULTS, 4).into_iter().zip([10, 20, 40, 60]) {
                let most = Duration::from_secs(most);
                assert!(most / 2 <= wait && wait <= most, "{wait:?} of {most:?}");
            }
        }
        let (mut one, mut other) = (Backoff::new(DEFAULTS), Backoff::new(DEFAULTS));
        assert!((0..8).any(|_| one.wait() != other.wait()), "two replicas wait alike");
    }

    #[test]
    fn a_factor_above_one_is_the_growth_as_in_the_reference() {
        let schedule = Schedule { factor: 3.0, jitter: Jitter::None, ..DEFAULTS };
        assert_eq!(waits(schedule, 3), [10, 30, 60].map(Duration::from_secs));
        let schedule = Schedule { factor: -1.0, ..schedule };
        assert_eq!(waits(schedule, 3), [10, 20, 40].map(Duration::from_secs));
    }

    #[test]
    fn absurd_schedules_neither_spin_nor_overflow() {
        let zero = Schedule { initial: Duration::ZERO, max: Duration::ZERO, ..DEFAULTS };
        assert!(waits(zero, 3).iter().all(|wait| *wait == LEAST));
        let huge = Schedule {
            initial: Duration::from_secs(1),
            max: Duration::MAX,
            factor: f32::MAX,
            jitter: Jitter::Random,
        };
        assert!(waits(huge, 9).iter().all(|wait| *wait >= LEAST));
    }
}
