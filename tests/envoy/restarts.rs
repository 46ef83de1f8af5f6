//! Servers and connections that are replaced while clients send: not one call may fail at Envoy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::Request;
use anyhow::ensure;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::http::{Body, Client};
use crate::lab::Envoy;
use crate::port::Port;
use crate::tidegate::Tidegate;

const RULES: &str = "
domain: lab
descriptors:
- { key: generic_key, value: everything, rate_limit: { unit: hour, requests_per_unit: 4000000000 } }
";
const CLIENTS: usize = 4;
/// Calls that must pass between one event and the next, so that the servers are never without load.
const CALLS: usize = 500;

/// Clients that send one request after the other until they are told to stop.
struct Load {
    clients: JoinSet<anyhow::Result<()>>,
    stop: Arc<AtomicBool>,
    passed: mpsc::Receiver<()>,
    n_passed: u64,
}

impl Load {
    async fn start(envoy: &Envoy) -> anyhow::Result<Self> {
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
    async fn passes(&mut self, calls: usize) -> anyhow::Result<()> {
        for _ in 0..calls {
            if self.passed.recv().await.is_none() {
                self.clients.join_next().await.unwrap_or(Ok(Ok(())))??;
            }
            self.n_passed += 1;
        }
        Ok(())
    }

    /// Lets the load go on while something else is waited for.
    async fn during<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                passed = self.passes(1) => passed?,
            }
        }
    }

    /// Ends the load. Returns how many calls have passed.
    async fn end(mut self) -> anyhow::Result<u64> {
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

/// How an Envoy learns that a server is about to stop: it asks, and one that says NOT_SERVING gets no more calls.
const HEALTH_CHECK: &str = "{ timeout: 1s, interval: 0.05s, no_traffic_interval: 0.05s, unhealthy_threshold: 1, \
                            healthy_threshold: 1, grpc_health_check: { service_name: ratelimit } }";

async fn envoy(health_check: &str, ports: &[Arc<Port>]) -> anyhow::Result<Envoy> {
    let endpoints = ports.iter().map(|port| endpoint(port)).collect::<Vec<_>>().join(", ");
    let marks = [("@health_checks@", health_check), ("@endpoints@", &endpoints)];
    let envoy = Envoy::start(include_str!("restart.yaml"), &marks).await?;
    envoy.until_stat("cluster.rls.membership_healthy", ports.len() as u64).await?;
    Ok(envoy)
}

fn endpoint(port: &Port) -> String {
    let address = format!("{{ address: 127.0.0.1, port_value: {} }}", port.number());
    format!("{{ endpoint: {{ address: {{ socket_address: {address} }} }} }}")
}

async fn check(envoy: &Envoy, passed: u64) -> anyhow::Result<()> {
    assert_eq!(envoy.stat("cluster.loop.ratelimit.error").await?, 0);
    assert_eq!(envoy.stat("cluster.loop.ratelimit.ok").await?, passed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_are_restarted_in_turn_without_a_failed_call() -> anyhow::Result<()> {
    let ports = [Arc::new(Port::reserve()?), Arc::new(Port::reserve()?)];
    let mut servers = Vec::new();
    for port in &ports {
        servers.push(Tidegate::start(port, &[RULES]).await?);
    }
    let envoy = envoy(HEALTH_CHECK, &ports).await?;

    let mut load = Load::start(&envoy).await?;
    for port in &ports {
        load.passes(CALLS).await?;
        let old = servers.remove(0);
        load.during(old.stop()).await?;
        servers.push(load.during(Tidegate::start(port, &[RULES])).await?);
        load.during(envoy.until_stat("cluster.rls.membership_healthy", 2)).await?;
    }
    load.passes(CALLS).await?;
    check(&envoy, load.end().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_takes_over_the_port_of_another_without_a_failed_call() -> anyhow::Result<()> {
    let port = Arc::new(Port::reserve()?);
    let mut server = Tidegate::start(&port, &[RULES]).await?;
    let envoy = envoy("", std::slice::from_ref(&port)).await?;

    let mut load = Load::start(&envoy).await?;
    for _ in 0..3 {
        load.passes(CALLS).await?;
        let new = load.during(Tidegate::start(&port, &[RULES])).await?;
        let old = std::mem::replace(&mut server, new);
        load.during(old.stop()).await?;
    }
    load.passes(CALLS).await?;
    check(&envoy, load.end().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_have_grown_old_are_replaced_without_a_failed_call() -> anyhow::Result<()> {
    let port = Arc::new(Port::reserve()?);
    let _server = Tidegate::start_with(&port, &[RULES], &[("GRPC_MAX_CONNECTION_AGE", "100ms")]).await?;
    let envoy = envoy("", std::slice::from_ref(&port)).await?;

    let mut load = Load::start(&envoy).await?;
    load.during(envoy.until_stat("cluster.rls.upstream_cx_close_notify", 6)).await?;
    check(&envoy, load.end().await?).await
}
