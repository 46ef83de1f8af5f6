//! What a Redis Cluster does to its callers: failing over, moving slots, losing shards.

use tidegate::limit::Algorithm;
use tidegate::store::Budget;
use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;
use tokio::time::Instant;

use crate::faults::load::{OK, Seen};
use crate::faults::proxy::Proxy;
use crate::redis::cluster::{Cluster, N_MASTERS};
use crate::redis::server::{Kind, Server, Setup};
use crate::redis::wait::eventually;
use crate::redis_store::{Counter, at, list, now, open, per_year};
use crate::story::{AT_LAST, BUDGET, nothing_stale, nothing_twice, suffer};

async fn store_of(cluster: &Cluster) -> anyhow::Result<RedisStore> {
    open(at(TopologyKind::Cluster, &list(cluster.nodes.iter().map(Server::address)))?).await
}

/// A counter on each master, by the master's number.
async fn one_each<'a>(cluster: &Cluster, store: &'a RedisStore) -> anyhow::Result<Vec<Counter<'a>>> {
    let mut counters: Vec<Option<Counter<'_>>> = (0..N_MASTERS).map(|_| None).collect();
    for n in 0.. {
        if counters.iter().all(Option::is_some) {
            break;
        }
        let counter = Counter::new(store, &format!("c{n}"), BUDGET);
        counter.works(AT_LAST).await?;
        let owner = owner(cluster, &counter).await?;
        counters[owner].get_or_insert(counter);
    }
    Ok(counters.into_iter().flatten().collect())
}

/// The node that has the counter now.
async fn owner(cluster: &Cluster, counter: &Counter<'_>) -> anyhow::Result<usize> {
    let slot = cluster.slot(&counter.name(&cluster.nodes).await?).await?;
    cluster.owner(slot, 0).await
}

#[tokio::test]
async fn a_master_dies_and_comes_back() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let store = store_of(&cluster).await?;
    let counter = one_each(&cluster, &store).await?.swap_remove(1);
    suffer(
        "cluster: master killed",
        &counter,
        async || cluster.nodes[1].kill().await,
        async || cluster.promoted(1 + N_MASTERS).await,
    )
    .await?;
    cluster.nodes[1].launch().await?;
    eventually(AT_LAST, async || cluster.settled(2 * N_MASTERS).await).await?;
    let story = suffer(
        "cluster: master back by hand",
        &counter,
        async || cluster.fail_over(1).await,
        async || Ok(()),
    )
    .await?;
    assert_eq!(story.after.n(OK), story.after.n_all(), "{}", story.after);
    nothing_twice("cluster: master killed and back", &counter).await.map(drop)
}

/// More than anybody counts here, and so little that a bucket does not refill while anybody looks.
const MANY: u32 = 1_000_000;

/// A slot moves under load, once for each way of counting on a server: nothing is counted twice, and nobody is sent away.
#[tokio::test]
async fn slots_move() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let store = store_of(&cluster).await?;
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket { burst: MANY }] {
        let name = format!("cluster: slot moved, {}", algorithm.name());
        let counter = Counter::of(&store, &name, BUDGET, per_year(MANY, algorithm));
        counter.works(AT_LAST).await?;
        let slot = cluster.slot(&counter.name(&cluster.nodes).await?).await?;
        let from = cluster.owner(slot, 0).await?;
        let to = (from + 1) % N_MASTERS;
        let story = suffer(
            &name,
            &counter,
            async || {
                cluster.begin_move(slot, from, to).await?;
                cluster.move_keys(slot, from, to).await.map(drop)
            },
            async || cluster.end_move(slot, to).await,
        )
        .await?;
        let n_bad = story.during.n_all() - story.during.n(OK);
        assert!(n_bad <= 1, "{name}: {}", story.during);
        assert_eq!(cluster.owner(slot, from).await?, to);
        nothing_stale(&name, &counter).await?;
    }
    Ok(())
}

/// A master and its replica are gone, and the others say MOVED to them still.
#[tokio::test]
async fn moved_to_a_dead_node() -> anyhow::Result<()> {
    let setup = Setup::new(Kind::Redis7).line("cluster-require-full-coverage no");
    let cluster = Cluster::of(Cluster::prepare(&setup)?).await?;
    let store = store_of(&cluster).await?;
    let counters = one_each(&cluster, &store).await?;
    let others = async || {
        let (seen, ()) = Seen::asking(async || counters[1].ask().await, tokio::time::sleep(BUDGET * 5)).await;
        seen
    };
    let mut seen = Seen::default();
    let story = suffer(
        "cluster: MOVED to a dead node",
        &counters[0],
        async || {
            cluster.nodes[N_MASTERS].kill().await?;
            cluster.nodes[0].kill().await?;
            seen = others().await;
            Ok(())
        },
        async || {
            counters[0].forget();
            cluster.nodes[0].launch().await?;
            cluster.nodes[N_MASTERS].launch().await?;
            eventually(AT_LAST, async || cluster.settled(2 * N_MASTERS).await).await
        },
    )
    .await?;
    println!("cluster: keys of the others meanwhile: {seen}");
    assert_eq!(seen.n(OK), seen.n_all(), "{seen}");
    assert!(story.during.n("unavailable") > 0, "{}", story.during);
    nothing_stale("cluster: MOVED to a dead node", &counters[0]).await
}

