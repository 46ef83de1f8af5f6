//! The store on a real server, started for each test on a port of its own.

mod differential;
mod server;

use std::{num::NonZeroU32, time::Duration};

use super::{
    breaker::BreakerState,
    config::{KeyStyle, RedisConfig, SocketType, TimeSource, Topology, TopologyKind},
    stats::ErrorKind,
    *,
};
use crate::{
    clock::Clock,
    key::CounterKey,
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    store::pair::Pair,
};
use server::Server;

const SOON: Duration = Duration::from_secs(10);

/// Half a second before the end of a minute.
fn now() -> UnixMicros {
    UnixMicros::new(1_700_000_039_500_000)
}

fn limit(requests_per_unit: u32, unit: Unit, algorithm: Algorithm) -> Limit {
    Limit { requests_per_unit, window: Window::new(unit, NonZeroU32::MIN).unwrap(), algorithm }
}

fn key(name: &str, limit: &Limit) -> CounterKey {
    CounterKey::new(b"", b"test", [(b"key".as_slice(), name.as_bytes())].into_iter(), limit)
}

fn hits(n: u64) -> Cost {
    Cost::charge(Hits::new(n))
}

fn charge<'a>(key: &'a CounterKey, limit: &'a Limit, cost: Cost) -> Charge<'a> {
    Charge { key, limit, cost, max_wait: Duration::MAX }
}

fn config(kind: TopologyKind, url: &str) -> RedisConfig {
    let mut config = RedisConfig::new(Topology::parse(kind, SocketType::Tcp, url).unwrap());
    config.time = TimeSource::Caller;
    config
}

async fn connected(config: RedisConfig) -> RedisStore {
    let store = RedisStore::connect(Shared::new(config, Clock::manual(now())).unwrap());
    store.tried(SOON).await;
    assert_eq!(store.shared().health(), Health::Ready);
    store
}

async fn single(server: &Server) -> RedisStore {
    connected(config(TopologyKind::Single, &server.address())).await
}

fn used(outcomes: &Outcomes) -> Vec<(bool, u64)> {
    outcomes.iter().map(|outcome| outcome.unwrap()).map(|c| (c.admitted, c.used_after.get())).collect()
}

