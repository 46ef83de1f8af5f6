//! One worker's connection to one server, kept by a task of its own: made, watched, given up, made again.
//!
//! **Invariant:** what was written is never written again, and what could not be written is not kept: without a
//! connection a call fails at once.

use std::{sync::Arc, time::Duration};

use redis::{Pipeline, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::debug;

use super::{
    batch::Abilities,
    config::Server,
    dial::{Dialled, Driver},
    hello::{self, Hello},
    sentinel,
    shard::Shard,
    shared::Shared,
    stats::ErrorKind,
};

/// How often a quiet connection is looked at, and the server's clock read.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a connection that is suspected may take to answer before it is given up.
const SUSPECT_PATIENCE: Duration = Duration::from_millis(500);

/// A timeout shorter than this says more about the caller than about the server.
const SHORTEST_FAULT: Duration = Duration::from_millis(10);

/// How often the sentinels are asked who the master is.
const ASK_SENTINELS_EVERY: Duration = Duration::from_secs(1);

/// Between attempts to reconnect: at first, and at most. With what an attempt itself may take, a server that is back is
/// found within two seconds.
const RECONNECT_FIRST: Duration = Duration::from_millis(25);
const RECONNECT_MOST: Duration = Duration::from_millis(500);

/// Which server a link leads to.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Fixed(Server),
    /// Whatever the sentinels call the master.
    Master,
}

/// Where a link stands.
#[derive(Clone, Debug)]
enum Phase {
    /// The first attempt is not over.
    Connecting,
    Up(MultiplexedConnection, Abilities),
    Down,
}

/// A connection, or the lack of one.
#[derive(Debug)]
pub(super) struct Link {
    pub shard: Arc<Shard>,
    phase: watch::Receiver<Phase>,
    replace: Arc<Notify>,
    keeper: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Link {
    /// Starts the task on this worker's runtime.
    pub fn open(shared: &Arc<Shared>, shard: Arc<Shard>, target: Target, probe_key: Vec<u8>) -> Self {
        let (sender, phase) = watch::channel(Phase::Connecting);
        let replace = Arc::new(Notify::new());
        let keeper = Keeper {
            shared: shared.clone(),
            shard: shard.clone(),
            target,
            probe_key,
            phase: sender,
            replace: replace.clone(),
        };
        Self { shard, phase, replace, keeper: tokio::spawn(keeper.keep()) }
    }

    /// The connection, if there is one.
    pub fn connection(&self) -> Option<(MultiplexedConnection, Abilities)> {
        match &*self.phase.borrow() {
            Phase::Up(connection, abilities) => Some((connection.clone(), *abilities)),
            Phase::Connecting | Phase::Down => None,
        }
    }

    /// Waits until the first attempt to connect is over.
    pub async fn tried(&self, until: Instant) {
        let mut phase = self.phase.clone();
        // Both errors mean that there is no connection, which the caller finds out by itself.
        let _ = timeout_at(until, phase.wait_for(|phase| !matches!(phase, Phase::Connecting))).await;
    }

    /// This server is no longer the right one: look for it again.
    pub fn replace(&self) {
        self.replace.notify_one();
    }

    /// Writes the commands and waits for all their replies, at most until `deadline`.
    ///
    /// Cancel safe: what was written is executed, and its replies are dropped when they come.
    pub async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, ErrorKind> {
        let began = Instant::now();
        match timeout_at(deadline, connection.send_packed_commands(pipeline, 0, pipeline.len())).await {
            Ok(Ok(replies)) => {
                self.shard.stats.latency.record(began.elapsed());
                Ok(replies)
            }
            Ok(Err(error)) => {
                // The keeper tells the breaker: one lost connection is one failure, however many waited on it.
                debug!(shard = self.shard.name(), %error, "a batch was lost");
                Err(ErrorKind::Io)
            }
            Err(_) => {
                if began.elapsed() >= SHORTEST_FAULT {
                    self.shard.failed(ErrorKind::Timeout);
                }
                Err(ErrorKind::Timeout)
            }
        }
    }
}

/// The task behind a link.
struct Keeper {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    target: Target,
    probe_key: Vec<u8>,
    phase: watch::Sender<Phase>,
    replace: Arc<Notify>,
}

impl Keeper {
    async fn keep(self) {
        let mut failed = 0;
        let began = Instant::now();
        loop {
            match self.connect().await {
                Ok((server, dialled, abilities)) => {
                    failed = 0;
                    let counted = Counted::up(&self.shard);
                    self.phase.send_replace(Phase::Up(dialled.connection.clone(), abilities));
                    let why = self.watch(&server, dialled).await;
                    self.phase.send_replace(Phase::Down);
                    counted.down(&why);
                }
                Err(why) => {
                    failed += 1;
                    self.phase.send_replace(Phase::Down);
                    self.shard.complain(&why);
                    self.shard.failed(ErrorKind::Io);
                    self.shared.give_up_after(began.elapsed());
                }
            }
            // Another worker that reached the server shows that it is there.
            tokio::select! {
                () = sleep(self.pause(failed)) => {}
                () = self.shard.reached.notified(), if failed > 0 => {}
            }
        }
    }

