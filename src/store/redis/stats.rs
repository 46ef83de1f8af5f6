//! What a shard did, for metrics: plain numbers that only grow, and a few that say how it is.
//!
//! **Invariant:** fixed size, whatever happens; recording never waits.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the latency buckets, in microseconds; one more bucket holds the rest. From a loopback's best to the
/// longest budget.
pub const LATENCY_BOUNDS: [u64; 13] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

const N_BUCKETS: usize = LATENCY_BOUNDS.len() + 1;

/// Times from the write of a batch to its last reply.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; N_BUCKETS],
    sum_micros: AtomicU64,
}

impl Latency {
    pub(super) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many took at most each of [`LATENCY_BOUNDS`] and more than the one before; the last: more than all.
    pub fn buckets(&self) -> [u64; N_BUCKETS] {
        self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed))
    }

    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros.load(Ordering::Relaxed))
    }
}

/// Why a charge got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No connection, or lost while waiting.
    Io,
    /// No reply within the budget.
    Timeout,
    /// The breaker was open: not asked.
    Open,
    /// The server is there and cannot: LOADING, READONLY, OOM, CLUSTERDOWN, …
    State,
    /// The server does not let us: NOAUTH, NOPERM, a proxy that knows no scripts.
    Denied,
    /// The key holds something else.
    WrongType,
    /// A cluster sent us round in circles.
    Redirect,
    /// Anything else that the server said.
    Other,
}

impl ErrorKind {
    pub const ALL: [Self; 8] = [
        Self::Io,
        Self::Timeout,
        Self::Open,
        Self::State,
        Self::Denied,
        Self::WrongType,
        Self::Redirect,
        Self::Other,
    ];

    /// The label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Timeout => "timeout",
            Self::Open => "breaker_open",
            Self::State => "server_state",
            Self::Denied => "denied",
            Self::WrongType => "wrong_type",
            Self::Redirect => "redirect",
            Self::Other => "other",
        }
    }
}

/// Counters of one shard.
#[derive(Debug, Default)]
pub struct Stats {
    pub latency: Latency,
    errors: [AtomicU64; ErrorKind::ALL.len()],
    opened: AtomicU64,
    closed: AtomicU64,
}

impl Stats {
    pub(super) fn error(&self, kind: ErrorKind) {
        if let Some(counter) = self.errors.get(kind as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Charges that failed so, since the start.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors.get(kind as usize).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    pub(super) fn connection_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections made, since the start.
    pub fn connections_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Connections lost or given up, since the start.
    pub fn connections_closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Connections that are usable now.
    pub fn connections_open(&self) -> u64 {
        self.connections_opened().saturating_sub(self.connections_closed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_counted_once_in_the_bucket_that_holds_it() {
        let latency = Latency::default();
        for micros in [0, 100, 101, 1_000_000, 5_000_000] {
            latency.record(Duration::from_micros(micros));
        }
        let buckets = latency.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[12], buckets[13]), (2, 1, 1, 1));
        assert_eq!(buckets.iter().sum::<u64>(), 5);
        assert_eq!(latency.sum(), Duration::from_micros(6_000_201));
    }

    #[test]
    fn each_kind_of_error_has_its_own_counter() {
        let stats = Stats::default();
        ErrorKind::ALL.into_iter().enumerate().for_each(|(n, kind)| (0..=n).for_each(|_| stats.error(kind)));
        assert_eq!(ErrorKind::ALL.map(|kind| stats.errors(kind)), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
