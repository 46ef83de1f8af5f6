//! A TCP proxy in front of a server, in which the weather changes.
//!
//! Invariant: bytes arrive complete and in order, or the connection ends; as on a real network, nothing in between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::port::Port;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Every byte takes so much longer, in each direction; how many are on the way does not matter.
    Slow(Duration),
    /// Connections are accepted and nothing arrives. What was sent meanwhile arrives when that ends, as what a network
    /// lost is sent again.
    Silent,
    /// Connections are refused, the open ones cut.
    Refusing,
    /// Connections are accepted and closed at once, the open ones cut: as a refusal, but it can be counted.
    Closing,
    /// As behind a proxy that knows no scripts: a connection on which one is sent is closed.
    NoScripts,
}

/// How many chunks a direction of a connection holds on their way: a sender that sends more than that waits.
const ON_THE_WAY: usize = 1024;

pub struct Proxy {
    port: Port,
    weather: watch::Sender<Weather>,
    target: Arc<Mutex<SocketAddr>>,
    counts: Arc<Counts>,
    acceptor: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    n_connections: AtomicU64,
    n_bytes_up: AtomicU64,
}

impl Proxy {
    /// Listens in front of `target`, which need not be there yet.
    pub async fn to(target: SocketAddr) -> anyhow::Result<Self> {
        Self::on(Port::reserve()?, target).await
    }

    async fn on(port: Port, target: SocketAddr) -> anyhow::Result<Self> {
        let (weather, seen) = watch::channel(Weather::Fair);
        let counts = Arc::<Counts>::default();
        let listener = TcpListener::bind(port.address()).await?;
        let target = Arc::new(Mutex::new(target));
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&target), seen, Arc::clone(&counts)));
        Ok(Self { port, weather, target, counts, acceptor })
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Connections from now on lead there.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock() = target;
    }

    /// Connections accepted so far.
    pub fn n_connections(&self) -> u64 {
        self.counts.n_connections.load(Ordering::Relaxed)
    }

    /// Bytes that came from the clients so far.
    pub fn n_bytes_up(&self) -> u64 {
        self.counts.n_bytes_up.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Accepts until it is aborted, which ends the connections too.
async fn accept(
    listener: TcpListener,
    target: Arc<Mutex<SocketAddr>>,
    mut seen: watch::Receiver<Weather>,
    counts: Arc<Counts>,
) {
    let Ok(address) = listener.local_addr() else { return };
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let weather = *seen.borrow_and_update();
        if matches!(weather, Weather::Refusing | Weather::Closing) {
            connections.shutdown().await;
        }
        if weather == Weather::Refusing {
            listener = None;
            if seen.changed().await.is_err() {
                return;
            }
            continue;
        }
        if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let Some(open) = &listener else { return };
        tokio::select! {
            accepted = open.accept() => {
                let Ok((client, _)) = accepted else { continue };
                counts.n_connections.fetch_add(1, Ordering::Relaxed);
                if weather != Weather::Closing {
                    let target = *target.lock();
                    connections.spawn(carry(client, target, seen.clone(), Arc::clone(&counts)));
                }
            }
            changed = seen.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection both ways until either side ends it.
async fn carry(client: TcpStream, target: SocketAddr, seen: watch::Receiver<Weather>, counts: Arc<Counts>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let count = move |n| {
        counts.n_bytes_up.fetch_add(n, Ordering::Relaxed);
    };
    tokio::select! {
        () = one_way(from_client, to_server, seen.clone(), count) => {}
        () = one_way(from_server, to_client, seen, |_| {}) => {}
    }
}

async fn one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut seen: watch::Receiver<Weather>,
    count: impl Fn(u64),
) {
    let (on_the_way, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let watched = seen.clone();
    let read = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            count(n as u64);
            let chunk = buffer.get(..n).unwrap_or_default().to_vec();
            if *watched.borrow() == Weather::NoScripts && mentions_scripts(&chunk) {
                break;
            }
            if on_the_way.send((Instant::now(), chunk)).await.is_err() {
                break;
            }
        }
        drop(on_the_way);
    };
    let write = async {
        while let Some((sent, chunk)) = arriving.recv().await {
            let Ok(weather) =
                seen.wait_for(|weather| *weather != Weather::Silent).await.map(|weather| *weather)
            else {
                break;
            };
            if let Weather::Slow(by) = weather {
                sleep_until(sent + by).await;
            }
            if to.write_all(&chunk).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(read, write);
}

fn mentions_scripts(chunk: &[u8]) -> bool {
    let said = String::from_utf8_lossy(chunk);
    ["EVAL", "SCRIPT", "TIME"].iter().any(|word| said.contains(word))
}
