//! Starts the threads that serve, and ends them: one that accepts, and the workers.
//!
//! **Invariant:** [`Server::drain`] returns when every thread has ended; every call that was in flight has then been answered,
//! or was cut at the deadline.

use std::{io, num::NonZeroUsize, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, LocalOptions},
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;

use super::{
    Decide,
    acceptor::Acceptor,
    budget::Budgets,
    dispatch::Dispatch,
    health::{Health, Protocol},
    listener::{Address, Listener},
    worker::{Terms, Worker},
};
use crate::{pb, telemetry::traces::Tracer, tls::Tls};

pub use super::{
    counts::{Counts, Method},
    worker::Ages,
};

/// Calls being answered at once, for the whole process. At 100,000 calls a second that is 100 ms of them, five times what Envoy
/// waits: a call above it would be answered too late, and takes time from those that are not yet. Some 10 kB each.
pub const MAX_IN_FLIGHT: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Connections open at once, for the whole process: one for each thread of each proxy, and room for a thousand proxies of 16.
/// 35 kB each when idle (measured). More wait in the backlog until one ends.
pub const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// The share of these, as a divisor, that may be connections which have not said anything yet.
const GREETING_SHARE: usize = 4;

/// Connections that may wait for a worker which is busy with its calls.
const MAX_HANDOVERS: usize = 256;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that answer calls.
    pub n_workers: NonZeroUsize,
    /// Each worker has its share: a connection belongs to one.
    pub max_in_flight: NonZeroUsize,
    pub max_connections: NonZeroUsize,
    pub budgets: Budgets,
    pub ages: Ages,
    /// `None`: in the clear.
    pub tls: Option<Tls>,
    /// `None`: no call is traced.
    pub tracer: Option<Tracer>,
}

impl Options {
    pub fn with_workers(n_workers: NonZeroUsize) -> Self {
        Self {
            n_workers,
            max_in_flight: MAX_IN_FLIGHT,
            max_connections: MAX_CONNECTIONS,
            budgets: Budgets::default(),
            ages: Ages::default(),
            tls: None,
            tracer: None,
        }
    }

    /// What holds on each worker.
    fn terms(&self) -> Terms {
        let max_greeting = self.max_connections.get().div_ceil(GREETING_SHARE * self.n_workers.get());
        Terms { tls: self.tls.clone(), ages: self.ages, max_greeting }
    }
}

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    #[error("cannot describe the services for reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A server at work. Dropped without a drain, it cuts every connection.
#[derive(Debug)]
pub struct Server {
    address: Address,
    counts: Counts,
    drain: oneshot::Sender<Instant>,
    drained: CancellationToken,
    ended: CancellationToken,
    acceptor: Thread<io::Result<()>>,
    workers: Vec<Thread<usize>>,
}

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had calls under way at the deadline.
    pub n_cut: usize,
}

