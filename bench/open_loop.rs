//! Calls at a fixed rate, whatever the answers do. The latency of a call is counted from the moment that it was meant for,
//! so that a server that stalls is charged with every call that it kept waiting.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::case::Case;
use crate::client::Client;
use crate::keys::Shape;
use crate::report::AtRate;

/// As Envoy with two worker threads.
const CONNECTIONS: usize = 2;
/// When the last call was sent, answers may take so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many calls are out at a time where only the calls matter.
const AT_ONCE: usize = 100;

pub struct Load<K> {
    pub to: SocketAddr,
    pub case: Case,
    pub rate: u32,
    pub time: Duration,
    pub keys: K,
}

pub struct Outcome {
    latencies: Vec<Duration>,
    pub failed: usize,
}

impl<K: Iterator<Item = usize>> Load<K> {
    pub async fn send(mut self) -> anyhow::Result<Outcome> {
        let clients = connect(self.to).await?;
        let n_calls = (f64::from(self.rate) * self.time.as_secs_f64()) as u32;
        let mut metronome = Metronome::new()?;
        let mut calls = JoinSet::new();
        let start = Instant::now() + Duration::from_millis(50);
        for (i, client) in (0..n_calls).zip(clients.iter().cycle()) {
            let meant = start + Duration::from_secs_f64(f64::from(i) / f64::from(self.rate));
            let frame = Bytes::from(self.case.message(Shape::One, self.keys.next().unwrap_or(0)));
            metronome.wait_for(meant).await?;
            let (client, expect) = (client.clone(), self.case.expects());
            calls.spawn(async move { client.call(frame, expect).await.map(|()| meant.elapsed()) });
        }
        let mut outcome = Outcome { latencies: Vec::new(), failed: 0 };
        while let Ok(Some(call)) = timeout(PATIENCE, calls.join_next()).await {
            match call? {
                Ok(latency) => outcome.latencies.push(latency),
                Err(_) => outcome.failed += 1,
            }
        }
        outcome.failed += calls.len();
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }
}

impl Outcome {
    pub fn sent(&self) -> usize {
        self.latencies.len() + self.failed
    }

    /// `cpu` and `redis` are what the server and its Redis used for it.
    pub fn summary(&self, rate: u32, cpu: Duration, redis: Duration) -> AtRate {
        let micros = |span: Duration| span.as_secs_f64() * 1e6;
        let at = |share: f64| {
            let position = (self.latencies.len() as f64 * share) as usize;
            micros(self.latencies.get(position).copied().unwrap_or_default())
        };
        let a_call = |span: Duration| micros(span) / self.sent() as f64;
        AtRate {
            rate: f64::from(rate),
            cpu: a_call(cpu),
            redis: a_call(redis),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            failed: 100.0 * self.failed as f64 / self.sent() as f64,
        }
    }
}

/// Asks for each key once, as fast as the answers come. Returns how many calls failed.
pub async fn each_once(
    to: SocketAddr,
    case: Case,
    shape: Shape,
    keys: std::ops::Range<usize>,
) -> anyhow::Result<usize> {
    let clients = connect(to).await?;
    let (mut calls, mut failed) = (JoinSet::new(), 0);
    for (key, client) in keys.zip(clients.iter().cycle()) {
        if calls.len() == AT_ONCE {
            failed += usize::from(!matches!(calls.join_next().await, Some(Ok(Ok(())))));
        }
        let client = client.clone();
        calls.spawn(async move { client.call(Bytes::from(case.message(shape, key)), case.expects()).await });
    }
    while let Some(call) = calls.join_next().await {
        failed += usize::from(!matches!(call, Ok(Ok(()))));
    }
    Ok(failed)
}

async fn connect(to: SocketAddr) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(to).await?);
    }
    Ok(clients)
}

/// Waits to the microsecond, which tokio's own timer (to the millisecond) does not.
struct Metronome {
    timer: AsyncFd<std::os::fd::OwnedFd>,
}

impl Metronome {
    #[expect(
        deprecated,
        reason = "an OwnedFd is one file for all its life, so what is unsound about new cannot happen"
    )]
    fn new() -> anyhow::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        Ok(Self { timer: AsyncFd::new(timer)? })
    }

    async fn wait_for(&mut self, moment: Instant) -> anyhow::Result<()> {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let once = Itimerspec { it_interval: Timespec::default(), it_value: left.try_into()? };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.timer.readable().await?.clear_ready();
        Ok(())
    }
}
