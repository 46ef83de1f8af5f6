//! All or nothing: a request that one counter refuses is charged to none of the others, whoever else charges them meanwhile.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::join_all;
use tidegate::key::CounterKey;
use tidegate::limit::{Algorithm, Cost, Hits, Limit};
use tidegate::store::redis::RedisStore;
use tidegate::store::redis::config::TopologyKind;
use tidegate::store::{Budget, Charge};

use crate::redis::cluster::Cluster;
use crate::redis::server::{Kind, Server};
use crate::redis::wait::eventually;
use crate::redis_store::{Counter, at, key, list, now, open, per_year};

const BUDGET: Duration = Duration::from_secs(5);
const N_STORES: usize = 3;
const N_CALLERS: usize = 8;
const N_CALLS: usize = 20;
/// What the narrow counter admits; the wide ones never refuse.
const NARROW: u32 = 20;
const N_WIDE: usize = 3;

/// The counters of one request: a narrow one among wide ones.
struct Counters {
    keys: Vec<CounterKey>,
    limits: Vec<Limit>,
}

impl Counters {
    fn new(name: &str, algorithm: impl Fn(u32) -> Algorithm) -> Self {
        let limits: Vec<_> = (0..=N_WIDE)
            .map(|n| if n == 1 { NARROW } else { 1_000_000 })
            .map(|number| per_year(number, algorithm(number)))
            .collect();
        let keys = limits.iter().enumerate().map(|(n, limit)| key(limit, &format!("{name}{n}"))).collect();
        Self { keys, limits }
    }

    fn charges(&self, cost: Cost) -> Vec<Charge<'_>> {
        let pairs = self.keys.iter().zip(&self.limits);
        pairs.map(|(key, limit)| Charge { key, limit, cost, max_wait: Duration::ZERO }).collect()
    }

    /// Whether a request is admitted by all of them.
    async fn ask(&self, store: &RedisStore, enforced: bool) -> bool {
        let enforced = vec![enforced; self.keys.len()];
        let charges = self.charges(Cost::Charge(Hits::new(1)));
        let outcomes = store.charge_all_or_nothing(&charges, &enforced, now(), Budget::of(BUDGET)).await;
        outcomes.into_iter().map(Result::unwrap).all(|charged| charged.admitted)
    }

    async fn used(&self, store: &RedisStore) -> Vec<u64> {
        let outcomes = store.charge(&self.charges(Cost::Peek), now(), Budget::of(BUDGET)).await;
        outcomes.into_iter().map(|outcome| outcome.unwrap().used_before.get()).collect()
    }
}

/// An algorithm for a limit of this number, with room for all of it at once.
type OfNumber = fn(u32) -> Algorithm;

const ALGORITHMS: [(&str, OfNumber); 4] = [
    ("fixed", |_| Algorithm::FixedWindow),
    ("sliding", |_| Algorithm::SlidingWindow),
    ("log", |_| Algorithm::SlidingLog),
    ("bucket", |number| Algorithm::TokenBucket { burst: number }),
];

/// Many callers on several stores at once, while somebody looks whether a wide counter ever says more than `most`.
async fn race(stores: &[RedisStore], counters: &Counters) -> (usize, u64) {
    let callers = (0..N_CALLERS).map(async |n| {
        let mut n_ok = 0;
        for _ in 0..N_CALLS {
            n_ok += usize::from(counters.ask(&stores[n % stores.len()], true).await);
        }
        n_ok
    });
    let mut most = 0;
    let watch = async {
        loop {
            most = most.max(counters.used(&stores[0]).await.into_iter().max().unwrap_or_default());
        }
    };
    let n_ok = tokio::select! {
        n_ok = join_all(callers) => n_ok.iter().sum(),
        () = watch => unreachable!("it watches for ever"),
    };
    (n_ok, most)
}

