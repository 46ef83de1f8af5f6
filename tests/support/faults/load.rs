//! Callers that go on asking whatever happens, and what they saw: what was answered when, and how long it took.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The answer of a store or server that works.
pub const OK: &str = "OK";

/// A question a time, whether the ones before are answered or not: as many callers as it takes.
pub const EVERY: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub asked: Instant,
    pub took: Duration,
    pub said: &'static str,
}

impl Answer {
    pub fn came(&self) -> Instant {
        self.asked + self.took
    }
}

/// Answers in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    answers: Vec<Answer>,
    /// The longest that this machine did not come round to the callers when it was their turn.
    pub lag: Duration,
}

impl Seen {
    /// Asks every two milliseconds until `done` is, and waits for what is not answered then. `ask` names the answer.
    pub async fn asking<T>(ask: impl AsyncFn() -> &'static str, done: impl Future<Output = T>) -> (Self, T) {
        Self::asking_every(EVERY, ask, done).await
    }

    /// As [`Seen::asking`], at another pace.
    pub async fn asking_every<T>(
        every: Duration,
        ask: impl AsyncFn() -> &'static str,
        done: impl Future<Output = T>,
    ) -> (Self, T) {
        let mut done = std::pin::pin!(done.fuse());
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut asked, mut answers) = (FuturesUnordered::new(), Vec::new());
        let mut lag = Duration::ZERO;
        let value = loop {
            tokio::select! {
                due = ticks.tick() => {
                    lag = lag.max(due.elapsed());
                    asked.push(timed(&ask));
                }
                Some(answer) = asked.next() => answers.push(answer),
                value = &mut done => break value,
            }
        };
        answers.extend(asked.collect::<Vec<_>>().await);
        (Self { answers, lag }, value)
    }

    /// What was asked between two moments.
    #[must_use]
    pub fn between(&self, from: Instant, to: Instant) -> Self {
        self.only(|answer| (from..to).contains(&answer.asked))
    }

    /// What had been answered before a moment.
    #[must_use]
    pub fn before(&self, moment: Instant) -> Self {
        self.only(|answer| answer.came() < moment)
    }

    fn only(&self, wanted: impl Fn(&&Answer) -> bool) -> Self {
        Self { answers: self.answers.iter().filter(wanted).copied().collect(), lag: self.lag }
    }

    pub fn n_all(&self) -> usize {
        self.answers.len()
    }

    /// How long after `healed` the last answer came that was not as in good times.
    pub fn recovery(&self, healed: Instant) -> Duration {
        let bad = self.answers.iter().filter(|answer| answer.said != OK).map(Answer::came);
        bad.max().map_or(Duration::ZERO, |last| last.saturating_duration_since(healed))
    }

    pub fn n(&self, said: &str) -> usize {
        self.answers.iter().filter(|answer| answer.said == said).count()
    }

    /// The time within which `share` of the answers came; zero when there were none.
    pub fn within(&self, share: f64) -> Duration {
        let mut took: Vec<_> = self.answers.iter().map(|answer| answer.took).collect();
        took.sort_unstable();
        let rank = (took.len() as f64 * share).ceil() as usize;
        took.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub fn p99(&self) -> Duration {
        self.within(0.99)
    }
}

async fn timed(ask: &impl AsyncFn() -> &'static str) -> Answer {
    let asked = Instant::now();
    let said = ask().await;
    Answer { asked, took: asked.elapsed(), said }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds = BTreeMap::<_, usize>::new();
        for answer in &self.answers {
            *kinds.entry(answer.said).or_default() += 1;
        }
        let kinds: Vec<_> = kinds.iter().map(|(said, n)| format!("{n} {said}")).collect();
        let ms = |share| self.within(share).as_secs_f64() * 1e3;
        write!(
            f,
            "{} answers ({}); p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
            self.answers.len(),
            kinds.join(", "),
            ms(0.5),
            ms(0.99),
            ms(1.0)
        )
    }
}
