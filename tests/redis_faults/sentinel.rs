//! What a failover under sentinels does to callers, and what the loss of the sentinels does.

use anyhow::ensure;
use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;

use crate::faults::load::OK;
use crate::redis::sentinel::{NAME, Watched};
use crate::redis::server::{Kind, Server};
use crate::redis::wait::eventually;
use crate::redis_store::{Counter, at, list, open};
use crate::story::{AT_LAST, BUDGET, nothing_twice, suffer};

async fn store_of(watched: &Watched) -> anyhow::Result<RedisStore> {
    let sentinels = list(watched.sentinels.iter().map(Server::address));
    open(at(TopologyKind::Sentinel, &format!("{NAME},{sentinels}"))?).await
}

async fn promoted(watched: &Watched, to: usize) -> anyhow::Result<()> {
    eventually(AT_LAST, async || {
        let master = watched.master().await?;
        ensure!(master == to, "the master is {master}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_master_dies() -> anyhow::Result<()> {
    let watched = Watched::start(Kind::Redis7).await?;
    let store = store_of(&watched).await?;
    let counter = Counter::new(&store, "dies", BUDGET);
    suffer(
        "sentinel: master killed",
        &counter,
        async || watched.servers[0].kill().await,
        async || promoted(&watched, 1).await,
    )
    .await?;
    nothing_twice("sentinel: master killed", &counter).await.map(drop)
}

#[tokio::test]
async fn the_master_is_replaced_by_hand() -> anyhow::Result<()> {
    let watched = Watched::start(Kind::Redis7).await?;
    let store = store_of(&watched).await?;
    let counter = Counter::new(&store, "replaced", BUDGET);
    suffer(
        "sentinel: failover by hand",
        &counter,
        async || watched.sentinels[0].call(&["SENTINEL", "FAILOVER", NAME]).await?.ok(),
        async || promoted(&watched, 1).await,
    )
    .await?;
    nothing_twice("sentinel: failover by hand", &counter).await.map(drop)
}

#[tokio::test]
async fn the_sentinels_die_and_the_master_stays() -> anyhow::Result<()> {
    let watched = Watched::start(Kind::Redis7).await?;
    let store = store_of(&watched).await?;
    let counter = Counter::new(&store, "stays", BUDGET);
    let sentinels = &watched.sentinels;
    let story = suffer(
        "sentinel: sentinels killed",
        &counter,
        async || {
            for sentinel in sentinels.iter() {
                sentinel.kill().await?;
            }
            Ok(())
        },
        async || Ok(()),
    )
    .await?;
    assert_eq!(story.during.n(OK), story.during.n_all(), "{}", story.during);
    Ok(())
}
