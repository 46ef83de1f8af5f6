//! What one server does to its callers: dying, stopping, starting over, refusing.

use std::time::Duration;

use tidegate::limit::Algorithm;
use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;
use tokio::sync::Mutex;

use crate::faults::load::{OK, Seen};
use crate::redis::server::{Kind, Server, Setup};
use crate::redis::wait::eventually;
use crate::redis_store::{Counter, at, now, open, per_year};
use crate::story::{AT_LAST, BUDGET, nothing_stale, nothing_twice, suffer};

async fn store_of(server: &Server) -> anyhow::Result<RedisStore> {
    open(at(TopologyKind::Single, &server.address().to_string())?).await
}

#[tokio::test]
async fn killed_and_started_again_empty() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "killed", BUDGET);
    suffer(
        "killed",
        &counter,
        async || server.kill().await,
        async || {
            counter.forget();
            server.launch().await
        },
    )
    .await?;
    nothing_stale("killed", &counter).await
}

#[tokio::test]
async fn restarted_at_once_and_empty() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "restarted", BUDGET);
    suffer(
        "restarted",
        &counter,
        async || {
            server.kill().await?;
            counter.forget();
            server.launch().await
        },
        async || Ok(()),
    )
    .await?;
    // An answer that came before may be read after.
    nothing_twice("restarted", &counter).await.map(drop)
}

#[tokio::test]
async fn paused() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "paused", BUDGET);
    suffer("paused", &counter, async || server.pause(), async || server.resume()).await?;
    nothing_stale("paused", &counter).await
}

#[tokio::test]
async fn a_server_that_cuts_its_clients_off() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "cut off", BUDGET);
    let cut = async || server.call(&["CLIENT", "KILL", "TYPE", "normal"]).await.map(drop);
    suffer("clients killed", &counter, cut, async || Ok(())).await?;
    nothing_stale("clients killed", &counter).await
}

/// A server that answers every write with an error until it is told otherwise.
async fn refusing(name: &'static str, begin: &[&[&str]], end: &[&[&str]]) -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, name, BUDGET);
    let told = async |orders: &[&[&str]]| {
        for order in orders {
            server.call(order).await?.ok()?;
        }
        Ok(())
    };
    let story = suffer(name, &counter, async || told(begin).await, async || told(end).await).await?;
    assert!(story.during.n("unavailable") > 0, "{name}: {}", story.during);
    nothing_stale(name, &counter).await
}

#[tokio::test]
async fn out_of_memory() -> anyhow::Result<()> {
    refusing("OOM", &[&["CONFIG", "SET", "maxmemory", "1"]], &[&["CONFIG", "SET", "maxmemory", "0"]]).await
}

#[tokio::test]
async fn without_enough_replicas() -> anyhow::Result<()> {
    let wanted = |n| ["CONFIG", "SET", "min-replicas-to-write", n];
    refusing("NOREPLICAS", &[&wanted("1")], &[&wanted("0")]).await
}

#[tokio::test]
async fn a_replica_now() -> anyhow::Result<()> {
    // Of a master that cannot be reached, so that it keeps its counters.
    refusing("READONLY", &[&["REPLICAOF", "127.0.0.1", "1"]], &[&["REPLICAOF", "NO", "ONE"]]).await
}

#[tokio::test]
async fn busy_with_somebody_elses_script() -> anyhow::Result<()> {
    let server = Setup::new(Kind::Redis7).line("busy-reply-threshold 20").start().await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "busy", BUDGET);
    let mut hog = server.connect().await?;
    let mut hogging = tokio::task::JoinSet::new();
    suffer(
        "BUSY",
        &counter,
        async || {
            hogging.spawn(async move { hog.call(&["EVAL", "while true do end", "0"]).await });
            Ok(())
        },
        async || eventually(AT_LAST, async || server.call(&["SCRIPT", "KILL"]).await?.ok()).await,
    )
    .await?;
    nothing_stale("BUSY", &counter).await
}

