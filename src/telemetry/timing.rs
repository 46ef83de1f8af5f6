//! How long calls took: counts and sums by bucket, in cells. The buckets hold the reference's bounds, and finer ones below.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of the buckets, in microseconds. From 5 ms on they are Prometheus' defaults, which the reference has; below,
/// where decisions are made, they are finer.
const BOUNDS: [u64; N_BOUNDS] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

const N_BOUNDS: usize = 17;

/// Durations so far. One more bucket than there are bounds: the last is for what is above them all.
#[derive(Debug, Default)]
pub struct Timing([Cell; N_BOUNDS + 1]);

#[derive(Debug, Default)]
struct Cell {
    n: AtomicU64,
    nanos: AtomicU64,
}

/// Durations of one bucket alone, as they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub n: u64,
    pub nanos: u64,
}

/// Durations as they were read: a bucket for each bound, in their order, and one above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timed([Bucket; N_BOUNDS + 1]);

impl Timing {
    pub fn took(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(cell) = self.0.get(bucket) {
            cell.n.fetch_add(1, Relaxed);
            cell.nanos.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        }
    }
}

impl Timed {
    /// The sum of what several threads have seen.
    pub fn of<'t>(timings: impl Iterator<Item = &'t Timing>) -> Self {
        let mut sums = Self::default();
        for timing in timings {
            for (sum, cell) in sums.0.iter_mut().zip(&timing.0) {
                sum.n = sum.n.wrapping_add(cell.n.load(Relaxed));
                sum.nanos = sum.nanos.wrapping_add(cell.nanos.load(Relaxed));
            }
        }
        sums
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.0
    }

    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, bucket| sum.wrapping_add(bucket.n))
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.iter().fold(0, |sum, bucket| sum.wrapping_add(bucket.nanos)))
    }

    /// How many took at most so long. Exact for a bound of the buckets; between two of them, those of the lower one.
    pub fn at_most(&self, span: Duration) -> u64 {
        let n_buckets = BOUNDS.partition_point(|bound| Duration::from_micros(*bound) <= span);
        self.0.iter().take(n_buckets).fold(0, |sum, bucket| sum.wrapping_add(bucket.n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_exactly_a_bound_is_within_it() {
        let (one, other) = (Timing::default(), Timing::default());
        for millis in [5, 6, 25, 20_000] {
            one.took(Duration::from_millis(millis));
        }
        other.took(Duration::from_micros(10));
        let timed = Timed::of([&one, &other].into_iter());
        let at_most = |millis| timed.at_most(Duration::from_millis(millis));
        assert_eq!([0, 1, 5, 9, 10, 25, 10_000].map(at_most), [0, 1, 2, 2, 3, 4, 4]);
        assert_eq!((timed.count(), timed.sum()), (5, Duration::from_micros(20_036_010)));
    }
}
