//! What the edge counts about itself: a set per worker, so that two cores share no cache line, summed when read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;

use crate::telemetry::timing::{Timed, Timing};

/// The methods whose calls are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ShouldRateLimit,
    /// Of health.
    Check,
}

impl Method {
    pub const ALL: [Self; 2] = [Self::ShouldRateLimit, Self::Check];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "ShouldRateLimit",
            Self::Check => "Check",
        }
    }
}

/// The counts of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerCounts {
    calls: [AtomicU64; 2],
    timings: [Timing; 2],
    invalid: AtomicU64,
    shed: AtomicU64,
    in_flight: AtomicUsize,
    connections: AtomicUsize,
    handshakes: AtomicU64,
    refused_handshakes: AtomicU64,
}

impl WorkerCounts {
    pub(super) fn calls(&self) -> u64 {
        self.calls_of(Method::ShouldRateLimit)
    }

    fn calls_of(&self, method: Method) -> u64 {
        self.calls.get(method as usize).map_or(0, |calls| calls.load(Relaxed))
    }

    /// Counts a call in, before it is answered.
    pub(super) fn called(&self, method: Method) {
        if let Some(calls) = self.calls.get(method as usize) {
            calls.fetch_add(1, Relaxed);
        }
    }

    /// A call was answered, so long after its first bytes were read.
    pub(super) fn answered(&self, method: Method, span: Duration) {
        if let Some(timing) = self.timings.get(method as usize) {
            timing.took(span);
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    pub(super) fn invalid(&self) {
        self.invalid.fetch_add(1, Relaxed);
    }

    pub(super) fn handshake(&self) {
        self.handshakes.fetch_add(1, Relaxed);
    }

    pub(super) fn refused_handshake(&self) {
        self.refused_handshakes.fetch_add(1, Relaxed);
    }

    /// Counts a call in, or sheds it: above `bound` there is no ticket.
    pub(super) fn call(&self, bound: usize) -> Option<InFlight<'_>> {
        self.called(Method::ShouldRateLimit);
        if self.in_flight.fetch_add(1, Relaxed) < bound {
            return Some(InFlight(self));
        }
        self.in_flight.fetch_sub(1, Relaxed);
        self.shed.fetch_add(1, Relaxed);
        None
    }
}

/// A call being answered, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a WorkerCounts);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A connection of a worker, from the moment it is given to it until it is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<CachePadded<WorkerCounts>>);

impl Open {
    pub(super) fn of(counts: &Arc<CachePadded<WorkerCounts>>) -> Self {
        counts.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// The counts of all workers.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<Arc<CachePadded<WorkerCounts>>>);

impl Counts {
    pub(super) fn of(n_workers: usize) -> Self {
        Self((0..n_workers).map(|_| Arc::default()).collect())
    }

    pub(super) fn workers(&self) -> &[Arc<CachePadded<WorkerCounts>>] {
        &self.0
    }

    /// Calls of `ShouldRateLimit` since the start, whatever became of them.
    pub fn calls(&self) -> u64 {
        self.0.iter().map(|worker| worker.calls()).sum()
    }

    /// Calls of a method since the start.
    pub fn calls_of(&self, method: Method) -> u64 {
        self.0.iter().map(|worker| worker.calls_of(method)).sum()
    }

    /// How long the answered calls of a method took, from their first bytes on.
    pub fn timed(&self, method: Method) -> Timed {
        Timed::of(self.0.iter().filter_map(|worker| worker.timings.get(method as usize)))
    }

    /// Calls of `ShouldRateLimit` that did not say what they may: answered `INVALID_ARGUMENT`.
    pub fn invalid(&self) -> u64 {
        self.0.iter().map(|worker| worker.invalid.load(Relaxed)).sum()
    }

    /// Calls of `ShouldRateLimit` that found too many others in flight: answered `UNAVAILABLE`.
    pub fn shed(&self) -> u64 {
        self.0.iter().map(|worker| worker.shed.load(Relaxed)).sum()
    }

    /// Calls being answered now.
    pub fn in_flight(&self) -> usize {
        self.0.iter().map(|worker| worker.in_flight.load(Relaxed)).sum()
    }

    /// TLS handshakes that came to a good end, and that one of the sides refused. Those that were just given up are in neither.
    pub fn handshakes(&self) -> (u64, u64) {
        let sum = |count: fn(&WorkerCounts) -> &AtomicU64| {
            self.0.iter().map(|worker| count(worker).load(Relaxed)).sum()
        };
        (sum(|worker| &worker.handshakes), sum(|worker| &worker.refused_handshakes))
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.0.iter().map(|worker| worker.connections()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_above_the_bound_are_shed_until_one_ends() {
        let counts = Counts::of(1);
        let worker = &counts.workers()[0];
        let first = worker.call(2).unwrap();
        let _second = worker.call(2).unwrap();
        assert!(worker.call(2).is_none());
        assert_eq!((counts.calls(), counts.in_flight(), counts.shed()), (3, 2, 1));
        drop(first);
        assert!(worker.call(2).is_some());
        assert_eq!((counts.in_flight(), counts.shed()), (1, 1));
    }

    #[test]
    fn connections_are_counted_while_they_are_open() {
        let counts = Counts::of(2);
        let open = counts.workers().iter().map(Open::of).collect::<Vec<_>>();
        assert_eq!(counts.connections(), 2);
        drop(open);
        assert_eq!(counts.connections(), 0);
    }
}
