//! Clients that send without a pause, and an Envoy that asks about every request: so much as one failed call is seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::Request;
use anyhow::ensure;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::http::{Body, Client};
use crate::lab::Envoy;
use crate::port::Port;

pub const RULES: &str = "
domain: lab
descriptors:
- { key: generic_key, value: everything, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
";
const CLIENTS: usize = 4;
/// Calls that must pass between one event and the next, so that the servers are never without load.
pub const CALLS: usize = 500;

/// Clients that send one request after the other until they are told to stop.
pub struct Load {
    clients: JoinSet<anyhow::Result<()>>,
    stop: Arc<AtomicBool>,
    passed: mpsc::Receiver<()>,
    n_passed: u64,
}

impl Load {
    pub async fn start(envoy: &Envoy) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (report, passed) = mpsc::channel(CALLS);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let mut client = Client::connect(envoy.listener_address()).await?;
            let (stop, report) = (stop.clone(), report.clone());
            clients.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.send(Request::get("/").body(Body::default())?).await?;
                    ensure!(answer.status == 200, "{answer:?}");
                    report.send(()).await?;
                }
                Ok(())
            });
        }
        Ok(Self { clients, stop, passed, n_passed: 0 })
    }

    /// Returns when so many more calls have passed; fails when the clients have.
    pub async fn passes(&mut self, calls: usize) -> anyhow::Result<()> {
        for _ in 0..calls {
            if self.passed.recv().await.is_none() {
                self.clients.join_next().await.unwrap_or(Ok(Ok(())))??;
            }
            self.n_passed += 1;
        }
        Ok(())
    }

    /// Lets the load go on while something else is waited for.
    pub async fn during<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                passed = self.passes(1) => passed?,
            }
        }
    }

    /// Ends the load. Returns how many calls have passed.
    pub async fn end(mut self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        while self.passed.recv().await.is_some() {
            self.n_passed += 1;
        }
        while let Some(client) = self.clients.join_next().await {
            client??;
        }
        Ok(self.n_passed)
    }
}

/// An Envoy whose cluster of servers has these health checks and this transport socket, if any.
pub async fn envoy(health_check: &str, transport_socket: &str, ports: &[Arc<Port>]) -> anyhow::Result<Envoy> {
    let endpoints = ports.iter().map(|port| endpoint(port)).collect::<Vec<_>>().join(", ");
    let marks = [
        ("@health_checks@", health_check),
        ("@endpoints@", &endpoints),
        ("@transport_socket@", transport_socket),
    ];
    let envoy = Envoy::start(include_str!("restart.yaml"), &marks).await?;
    envoy.until_stat("cluster.rls.membership_healthy", ports.len() as u64).await?;
    Ok(envoy)
}

fn endpoint(port: &Port) -> String {
    let address = format!("{{ address: 127.0.0.1, port_value: {} }}", port.number());
    format!("{{ endpoint: {{ address: {{ socket_address: {address} }} }} }}")
}

/// Every call was answered, and Envoy saw no error.
pub async fn check(envoy: &Envoy, passed: u64) -> anyhow::Result<()> {
    assert_eq!(envoy.stat("cluster.loop.ratelimit.error").await?, 0);
    assert_eq!(envoy.stat("cluster.loop.ratelimit.ok").await?, passed);
    Ok(())
}
