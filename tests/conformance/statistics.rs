//! Where a server's statistics arrive: a statsd that adds up counters, and the lines of a Prometheus page.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::Request;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::http;
use crate::process::LOOK_EVERY;
use crate::server::Server;

/// How often a server sends.
pub const FLUSH_INTERVAL: &str = "200ms";

/// How long a server may take to send what it has counted.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is written by the one side of a connection in this process is read by the other within this.
const READ: Duration = Duration::from_millis(50);

/// The counters that have arrived, by name.
type Counters = Arc<Mutex<BTreeMap<String, i64>>>;

/// A statsd on a port of its own.
pub struct Statsd {
    port: u16,
    counters: Counters,
}

impl Statsd {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, counters) = (listener.local_addr()?.port(), Counters::default());
        let arriving = Arc::clone(&counters);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(read(stream, Arc::clone(&arriving)));
            }
        });
        Ok(Self { port, counters })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The counters whose names begin like one of these, once the server has sent all that it has counted until now.
    pub async fn seen(&self, prefixes: &[String], server: &Server) -> anyhow::Result<Value> {
        // The flush under way may have begun before; the one after it has not.
        let enough = flushes(server).await? + 2;
        let deadline = Instant::now() + PATIENCE;
        while flushes(server).await? < enough {
            if Instant::now() >= deadline {
                bail!("the server sends no statistics");
            }
            sleep(LOOK_EVERY).await;
        }
        sleep(READ).await;
        let counters = self.counters.lock().map(|counters| counters.clone()).unwrap_or_default();
        let wanted = counters
            .into_iter()
            .filter(|(name, n)| *n != 0 && prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())));
        Ok(wanted.map(|(name, n)| (name, json!(n))).collect::<serde_json::Map<_, _>>().into())
    }
}

async fn read(stream: TcpStream, counters: Counters) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let counted = line.rsplit_once(':').and_then(|(name, value)| {
            let (n, kind) = value.split_once('|')?;
            Some((name.to_owned(), n.parse::<i64>().ok().filter(|_| kind == "c")?))
        });
        if let (Some((name, n)), Ok(mut counters)) = (counted, counters.lock()) {
            *counters.entry(name).or_default() += n;
        }
    }
}

/// How many flushes the server has sent whole.
async fn flushes(server: &Server) -> anyhow::Result<u64> {
    let page = page(server.debug.address(), "/metrics").await?;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("tidegate_statistics_flushes_total{result=\"sent\"} "));
    Ok(line.context("no count of the flushes")?.parse()?)
}

/// The lines for Prometheus that begin like one of these, sorted.
pub async fn exposed(prefixes: &[String], server: &Server) -> anyhow::Result<Value> {
    let page = page(server.prometheus.address(), "/metrics").await?;
    let mut lines: Vec<&str> =
        page.lines().filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix.as_str()))).collect();
    lines.sort_unstable();
    Ok(json!(lines))
}

async fn page(address: std::net::SocketAddr, path: &str) -> anyhow::Result<String> {
    let answer = http::send(address, Request::get(path).body(http::Body::default())?).await?;
    if answer.status != 200 {
        bail!("{path}: {}", answer.status);
    }
    Ok(answer.body)
}
