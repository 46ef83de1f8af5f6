//! What the way to a server does to its callers.

use std::time::Duration;

use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;

use crate::faults::load::{OK, Seen};
use crate::faults::namespace::{Namespace, may_lay_cables};
use crate::faults::proxy::{Proxy, Weather};
use crate::redis::server::{Kind, Server, Setup};
use crate::redis_store::{Counter, at, open};
use crate::story::{BUDGET, nothing_stale, suffer};

async fn behind_a_proxy() -> anyhow::Result<(Server, Proxy, RedisStore)> {
    let server = Server::start(Kind::Redis7).await?;
    let proxy = Proxy::to(server.address()).await?;
    let store = open(at(TopologyKind::Single, &proxy.address().to_string())?).await?;
    Ok((server, proxy, store))
}

async fn weather(name: &str, weather: Weather, budget: Duration) -> anyhow::Result<()> {
    let (_server, proxy, store) = behind_a_proxy().await?;
    let counter = Counter::new(&store, name, budget);
    let story = suffer(
        name,
        &counter,
        async || {
            proxy.set(weather);
            Ok(())
        },
        async || {
            proxy.set(Weather::Fair);
            Ok(())
        },
    )
    .await?;
    let enough = matches!(weather, Weather::Slow(by) if by * 2 < budget);
    assert_eq!(story.during.n(OK) == story.during.n_all(), enough, "{name}: {}", story.during);
    nothing_stale(name, &counter).await
}

#[tokio::test]
async fn silent() -> anyhow::Result<()> {
    weather("silent", Weather::Silent, BUDGET).await
}

#[tokio::test]
async fn refusing() -> anyhow::Result<()> {
    weather("refusing", Weather::Refusing, BUDGET).await
}

#[tokio::test]
async fn slower_than_the_budget() -> anyhow::Result<()> {
    weather(
        "slow by 50 ms, budget 40 ms",
        Weather::Slow(Duration::from_millis(25)),
        Duration::from_millis(40),
    )
    .await
}

#[tokio::test]
async fn slow_within_the_budget() -> anyhow::Result<()> {
    weather("slow by 50 ms, budget 200 ms", Weather::Slow(Duration::from_millis(25)), 2 * BUDGET).await
}

#[tokio::test]
async fn packets_lost() -> anyhow::Result<()> {
    if !may_lay_cables() {
        println!("not shown: losing packets takes root");
        return Ok(());
    }
    let namespace = Namespace::create()?;
    let server = Setup::new(Kind::Redis7).inside(namespace.name(), namespace.address()).start().await?;
    let store = open(at(TopologyKind::Single, &server.address().to_string())?).await?;
    let counter = Counter::new(&store, "lost", BUDGET);
    let story =
        suffer("packets lost", &counter, async || namespace.lose_packets(), async || namespace.heal())
            .await?;
    assert_eq!(story.during.n(OK), 0, "{}", story.during);
    nothing_stale("packets lost", &counter).await
}

/// Twenty workers lose their server at once: each tries again and again, less often each time, and not all together.
#[tokio::test]
async fn no_storm_of_reconnections() -> anyhow::Result<()> {
    const N_STORES: u64 = 20;
    let (_server, proxy, first) = behind_a_proxy().await?;
    let mut stores = vec![first];
    while stores.len() < N_STORES as usize {
        stores.push(open(at(TopologyKind::Single, &proxy.address().to_string())?).await?);
    }
    let before = proxy.n_connections();
    proxy.set(Weather::Closing);
    let counter = Counter::new(&stores[0], "storm", BUDGET);
    let mut most_in_a_slice = 0;
    for _ in 0..30 {
        let slice = proxy.n_connections();
        Seen::asking(async || counter.ask().await, tokio::time::sleep(Duration::from_millis(50))).await;
        most_in_a_slice = most_in_a_slice.max(proxy.n_connections() - slice);
    }
    let n_tries = proxy.n_connections() - before;
    println!(
        "{N_STORES} workers without a server: {n_tries} tries in 1.5 s, at most {most_in_a_slice} in 50 ms"
    );
    // Of 25, 50, 100, 200, 400, 500 ms, of each half to all: at most eight pauses fit.
    assert!((N_STORES..=9 * N_STORES).contains(&n_tries), "{n_tries} tries");
    proxy.set(Weather::Fair);
    for store in &stores {
        Counter::new(store, "storm", BUDGET).works(Duration::from_secs(2)).await?;
    }
    Ok(())
}
