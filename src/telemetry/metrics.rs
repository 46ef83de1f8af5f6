//! What the process counts, beside what each rule counts about itself. Cells only: `admin::exposition` shows them.
//!
//! **Invariant:** nothing here grows with what a client sends; the names that it brings are bounded.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    per_worker::PerWorker,
    rules::{Posture, RuleCounters},
    stats::Names,
};

/// How a request that could be read ended, over gRPC and `/json` alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Ok,
    OverLimit,
    /// No rules, or the store could not say.
    Unavailable,
}

impl CallOutcome {
    pub const ALL: [Self; 3] = [Self::Ok, Self::OverLimit, Self::Unavailable];

    /// The label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OverLimit => "over_limit",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What became of a finished span of a traced call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    Sent,
    /// The queue was full, or the collector did not take it.
    Dropped,
}

impl SpanOutcome {
    pub const ALL: [Self; 2] = [Self::Sent, Self::Dropped];

    /// The label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
        }
    }
}

/// Upper bounds of the latency buckets, in microseconds: from a decision in memory to the longest budget.
const BUCKETS: [u64; 14] =
    [25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000];

#[derive(Debug, Default)]
struct Calls {
    outcomes: [AtomicU64; 3],
    /// One more than the bounds: the last is for what is above them all.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanos: AtomicU64,
    unknown_domains: AtomicU64,
    /// Requests that found no rules at all.
    without_rules: AtomicU64,
    /// Requests of `/json` that did not say what they may.
    invalid_json: AtomicU64,
    /// Requests that are over their limit and were let through because nothing is enforced (`SHADOW_MODE`).
    let_through: AtomicU64,
    postures: [AtomicU64; Posture::ALL.len()],
}

/// How long the decisions so far took.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    pub sum_seconds: f64,
    pub count: u64,
    /// (upper bound in seconds, decisions in this bucket alone), ascending; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

/// How the sending of statistics went, by flush.
#[derive(Debug, Default)]
pub struct Sending {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Sending {
    pub fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Flushes whose lines all went out, and those of which some are to go out with a later one.
    pub fn flushes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// The process's own counters.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Decisions by limits that came with the request.
    pub overrides: RuleCounters,
    /// What the statistics count by names that callers bring; `None`: nobody wants statistics.
    names: Option<Names>,
    /// How the sending of statistics went.
    pub sending: Sending,
    calls: PerWorker<Calls>,
    reloads_ok: AtomicU64,
    reloads_failed: AtomicU64,
    last_reload_failed: AtomicU64,
    spans: [AtomicU64; SpanOutcome::ALL.len()],
}

impl Metrics {
    /// Keeps statistics under these names; `None`: under none.
    pub fn with_names(names: Option<Names>) -> Self {
        Self { names, ..Self::default() }
    }

