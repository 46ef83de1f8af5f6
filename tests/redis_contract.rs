//! What every store must do, held on Redis: on every kind of server, in every topology, over TLS and a Unix socket.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/faults.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod faults;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;
#[path = "support/redis_store.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis_store;
#[path = "store_contract/subject.rs"]
#[allow(dead_code, reason = "the memory store is held to the contract elsewhere")]
mod subject;
#[path = "store_contract/suite.rs"]
#[allow(
    dead_code,
    reason = "a counter whose key names its window has no state that a clock's step back could meet"
)]
mod suite;

use std::any::Any;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::clock::UnixMicros;
use tidegate::limit::Charged;
use tidegate::store::redis::config::{SocketType, TimeSource, Topology, TopologyKind};
use tidegate::store::redis::{RedisConfig, RedisStore};
use tidegate::store::{Budget, Charge};
use tokio::runtime::Runtime;

use redis::certificates::{Certificates, ServerName};
use redis::cluster::Cluster;
use redis::sentinel::{NAME, Watched};
use redis::server::{Kind, Server, Setup};
use redis_store::{at, list, open, trusting};
use subject::Subject;

const BUDGET: Duration = Duration::from_secs(10);
/// Longer than the suite's moments are apart, so that no server drops a counter before its time as the suite counts it.
const LATE_EXPIRY: Duration = Duration::from_secs(10 * 86_400);
const HOUR: u64 = 3_600_000_000;

/// The Redis store with its servers, by the moments that the suite gives. When the suite goes back, to the beginning of something
/// else, the store is told of a later hour: it holds the number of a window when the time steps back.
struct Redis {
    runtime: Runtime,
    store: Option<RedisStore>,
    _servers: Box<dyn Any + Send + Sync>,
    time: Mutex<Time>,
}

#[derive(Default)]
struct Time {
    shown: u64,
    ahead: u64,
}

impl Redis {
    fn on<S: Any + Send + Sync>(
        servers: impl Future<Output = anyhow::Result<S>>,
        config: impl FnOnce(&S) -> anyhow::Result<RedisConfig>,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (store, servers) = runtime
            .block_on(async {
                let servers = servers.await?;
                let config = config(&servers)?;
                let store =
                    open(RedisConfig { time: TimeSource::Caller, expiry_jitter: LATE_EXPIRY, ..config })
                        .await?;
                anyhow::Ok((store, servers))
            })
            .unwrap();
        Self { runtime, store: Some(store), _servers: Box::new(servers), time: Mutex::default() }
    }

    fn meets_the_contract(&self) {
        suite::answers_come_in_the_order_of_the_charges(self);
        suite::a_descriptor_sent_twice_sees_its_own_first_charge(self);
        suite::histories_come_out_as_computed(self);
        suite::threads_share_exactly_the_limit(self);
        suite::one_thread_s_key_is_not_another_s(self);
        suite::a_changed_number_counts_on(self);
        suite::nobody_waits_longer_than_it_can(self);
    }
}

impl Subject for Redis {
    fn turn(&self, at: UnixMicros) {
        let mut time = self.time.lock();
        if at.get() < time.shown {
            time.ahead = (time.ahead + time.shown - at.get() + HOUR).next_multiple_of(HOUR);
        }
        time.shown = at.get();
    }

    fn charge(&self, charges: &[Charge<'_>]) -> (UnixMicros, Vec<Charged>) {
        let now = {
            let time = self.time.lock();
            UnixMicros::new(time.shown + time.ahead)
        };
        let store = self.store.as_ref().expect("a store until the end");
        let outcomes = self.runtime.block_on(store.charge(charges, now, Budget::of(BUDGET)));
        (now, outcomes.into_iter().map(Result::unwrap).collect())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Its tasks belong to the runtime.
        let _inside = self.runtime.enter();
        self.store = None;
    }
}

fn single(kind: Kind) -> Redis {
    Redis::on(Server::start(kind), |server| at(TopologyKind::Single, &server.address().to_string()))
}

#[test]
fn redis_7() {
    single(Kind::Redis7).meets_the_contract();
}

#[test]
fn redis_6_2() {
    single(Kind::Redis62).meets_the_contract();
}

#[test]
fn valkey_9() {
    single(Kind::Valkey9).meets_the_contract();
}

#[test]
fn a_unix_socket() {
    let config = |server: &Server| {
        let path = server.socket().to_string_lossy().into_owned();
        Ok(RedisConfig::new(Topology::parse(TopologyKind::Single, SocketType::Unix, &path)?))
    };
    Redis::on(Server::start(Kind::Redis7), config).meets_the_contract();
}

#[test]
fn tls() {
    let files = Certificates::of(ServerName::Right).unwrap();
    let server = Setup::new(Kind::Redis7).tls(&files).start();
    let config = |server: &Server| {
        let config = at(TopologyKind::Single, &server.tls_address()?.to_string())?;
        Ok(RedisConfig { tls: Some(trusting(&files)?), ..config })
    };
    Redis::on(server, config).meets_the_contract();
}

#[test]
fn sentinels() {
    let config = |watched: &Watched| {
        let sentinels = list(watched.sentinels.iter().map(Server::address));
        at(TopologyKind::Sentinel, &format!("{NAME},{sentinels}"))
    };
    Redis::on(Watched::start(Kind::Redis7), config).meets_the_contract();
}

#[test]
fn a_cluster() {
    let config =
        |cluster: &Cluster| at(TopologyKind::Cluster, &list(cluster.nodes.iter().map(Server::address)));
    Redis::on(Cluster::start(), config).meets_the_contract();
}

#[test]
fn a_ring() {
    let servers = async {
        let kinds = [Kind::Redis7, Kind::Redis62, Kind::Valkey9];
        futures_util::future::try_join_all(kinds.map(Server::start)).await
    };
    let config = |servers: &Vec<Server>| at(TopologyKind::Ring, &list(servers.iter().map(Server::address)));
    Redis::on(servers, config).meets_the_contract();
}
