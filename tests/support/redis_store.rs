//! The Redis store itself, opened by a test, and questions to it.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate::clock::{Clock, UnixMicros};
use tidegate::key::CounterKey;
use tidegate::limit::{Algorithm, Charged, Cost, Hits, Limit, Unit, Window};
use tidegate::store::redis::config::{SocketType, Topology, TopologyKind};
use tidegate::store::redis::tls::{HostName, TlsConfig};
use tidegate::store::redis::{Health, RedisConfig, RedisStore, Shared};
use tidegate::store::{Budget, Charge, StoreError};
use tokio::time::Instant;

use crate::faults::load::OK;
use crate::redis::certificates::Certificates;
use crate::redis::resp::Reply;
use crate::redis::server::Server;
use crate::redis::wait::eventually;

const AT_LAST: Duration = Duration::from_secs(10);

/// Who is told within this that there is no store has sent nothing to it.
const AT_ONCE: Duration = Duration::from_micros(500);

/// No test takes as long as a year's rest; no window ends within one.
pub fn per_year(requests_per_unit: u32, algorithm: Algorithm) -> Limit {
    let window =
        Window::new(Unit::Year, NonZeroU32::MIN).unwrap_or_else(|| unreachable!("a year is no century"));
    Limit { requests_per_unit, window, algorithm }
}

pub fn key(limit: &Limit, value: &str) -> CounterKey {
    CounterKey::new(b"", b"tests", [(&b"key"[..], value.as_bytes())].into_iter(), limit)
}

/// By the process's clock, which is also the servers'.
pub fn now() -> UnixMicros {
    Clock::process().now()
}

/// Where the servers are, as the settings say it.
pub fn at(kind: TopologyKind, url: &str) -> anyhow::Result<RedisConfig> {
    Ok(RedisConfig::new(Topology::parse(kind, SocketType::Tcp, url)?))
}

pub fn list<A: ToString>(servers: impl IntoIterator<Item = A>) -> String {
    servers.into_iter().map(|at| at.to_string()).collect::<Vec<_>>().join(",")
}

/// What a store needs to trust a server with these certificates, and to be trusted.
pub fn trusting(files: &Certificates) -> anyhow::Result<TlsConfig> {
    let client = (std::fs::read(&files.client.certificate)?, std::fs::read(&files.client.key)?);
    let authorities = Some(std::fs::read(&files.authority)?);
    Ok(TlsConfig { authorities, client: Some(client), host_name: HostName::Verified })
}

/// Begins to connect.
pub fn start(config: RedisConfig) -> anyhow::Result<RedisStore> {
    Ok(RedisStore::connect(Shared::new(config, Clock::process())?))
}

/// A store that has found its servers.
pub async fn open(config: RedisConfig) -> anyhow::Result<RedisStore> {
    let store = start(config)?;
    eventually(AT_LAST, async || match store.shared().health() {
        Health::Ready => Ok(()),
        other => anyhow::bail!("{other:?}"),
    })
    .await?;
    Ok(store)
}

/// Why a store that cannot come to its server says that it cannot.
pub async fn trouble(store: &RedisStore) -> anyhow::Result<String> {
    store.tried(AT_LAST).await;
    match store.shared().health() {
        Health::Ready => anyhow::bail!("it is ready"),
        Health::Waiting(shards) | Health::GaveUp(shards) => {
            Ok(shards.into_iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; "))
        }
    }
}

/// One counter that is charged hit by hit.
pub struct Counter<'a> {
    store: &'a RedisStore,
    limit: Limit,
    key: CounterKey,
    pub budget: Duration,
    /// Charges that were admitted.
    n_ok: Cell<u64>,
    /// Charges that may have been counted, though nobody was told.
    n_maybe: Cell<u64>,
}

impl<'a> Counter<'a> {
    /// A counter whose limit nobody reaches.
    pub fn new(store: &'a RedisStore, value: &str, budget: Duration) -> Self {
        Self::of(store, value, budget, per_year(u32::MAX, Algorithm::FixedWindow))
    }

    pub fn of(store: &'a RedisStore, value: &str, budget: Duration, limit: Limit) -> Self {
        Self { store, limit, key: key(&limit, value), budget, n_ok: Cell::new(0), n_maybe: Cell::new(0) }
    }

    /// What [`Counter::ask`] charges.
    pub fn one_hit(&self) -> Charge<'_> {
        self.charge_of(Cost::Charge(Hits::new(1)))
    }

    fn charge_of(&self, cost: Cost) -> Charge<'_> {
        Charge { key: &self.key, limit: &self.limit, cost, max_wait: Duration::MAX }
    }

    pub async fn charge(&self, cost: Cost) -> Result<Charged, StoreError> {
        let charge = self.charge_of(cost);
        let mut outcomes = self.store.charge(&[charge], now(), Budget::of(self.budget)).await;
        assert_eq!(outcomes.len(), 1, "one charge has one outcome");
        outcomes.remove(0)
    }

    /// Charges one hit and names what came of it.
    pub async fn ask(&self) -> &'static str {
        let asked = Instant::now();
        match self.charge(Cost::Charge(Hits::new(1))).await {
            Ok(charged) if charged.admitted => {
                self.n_ok.set(self.n_ok.get() + 1);
                OK
            }
            Ok(_) => "OVER_LIMIT",
            Err(error) => {
                if asked.elapsed() > AT_ONCE {
                    self.n_maybe.set(self.n_maybe.get() + 1);
                }
                match error {
                    StoreError::DeadlineExceeded => "late",
                    StoreError::Unavailable => "unavailable",
                }
            }
        }
    }

    /// What the counter may say now, if nothing of it was lost: all that was answered OK, and at most what was given up on.
    pub fn may_have(&self) -> RangeInclusive<u64> {
        self.n_ok.get()..=self.n_ok.get() + self.n_maybe.get()
    }

    /// Starts to count anew what it may say: after a loss.
    pub fn forget(&self) {
        self.n_ok.set(0);
        self.n_maybe.set(0);
    }

    /// Its name in the server, which begins with the counter's key.
    pub async fn name(&self, servers: &[Server]) -> anyhow::Result<String> {
        let pattern = format!("{}*", String::from_utf8_lossy(self.key.as_bytes()));
        for server in servers {
            if let Some(Reply::Text(name)) = server.call(&["KEYS", &pattern]).await?.list()?.pop() {
                return Ok(name);
            }
        }
        anyhow::bail!("no server has {pattern}")
    }

    /// Waits until it can be charged.
    pub async fn works(&self, within: Duration) -> anyhow::Result<()> {
        eventually(within, async || {
            let said = self.ask().await;
            anyhow::ensure!(said == OK, "the store is {said}");
            Ok(())
        })
        .await
    }

    /// What has been counted.
    pub async fn used(&self) -> anyhow::Result<u64> {
        Ok(self.charge(Cost::Peek).await?.used_before.get())
    }
}
