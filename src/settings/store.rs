//! Which store counts, and why that one.

use super::{
    error::Problem,
    given::Given,
    redis::{self, RedisSettings},
    table::Values,
    value::Value,
    words::BackendType,
};
use crate::{
    local::{lease, memo},
    store::redis::config::KeyStyle,
};

/// The store, and the reason to be told in the first log line.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    pub kind: StoreKind,
    /// At most so many counters in memory, whatever the store: rules may be counted there while it is away.
    pub memory_max_keys: u32,
    pub why: String,
}

#[derive(Clone, Debug)]
pub enum StoreKind {
    Memory,
    Redis(Box<RedisSettings>),
}

impl StoreSettings {
    pub fn redis(&self) -> Option<&RedisSettings> {
        match &self.kind {
            StoreKind::Memory => None,
            StoreKind::Redis(redis) => Some(redis),
        }
    }
}

/// The reference's settings about Redis. Not everything that starts with `REDIS_`: Kubernetes sets `REDIS_PORT`,
/// `REDIS_SERVICE_HOST` and more wherever a Service is called `redis`.
const REDIS: &[&str] = &[
    "REDIS_SOCKET_TYPE",
    "REDIS_TYPE",
    "REDIS_URL",
    "REDIS_POOL_SIZE",
    "REDIS_AUTH",
    "REDIS_SENTINEL_AUTH",
    "REDIS_TLS",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "REDIS_TLS_CACERT",
    "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
    "REDIS_TIMEOUT",
    "REDIS_PIPELINE_WINDOW",
    "REDIS_PIPELINE_LIMIT",
    "REDIS_CLUSTER_PIPELINE_PARALLELISM",
    "REDIS_POOL_ON_EMPTY_BEHAVIOR",
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    "REDIS_STARTUP_INITIAL_INTERVAL",
    "REDIS_STARTUP_MAX_INTERVAL",
    "REDIS_STARTUP_MAX_ELAPSED_TIME",
    "REDIS_PERSECOND",
    "REDIS_PERSECOND_SOCKET_TYPE",
    "REDIS_PERSECOND_TYPE",
    "REDIS_PERSECOND_URL",
    "REDIS_PERSECOND_POOL_SIZE",
    "REDIS_PERSECOND_AUTH",
    "REDIS_PERSECOND_SENTINEL_AUTH",
    "REDIS_PERSECOND_TLS",
    "REDIS_PERSECOND_TIMEOUT",
    "REDIS_PERSECOND_PIPELINE_WINDOW",
    "REDIS_PERSECOND_PIPELINE_LIMIT",
    "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
    "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
];

/// The name of the reference's program: started under it, we stand in for it.
pub(crate) const REFERENCE_PROGRAM: &str = "ratelimit";

/// Chooses the store. `BACKEND_TYPE` decides; without it, redis if it is configured or expected, else memory.
pub(super) fn choose(
    values: &Values,
    given: &Given,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> StoreSettings {
    let memory_max_keys = values.memory_max_keys.value.get();
    let (wants_redis, why) = wanted(values, given, problems);
    let redis = if wants_redis {
        redis::read(values, given, problems, warnings)
    } else {
        if values.counter_keys.value == KeyStyle::Envoyproxy {
            warnings.push("COUNTER_KEYS=envoyproxy has no effect in memory".to_owned());
        }
        None
    };
    let kind = redis.map_or(StoreKind::Memory, |redis| StoreKind::Redis(Box::new(redis)));
    StoreSettings { kind, memory_max_keys, why }
}

/// What is remembered of refusals: nothing where counters are in memory, which are asked as quickly.
pub(super) fn memo(
    values: &Values,
    store: &StoreSettings,
    warnings: &mut Vec<String>,
) -> Option<memo::Options> {
    let horizon = values.memo_horizon.value.get();
    let bytes = match values.local_cache_size_in_bytes.value.0 {
        None => memo::DEFAULT_BYTES,
        Some(0) => return None,
        Some(bytes) => usize::try_from(bytes).unwrap_or(0).max(memo::MIN_BYTES),
    };
    if matches!(store.kind, StoreKind::Memory) {
        if values.local_cache_size_in_bytes.value.0.is_some() {
            warnings.push(
                "LOCAL_CACHE_SIZE_IN_BYTES has no effect in memory: nothing is asked quicker".to_owned(),
            );
        }
        return None;
    }
    (!horizon.is_zero()).then_some(memo::Options { bytes, horizon })
}

/// From when on keys are leased: never where counters are in memory, nor in the reference's own, of which others know nothing
/// of leases.
pub(super) fn leases(values: &Values, store: &StoreSettings) -> Option<lease::Options> {
    let can = matches!(store.kind, StoreKind::Redis(_)) && values.counter_keys.value == KeyStyle::Tidegate;
    let (min_rate, ttl) = (values.lease_min_rate.value.get(), values.lease_ttl.value.get());
    (values.leases.value && can).then_some(lease::Options { min_rate, ttl })
}

/// Whether it is to be Redis, and why.
fn wanted(values: &Values, given: &Given, problems: &mut Vec<Problem>) -> (bool, String) {
    let backend = &values.backend_type.value;
    match backend {
        BackendType::Memory => (false, "BACKEND_TYPE=memory".to_owned()),
        BackendType::Redis => (true, "BACKEND_TYPE=redis".to_owned()),
        BackendType::Auto => match redis_because(given) {
            Some(why) => (true, why),
            None => (false, "no REDIS_ setting is set".to_owned()),
        },
        BackendType::Memcache => {
            problems.push(Problem {
                name: "BACKEND_TYPE",
                origin: values.backend_type.origin,
                found: Some(backend.show()),
                expected: BackendType::expected(),
                help: Some(
                    "memcached is not supported: it cannot count and expire in one step. Replicas share a Redis or a Valkey: \
                     set BACKEND_TYPE=redis and REDIS_URL. For one replica, set BACKEND_TYPE=memory"
                        .to_owned(),
                ),
            });
            (false, String::new())
        }
    }
}

/// Whether counters are to be in Redis.
pub(super) fn is_redis(values: &Values, given: &Given) -> bool {
    match values.backend_type.value {
        BackendType::Redis => true,
        BackendType::Auto => redis_because(given).is_some(),
        BackendType::Memory | BackendType::Memcache => false,
    }
}

/// Why Redis is meant although nothing says so.
fn redis_because(given: &Given) -> Option<String> {
    let set = REDIS.iter().find(|name| given.value(name).is_some()).map(|name| format!("{name} is set"));
    set.or_else(|| {
        (given.program() == REFERENCE_PROGRAM)
            .then(|| format!("the program was started as `{REFERENCE_PROGRAM}`"))
    })
}