    /// Before the next attempt, when so many failed in a row.
    fn pause(&self, failed: u32) -> Duration {
        let (first, most) = if self.shard.was_ever_connected() {
            (RECONNECT_FIRST, RECONNECT_MOST)
        } else {
            let startup = self.shared.config.startup;
            (startup.initial_interval, startup.max_interval)
        };
        let span = first.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(most);
        // Between half of it and all of it, so that many replicas do not come at once.
        span.mul_f64(0.5 + self.shared.fraction() / 2.0)
    }

    async fn connect(&self) -> Result<(Server, Dialled, Abilities), String> {
        let server = match &self.target {
            Target::Fixed(server) => server.clone(),
            Target::Master => sentinel::master(&self.shared).await?,
        };
        let mut dialled = self.shared.dialer.dial(&server).await?;
        let hello = Hello {
            keys: self.shared.config.keys,
            in_cluster: self.shared.is_cluster(),
            probe_key: &self.probe_key,
            patience: self.shared.dialer.patience(),
        };
        let said = hello.say(&mut dialled.connection, &self.shard, &self.shared.clock).await;
        let abilities = said.map_err(|why| self.with_hint(&server, why))?;
        Ok((server, dialled, abilities))
    }

    /// Under TLS 1.3 a server that wants a certificate closes a connection that seemed open, and its reason may be lost.
    fn with_hint(&self, server: &Server, why: String) -> String {
        let shows_none = self.shared.config.tls.as_ref().is_none_or(|tls| tls.client.is_none());
        if self.shared.dialer.speaks_tls(server) && shows_none && why.contains("closed the connection") {
            format!("{why}: does it want a client certificate?")
        } else {
            why
        }
    }

    /// Until the connection is lost or given up; says why.
    async fn watch(&self, server: &Server, dialled: Dialled) -> String {
        let Dialled { mut connection, driver: mut closed } = dialled;
        let mut next_look = Instant::now() + LOOK_EVERY.mul_f64(0.5 + self.shared.fraction() / 2.0);
        let mut next_ask = Instant::now() + ASK_SENTINELS_EVERY;
        loop {
            let next =
                if matches!(self.target, Target::Master) { next_look.min(next_ask) } else { next_look };
            let patience = tokio::select! {
                _ = ended(&mut closed) => return "the server closed the connection".to_owned(),
                () = self.replace.notified() => return "the server takes no writes any more".to_owned(),
                () = self.shard.suspect.notified() => SUSPECT_PATIENCE,
                () = tokio::time::sleep_until(next) => self.shared.dialer.patience(),
            };
            let now = Instant::now();
            if matches!(self.target, Target::Master) && now >= next_ask {
                next_ask = now + ASK_SENTINELS_EVERY;
                // Sentinels that do not answer are no reason to leave a master that does.
                if let Ok(master) = sentinel::master(&self.shared).await
                    && master.endpoint != server.endpoint
                {
                    return format!("the master is {} now", master.endpoint);
                }
                if now < next_look {
                    continue;
                }
            }
            next_look = now + LOOK_EVERY;
            if let Err(why) = self.look(&mut connection, patience).await {
                return why;
            }
        }
    }

    /// Whether the connection still answers.
    async fn look(&self, connection: &mut MultiplexedConnection, patience: Duration) -> Result<(), String> {
        if self.shared.reads_clocks() && !self.shard.is_plain_only() {
            return hello::sample(connection, &self.shard, &self.shared.clock, patience).await;
        }
        match timeout(patience, connection.send_packed_command(&redis::cmd("PING"))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err("the server closed the connection".to_owned()),
            Err(_) => Err(format!("the server is silent for {patience:?}")),
        }
    }
}

async fn ended(driver: &mut Driver) {
    // A driver that was aborted or panicked has ended too.
    let _ = (&mut driver.0).await;
}

/// Keeps the count of open connections right, also when the keeper is aborted.
struct Counted<'a>(Option<&'a Shard>);

impl<'a> Counted<'a> {
    fn up(shard: &'a Shard) -> Self {
        shard.connected();
        Self(Some(shard))
    }

    fn down(mut self, why: &str) {
        if let Some(shard) = self.0.take() {
            shard.disconnected(why);
            shard.failed(ErrorKind::Io);
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(shard) = self.0.take() {
            shard.stats.connection_closed();
        }
    }
}
