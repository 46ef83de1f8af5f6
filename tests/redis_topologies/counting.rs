//! What counting leaves in a server, and what others do to it there: expiries, clocks, forgotten scripts, foreign keys.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate::clock::{Clock, UnixMicros};
use tidegate::limit::{Algorithm, Cost, Hits, Limit, Unit, Window};
use tidegate::store::redis::config::TopologyKind;
use tidegate::store::redis::{Eviction, RedisStore, Shared};
use tidegate::store::{Budget, Charge};
use tokio::time::timeout;

use crate::redis::clock::ServerClock;
use crate::redis::server::{Kind, Server, Setup};
use crate::redis_store::{Counter, at, key, now, open, per_year};

const BUDGET: Duration = Duration::from_secs(2);
const JITTER: Duration = Duration::from_secs(300);

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket { burst: 100 },
    Algorithm::LeakyBucket { burst: 99, max_delay: Duration::from_secs(400 * 86_400) },
];

async fn store_of(server: &Server) -> anyhow::Result<RedisStore> {
    open(at(TopologyKind::Single, &server.address().to_string())?).await
}

fn hourly(algorithm: Algorithm) -> Limit {
    Limit { requests_per_unit: 100, window: Window::of(Unit::Hour), algorithm }
}

/// A counter outlives its use, and not by much; an expiry that somebody took away comes back.
#[tokio::test]
async fn every_counter_expires() -> anyhow::Result<()> {
    for kind in [Kind::Redis7, Kind::Redis62, Kind::Valkey9] {
        let server = Server::start(kind).await?;
        let store = store_of(&server).await?;
        for algorithm in ALGORITHMS {
            let counter = Counter::of(&store, "expires", BUDGET, hourly(algorithm));
            let charged = counter.charge(Cost::Charge(Hits::new(10))).await?;
            let name = counter.name(std::slice::from_ref(&server)).await?;
            let left = Duration::from_millis(server.call(&["PTTL", &name]).await?.number()?.try_into()?);
            let (least, most) = (charged.reset_after, charged.reset_after + JITTER);
            let second = Duration::from_secs(1);
            assert!(
                left + second >= least && left <= most + second,
                "{kind:?} {algorithm:?}: {left:?} of {least:?} to {most:?}"
            );

            assert_eq!(server.call(&["PERSIST", &name]).await?.number()?, 1);
            assert_eq!(counter.ask().await, "OK");
            let left = server.call(&["PTTL", &name]).await?.number()?;
            assert!(left > 0, "{kind:?} {algorithm:?}: the expiry was taken away, and is {left}");
        }
    }
    Ok(())
}

/// Processes whose clocks are hours apart, and a server that goes by a third, count one window: the server's.
#[tokio::test]
async fn clocks_hours_apart_share_one_window() -> anyhow::Result<()> {
    const HOUR: u64 = 3_600_000_000;
    let by_server = now().get() + 9 * HOUR;
    let clock = ServerClock::at(by_server)?;
    let server = Setup::new(Kind::Redis7).clock(&clock).start().await?;
    let limit = hourly(Algorithm::FixedWindow);
    let key = key(&limit, "apart");
    for (n, off) in [-7_i64, 0, 30].into_iter().enumerate() {
        let moment = UnixMicros::new(now().get().saturating_add_signed(off * HOUR as i64));
        let config = at(TopologyKind::Single, &server.address().to_string())?;
        let store = RedisStore::connect(Shared::new(config, Clock::manual(moment))?);
        store.tried(BUDGET).await;
        let charge =
            Charge { key: &key, limit: &limit, cost: Cost::Charge(Hits::new(1)), max_wait: Duration::ZERO };
        let charged = store.charge(&[charge], moment, Budget::of(BUDGET)).await.remove(0)?;
        assert_eq!(charged.used_before.get(), n as u64, "{off} hours off");
        assert!(charged.reset_after <= Duration::from_secs(3600));
        let skew = store.shared().shards()[0].skew_micros();
        assert!(skew.abs_diff((9 - off) * HOUR as i64) < HOUR / 60, "a skew of {skew} µs, {off} hours off");
    }
    Ok(())
}

