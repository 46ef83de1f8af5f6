//! What the settings about Redis mean together: which servers, how to get in, what has no effect. Opens nothing and reads
//! no file.
//!
//! **Invariant:** nothing that is said about an address shows the password in it.

use std::{fmt, path::PathBuf, time::Duration};

use super::{
    Settings,
    error::Problem,
    given::Given,
    go,
    table::{Read, Values},
    value::{Addresses, Password, Unused, Value},
};
use crate::store::redis::{
    config::{Auth, KeyStyle, RedisConfig, Server, SocketType, Startup, Topology, TopologyKind},
    tls::{HostName, TlsConfig},
};

/// What stands for no bound on a call; the request's own budget is far shorter.
const NO_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Counters in Redis.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    pub main: RedisConfig,
    /// The one for limits per second, if they have one of their own.
    pub per_second: Option<RedisConfig>,
    /// Their contents belong into every configuration that has TLS.
    pub tls_files: TlsFiles,
    pub health: RedisHealth,
}

/// Files with certificates, PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    pub authorities: Option<PathBuf>,
    /// Certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// What a lost connection means for health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisHealth {
    /// Nothing: who was connected once stays healthy.
    ConnectedOnce,
    FollowsConnections,
}

/// One of the two sets of settings.
struct Pool<'v> {
    url_name: &'static str,
    size_name: &'static str,
    kind: &'v Read<TopologyKind>,
    socket: &'v Read<SocketType>,
    url: &'v Read<Addresses>,
    auth: &'v Read<Password>,
    sentinel_auth: &'v Read<Password>,
    tls: bool,
    timeout: Duration,
    size: &'v Read<Unused>,
    /// Settings that change nothing: the name, whether it is set, and why it changes nothing.
    idle: [(&'static str, bool, &'static str); 4],
}

const PIPELINE: &str = "what a request needs of a server always goes in one write, at once";
const LIMIT: &str = "it has none in the reference either";
const PARALLELISM: &str = "all nodes of a cluster are always asked at the same time";
const ON_EMPTY: &str = "there is no pool: without a connection a rule's on_store_failure answers at once";

/// Reads both sets.
pub(super) fn read(
    values: &Values,
    given: &Given,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> Option<RedisSettings> {
    let n_problems = problems.len();
    let tls_files = tls_files(values, problems);
    let main = main(values).read(values, given, problems, warnings);
    let per_second = if values.redis_persecond.value {
        Some(per_second(values).read(values, given, problems, warnings))
    } else {
        if values.redis_persecond_url.is_set() {
            warnings.push(
                "REDIS_PERSECOND_URL is set, and REDIS_PERSECOND is not true: all limits are counted in one Redis"
                    .to_owned(),
            );
        }
        None
    };
    if problems.len() > n_problems {
        return None;
    }
    Some(RedisSettings {
        main: main?,
        per_second: per_second.flatten(),
        tls_files,
        health: if values.redis_health_check_active_connection.value {
            RedisHealth::FollowsConnections
        } else {
            RedisHealth::ConnectedOnce
        },
    })
}

fn main(values: &Values) -> Pool<'_> {
    Pool {
        url_name: "REDIS_URL",
        size_name: "REDIS_POOL_SIZE",
        kind: &values.redis_type,
        socket: &values.redis_socket_type,
        url: &values.redis_url,
        auth: &values.redis_auth,
        sentinel_auth: &values.redis_sentinel_auth,
        tls: values.redis_tls.value,
        timeout: values.redis_timeout.value.get(),
        size: &values.redis_pool_size,
        idle: [
            ("REDIS_PIPELINE_WINDOW", values.redis_pipeline_window.is_set(), PIPELINE),
            ("REDIS_PIPELINE_LIMIT", values.redis_pipeline_limit.is_set(), LIMIT),
            (
                "REDIS_CLUSTER_PIPELINE_PARALLELISM",
                values.redis_cluster_pipeline_parallelism.is_set(),
                PARALLELISM,
            ),
            ("REDIS_POOL_ON_EMPTY_BEHAVIOR", is_no_wait(&values.redis_pool_on_empty_behavior), ON_EMPTY),
        ],
    }
}

fn per_second(values: &Values) -> Pool<'_> {
    Pool {
        url_name: "REDIS_PERSECOND_URL",
        size_name: "REDIS_PERSECOND_POOL_SIZE",
        kind: &values.redis_persecond_type,
        socket: &values.redis_persecond_socket_type,
        url: &values.redis_persecond_url,
        auth: &values.redis_persecond_auth,
        sentinel_auth: &values.redis_persecond_sentinel_auth,
        tls: values.redis_persecond_tls.value,
        timeout: values.redis_persecond_timeout.value.get(),
        size: &values.redis_persecond_pool_size,
        idle: [
            ("REDIS_PERSECOND_PIPELINE_WINDOW", values.redis_persecond_pipeline_window.is_set(), PIPELINE),
            ("REDIS_PERSECOND_PIPELINE_LIMIT", values.redis_persecond_pipeline_limit.is_set(), LIMIT),
            (
                "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
                values.redis_persecond_cluster_pipeline_parallelism.is_set(),
                PARALLELISM,
            ),
            (
                "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
                is_no_wait(&values.redis_persecond_pool_on_empty_behavior),
                ON_EMPTY,
            ),
        ],
    }
}