    /// The names that callers brought, if they are counted.
    pub fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// Counts one request that was decided, or not, in `elapsed`.
    pub fn called(&self, outcome: CallOutcome, elapsed: Duration) {
        let mine = self.calls.mine();
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|bound| *bound < micros);
        let cells = [mine.outcomes.get(outcome as usize), mine.buckets.get(bucket)];
        cells.into_iter().flatten().for_each(|cell| _ = cell.fetch_add(1, Ordering::Relaxed));
        mine.nanos.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts a descriptor that asked in a domain that no rules are for.
    pub fn unknown_domain(&self) {
        self.calls.mine().unknown_domains.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a counter that could not be charged, by what its rule says then.
    pub fn posture_applied(&self, posture: Posture) {
        if let Some(cell) = self.calls.mine().postures.get(posture as usize) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn postures_applied(&self, posture: Posture) -> u64 {
        sum(self.calls.all().filter_map(|calls| calls.postures.get(posture as usize)))
    }

    pub fn reloaded(&self) {
        self.reloads_ok.fetch_add(1, Ordering::Relaxed);
        self.last_reload_failed.store(0, Ordering::Relaxed);
    }

    pub fn reload_failed(&self) {
        self.reloads_failed.fetch_add(1, Ordering::Relaxed);
        self.last_reload_failed.store(1, Ordering::Relaxed);
    }

    /// Counts `n` finished spans.
    pub fn spans(&self, outcome: SpanOutcome, n: usize) {
        if let Some(cell) = self.spans.get(outcome as usize) {
            cell.fetch_add(u64::try_from(n).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Spans that ended so.
    pub fn n_spans(&self, outcome: SpanOutcome) -> u64 {
        self.spans.get(outcome as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    pub fn calls(&self, outcome: CallOutcome) -> u64 {
        sum(self.calls.all().filter_map(|calls| calls.outcomes.get(outcome as usize)))
    }

    pub fn found_no_rules(&self) {
        self.calls.mine().without_rules.fetch_add(1, Ordering::Relaxed);
    }

    pub fn invalid_json(&self) {
        self.calls.mine().invalid_json.fetch_add(1, Ordering::Relaxed);
    }

    pub fn let_through(&self) {
        self.calls.mine().let_through.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that found no rules at all; among those that are [`CallOutcome::Unavailable`].
    pub fn n_without_rules(&self) -> u64 {
        sum(self.calls.all().map(|calls| &calls.without_rules))
    }

    /// Requests of `/json` that did not say what they may.
    pub fn n_invalid_json(&self) -> u64 {
        sum(self.calls.all().map(|calls| &calls.invalid_json))
    }

    /// Requests over their limit that `SHADOW_MODE` let through.
    pub fn n_let_through(&self) -> u64 {
        sum(self.calls.all().map(|calls| &calls.let_through))
    }

    pub fn unknown_domains(&self) -> u64 {
        sum(self.calls.all().map(|calls| &calls.unknown_domains))
    }

    pub fn latencies(&self) -> Latencies {
        let bounds =
            BUCKETS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64()).chain([f64::INFINITY]);
        let count = |i: usize| sum(self.calls.all().filter_map(|calls| calls.buckets.get(i)));
        let buckets: Vec<_> = bounds.enumerate().map(|(i, bound)| (bound, count(i))).collect();
        Latencies {
            sum_seconds: Duration::from_nanos(sum(self.calls.all().map(|calls| &calls.nanos))).as_secs_f64(),
            count: buckets.iter().map(|(_, n)| n).sum(),
            buckets,
        }
    }

    /// Loads of the rules that succeeded and that failed so far.
    pub fn reloads(&self) -> (u64, u64) {
        (self.reloads_ok.load(Ordering::Relaxed), self.reloads_failed.load(Ordering::Relaxed))
    }

    /// 1 while the files as they are now were refused and older rules are in force, else 0.
    pub fn last_reload_failed(&self) -> u64 {
        self.last_reload_failed.load(Ordering::Relaxed)
    }
}

fn sum<'a>(cells: impl Iterator<Item = &'a AtomicU64>) -> u64 {
    cells.fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_first_bucket_that_holds_it() {
        let metrics = Metrics::default();
        for micros in [0, 25, 26, 1_000_000, 1_000_001] {
            metrics.called(CallOutcome::Ok, Duration::from_micros(micros));
        }
        let latencies = metrics.latencies();
        let filled: Vec<_> = latencies.buckets.iter().filter(|(_, n)| *n > 0).copied().collect();
        assert_eq!(filled, [(0.000_025, 2), (0.000_05, 1), (1.0, 1), (f64::INFINITY, 1)]);
        assert_eq!(latencies.count, 5);
        assert!((latencies.sum_seconds - 2.000_052).abs() < 1e-9);
        assert_eq!(CallOutcome::ALL.map(|outcome| metrics.calls(outcome)), [5, 0, 0]);
    }

    #[test]
    fn a_failed_reload_shows_until_the_next_good_one() {
        let metrics = Metrics::default();
        metrics.reload_failed();
        assert_eq!((metrics.reloads(), metrics.last_reload_failed()), ((0, 1), 1));
        metrics.reloaded();
        assert_eq!((metrics.reloads(), metrics.last_reload_failed()), ((1, 1), 0));
    }
}
