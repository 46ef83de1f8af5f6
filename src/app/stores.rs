//! The counters of this process: what its threads share of them, how each comes to its own store, and what health says of it.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    health::Health,
    settings::{RedisHealth, RedisSettings, Settings, StoreKind, TlsFiles},
    store::{
        Store,
        memory::MemoryStore,
        pair::Pair,
        redis::{self, RedisConfig, RedisStore, Shard},
    },
};

/// How often a Redis that is to be connected is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// What all threads share of the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Stores {
    Memory(Arc<MemoryStore>),
    Redis(Redises),
}

#[derive(Clone, Debug)]
pub(super) struct Redises {
    main: Arc<redis::Shared>,
    per_second: Option<Arc<redis::Shared>>,
    health: RedisHealth,
    /// Threads that have a store of their own.
    n_opened: Arc<AtomicUsize>,
}

impl Stores {
    /// Reads certificates; connects to nothing. `memory`: this node's own counters.
    pub fn new(settings: &Settings, clock: &Clock, memory: &Arc<MemoryStore>) -> anyhow::Result<Self> {
        match &settings.store.kind {
            StoreKind::Memory => Ok(Self::Memory(Arc::clone(memory))),
            StoreKind::Redis(redis) => Redises::new(redis, clock).map(Self::Redis),
        }
    }

    /// A store for the thread that calls this, on whose runtime it lives.
    pub fn open(&self) -> Store {
        match self {
            Self::Memory(memory) => Store::Memory(Arc::clone(memory)),
            Self::Redis(redis) => {
                redis.n_opened.fetch_add(1, Ordering::Relaxed);
                Store::Redis(Pair {
                    main: RedisStore::connect(Arc::clone(&redis.main)),
                    per_second: redis.per_second.clone().map(RedisStore::connect),
                })
            }
        }
    }

    pub fn redis(&self) -> Option<&Redises> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis),
        }
    }
}

impl Redises {
    fn new(settings: &RedisSettings, clock: &Clock) -> anyhow::Result<Self> {
        let share = |config: &RedisConfig| {
            let config = with_certificates(config.clone(), &settings.tls_files)?;
            anyhow::Ok(redis::Shared::new(config, clock.clone())?)
        };
        Ok(Self {
            main: share(&settings.main).context("cannot use Redis as it is configured")?,
            per_second: settings
                .per_second
                .as_ref()
                .map(share)
                .transpose()
                .context("cannot use the Redis for limits per second as it is configured")?,
            health: settings.health,
            n_opened: Arc::default(),
        })
    }

    /// Tells `health` whether every thread has its connections.
    pub fn tell(&self, health: &Health) {
        match self.trouble(self.n_opened.load(Ordering::Relaxed)) {
            None => health.store_ready(),
            Some(why) => health.store_lost(why),
        }
    }

    /// Tells `health` how the connections are: until every thread has its own for the first time, and from then on if it is
    /// to follow them.
    ///
    /// Errors: the first connection was not made in time.
    pub async fn follow(&self, health: &Health, stop: &CancellationToken) -> anyhow::Result<()> {
        let mut interval = tokio::time::interval(INTERVAL);
        // Threads that must have a connection.
        let mut n_threads = self.n_opened.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = stop.cancelled() => return Ok(()),
            }
            if let Some(why) = self.gave_up() {
                anyhow::bail!("gave up waiting for Redis after REDIS_STARTUP_MAX_ELAPSED_TIME: {why}");
            }
            match self.trouble(n_threads) {
                None if self.health == RedisHealth::ConnectedOnce => {
                    health.store_ready();
                    return Ok(());
                }
                None => {
                    health.store_ready();
                    n_threads = 1;
                }
                Some(why) => health.store_lost(why),
            }
        }
    }

    /// Why so many threads have no way to the counters; `None` if they have.
    fn trouble(&self, n_threads: usize) -> Option<String> {
        let lost = self.all().find(|shared| !is_usable(&shared.shards(), n_threads));
        lost.map(|shared| describe(&shared.health()))
    }

    fn gave_up(&self) -> Option<String> {
        self.all()
            .map(|shared| shared.health())
            .find(|health| matches!(health, redis::Health::GaveUp(_)))
            .map(|health| describe(&health))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<redis::Shared>> {
        std::iter::once(&self.main).chain(&self.per_second)
    }
}

/// Whether so many threads have a connection, and nothing is left to try: one server of several that is down takes its own keys
/// with it, not the whole process.
fn is_usable(shards: &[Arc<Shard>], n_threads: usize) -> bool {
    let is_up = |shard: &Arc<Shard>| shard.stats.connections_open() >= n_threads as u64;
    let is_down = |shard: &Arc<Shard>| !shard.is_connected() && shard.trouble().is_some();
    shards.iter().any(is_up) && shards.iter().all(|shard| is_up(shard) || is_down(shard))
}

fn describe(health: &redis::Health) -> String {
    match health {
        redis::Health::Ready => "redis: connecting".to_owned(),
        redis::Health::Waiting(troubles) | redis::Health::GaveUp(troubles) => {
            let one = |(shard, why): &(String, String)| format!("redis {shard}: {why}");
            troubles.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    }
}

fn with_certificates(mut config: RedisConfig, files: &TlsFiles) -> anyhow::Result<RedisConfig> {
    let Some(tls) = &mut config.tls else { return Ok(config) };
    tls.authorities = files.authorities.as_deref().map(|path| read("REDIS_TLS_CACERT", path)).transpose()?;
    if let Some((certificate, key)) = &files.client {
        tls.client = Some((read("REDIS_TLS_CLIENT_CERT", certificate)?, read("REDIS_TLS_CLIENT_KEY", key)?));
    }
    Ok(config)
}

fn read(setting: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{setting}={}: cannot read it", path.display()))
}