/// A third of the slots has no server, and the cluster refuses everything until it has.
#[tokio::test]
async fn the_cluster_is_down() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let store = store_of(&cluster).await?;
    let counter = one_each(&cluster, &store).await?.swap_remove(1);
    let story = suffer(
        "cluster: CLUSTERDOWN",
        &counter,
        async || {
            cluster.nodes[N_MASTERS].kill().await?;
            cluster.nodes[0].kill().await?;
            eventually(AT_LAST, async || {
                let info = cluster.nodes[1].call(&["CLUSTER", "INFO"]).await?.text()?;
                anyhow::ensure!(info.contains("cluster_state:fail"), "{info}");
                Ok(())
            })
            .await
        },
        async || {
            cluster.nodes[0].launch().await?;
            cluster.nodes[N_MASTERS].launch().await?;
            eventually(AT_LAST, async || cluster.settled(2 * N_MASTERS).await).await
        },
    )
    .await?;
    assert!(story.during.n("unavailable") > 0, "{}", story.during);
    nothing_stale("cluster: CLUSTERDOWN", &counter).await
}

/// Nodes that do not know their own address point to a port of whatever host was asked.
#[tokio::test]
async fn moved_to_the_host_that_was_asked() -> anyhow::Result<()> {
    let setup = Setup::new(Kind::Redis7).line("cluster-preferred-endpoint-type unknown-endpoint");
    let cluster = Cluster::of(Cluster::prepare(&setup)?).await?;
    let store = open(at(TopologyKind::Cluster, &cluster.nodes[0].address().to_string())?).await?;
    let counter = Counter::of(&store, "asked", BUDGET, per_year(MANY, Algorithm::FixedWindow));
    counter.works(AT_LAST).await?;
    let slot = cluster.slot(&counter.name(&cluster.nodes).await?).await?;
    let from = cluster.owner(slot, 0).await?;
    let to = (from + 1) % N_MASTERS;
    cluster.begin_move(slot, from, to).await?;
    assert_eq!(counter.ask().await, OK, "ASK for nothing");
    cluster.move_keys(slot, from, to).await?;
    assert_eq!(counter.ask().await, OK, "ASK");
    cluster.end_move(slot, to).await?;
    assert_eq!(counter.ask().await, OK, "MOVED");
    nothing_stale("cluster: host unknown", &counter).await
}

/// Every node gets another address at once, and the name that was configured leads to a new one.
#[tokio::test]
async fn all_addresses_change() -> anyhow::Result<()> {
    let (old, new) = tokio::join!(Cluster::start(), Cluster::start());
    let (mut old, new) = (Some(old?), new?);
    let name = Proxy::to(new.nodes[0].address()).await?;
    name.lead_to(old.iter().next().expect("the old one").nodes[0].address());
    let store = open(at(TopologyKind::Cluster, &name.address().to_string())?).await?;
    let counter = Counter::new(&store, "changed", BUDGET);
    let story = suffer(
        "cluster: all addresses changed",
        &counter,
        async || {
            old = None;
            name.lead_to(new.nodes[0].address());
            counter.forget();
            Ok(())
        },
        async || Ok(()),
    )
    .await?;
    assert!(story.during.n("unavailable") > 0, "{}", story.during);
    nothing_twice("cluster: all addresses changed", &counter).await.map(drop)
}

/// One master is stopped: its keys take the budget, the others' nothing.
#[tokio::test]
async fn a_paused_shard_holds_up_nobody_else() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let store = store_of(&cluster).await?;
    let counters = one_each(&cluster, &store).await?;
    let span = BUDGET * 5;
    let (before, ()) = Seen::asking(async || counters[1].ask().await, tokio::time::sleep(span)).await;
    cluster.nodes[0].pause()?;
    let both = Seen::asking(async || counters[0].ask().await, tokio::time::sleep(span));
    let others = Seen::asking(async || counters[1].ask().await, tokio::time::sleep(span));
    let ((its_own, ()), (others, ())) = tokio::join!(both, others);
    // One request to both: each gets its own answer, and the whole is there in time.
    let charges = [&counters[0], &counters[1]].map(|counter| counter.one_hit());
    let asked = Instant::now();
    let outcomes = store.charge(&charges, now(), Budget::of(BUDGET)).await;
    assert!(outcomes[0].is_err() && outcomes[1].is_ok(), "{outcomes:?}");
    assert!(asked.elapsed() < 2 * BUDGET, "{:?}", asked.elapsed());
    println!("cluster: a shard paused: its keys {its_own}; others {others}, and before {before}");
    assert_eq!(its_own.n(OK), 0, "{its_own}");
    assert_eq!(others.n(OK), others.n_all(), "{others}");
    assert!(others.p99() < BUDGET / 2, "{others}");
    Ok(())
}