#[tokio::test]
async fn loading_its_dump() -> anyhow::Result<()> {
    let mut server = Server::start(Kind::Redis7).await?;
    let fill = "for n = 1, 500 do redis.call('SET', 'other:' .. n, string.rep('x', 1000)) end";
    server.call(&["EVAL", fill, "0"]).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "loading", BUDGET);
    // So that the dump holds the counter, and takes a second to load.
    counter.works(AT_LAST).await?;
    server.add_line("key-load-delay 2000");
    server.add_line("loading-process-events-interval-bytes 1024");
    suffer(
        "LOADING",
        &counter,
        async || {
            server.call(&["SAVE"]).await?.ok()?;
            server.kill().await?;
            server.spawn()
        },
        async || {
            eventually(AT_LAST, async || {
                let loading = server.info("loading").await?;
                anyhow::ensure!(loading == "0", "it loads still");
                Ok(())
            })
            .await
        },
    )
    .await?;
    nothing_twice("LOADING", &counter).await.map(drop)
}

#[tokio::test]
async fn a_password_that_is_wrong_for_a_while() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::new(&store, "password", BUDGET);
    let inside = Mutex::new(server.connect().await?);
    let told = async |orders: &[&[&str]]| {
        for order in orders {
            inside.lock().await.call(order).await?;
        }
        Ok(())
    };
    let story = suffer(
        "wrong password",
        &counter,
        async || {
            told(&[
                &["CONFIG", "SET", "requirepass", "sesame"],
                &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
            ])
            .await
        },
        async || told(&[&["CONFIG", "SET", "requirepass", ""]]).await,
    )
    .await?;
    assert!(story.during.n("unavailable") > 0, "{}", story.during);
    nothing_stale("wrong password", &counter).await
}

/// The budget of a caller is too short for a server at some distance: he is told so in time, and the server counts on for those who wait.
#[tokio::test]
async fn a_hurried_caller_does_not_shut_the_others_out() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let patient = Counter::new(&store, "patient", BUDGET);
    let hurried = Counter::new(&store, "hurried", Duration::ZERO);
    patient.works(AT_LAST).await?;
    for _ in 0..100 {
        assert_eq!(hurried.ask().await, "late");
    }
    assert_eq!(patient.ask().await, OK);
    Ok(())
}

/// A million counters whose window ends at one moment. Each has an expiry of its own, later by the store's jitter; let them all
/// begin to go now, and nobody's answer is late.
#[tokio::test]
async fn a_million_windows_end_at_once() -> anyhow::Result<()> {
    const JITTER: Duration = Duration::from_secs(300);
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    // The machine fills a server beside it: what it takes to answer is printed, what is asserted is that nobody is lost.
    let counter = Counter::new(&store, "end", 5 * BUDGET);

    // What the store says of its own counters: they go one by one, over the whole of the jitter.
    let limit = per_year(1000, Algorithm::FixedWindow);
    for n in 0..200 {
        assert_eq!(Counter::of(&store, &format!("own{n}"), BUDGET, limit).ask().await, OK);
    }
    let look = "local t = {} for _, k in ipairs(redis.call('KEYS', '*own*')) do t[#t + 1] = redis.call('PEXPIRETIME', k) end return t";
    let mut ends = Vec::new();
    for end in server.call(&["EVAL", look, "0"]).await?.list()? {
        ends.push(end.number()?);
    }
    ends.sort_unstable();
    assert_eq!(ends.len(), 200);
    let window_ends = (now().secs() / limit.window.secs() + 1) * limit.window.secs() * 1000;
    assert!(ends[0] >= window_ends as i64, "a counter goes before its window ends");
    let spread = Duration::from_millis((ends[199] - ends[0]) as u64);
    assert!((JITTER.mul_f64(0.9)..=JITTER + Duration::from_secs(1)).contains(&spread), "{spread:?}");
    let gaps = ends.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gaps < Some(20_000), "twenty seconds without any, of three hundred");

    // A million like them, whose window ended just now; in a thirtieth of the time, so that the server has that much more to do.
    let fill = "for n = 1, 10000 do redis.call('SET', 'old:' .. ARGV[1] .. ':' .. n, 1, 'PX', 1 + math.random(0, 10000)) end";
    let mut connection = server.connect().await?;
    for n in 0..100 {
        connection.call(&["EVAL", fill, "0", &n.to_string()]).await?;
    }
    let n_before: u64 = server.info("expired_keys").await?.parse()?;
    let lasts = tokio::time::sleep(Duration::from_secs(3));
    let (seen, ()) = Seen::asking(async || counter.ask().await, lasts).await;
    let n_gone = server.info("expired_keys").await?.parse::<u64>()? - n_before;
    println!("a million windows ended: {seen}, while {n_gone} counters went");
    assert!(n_gone > 10_000, "{n_gone} counters went");
    assert_eq!(seen.n(OK), seen.n_all(), "{seen}");
    Ok(())
}
