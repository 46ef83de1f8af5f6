//! Chooses the worker of a new connection: the one with the fewest calls of late, then the one with the fewest connections.
//!
//! Connections differ: one proxy's thread may bring a hundred times the calls of another's, and a connection stays with its
//! worker for hours. A new one is expected to be like the others until its calls are seen. Pure, and told the time.

use std::time::Duration;

use tokio::time::Instant;

/// How far back "of late" goes: each call weighs e^(−age/this).
const LATE: Duration = Duration::from_secs(10);

/// Loads are alike when they differ by less than this share, or by fewer calls than [`ALIKE_CALLS`].
const ALIKE_SHARE: f64 = 0.1;
const ALIKE_CALLS: f64 = 10.0;

/// What a worker says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Since its start.
    pub(super) calls: u64,
    /// Open now.
    pub(super) connections: usize,
}

#[derive(Debug)]
pub(super) struct Balance {
    loads: Vec<Load>,
    read_at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// What the last reading said.
    calls: u64,
    /// Calls of late, weighed.
    recent: f64,
}

impl Balance {
    pub(super) fn new(now: Instant) -> Self {
        Self { loads: Vec::new(), read_at: now }
    }

    /// The index of the worker to take, which is expected to get the connection; 0 if there is none.
    ///
    /// Shapes: one reading per worker, in the same order every time.
    pub(super) fn choose(&mut self, now: Instant, readings: &[Reading]) -> usize {
        self.take_in(now, readings);
        let lightest = self.loads.iter().map(|load| load.recent).fold(f64::INFINITY, f64::min);
        let alike = lightest * (1.0 + ALIKE_SHARE) + ALIKE_CALLS;
        let chosen = (0..)
            .zip(self.loads.iter().zip(readings))
            .filter(|(_, (load, _))| load.recent <= alike)
            .min_by_key(|(_, (_, reading))| reading.connections)
            .map_or(0, |(worker, _)| worker);
        self.expect_calls(chosen, readings);
        chosen
    }

    fn take_in(&mut self, now: Instant, readings: &[Reading]) {
        let late = LATE.as_secs_f64();
        let elapsed = now.saturating_duration_since(self.read_at).as_secs_f64();
        let kept = (-elapsed / late).exp();
        // What a steady stream of one call in all that time would weigh.
        let weight = if elapsed > 0.0 { (1.0 - kept) * late / elapsed } else { 1.0 };
        self.loads.resize(readings.len(), Load::default());
        self.read_at = now;
        for (load, reading) in self.loads.iter_mut().zip(readings) {
            let n_new = reading.calls.saturating_sub(load.calls);
            load.recent = load.recent * kept + n_new as f64 * weight;
            load.calls = reading.calls;
        }
    }

    /// Many connections may come before the first of them calls: each is counted in with what the others bring on average.
    fn expect_calls(&mut self, worker: usize, readings: &[Reading]) {
        let recent: f64 = self.loads.iter().map(|load| load.recent).sum();
        let connections: usize = readings.iter().map(|reading| reading.connections).sum();
        if let Some(load) = self.loads.get_mut(worker) {
            load.recent += recent / connections.max(1) as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens `n` connections at one moment and says how many each worker has then.
    fn open(balance: &mut Balance, now: Instant, readings: &mut [Reading], n: usize) -> Vec<usize> {
        for _ in 0..n {
            let chosen = balance.choose(now, readings);
            readings[chosen].connections += 1;
        }
        readings.iter().map(|reading| reading.connections).collect()
    }

    fn idle(n_workers: usize) -> Vec<Reading> {
        vec![Reading { calls: 0, connections: 0 }; n_workers]
    }

    #[test]
    fn without_calls_connections_are_spread_evenly() {
        let (mut balance, mut readings) = (Balance::new(Instant::now()), idle(3));
        assert_eq!(open(&mut balance, Instant::now(), &mut readings, 7), [3, 2, 2]);
    }

    #[test]
    fn the_worker_with_fewer_calls_is_taken_although_it_has_more_connections() {
        let start = Instant::now();
        let (mut balance, mut readings) = (Balance::new(start), idle(2));
        open(&mut balance, start, &mut readings, 2);
        readings[0].calls = 100_000;
        readings[1].connections = 5;
        readings[1].calls = 10_000;
        let later = start + Duration::from_secs(5);
        assert_eq!(balance.choose(later, &readings), 1);
    }

    #[test]
    fn calls_that_are_alike_leave_it_to_the_connections() {
        let start = Instant::now();
        let (mut balance, mut readings) = (Balance::new(start), idle(2));
        readings[0] = Reading { calls: 100_000, connections: 9 };
        readings[1] = Reading { calls: 104_000, connections: 8 };
        assert_eq!(balance.choose(start + Duration::from_secs(5), &readings), 1);
    }

    #[test]
    fn a_burst_of_connections_goes_to_the_lightest_only_until_it_is_as_heavy_as_the_others() {
        let start = Instant::now();
        let (mut balance, mut readings) = (Balance::new(start), idle(2));
        open(&mut balance, start, &mut readings, 20);
        readings[0].calls = 60_000;
        readings[1].calls = 40_000;
        let later = start + Duration::from_secs(5);
        assert_eq!(open(&mut balance, later, &mut readings, 3), [10, 13]);
        assert_eq!(open(&mut balance, later, &mut readings, 97), [60, 60]);
    }

    #[test]
    fn old_calls_are_forgotten() {
        let start = Instant::now();
        let (mut balance, mut readings) = (Balance::new(start), idle(2));
        readings[0] = Reading { calls: 1_000_000, connections: 1 };
        readings[1] = Reading { calls: 0, connections: 2 };
        assert_eq!(balance.choose(start + Duration::from_secs(1), &readings), 1);
        readings[1].connections = 3;
        assert_eq!(balance.choose(start + Duration::from_secs(600), &readings), 0);
    }

    #[test]
    fn no_worker_is_no_panic() {
        assert_eq!(Balance::new(Instant::now()).choose(Instant::now(), &[]), 0);
    }
}