/// `WAIT` is what nearly every manifest says, and as near to what happens as any other word.
fn is_no_wait(behavior: &Read<Unused>) -> bool {
    behavior.is_set() && !behavior.value.as_str().eq_ignore_ascii_case("WAIT")
}

impl Pool<'_> {
    fn read(
        &self,
        values: &Values,
        given: &Given,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<String>,
    ) -> Option<RedisConfig> {
        self.warn(super::workers(values, given).get(), warnings);
        let url = self.url.value.reveal();
        let topology = match Topology::parse(self.kind.value, self.socket_type(), url) {
            Ok(topology) => topology,
            Err(error) => {
                problems.push(self.problem(&error));
                return None;
            }
        };
        let tls = self.tls || servers(&topology).iter().all(|server| server.tls);
        let host_name = if values.redis_tls_skip_hostname_verification.value {
            HostName::Ignored
        } else {
            HostName::Verified
        };
        Some(RedisConfig {
            auth: Auth::parse(self.auth.value.reveal()),
            sentinel_auth: Auth::parse(self.sentinel_auth.value.reveal()),
            tls: tls.then(|| TlsConfig { host_name, ..TlsConfig::default() }),
            timeout: if self.timeout.is_zero() { NO_TIMEOUT } else { self.timeout },
            startup: startup(values),
            keys: values.counter_keys.value,
            expiry_jitter: Duration::from_secs(
                u64::try_from(values.expiration_jitter_max_seconds.value).unwrap_or(0).min(MAX_JITTER),
            ),
            key_prefix: values.cache_key_prefix.value.as_str().as_bytes().to_vec(),
            ..RedisConfig::new(topology)
        })
    }

    /// What the setting says; unless it is set, what the address looks like. The reference would look for a file that is
    /// called `redis:6379`.
    fn socket_type(&self) -> SocketType {
        match self.socket.value {
            SocketType::Unix if !self.socket.is_set() && !self.url.value.reveal().starts_with('/') => {
                SocketType::Tcp
            }
            set => set,
        }
    }

    fn problem(&self, error: &dyn fmt::Display) -> Problem {
        let expected = match self.kind.value {
            TopologyKind::Single => "host:port, redis://…, rediss://… or a socket's path",
            TopologyKind::Sentinel => "the master's name and the sentinels' addresses, with commas between",
            TopologyKind::Cluster | TopologyKind::Ring => "addresses such as host:port, with commas between",
        };
        Problem {
            name: self.url_name,
            origin: self.url.origin,
            found: Some(self.url.value.show()),
            expected: expected.to_owned(),
            // The error may show what stands before an @.
            help: (!self.url.value.reveal().contains('@')).then(|| error.to_string()),
        }
    }

    fn warn(&self, n_workers: usize, warnings: &mut Vec<String>) {
        let size = self.size.value.as_str();
        let connections = go::integer(size).and_then(|size| usize::try_from(size).ok());
        if self.size.is_set() && connections.is_none_or(|connections| connections < n_workers) {
            warnings.push(format!(
                "{}={} has no effect and can be removed: each of the {n_workers} threads has a connection of its own to \
                 each server",
                self.size_name,
                self.size.value.show()
            ));
        }
        for (name, _, why) in self.idle.iter().filter(|(_, is_set, _)| *is_set) {
            warnings.push(format!("{name} is set and has no effect: {why}"));
        }
    }
}

/// A year: what is longer is as good as that.
const MAX_JITTER: u64 = 365 * 86_400;

fn servers(topology: &Topology) -> &[Server] {
    match topology {
        Topology::Single(server) => std::slice::from_ref(server),
        Topology::Sentinel { sentinels: servers, .. }
        | Topology::Cluster(servers)
        | Topology::Ring(servers) => servers,
    }
}

fn startup(values: &Values) -> Startup {
    Startup {
        initial_interval: values.redis_startup_initial_interval.value.get(),
        max_interval: values.redis_startup_max_interval.value.get(),
        max_elapsed: super::non_zero(values.redis_startup_max_elapsed_time.value.get()),
    }
}

fn tls_files(values: &Values, problems: &mut Vec<Problem>) -> TlsFiles {
    let (cert, key) = (&values.redis_tls_client_cert, &values.redis_tls_client_key);
    let client = match (cert.value.non_empty(), key.value.non_empty()) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        (one, _) => {
            let (name, read, other) = if one.is_some() {
                ("REDIS_TLS_CLIENT_KEY", key, "REDIS_TLS_CLIENT_CERT")
            } else {
                ("REDIS_TLS_CLIENT_CERT", cert, "REDIS_TLS_CLIENT_KEY")
            };
            problems.push(Problem {
                name,
                origin: read.origin,
                found: read.is_set().then(String::new),
                expected: format!("a file, since {other} is set: a certificate needs its key"),
                help: None,
            });
            None
        }
    };
    TlsFiles { authorities: values.redis_tls_cacert.value.non_empty().map(PathBuf::from), client }
}

impl Settings {
    /// Whether counters have the reference's own names.
    pub fn key_style(&self) -> KeyStyle {
        self.store.redis().map_or(KeyStyle::Tidegate, |redis| redis.main.keys)
    }
}

#[cfg(test)]
mod tests;
