//! What is lent to a node, and given back: by the server that counts the key, whichever that is, in the window that is named.

use std::time::Duration;

use tidegate::limit::{Algorithm, Cost, Hits};
use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;
use tidegate::store::{Budget, Charge};

use crate::redis::cluster::{Cluster, N_MASTERS};
use crate::redis::server::{Kind, Server};
use crate::redis_store::{at, key, list, now, open, per_year};

const BUDGET: Duration = Duration::from_secs(5);

/// So many that each of three servers has some.
const N_KEYS: usize = 24;

/// Lends of each key, gives some back, and looks at what is counted; `servers` are those that count.
async fn lends(store: &RedisStore, servers: &[Server]) -> anyhow::Result<()> {
    let limit = per_year(1_600, Algorithm::FixedWindow);
    let budget = || Budget::of(BUDGET);
    for n in 0..N_KEYS {
        let key = key(&limit, &format!("lent{n}"));
        let charge = |cost| Charge { key: &key, limit: &limit, cost, max_wait: Duration::ZERO };
        let window = store.window(&key, &limit, now()).number;
        let wants = charge(Cost::charge(Hits::new(1_000)));
        let lent = store.lend(&wants, window, now(), budget()).await?;
        assert_eq!((lent.used_before.get(), lent.used_after.get()), (0, 100), "a sixteenth");
        // By the way of all other charges, in the same window.
        let charges = [charge(Cost::charge(Hits::new(7)))];
        let charged = store.charge(&charges, now(), budget()).await.remove(0)?;
        assert_eq!((charged.used_before.get(), charged.used_after.get()), (100, 107));
        let unspent = charge(Cost::refund(Hits::new(60)));
        store.return_to(&unspent, window - 1, now(), budget()).await?;
        store.return_to(&unspent, window, now(), budget()).await?;
        let looked = store.charge(&[charge(Cost::Peek)], now(), budget()).await.remove(0)?;
        assert_eq!(looked.used_before.get(), 47, "of another window nothing is taken");
    }
    let mut n_counted = 0;
    for server in servers {
        let n = server.call(&["DBSIZE"]).await?.number()?;
        assert!(n > 0, "one server counts none of {N_KEYS} keys");
        n_counted += usize::try_from(n)?;
    }
    assert_eq!(n_counted, N_KEYS, "a window that is not there is not born by what is given back to it");
    Ok(())
}

#[tokio::test]
async fn a_single_server_lends() -> anyhow::Result<()> {
    for kind in [Kind::Redis7, Kind::Redis62, Kind::Valkey9] {
        let servers = [Server::start(kind).await?];
        let store = open(at(TopologyKind::Single, &servers[0].address().to_string())?).await?;
        lends(&store, &servers).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_ring_lends() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(Kind::Redis7).await?);
    }
    let store = open(at(TopologyKind::Ring, &list(servers.iter().map(Server::address)))?).await?;
    lends(&store, &servers).await
}

#[tokio::test]
async fn a_cluster_lends() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let addresses = list(cluster.nodes.iter().map(Server::address));
    let store = open(at(TopologyKind::Cluster, &addresses)?).await?;
    lends(&store, &cluster.nodes[..N_MASTERS]).await
}
