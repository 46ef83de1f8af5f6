//! Accepts connections, one after the other, and gives each to a worker. Reads nothing from them.
//!
//! **Invariant:** at the drain, what waits in the backlog is accepted and served before the listener is closed.

use std::{convert::Infallible, io, num::NonZeroUsize, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};

use super::{
    balance::{Balance, Reading},
    counts::{Counts, Open},
    io::Accepted,
    listener::{Accepting, Listener},
    worker::Handover,
};
use crate::telemetry::trouble::Trouble;

/// How long to leave it after an error that is not one connection's (no more file descriptors), and how long while the
/// process is full.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Acceptor {
    counts: Counts,
    /// As many as there are counts, in the same order.
    workers: Vec<mpsc::Sender<Handover>>,
    balance: Balance,
    max_connections: usize,
}

impl Acceptor {
    pub(super) fn new(
        counts: Counts,
        workers: Vec<mpsc::Sender<Handover>>,
        max_connections: NonZeroUsize,
    ) -> Self {
        let balance = Balance::new(Instant::now());
        Self { counts, workers, balance, max_connections: max_connections.get() }
    }

    /// Accepts until the drain, whose deadline is awaited, or until its owner is gone. Errors: no reactor for the listener.
    pub(super) async fn run(
        mut self,
        listener: Listener,
        drain: oneshot::Receiver<Instant>,
    ) -> io::Result<()> {
        let accepting = listener.accepting()?;
        let deadline = tokio::select! {
            deadline = drain => deadline.unwrap_or_else(|_| Instant::now()),
            never = self.accept(&accepting) => match never {},
        };
        for waiting in accepting.last() {
            self.hand_over(waiting).await;
        }
        for worker in &self.workers {
            // A worker that is gone has nothing to drain.
            let _ = worker.send(Handover::Drain { deadline }).await;
        }
        Ok(())
    }

    async fn accept(&mut self, accepting: &Accepting) -> Infallible {
        let mut trouble = Trouble::default();
        loop {
            if self.counts.connections() >= self.max_connections {
                trouble.report("as many connections are open as may be; new ones wait");
                sleep(PAUSE).await;
                continue;
            }
            match accepting.next().await {
                Ok(accepted) => self.hand_over(accepted).await,
                Err(error) if is_the_connections(&error) => {}
                Err(error) => {
                    trouble.report(&format!("cannot accept connections: {error}"));
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn hand_over(&mut self, accepted: Accepted) {
        let workers = self.counts.workers();
        let readings: Vec<_> = workers
            .iter()
            .map(|worker| Reading { calls: worker.calls(), connections: worker.connections() })
            .collect();
        let chosen = self.balance.choose(Instant::now(), &readings);
        if let (Some(counts), Some(worker)) = (workers.get(chosen), self.workers.get(chosen))
            && worker.send(Handover::Connection(accepted, Open::of(counts))).await.is_err()
        {
            tracing::error!(worker = chosen, "a worker is gone, and its connections with it; this is a bug");
        }
    }
}

/// Whether an error of `accept` is about the connection and not about us: the next one may be fine (accept(2)).
fn is_the_connections(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}