#[tokio::test]
async fn a_plain_charge_is_counted_under_a_readable_name_that_expires() {
    let server = Server::start().await;
    let store = single(&server).await;
    let limit = limit(3, Unit::Minute, Algorithm::FixedWindow);
    let key = key("a", &limit);
    let charges =
        [charge(&key, &limit, hits(2)), charge(&key, &limit, hits(2)), charge(&key, &limit, Cost::Peek)];
    let outcomes = store.charge(&charges, now(), Budget::of(SOON)).await;
    assert_eq!(used(&outcomes), [(true, 2), (false, 4), (false, 4)]);
    assert_eq!(outcomes[0].unwrap().reset_after, Duration::from_millis(500));
    let name = "test|key=a|60s@28333333";
    assert_eq!(server.call(&["GET", name]), "4");
    let ttl: u64 = server.call(&["TTL", name]).parse().unwrap();
    assert!((1..=301).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn an_expiry_that_was_lost_is_restored() {
    let server = Server::start().await;
    let store = single(&server).await;
    let limit = limit(3, Unit::Minute, Algorithm::FixedWindow);
    let key = key("a", &limit);
    let charges = [charge(&key, &limit, hits(1))];
    store.charge(&charges, now(), Budget::of(SOON)).await;
    server.call(&["PERSIST", "test|key=a|60s@28333333"]);
    store.charge(&charges, now(), Budget::of(SOON)).await;
    assert_ne!(server.call(&["TTL", "test|key=a|60s@28333333"]), "-1");
}

#[tokio::test]
async fn a_count_that_does_not_fit_is_over_the_limit() {
    let server = Server::start().await;
    let store = single(&server).await;
    let limit = limit(3, Unit::Minute, Algorithm::FixedWindow);
    let key = key("a", &limit);
    server.call(&["SET", "test|key=a|60s@28333333", "9223372036854775807"]);
    let outcomes = store.charge(&[charge(&key, &limit, hits(1))], now(), Budget::of(SOON)).await;
    assert_eq!(used(&outcomes), [(false, Hits::MAX.get())]);
}

#[tokio::test]
async fn a_key_of_another_kind_fails_its_own_charge_only_and_never_the_breaker() {
    let server = Server::start().await;
    let store = single(&server).await;
    let limit = limit(3, Unit::Minute, Algorithm::FixedWindow);
    let (bad, good) = (key("bad", &limit), key("good", &limit));
    server.call(&["RPUSH", "test|key=bad|60s@28333333", "x"]);
    for n in 1..10 {
        let charges = [charge(&bad, &limit, hits(1)), charge(&good, &limit, hits(1))];
        let outcomes = store.charge(&charges, now(), Budget::of(SOON)).await;
        assert_eq!(outcomes[0], Err(StoreError::Unavailable));
        assert_eq!(outcomes[1].unwrap().used_after.get(), n);
    }
    let shard = &store.shared().shards()[0];
    assert_eq!((shard.breaker.state(), shard.stats.errors(ErrorKind::WrongType)), (BreakerState::Closed, 9));
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again_and_counts_once() {
    let server = Server::start().await;
    let store = single(&server).await;
    let limit = limit(3, Unit::Minute, Algorithm::TokenBucket { burst: 3 });
    let key = key("a", &limit);
    for n in 1..=3 {
        server.call(&["SCRIPT", "FLUSH"]);
        let outcomes = store.charge(&[charge(&key, &limit, hits(1))], now(), Budget::of(SOON)).await;
        assert_eq!(used(&outcomes), [(true, n)]);
    }
    let outcomes = store.charge(&[charge(&key, &limit, hits(1))], now(), Budget::of(SOON)).await;
    assert_eq!(used(&outcomes), [(false, 4)]);
}

#[tokio::test]
async fn all_or_nothing_counts_nothing_where_one_is_refused() {
    let server = Server::start().await;
    let store = single(&server).await;
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: 5 },
        Algorithm::LeakyBucket { burst: 4, max_delay: Duration::from_secs(60) },
    ];
    let limits = algorithms.map(|algorithm| limit(5, Unit::Minute, algorithm));
    let keys = limits.each_ref().map(|limit| key("a", limit));
    let tight = limit(1, Unit::Minute, Algorithm::FixedWindow);
    let tight_key = key("tight", &tight);
    let mut charges: Vec<Charge<'_>> =
        keys.iter().zip(&limits).map(|(key, limit)| charge(key, limit, hits(1))).collect();
    charges.push(charge(&tight_key, &tight, hits(1)));
    let enforced = [true; 6];
    let first = store.charge_all_or_nothing(&charges, &enforced, now(), Budget::of(SOON)).await;
    assert_eq!(used(&first), [(true, 1); 6]);
    for _ in 0..3 {
        let refused = store.charge_all_or_nothing(&charges, &enforced, now(), Budget::of(SOON)).await;
        assert_eq!(used(&refused)[..5], [(true, 1); 5]);
        assert_eq!(used(&refused)[5], (false, 2));
    }
    // A refusal that is not enforced spares nobody.
    let shadow = [true, true, true, true, true, false];
    let admitted = store.charge_all_or_nothing(&charges, &shadow, now(), Budget::of(SOON)).await;
    assert_eq!(used(&admitted), [(true, 2), (true, 2), (true, 2), (true, 2), (true, 2), (false, 2)]);
    let peeks: Vec<Charge<'_>> = charges.iter().map(|c| Charge { cost: Cost::Peek, ..c.clone() }).collect();
    let looked = store.charge(&peeks, now(), Budget::of(SOON)).await;
    assert_eq!(used(&looked).iter().map(|(_, used)| *used).collect::<Vec<_>>(), [2; 6]);
}

#[tokio::test]
async fn across_a_ring_what_a_refusal_had_counted_is_given_back() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let url = servers.each_ref().map(Server::address).join(",");
    let store = connected(config(TopologyKind::Ring, &url)).await;
    let limit = limit(100, Unit::Minute, Algorithm::FixedWindow);
    let banned = Limit { requests_per_unit: 0, ..limit };
    let keys: Vec<CounterKey> = (0..12).map(|n| key(&n.to_string(), &limit)).collect();
    let mut charges: Vec<Charge<'_>> = keys.iter().map(|key| charge(key, &limit, hits(3))).collect();
    charges[0].limit = &banned;
    let outcomes = store.charge_all_or_nothing(&charges, &[true; 12], now(), Budget::of(SOON)).await;
    assert!(!outcomes[0].unwrap().admitted);
    assert!(outcomes[1..].iter().all(|outcome| outcome.unwrap().used_after == Hits::ZERO));
    let peeks: Vec<Charge<'_>> = charges.iter().map(|c| Charge { cost: Cost::Peek, ..c.clone() }).collect();
    let settled = async {
        while store
            .charge(&peeks, now(), Budget::of(SOON))
            .await
            .iter()
            .any(|o| o.unwrap().used_after > Hits::ZERO)
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, settled).await.unwrap();
    assert_eq!(store.shared().refunds_dropped(), 0);
    // Each key is on one server.
    store.charge(&charges, now(), Budget::of(SOON)).await;
    let counts = servers.each_ref().map(|server| server.call(&["KEYS", "test|*"]).lines().count());
    assert_eq!(counts.iter().sum::<usize>(), 12, "{counts:?}");
}

