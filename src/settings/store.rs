//! Which store counts, and why that one.

use super::{error::Problem, given::Given, table::Values, value::Value, words::BackendType};

/// The store, and the reason to be told in the first log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    pub kind: StoreKind,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// `max_keys`: at most so many counters.
    Memory { max_keys: u32 },
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
pub(super) fn choose(values: &Values, given: &Given, problems: &mut Vec<Problem>) -> StoreSettings {
    let memory = StoreKind::Memory { max_keys: values.memory_max_keys.value.get() };
    let backend = &values.backend_type.value;
    let wanted_because = match backend {
        BackendType::Memory => return StoreSettings { kind: memory, why: "BACKEND_TYPE=memory".to_owned() },
        BackendType::Redis | BackendType::Memcache => None,
        BackendType::Auto => match redis_because(given) {
            None => {
                let why = "no REDIS_ setting is set";
                return StoreSettings { kind: memory, why: why.to_owned() };
            }
            because => because,
        },
    };
    let (expected, help) = match (backend, wanted_because) {
        (BackendType::Memcache, _) => (
            BackendType::expected(),
            "memcached is not supported: it cannot count and expire in one step. For one node, set BACKEND_TYPE=memory".to_owned(),
        ),
        (_, because) => (
            "memory".to_owned(),
            format!(
                "{}this build counts in memory only: set BACKEND_TYPE=memory to count in each process by itself",
                because.map(|why| format!("{why}, which asks for Redis, and ")).unwrap_or_default()
            ),
        ),
    };
    problems.push(Problem {
        name: "BACKEND_TYPE",
        origin: values.backend_type.origin,
        found: values.backend_type.is_set().then(|| backend.show()),
        expected,
        help: Some(help),
    });
    StoreSettings { kind: memory, why: String::new() }
}

/// Why Redis is meant although nothing says so.
fn redis_because(given: &Given) -> Option<String> {
    let set = REDIS.iter().find(|name| given.value(name).is_some()).map(|name| format!("{name} is set"));
    set.or_else(|| {
        (given.program() == REFERENCE_PROGRAM)
            .then(|| format!("the program was started as `{REFERENCE_PROGRAM}`"))
    })
}