#[tokio::test]
async fn on_one_server_a_refused_request_is_never_seen() -> anyhow::Result<()> {
    for kind in [Kind::Redis7, Kind::Redis62] {
        let server = Server::start(kind).await?;
        let mut stores = Vec::new();
        for _ in 0..N_STORES {
            stores.push(open(at(TopologyKind::Single, &server.address().to_string())?).await?);
        }
        for (name, algorithm) in ALGORITHMS {
            let counters = Counters::new(name, algorithm);
            let (n_ok, most) = race(&stores, &counters).await;
            assert_eq!(n_ok, NARROW as usize, "{name}");
            assert_eq!(most, u64::from(NARROW), "{name}: a refused request was seen");
            assert_eq!(counters.used(&stores[0]).await, [u64::from(NARROW); N_WIDE + 1], "{name}");
        }
        let refunds = stores.iter().map(|store| store.shared().refunds_sent()).sum::<u64>();
        assert_eq!(refunds, 0, "one script call needs no refunds");
    }
    Ok(())
}

/// A refusal that nobody enforces spares nobody.
#[tokio::test]
async fn a_refusal_that_is_not_enforced_spares_nobody() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let store = open(at(TopologyKind::Single, &server.address().to_string())?).await?;
    for (name, algorithm) in ALGORITHMS {
        let counters = Counters::new(name, algorithm);
        for n in 0..2 * NARROW {
            assert_eq!(counters.ask(&store, false).await, n < NARROW, "{name}");
        }
        assert_eq!(counters.used(&store).await[0], u64::from(2 * NARROW), "{name}");
    }
    Ok(())
}

/// Across servers what was charged beside a refusal is given back: a while later there is none of it left.
async fn given_back(stores: Vec<RedisStore>) -> anyhow::Result<()> {
    for (name, algorithm) in ALGORITHMS {
        let counters = Counters::new(name, algorithm);
        let (n_ok, most) = race(&stores, &counters).await;
        println!("{name}: {n_ok} admitted, at most {most} seen in a counter at any moment");
        // What is under way on another server may have been in front; it never lets anybody in.
        assert_eq!(n_ok, NARROW as usize, "{name}");
        eventually(BUDGET, async || {
            let used = counters.used(&stores[0]).await;
            ensure!(
                used == [n_ok as u64; N_WIDE + 1],
                "{name}: {n_ok} were admitted, and counted are {used:?}"
            );
            Ok(())
        })
        .await?;
    }
    let shared: Vec<_> = stores.iter().map(RedisStore::shared).collect();
    assert!(shared.iter().any(|shared| shared.refunds_sent() > 0), "nothing was given back");
    assert!(shared.iter().all(|shared| shared.refunds_dropped() == 0), "refunds were dropped");
    Ok(())
}

#[tokio::test]
async fn on_a_ring_a_refused_request_is_given_back() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(Kind::Redis7).await?);
    }
    let mut stores = Vec::new();
    for _ in 0..N_STORES {
        stores.push(open(at(TopologyKind::Ring, &list(servers.iter().map(Server::address)))?).await?);
    }
    given_back(stores).await
}

#[tokio::test]
async fn on_a_cluster_a_refused_request_is_given_back() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let mut stores = Vec::new();
    for _ in 0..N_STORES {
        stores
            .push(open(at(TopologyKind::Cluster, &list(cluster.nodes.iter().map(Server::address)))?).await?);
    }
    given_back(stores).await
}

/// A store that ends gives back what refused requests are owed before it is gone, and takes no more.
#[tokio::test]
async fn what_is_owed_is_given_back_before_the_end() -> anyhow::Result<()> {
    const OWED: u64 = 200;
    let server = Server::start(Kind::Redis7).await?;
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingLog] {
        let store = open(at(TopologyKind::Single, &server.address().to_string())?).await?;
        let counter = Counter::of(&store, "owed", BUDGET, per_year(1_000, algorithm));
        assert!(counter.charge(Cost::Charge(Hits::new(OWED + 7))).await?.admitted);
        for _ in 0..OWED {
            store.give_back(&[counter.one_hit()], now());
        }
        store.close(BUDGET).await;
        assert_eq!(counter.used().await?, 7, "{algorithm:?}");
        assert_eq!((store.shared().refunds_sent(), store.shared().refunds_dropped()), (OWED, 0));
        store.give_back(&[counter.one_hit()], now());
        assert_eq!(store.shared().refunds_dropped(), 1, "too late, and counted");
    }
    Ok(())
}