#[tokio::test]
async fn the_references_keys_are_written_byte_for_byte() {
    let server = Server::start().await;
    let mut config = config(TopologyKind::Single, &server.address());
    config.keys = KeyStyle::Envoyproxy;
    let store = connected(config).await;
    let limit = limit(10, Unit::Hour, Algorithm::FixedWindow);
    let key =
        CounterKey::envoyproxy(b"prefix:", b"domain", [(b"key".as_slice(), b"value".as_slice())].into_iter());
    let now = UnixMicros::from_secs(1_000_000);
    let charges = [charge(&key, &limit, hits(4)), charge(&key, &limit, Cost::Peek)];
    let outcomes = store.charge(&charges, now, Budget::of(SOON)).await;
    assert_eq!(used(&outcomes), [(true, 4), (true, 4)]);
    assert_eq!(server.call(&["GET", "prefix:domain_key_value_997200"]), "4");
    let ttl: u64 = server.call(&["TTL", "prefix:domain_key_value_997200"]).parse().unwrap();
    assert!((3_600..3_900).contains(&ttl), "{ttl}");
    assert_eq!(server.call(&["KEYS", "*"]), "prefix:domain_key_value_997200");
}

#[tokio::test]
async fn without_a_server_a_call_fails_at_once_and_health_says_why() {
    let server = Server::start().await;
    let address = server.address();
    drop(server);
    let store = RedisStore::connect(
        Shared::new(config(TopologyKind::Single, &address), Clock::manual(now())).unwrap(),
    );
    store.tried(SOON).await;
    let limit = limit(3, Unit::Minute, Algorithm::FixedWindow);
    let key = key("a", &limit);
    let outcomes = store.charge(&[charge(&key, &limit, hits(1))], now(), Budget::of(SOON)).await;
    assert_eq!(outcomes[..], [Err(StoreError::Unavailable)]);
    let Health::Waiting(troubles) = store.shared().health() else { panic!("not connected") };
    assert!(troubles[0].1.contains("refused"), "{troubles:?}");
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_said_plainly() {
    let server = Server::start_with(&["requirepass sesame"]).await;
    for (auth, said) in [(None, "wants a password"), (Some("open"), "wrong password")] {
        let mut config = config(TopologyKind::Single, &server.address());
        config.auth = auth.and_then(config::Auth::parse);
        let store = RedisStore::connect(Shared::new(config, Clock::manual(now())).unwrap());
        store.tried(SOON).await;
        let Health::Waiting(troubles) = store.shared().health() else { panic!("not connected") };
        assert!(troubles[0].1.contains(said), "{troubles:?}");
        assert!(!format!("{troubles:?}").contains("open"));
    }
    let mut config = config(TopologyKind::Single, &server.address());
    config.auth = config::Auth::parse("default:sesame");
    connected(config).await;
}

#[tokio::test]
async fn commands_that_a_user_lacks_are_named() {
    let user = "user limiter on >x ~* +incrby +expire +ping +get +time +evalsha +eval +script|load +set";
    let server = Server::start_with(&[user]).await;
    let mut config = config(TopologyKind::Single, &server.address());
    config.auth = config::Auth::parse("limiter:x");
    let store = connected(config).await;
    let warnings = store.shared().shards()[0].warnings().join("\n");
    for name in ["TTL", "LTRIM", "RPUSH", "DEL"] {
        assert!(warnings.contains(name), "{name} in {warnings}");
    }
    for name in ["INCRBY", "GET,", "SCRIPT"] {
        assert!(!warnings.contains(name), "{name} in {warnings}");
    }
}

#[tokio::test]
async fn the_documented_rights_are_enough_for_everything() {
    let documented = include_str!("../../../docs/redis.md")
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER "))
        .expect("docs/redis.md names the rights");
    let server = Server::start_with(&[&format!("user {documented}"), "user default off"]).await;
    let mut config = config(TopologyKind::Single, &server.address());
    config.auth = config::Auth::parse("tidegate:password");
    config.time = TimeSource::Server;
    let store = connected(config).await;
    let shard = &store.shared().shards()[0];
    assert_eq!(shard.warnings(), Vec::<String>::new());
    assert_eq!(shard.eviction(), Eviction::Keeps);
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: 3 },
        Algorithm::LeakyBucket { burst: 3, max_delay: Duration::from_secs(60) },
    ];
    for algorithm in algorithms {
        let limit = limit(3, Unit::Year, algorithm);
        let key = key("a", &limit);
        for cost in [hits(3), hits(1), Cost::Peek, Cost::refund(Hits::new(1)), Cost::refund(Hits::new(9))] {
            let charges = [charge(&key, &limit, cost)];
            let outcomes = store.charge(&charges, now(), Budget::of(SOON)).await;
            assert!(outcomes[0].is_ok(), "{algorithm:?}, {cost:?}");
            let outcomes = store.charge_all_or_nothing(&charges, &[true], now(), Budget::of(SOON)).await;
            assert!(outcomes[0].is_ok(), "{algorithm:?}, {cost:?}, all or nothing");
        }
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_single_server() {
    let server = Server::start_with(&["cluster-enabled yes"]).await;
    server.call(&["CLUSTER", "ADDSLOTS", "0"]);
    let store = RedisStore::connect(
        Shared::new(config(TopologyKind::Single, &server.address()), Clock::manual(now())).unwrap(),
    );
    store.tried(SOON).await;
    assert_ne!(store.shared().health(), Health::Ready);
}

#[tokio::test]
async fn a_call_to_one_server_takes_little_room() {
    let server = Server::start().await;
    let pair = Pair { main: single(&server).await, per_second: None };
    // It is moved to a place of its own for every call: at 60 kB that was a fifth of all time on the CPU.
    let call = pair.charge(&[], now(), Budget::of(SOON));
    assert!(size_of_val(&call) <= 6 * 1024, "{} bytes", size_of_val(&call));
}
