//! A pod of the reference, its image swapped: `/bin/ratelimit` in an image that has nothing else, a volume, a Redis.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use tempfile::TempDir;

use crate::configmap::ConfigMap;
use crate::container::Container;
use crate::redis::server::{Kind, Server};
use crate::redis::wait::eventually;

/// The kubelet takes a minute to mount a change; from then on a reload takes a fraction of a second.
const RELOAD: Duration = Duration::from_secs(30);

/// What the kubelet sets in every pod, here of a namespace with the Services `ratelimit`, `redis` and `statsd`. The last is no
/// part of any manifest, and only there to be in the way.
const SERVICE_LINKS: [(&str, &str); 12] = [
    ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("RATELIMIT_PORT", "tcp://10.96.0.7:8080"),
    ("RATELIMIT_PORT_8081_TCP_PORT", "8081"),
    ("RATELIMIT_SERVICE_HOST", "10.96.0.7"),
    ("RATELIMIT_SERVICE_PORT_GRPC_PORT", "8081"),
    ("REDIS_PORT", "tcp://10.96.0.9:6379"),
    ("REDIS_PORT_6379_TCP", "tcp://10.96.0.9:6379"),
    ("REDIS_PORT_6379_TCP_ADDR", "10.96.0.9"),
    ("REDIS_SERVICE_HOST", "10.96.0.9"),
    ("REDIS_SERVICE_PORT", "6379"),
    ("STATSD_PORT", "udp://10.96.0.8:8125"),
];

/// A manifest's `env`, in the order of the manifest; of its values, `/data` and `@redis@` are replaced.
pub type Env = &'static [(&'static str, &'static str)];

pub struct Pod {
    pub container: Container,
    pub redis: Server,
    _volumes: TempDir,
}

/// The volumes of a pod, before it starts.
pub struct Volumes(TempDir);

impl Volumes {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(TempDir::new()?))
    }

    /// Where a path of the container is.
    pub fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    /// Mounts a ConfigMap of one file at the directory that every manifest has.
    pub fn config(&self, name: &str, text: &str) -> anyhow::Result<ConfigMap> {
        ConfigMap::mount(&self.at("/data/ratelimit/config"), &[(name, text)])
    }

    /// Starts `/bin/ratelimit`, without arguments.
    pub async fn start(self, env: Env) -> anyhow::Result<Pod> {
        self.start_with(env, &[]).await
    }

    /// As [`Volumes::start`], with other values replaced.
    pub async fn start_with(self, env: Env, replaced: &[(&str, String)]) -> anyhow::Result<Pod> {
        let redis = Server::start(Kind::Redis7).await?;
        let program = self.at("/bin/ratelimit");
        std::fs::create_dir_all(self.at("/bin"))?;
        symlink(env!("CARGO_BIN_EXE_tidegate"), &program)?;
        let value = |value: &str| match replaced.iter().find(|(mark, _)| *mark == value) {
            Some((_, meant)) => meant.clone(),
            None if value == "@redis@" => redis.address().to_string(),
            None if value.starts_with('/') => self.at(value).to_string_lossy().into_owned(),
            None => value.to_owned(),
        };
        let given = SERVICE_LINKS.iter().chain(env);
        let environment: BTreeMap<_, _> =
            given.map(|(name, given)| ((*name).to_owned(), value(given))).collect();
        Ok(Pod { container: Container::start(&program, &environment)?, redis, _volumes: self.0 })
    }
}

impl Pod {
    /// Sends calls with one descriptor until one is refused, and says how many were let through.
    pub async fn n_let_through(&self, domain: &str, entries: &[(&str, &str)]) -> anyhow::Result<u32> {
        let mut n = 0;
        while self.container.ask(domain, entries).await? == "OK" {
            n += 1;
            ensure!(n < 1_000, "nobody limits this");
        }
        Ok(n)
    }

    /// Waits until a limit is in force.
    pub async fn comes_to_limit(&self, domain: &str, key: &str, limit: u32) -> anyhow::Result<()> {
        eventually(RELOAD, async || {
            let found = self.container.limit(domain, &[(key, "asked-while-waiting")]).await?;
            ensure!(found == Some(limit), "{found:?}: {}", self.container.output());
            Ok(())
        })
        .await
    }
}
