//! A node in front of a real Redis, in this process, on a clock that the test turns.

use std::sync::Arc;
use std::time::Duration;

use ::tidegate::clock::{Clock, UnixMicros};
use ::tidegate::decision::Answer;
use ::tidegate::descriptor::{Descriptor, Entry, Request};
use ::tidegate::limit::Cost;
use ::tidegate::limiter::{DecideError, Limiter, Options, Shared};
use ::tidegate::rules::{LoadOptions, RuleFile, RuleSet};
use ::tidegate::store::memory::MemoryStore;
use ::tidegate::store::pair::Pair;
use ::tidegate::store::redis::config::{SocketType, TimeSource, Topology, TopologyKind};
use ::tidegate::store::redis::{self as redis_store, RedisConfig, RedisStore};
use ::tidegate::store::{Budget, Store};
use ::tidegate::telemetry::metrics::Metrics;

use crate::redis::server::Server;

const PATIENCE: Duration = Duration::from_secs(10);
/// The epoch's own week, so that no window of an hour ends during a test.
const START: u64 = 604_800_000;
pub const N_WORKERS: usize = 2;

/// One node: its workers, which share what they know, and its clock.
pub struct Node {
    pub clock: Clock,
    pub workers: Vec<Limiter>,
}

impl Node {
    pub async fn start(server: &Server, rules: &str, options: Options) -> Self {
        Self::start_with(server, None, rules, options).await
    }

    /// `per_second`: a server of its own for the limits per second.
    pub async fn start_with(
        server: &Server,
        per_second: Option<&Server>,
        rules: &str,
        options: Options,
    ) -> Self {
        let clock = Clock::manual(UnixMicros::from_secs(START));
        let memory = Arc::new(MemoryStore::new(1_000));
        let shared = Arc::new(Shared::new(clock.clone(), options, Arc::new(Metrics::default()), memory));
        shared.set_rules(load(rules));
        let redis = |server: &Server| {
            let address = server.address().to_string();
            let topology = Topology::parse(TopologyKind::Single, SocketType::Tcp, &address).unwrap();
            let config = RedisConfig { time: TimeSource::Caller, ..RedisConfig::new(topology) };
            redis_store::Shared::new(config, clock.clone()).unwrap()
        };
        let (main, per_second) = (redis(server), per_second.map(redis));
        let mut workers = Vec::new();
        for _ in 0..N_WORKERS {
            let main = RedisStore::connect(main.clone());
            let per_second = per_second.clone().map(RedisStore::connect);
            let worker = Limiter::new(Arc::clone(&shared), Store::Redis(Pair { main, per_second }));
            worker.ready().await;
            workers.push(worker);
        }
        Self { clock, workers }
    }

    /// Turns the clock to so much after the start.
    pub fn at(&self, millis: u64) {
        self.clock.set(UnixMicros::new(START * 1_000_000 + millis * 1_000));
    }

    pub async fn ask(&self, worker: usize, keys: &[&str], cost: Cost) -> Result<Answer, DecideError> {
        let descriptors = keys.iter().map(|key| Descriptor {
            entries: vec![Entry { key: key.to_string().into(), value: "x".into() }],
            cost,
            hits_addend: None,
            override_limit: None,
        });
        let request = Request { domain: "d".into(), descriptors: descriptors.collect(), hits_addend: 0 };
        // In a box: the future is large, and a build for tests copies it often.
        Box::pin(self.workers[worker].decide(&request, Budget::of(PATIENCE))).await
    }
}

pub fn load(rules: &str) -> Arc<RuleSet> {
    let file = RuleFile { name: "limits.yaml".to_owned(), bytes: rules.as_bytes().to_vec() };
    Arc::new(RuleSet::load(&[file], &LoadOptions::default()).unwrap().rules)
}
