//! What `grpc.health.v1.Health` says, and whether those who ask for it regularly know. Knows nothing of why.

mod protocol;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Mutex as AsyncMutex, time::Instant};
use tonic_health::{ServingStatus, server::HealthReporter};

pub(super) use self::protocol::Protocol;

/// The services whose health is known: all of this server, and the reference's name for it. Others are `NOT_FOUND`, and to who watches them
/// `SERVICE_UNKNOWN`.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// How often it is looked whether all who ask have been told; only at the end of the process.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What one who was told gets to stop sending. An Envoy hands the news to its threads at once, unless another host's health
/// changed just before: then at the end of that second (`update_merge_window` of its clusters, 1 s by default).
const NEWS_TRAVELS: Duration = Duration::from_millis(1_100);

/// One that asks more often than this may still be late by so much: its machine is busy.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(1);

/// The handle to turn. `Check` answers with, and `Watch` is pushed, what was set last; only changes are pushed.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
    serving: Arc<AsyncMutex<bool>>,
    askers: Arc<Askers>,
}

impl Health {
    /// Not serving yet.
    pub async fn new() -> Self {
        let health =
            Self { reporter: HealthReporter::new(), serving: Arc::default(), askers: Arc::default() };
        health.report(ServingStatus::NotServing).await;
        health
    }

    pub async fn set_serving(&self) {
        let mut serving = self.serving.lock().await;
        if !*serving {
            self.askers.forget_what_was_told();
            self.report(ServingStatus::Serving).await;
            *serving = true;
        }
    }

    pub async fn set_not_serving(&self) {
        let mut serving = self.serving.lock().await;
        if *serving {
            self.report(ServingStatus::NotServing).await;
            // Only now: who asked in between may have heard the old answer, and counts as not told.
            self.askers.told_from_now_on();
            *serving = false;
        }
    }

    /// Waits until every client that asks regularly, as an Envoy with active health checks does, has asked again since
    /// [`Health::set_not_serving`]: it sends no more calls here. One that is overdue by a whole interval has stopped asking.
    ///
    /// Bound: `within`.
    pub async fn noticed(&self, within: Duration) {
        let until = Instant::now() + within;
        if !self.askers.are_there() {
            return;
        }
        while self.askers.do_not_know(Instant::now()) && Instant::now() < until {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        tokio::time::sleep_until(until.min(Instant::now() + NEWS_TRAVELS)).await;
    }

    async fn report(&self, status: ServingStatus) {
        for name in NAMES {
            self.reporter.set_service_status(name, status).await;
        }
    }

    pub(super) fn reporter(&self) -> HealthReporter {
        self.reporter.clone()
    }

    pub(super) fn askers(&self) -> Arc<Askers> {
        Arc::clone(&self.askers)
    }
}

/// The connections on which health was asked for, as long as they are open.
#[derive(Debug, Default)]
pub(super) struct Askers {
    next: AtomicU64,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// Whether the answer is "not serving" now.
    telling: bool,
    by: HashMap<u64, Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    last: Instant,
    /// `None` after the first time: whether there will be a second is not known.
    interval: Option<Duration>,
    told: bool,
}

impl Record {
    /// It is not told yet, and will ask again.
    fn is_awaited(&self, now: Instant) -> bool {
        let patience = |interval: Duration| interval.saturating_mul(2).max(SHORTEST_PATIENCE);
        let due = self.interval.and_then(|interval| self.last.checked_add(patience(interval)));
        !self.told && due.is_some_and(|due| now < due)
    }
}

impl Askers {
    /// One connection, which may come to ask.
    pub(super) fn asker(self: Arc<Self>) -> Asker {
        Asker { id: self.next.fetch_add(1, Ordering::Relaxed), askers: self }
    }

    fn told_from_now_on(&self) {
        self.asked.lock().telling = true;
    }

    fn forget_what_was_told(&self) {
        let mut asked = self.asked.lock();
        asked.telling = false;
        asked.by.values_mut().for_each(|record| record.told = false);
    }

    fn are_there(&self) -> bool {
        self.asked.lock().by.values().any(|record| record.interval.is_some())
    }

    fn do_not_know(&self, now: Instant) -> bool {
        self.asked.lock().by.values().any(|record| record.is_awaited(now))
    }
}

/// A connection's place among those who ask; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Asker {
    id: u64,
    askers: Arc<Askers>,
}

impl Asker {
    /// It asks now.
    pub(super) fn asks(&self, now: Instant) {
        let mut asked = self.askers.asked.lock();
        let told = asked.telling;
        let record = asked.by.entry(self.id);
        record
            .and_modify(|record| {
                *record = Record {
                    last: now,
                    interval: Some(now.saturating_duration_since(record.last)),
                    told: record.told || told,
                };
            })
            .or_insert(Record { last: now, interval: None, told });
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.askers.asked.lock().by.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long the wait takes on a clock that jumps from timer to timer.
    async fn wait(health: &Health) -> Duration {
        let began = Instant::now();
        health.noticed(60 * SECOND).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_who_does_not_ask_regularly() {
        let health = Health::new().await;
        health.set_serving().await;
        let once = health.askers().asker();
        once.asks(Instant::now());
        health.set_not_serving().await;
        assert_eq!(wait(&health).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_regular_asker_is_waited_for_until_it_was_told() {
        let health = Health::new().await;
        health.set_serving().await;
        let regular = health.askers().asker();
        for _ in 0..2 {
            regular.asks(Instant::now());
            tokio::time::advance(SECOND).await;
        }
        health.set_not_serving().await;
        let asks_again = async {
            tokio::time::advance(SECOND / 2).await;
            regular.asks(Instant::now());
        };
        let (waited, ()) = tokio::join!(wait(&health), asks_again);
        assert!(
            waited >= SECOND / 2 && waited <= SECOND / 2 + NEWS_TRAVELS + 2 * LOOK_INTERVAL,
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_asking_or_goes_away_holds_nothing_up() {
        let health = Health::new().await;
        health.set_serving().await;
        let silent = health.askers().asker();
        for _ in 0..2 {
            silent.asks(Instant::now());
            tokio::time::advance(SECOND).await;
        }
        health.set_not_serving().await;
        let waited = wait(&health).await;
        let overdue = SECOND + NEWS_TRAVELS;
        assert!(
            waited >= overdue && waited <= overdue + 2 * LOOK_INTERVAL,
            "overdue by an interval: {waited:?}"
        );
        health.set_serving().await;
        silent.asks(Instant::now());
        health.set_not_serving().await;
        drop(silent);
        assert_eq!(wait(&health).await, Duration::ZERO);
    }
}