/// A server whose clock steps is believed at its next answer that says what its clock shows.
#[tokio::test]
async fn answers_say_what_the_clock_shows() -> anyhow::Result<()> {
    const HOUR: u64 = 3_600_000_000;
    let clock = ServerClock::at(now().get())?;
    let server = Setup::new(Kind::Redis7).clock(&clock).start().await?;
    let store = store_of(&server).await?;
    let skew_after = async |algorithm| {
        let counter = Counter::of(&store, "steps", BUDGET, per_year(1_000, algorithm));
        assert_eq!(counter.ask().await, "OK");
        store.shared().shards()[0].skew_micros()
    };
    clock.set(now().get() + HOUR)?;
    let plain = skew_after(Algorithm::FixedWindow).await;
    assert!(plain.unsigned_abs() < HOUR / 2, "a plain charge says nothing of the clock: {plain}");
    let skew = skew_after(Algorithm::SlidingWindow).await;
    assert!(skew.abs_diff(HOUR as i64) < HOUR / 60, "{skew}");
    Ok(())
}

/// The server forgets its scripts in the middle of everything; nobody notices.
#[tokio::test]
async fn forgotten_scripts_come_back() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    let counter = Counter::of(&store, "forgotten", BUDGET, per_year(1_000_000, Algorithm::SlidingLog));
    for n in 0..20 {
        server.call(&["SCRIPT", "FLUSH"]).await?.ok()?;
        let said = join_all((0..5).map(|_| counter.ask())).await;
        assert_eq!(said, ["OK"; 5]);
        assert_eq!(counter.used().await?, 5 * (n + 1));
    }
    Ok(())
}

/// A key that holds something else is an error for its own callers, and no reason not to ask the server.
#[tokio::test]
async fn a_foreign_key_troubles_nobody_else() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    for algorithm in ALGORITHMS {
        let foreign = Counter::of(&store, "foreign", BUDGET, per_year(100, algorithm));
        let own = Counter::of(&store, "own", BUDGET, per_year(1_000, algorithm));
        foreign.charge(Cost::Charge(Hits::new(1))).await?;
        let name = foreign.name(std::slice::from_ref(&server)).await?;
        for foreigner in [["HSET", &name, "a", "b"].as_slice(), &["SET", &name, "not a number"]] {
            server.call(&["DEL", &name]).await?;
            server.call(foreigner).await?;
            let mut said = Vec::new();
            for _ in 0..20 {
                said.push(foreign.ask().await);
                assert_eq!(own.ask().await, "OK", "{algorithm:?} beside {foreigner:?}");
            }
            let text = foreigner[0] == "SET";
            // A counter that is no state of its algorithm may be taken as none, or refused; always the same.
            assert!(said.iter().all(|one| *one == said[0]), "{algorithm:?} on {foreigner:?}: {said:?}");
            assert!(text || said[0] == "unavailable", "{algorithm:?} on {foreigner:?}: {said:?}");
        }
    }
    Ok(())
}

/// Callers who go away in the middle take nothing with them: every other caller gets the answer to his own question.
#[tokio::test]
async fn callers_who_go_away_mix_nothing_up() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = store_of(&server).await?;
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket { burst: 1_000_000 }] {
        let counters: Vec<_> = (0..40)
            .map(|n| Counter::of(&store, &format!("away{n}"), BUDGET, per_year(1_000_000, algorithm)))
            .collect();
        for round in 0..20 {
            let asked = counters.iter().zip(0_u64..).map(async |(counter, n)| {
                let charged = counter.charge(Cost::Charge(Hits::new(100 + n)));
                if (n + round) % 3 == 0 {
                    // Some go before the question is sent, some before the answer is there.
                    let _ = timeout(Duration::from_micros(50 * (n % 8)), charged).await;
                } else {
                    let charged = charged.await.unwrap();
                    assert_eq!(
                        charged.used_after.get() % (100 + n),
                        0,
                        "counter {n}: somebody else's answer"
                    );
                }
            });
            join_all(asked).await;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_evicts_counters_is_told_of() -> anyhow::Result<()> {
    for (policy, wanted) in [
        ("allkeys-lru", Eviction::DeletesLiveCounters),
        ("volatile-ttl", Eviction::DeletesLiveCounters),
        ("noeviction", Eviction::Keeps),
    ] {
        let setup =
            Setup::new(Kind::Redis7).line("maxmemory 100mb").line(format!("maxmemory-policy {policy}"));
        let server = setup.start().await?;
        let store = store_of(&server).await?;
        let shard = store.shared().shards().remove(0);
        assert_eq!(shard.eviction(), wanted, "{policy}");
        let warned = shard.warnings().iter().any(|warning| warning.contains("maxmemory-policy"));
        assert_eq!(warned, wanted == Eviction::DeletesLiveCounters, "{policy}: {:?}", shard.warnings());
    }
    Ok(())
}