impl Server {
    /// Serves what comes in on `listener`. Returns when every thread is up.
    ///
    /// `decider` is called once on each worker's thread, with the worker's index, inside its runtime: what it makes may keep
    /// connections and tasks there.
    pub fn start<D: Decide>(
        listener: Listener,
        options: Options,
        health: &Health,
        decider: impl Fn(usize) -> D + Clone + Send + 'static,
    ) -> Result<Self, StartError> {
        let address = listener.address().clone();
        let counts = Counts::of(options.n_workers.get());
        let (drained, ended) = (CancellationToken::new(), CancellationToken::new());
        let routes = routes(health)?;

        let (mut senders, mut workers) = (Vec::new(), Vec::new());
        for (index, counts) in counts.workers().iter().enumerate() {
            let (sender, handovers) = mpsc::channel(MAX_HANDOVERS);
            let (counts, routes, drain) = (Arc::clone(counts), routes.clone(), drained.clone());
            let askers = health.askers();
            let (decider, tracer) = (decider.clone(), options.tracer.clone());
            let (terms, budgets) = (options.terms(), options.budgets);
            let max_in_flight = options.max_in_flight.get().div_ceil(options.n_workers.get());
            let worker = async move |up: Up| {
                let decider = decider(index);
                decider.ready().await;
                let dispatch =
                    Dispatch { decider, budgets, max_in_flight, counts, tracer, routes, askers, drain };
                up.now();
                Worker::new(dispatch, terms).run(handovers).await
            };
            workers.push(spawn(format!("rls-{index}"), ended.clone().drop_guard(), worker)?);
            senders.push(sender);
        }
        let workers = workers.into_iter().map(Starting::up).collect::<io::Result<_>>()?;

        let (drain, asked) = oneshot::channel();
        let acceptor = Acceptor::new(counts.clone(), senders, options.max_connections);
        let accept = async |up: Up| {
            up.now();
            acceptor.run(listener, asked).await
        };
        let acceptor = spawn("rls-accept".to_owned(), ended.clone().drop_guard(), accept)?.up()?;
        Ok(Self { address, counts, drain, drained, ended, acceptor, workers })
    }

    /// The address served on, with the port that was found.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns when a thread has ended that was not asked to: nothing good comes after that.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Accepts what waits, then no more; tells every client to go elsewhere, and waits for the calls in flight.
    ///
    /// Health is the caller's: it says "not serving" before, and waits until that was [noticed](Health::noticed). Bound: `within`, and the time
    /// it takes to close what is left.
    pub async fn drain(self, within: Duration) -> Drained {
        let now = Instant::now();
        // An acceptor that is gone is found below.
        let _ = self.drain.send(now.checked_add(within).unwrap_or(now));
        self.drained.cancel();
        let (acceptor, workers) = (self.acceptor, self.workers);
        let join = move || {
            match acceptor.join() {
                Ok(Some(Ok(())) | None) => {}
                Ok(Some(Err(error))) => tracing::error!(%error, "the acceptor failed"),
                Err(_) => tracing::error!("the acceptor panicked; this is a bug"),
            }
            workers.into_iter().filter_map(|worker| worker.join().ok().flatten()).sum()
        };
        Drained { n_cut: tokio::task::spawn_blocking(join).await.unwrap_or(0) }
    }
}

/// `None` when the thread had no runtime, which was reported when it started.
type Thread<T> = thread::JoinHandle<Option<T>>;

/// A thread that may not be up yet.
struct Starting<T> {
    thread: Thread<T>,
    is_up: std::sync::mpsc::Receiver<io::Result<()>>,
}

impl<T> Starting<T> {
    /// Blocks until it is up.
    fn up(self) -> io::Result<Thread<T>> {
        let ended = || Err(io::Error::other("it ended at once, see the panic above"));
        self.is_up.recv().unwrap_or_else(|_| ended())?;
        Ok(self.thread)
    }
}

/// Says that a thread is up.
struct Up(std::sync::mpsc::SyncSender<io::Result<()>>);

impl Up {
    fn now(self) {
        // The other side waits for this, and for nothing else.
        let _ = self.0.send(Ok(()));
    }
}

/// Runs `main` on a thread and a single-threaded runtime of its own. `ended` is dropped last.
fn spawn<T: Send + 'static>(
    name: String,
    ended: DropGuard,
    main: impl AsyncFnOnce(Up) -> T + Send + 'static,
) -> io::Result<Starting<T>> {
    let (up, is_up) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _ended = ended;
        let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = up.send(Err(error));
                return None;
            }
        };
        let output = runtime.block_on(main(Up(up)));
        runtime.shutdown_background();
        Some(output)
    })?;
    Ok(Starting { thread, is_up })
}

/// What is served beside the hot method.
fn routes(health: &Health) -> Result<Routes, StartError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Routes::builder();
    routes
        .add_service(Protocol::serve(health.reporter()))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(routes.routes().prepare())
}

#[cfg(test)]
mod tests;
