//! What the death of one server of a ring does: its keys have no store, and nobody else notices.

use tidegate::store::redis::config::TopologyKind;

use crate::faults::load::OK;
use crate::redis::server::{Kind, Server};
use crate::redis::wait::eventually;
use crate::redis_store::{Counter, at, list, open};
use crate::story::{AT_LAST, BUDGET, nothing_stale, suffer};

const N_SERVERS: usize = 3;

#[tokio::test]
async fn a_dead_server_keeps_its_keys() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for _ in 0..N_SERVERS {
        servers.push(Server::start(Kind::Redis7).await?);
    }
    let store = open(at(TopologyKind::Ring, &list(servers.iter().map(Server::address)))?).await?;
    let (mut dead, mut others) = (None, None);
    for n in 0.. {
        if dead.is_some() && others.is_some() {
            break;
        }
        let before = servers[0].call(&["DBSIZE"]).await?.number()?;
        let counter = Counter::new(&store, &format!("r{n}"), BUDGET);
        counter.works(AT_LAST).await?;
        let grew = servers[0].call(&["DBSIZE"]).await?.number()? > before;
        if grew { &mut dead } else { &mut others }.get_or_insert(counter);
    }
    let (dead, others) = (dead.expect("a key of the first server"), others.expect("a key of the others"));

    let first = &servers[0];
    let story = suffer(
        "ring: one server killed",
        &dead,
        async || {
            first.kill().await?;
            for _ in 0..100 {
                assert_eq!(others.ask().await, OK);
            }
            Ok(())
        },
        async || {
            dead.forget();
            first.launch().await
        },
    )
    .await?;
    assert!(story.during.n("unavailable") > 0, "{}", story.during);
    nothing_stale("ring: one server killed", &dead).await?;
    // It has not been counted elsewhere meanwhile.
    eventually(AT_LAST, async || {
        let keys = servers[0].call(&["DBSIZE"]).await?.number()?;
        anyhow::ensure!(keys > 0, "the first server has no key");
        Ok(())
    })
    .await
}
