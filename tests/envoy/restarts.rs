//! Servers and connections that are replaced while clients send: not one call may fail at Envoy.

use std::sync::Arc;

use crate::load::{CALLS, Load, RULES, check, envoy};
use crate::port::Port;
use crate::tidegate::Tidegate;

/// How an Envoy learns that a server is about to stop: it asks, and one that says NOT_SERVING gets no more calls.
const HEALTH_CHECK: &str = "{ timeout: 1s, interval: 0.05s, no_traffic_interval: 0.05s, unhealthy_threshold: 1, \
                            healthy_threshold: 1, grpc_health_check: { service_name: ratelimit } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_are_restarted_in_turn_without_a_failed_call() -> anyhow::Result<()> {
    let ports = [Arc::new(Port::reserve()?), Arc::new(Port::reserve()?)];
    let mut servers = Vec::new();
    for port in &ports {
        servers.push(Tidegate::start(port, &[RULES]).await?);
    }
    let envoy = envoy(HEALTH_CHECK, "", &ports).await?;

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
    let envoy = envoy("", "", std::slice::from_ref(&port)).await?;

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
    let envoy = envoy("", "", std::slice::from_ref(&port)).await?;

    let mut load = Load::start(&envoy).await?;
    load.during(envoy.until_stat("cluster.rls.upstream_cx_close_notify", 6)).await?;
    check(&envoy, load.end().await?).await
}
