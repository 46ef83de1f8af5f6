//! What deciding calls for cold keys costs in instructions, with and without what a node knows by itself in front of the store.
//! To be counted by callgrind: `bench/instructions` runs it.
//!
//! `instructions <what is kept> <store> <calls>`: each call asks for another key, one after the other; the clock is turned by
//! hand, to 10,000 calls a second. With `redis` it starts a server of its own, which is not counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a benchmark should fail loudly"
)]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::{Clock, UnixMicros};
use tidegate::decision::Code;
use tidegate::descriptor::{Descriptor, Entry, Request};
use tidegate::limit::{Cost, Hits};
use tidegate::limiter::{Limiter, Options, Shared};
use tidegate::local::{self, SketchKeeps, lease, memo};
use tidegate::rules::{LoadOptions, RuleFile, RuleSet};
use tidegate::store::memory::MemoryStore;
use tidegate::store::pair::Pair;
use tidegate::store::redis::config::{SocketType, TimeSource, Topology, TopologyKind};
use tidegate::store::redis::{RedisConfig, RedisStore, Shared as SharedRedis};
use tidegate::store::{Budget, Store};
use tidegate::telemetry::metrics::Metrics;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RULES: &str = "
domain: bench
descriptors:
- key: tenant
  value: acme
  descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 1000 } }
";

/// The first moment of a window of an hour.
const START: u64 = 1_699_999_200;

/// Between two calls, in microseconds.
const EVERY: u64 = 100;

/// Callgrind makes everything some fifty times slower.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start_redis() -> (Server, String) {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--save", "", "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is on PATH");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
    (Server { process, _folder: folder }, format!("127.0.0.1:{port}"))
}

fn kept(what: &str) -> local::Options {
    let nothing = local::Options { memo: None, leases: None, sketch: SketchKeeps::Nothing };
    let memo = Some(memo::Options::default());
    let leases = Some(lease::Options { min_rate: 200, ttl: Duration::from_millis(200) });
    match what {
        "nothing" => nothing,
        "memo" => local::Options { memo, ..nothing },
        "sketch" => local::Options { sketch: SketchKeeps::Named, ..nothing },
        // Leases know what is hot by the sketch.
        "leases" => local::Options { leases, sketch: SketchKeeps::Named, ..nothing },
        "all" => local::Options { memo, leases, sketch: SketchKeeps::Named },
        _ => panic!("expected nothing, memo, sketch, leases or all, not {what}"),
    }
}

fn request(n: u64) -> Request {
    let entry = |key: &'static str, value: String| Entry { key: key.into(), value: value.into() };
    let entries = vec![entry("tenant", "acme".to_owned()), entry("user", format!("user-{n:07}"))];
    let cost = Cost::Charge(Hits::new(1));
    let descriptors = vec![Descriptor { entries, cost, hits_addend: None, override_limit: None }];
    Request { domain: "bench".into(), descriptors, hits_addend: 0 }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, store, n_calls] = &arguments[..] else {
        panic!("expected what is kept, the store, the calls")
    };
    let n_calls: u64 = n_calls.parse().unwrap();

    let clock = Clock::manual(UnixMicros::from_secs(START));
    let memory = Arc::new(MemoryStore::new(1_000_000));
    let options = Options { local: kept(what), ..Options::default() };
    let shared = Shared::new(clock.clone(), options, Arc::new(Metrics::default()), Arc::clone(&memory));
    let file = RuleFile { name: "bench.yaml".to_owned(), bytes: RULES.as_bytes().to_vec() };
    shared.set_rules(Arc::new(RuleSet::load(&[file], &LoadOptions::default()).unwrap().rules));
    let redis = (store == "redis").then(start_redis);
    let store = match &redis {
        None => Store::Memory(memory),
        Some((_, address)) => {
            let topology = Topology::parse(TopologyKind::Single, SocketType::Tcp, address).unwrap();
            let config = RedisConfig { time: TimeSource::Caller, ..RedisConfig::new(topology) };
            let main = RedisStore::connect(SharedRedis::new(config, clock.clone()).unwrap());
            main.tried(PATIENCE).await;
            Store::Redis(Pair { main, per_second: None })
        }
    };
    let limiter = Limiter::new(Arc::new(shared), store);
    for n in 0..n_calls {
        clock.set(UnixMicros::new(START * 1_000_000 + n * EVERY));
        let answer = limiter.decide(&request(n), Budget::of(PATIENCE)).await.unwrap();
        assert_eq!(answer.overall, Code::Ok);
    }
}
