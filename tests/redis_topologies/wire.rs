//! What one request costs on the wire: one write and one reply for each server that it touches, all at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate::limit::{Algorithm, Cost, Hits, Limit};
use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;
use tidegate::store::{Budget, Charge};
use tokio::time::Instant;

use crate::faults::proxy::{Proxy, Weather};
use crate::faults::wire::{Segments, segments};
use crate::redis::cluster::{Cluster, N_MASTERS};
use crate::redis::server::{Kind, Server};
use crate::redis_store::{at, key, list, now, open, per_year};

const N_DESCRIPTORS: usize = 8;
const BUDGET: Duration = Duration::from_secs(1);
const BUCKET: Algorithm = Algorithm::TokenBucket { burst: 1000 };

/// One request of eight descriptors; all of them are answered.
async fn request(store: &RedisStore, limit: &Limit) {
    let keys: Vec<_> = (0..N_DESCRIPTORS).map(|n| key(limit, &n.to_string())).collect();
    let cost = Cost::Charge(Hits::new(1));
    let charges: Vec<_> =
        keys.iter().map(|key| Charge { key, limit, cost, max_wait: Duration::ZERO }).collect();
    let outcomes = store.charge(&charges, now(), Budget::of(BUDGET)).await;
    assert_eq!(outcomes.len(), N_DESCRIPTORS);
    for outcome in outcomes {
        assert!(outcome.is_ok_and(|charged| charged.admitted));
    }
}

/// The segments that a request makes at each of the servers, of those connections on which anything went.
async fn cost(
    store: &RedisStore,
    limit: &Limit,
    servers: &[SocketAddr],
) -> anyhow::Result<BTreeMap<u16, Vec<Segments>>> {
    let all = || -> anyhow::Result<Vec<_>> { servers.iter().map(|at| segments(*at)).collect() };
    let before = all()?;
    request(store, limit).await;
    let after = all()?;
    let mut cost = BTreeMap::new();
    for ((server, before), after) in servers.iter().zip(before).zip(after) {
        let of = |client: &u16, now: &Segments| {
            let then = before.get(client).copied().unwrap_or_default();
            Segments { n_in: now.n_in - then.n_in, n_out: now.n_out - then.n_out }
        };
        let moved =
            after.iter().map(|(client, now)| of(client, now)).filter(|went| *went != Segments::default());
        cost.insert(server.port(), moved.collect());
    }
    Ok(cost)
}

const ONE_EACH_WAY: Segments = Segments { n_in: 1, n_out: 1 };

#[tokio::test]
async fn a_single_server_gets_one_write_and_gives_one_reply() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = open(at(TopologyKind::Single, &server.address().to_string())?).await?;
    for algorithm in [Algorithm::FixedWindow, BUCKET] {
        let limit = per_year(1000, algorithm);
        // Scripts are loaded, and expiries set, the first time.
        request(&store, &limit).await;
        let cost = cost(&store, &limit, &[server.address()]).await?;
        assert_eq!(cost[&server.address().port()], [ONE_EACH_WAY], "{algorithm:?}");
    }
    Ok(())
}

#[tokio::test]
async fn scripts_are_called_once_a_request() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = open(at(TopologyKind::Single, &server.address().to_string())?).await?;
    let limit = per_year(1000, BUCKET);
    request(&store, &limit).await;
    let before = server.n_calls("evalsha").await?;
    request(&store, &limit).await;
    assert_eq!(server.n_calls("evalsha").await? - before, 1);
    Ok(())
}

#[tokio::test]
async fn each_server_of_a_ring_gets_one_write() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(Kind::Redis7).await?);
    }
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let store = open(at(TopologyKind::Ring, &list(&addresses))?).await?;
    for algorithm in [Algorithm::FixedWindow, BUCKET] {
        let limit = per_year(1000, algorithm);
        request(&store, &limit).await;
        let cost = cost(&store, &limit, &addresses).await?;
        assert!(cost.values().flatten().all(|went| *went == ONE_EACH_WAY), "{algorithm:?}: {cost:?}");
        assert!(cost.values().all(|connections| connections.len() <= 1), "{algorithm:?}: {cost:?}");
        assert!(cost.values().flatten().count() > 1, "eight keys on one of three servers: {cost:?}");
    }
    Ok(())
}

#[tokio::test]
async fn each_master_of_a_cluster_gets_one_write() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let addresses: Vec<_> = cluster.nodes.iter().take(N_MASTERS).map(Server::address).collect();
    let store = open(at(TopologyKind::Cluster, &list(&addresses))?).await?;
    for algorithm in [Algorithm::FixedWindow, BUCKET] {
        let limit = per_year(1000, algorithm);
        request(&store, &limit).await;
        let n_scripts = async || {
            let mut n = 0;
            for node in cluster.nodes.iter().take(N_MASTERS) {
                n += node.n_calls("evalsha").await?;
            }
            anyhow::Ok(n)
        };
        let before = n_scripts().await?;
        let cost = cost(&store, &limit, &addresses).await?;
        // The replicas' connections are among them: what is replicated goes out, and nothing comes in but now and then.
        let writes: Vec<_> =
            cost.values().map(|all| all.iter().filter(|went| **went == ONE_EACH_WAY).count()).collect();
        assert!(writes.iter().all(|n| *n <= 1), "{algorithm:?}: {cost:?}");
        assert!(writes.iter().sum::<usize>() > 1, "{algorithm:?}: {cost:?}");
        if algorithm == BUCKET {
            let n_slots = slots(&cluster, &limit).await?;
            assert_eq!(n_scripts().await? - before, n_slots);
        }
    }
    Ok(())
}

/// How many slots the counters of a request lie in.
async fn slots(cluster: &Cluster, limit: &Limit) -> anyhow::Result<u64> {
    let mut slots = Vec::new();
    for n in 0..N_DESCRIPTORS {
        let name = String::from_utf8_lossy(key(limit, &n.to_string()).as_bytes()).into_owned();
        slots.push(cluster.slot(&name).await?);
    }
    slots.sort_unstable();
    slots.dedup();
    Ok(slots.len() as u64)
}

/// Three servers that are each 50 ms away take 50 ms together.
#[tokio::test]
async fn servers_are_asked_at_the_same_time() -> anyhow::Result<()> {
    let (mut servers, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let server = Server::start(Kind::Redis7).await?;
        proxies.push(Proxy::to(server.address()).await?);
        servers.push(server);
    }
    let store = open(at(TopologyKind::Ring, &list(proxies.iter().map(Proxy::address)))?).await?;
    let limit = per_year(1000, Algorithm::FixedWindow);
    request(&store, &limit).await;
    let before: Vec<_> = proxies.iter().map(Proxy::n_bytes_up).collect();
    proxies.iter().for_each(|proxy| proxy.set(Weather::Slow(Duration::from_millis(25))));
    let asked = Instant::now();
    request(&store, &limit).await;
    let took = asked.elapsed();
    let n_touched = proxies.iter().zip(before).filter(|(proxy, before)| proxy.n_bytes_up() > *before).count();
    assert!(n_touched > 1, "eight keys on one of three servers");
    assert!((Duration::from_millis(50)..Duration::from_millis(75)).contains(&took), "{took:?}");
    Ok(())
}
