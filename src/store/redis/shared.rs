//! What the stores of all workers have in common: the configuration, the shards, and how it all is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use tracing::error;

use super::{
    config::{ConfigError, KeyStyle, RedisConfig, Server, TimeSource, Topology},
    dial::Dialer,
    mix,
    shard::Shard,
    tls::TlsConfig,
};
use crate::clock::Clock;

/// How the store is, for `/healthcheck`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Every shard that must be there has a connection.
    Ready,
    /// Why not: each shard without one, and what was found.
    Waiting(Vec<(String, String)>),
    /// The first connection was not made within the time given for it.
    GaveUp(Vec<(String, String)>),
}

/// Made once; each worker's [`super::RedisStore`] refers to it.
#[derive(Debug)]
pub struct Shared {
    pub(super) config: RedisConfig,
    pub(super) clock: Clock,
    pub(super) dialer: Dialer,
    pub(super) sentinel_dialer: Dialer,
    shards: RwLock<Vec<Arc<Shard>>>,
    /// Of a cluster: the last attempt to learn who serves what.
    pub(super) cluster_trouble: RwLock<Option<String>>,
    gave_up: AtomicBool,
    random: AtomicU64,
    pub(super) refunds_dropped: AtomicU64,
    pub(super) refunds_sent: AtomicU64,
}

impl Shared {
    /// Reads certificates; connects to nothing.
    pub fn new(config: RedisConfig, clock: Clock) -> Result<Arc<Self>, ConfigError> {
        let tls = config.tls.as_ref().map(TlsConfig::build).transpose()?;
        let asks_for_tls = servers(&config.topology).iter().any(|server| server.tls);
        let default_tls =
            if asks_for_tls && tls.is_none() { Some(TlsConfig::default().build()?) } else { None };
        let dialer = Dialer { auth: config.auth.clone(), tls, default_tls, timeout: config.timeout };
        let sentinel_dialer = Dialer { auth: config.sentinel_auth.clone(), ..dialer.clone() };
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let shared = Self {
            clock,
            dialer,
            sentinel_dialer,
            shards: RwLock::default(),
            cluster_trouble: RwLock::default(),
            gave_up: AtomicBool::new(false),
            random: AtomicU64::new(seed),
            refunds_dropped: AtomicU64::new(0),
            refunds_sent: AtomicU64::new(0),
            config,
        };
        match &shared.config.topology {
            Topology::Single(server) => drop(shared.shard(&server.endpoint.to_string())),
            Topology::Sentinel { master, .. } => drop(shared.shard(master)),
            Topology::Ring(servers) => {
                servers.iter().for_each(|server| drop(shared.shard(&ring_name(server))))
            }
            Topology::Cluster(_) => {}
        }
        Ok(Arc::new(shared))
    }

    /// The shard of this name; there is one from now on.
    pub(super) fn shard(&self, name: &str) -> Arc<Shard> {
        let find = |shards: &[Arc<Shard>]| shards.iter().find(|shard| shard.name() == name).cloned();
        if let Some(known) = find(&self.shards.read()) {
            return known;
        }
        let mut shards = self.shards.write();
        find(&shards).unwrap_or_else(|| {
            let shard = Arc::new(Shard::new(name.to_owned()));
            shards.push(shard.clone());
            shard
        })
    }

    /// Forgets the nodes that left a cluster: no worker has a link to them any more.
    pub(super) fn drop_unused_shards(&self) {
        self.shards.write().retain(|shard| Arc::strong_count(shard) > 1);
    }

    /// All shards there are now: one, or those of the ring, or the masters of the cluster that were found.
    pub fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.read().clone()
    }

    pub fn health(&self) -> Health {
        let mut troubles: Vec<(String, String)> = self
            .shards
            .read()
            .iter()
            .filter(|shard| !shard.is_connected())
            .map(|shard| {
                (shard.name().to_owned(), shard.trouble().unwrap_or_else(|| "connecting".to_owned()))
            })
            .collect();
        if let Some(trouble) = &*self.cluster_trouble.read() {
            troubles.push(("cluster".to_owned(), trouble.clone()));
        }
        match (troubles.is_empty(), self.gave_up.load(Ordering::Relaxed)) {
            (true, _) => Health::Ready,
            (false, false) => Health::Waiting(troubles),
            (false, true) => Health::GaveUp(troubles),
        }
    }

    /// What is wrong, for people: a sentence for each server that cannot be asked now; empty while all is well. As many as servers, and one.
    pub fn troubles(&self) -> Vec<String> {
        let servers = self.shards();
        let servers = servers.iter().filter_map(|shard| {
            Some(format!("{} {}: rules take their on_store_failure", shard.name(), shard.unwell()?))
        });
        let cluster = self.cluster_trouble.read().clone();
        servers
            .chain(cluster.map(|why| format!("who serves what in the cluster could not be learnt: {why}")))
            .collect()
    }

    /// Refunds that were given up, in charges: the queue was full, or the shard did not take them.
    pub fn refunds_dropped(&self) -> u64 {
        self.refunds_dropped.load(Ordering::Relaxed)
    }

    /// Refunds that were made, in charges.
    pub fn refunds_sent(&self) -> u64 {
        self.refunds_sent.load(Ordering::Relaxed)
    }

    pub fn config(&self) -> &RedisConfig {
        &self.config
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.config.topology, Topology::Cluster(_))
    }

    pub(super) fn reads_clocks(&self) -> bool {
        self.config.keys == KeyStyle::Tidegate && self.config.time == TimeSource::Server
    }

    /// A first connection has been tried for so long.
    pub(super) fn give_up_after(&self, tried: Duration) {
        let late = self.config.startup.max_elapsed.is_some_and(|most| tried >= most);
        let never = !self.shards.read().iter().any(|shard| shard.was_ever_connected());
        if late && never && !self.gave_up.swap(true, Ordering::Relaxed) {
            error!(?tried, "timed out waiting for the first Redis connection");
        }
    }

    pub(super) fn random(&self) -> u64 {
        mix(self.random.fetch_add(1, Ordering::Relaxed))
    }

    /// Random, from 0 up to and without 1.
    pub(super) fn fraction(&self) -> f64 {
        f64::from(u32::try_from(self.random() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

/// What a server of a ring is called: its place in the ring hangs on it.
pub(super) fn ring_name(server: &Server) -> String {
    match server.db {
        0 => server.endpoint.to_string(),
        db => format!("{}/{db}", server.endpoint),
    }
}

fn servers(topology: &Topology) -> &[Server] {
    match topology {
        Topology::Single(server) => std::slice::from_ref(server),
        Topology::Sentinel { sentinels: servers, .. }
        | Topology::Cluster(servers)
        | Topology::Ring(servers) => servers,
    }
}
