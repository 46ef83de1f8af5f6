//! Which settings have no effect, because the part of the service that they belong to is off: a value of theirs that cannot be
//! read is no reason not to start.
//!
//! **Invariant:** a part whose switch cannot be read itself counts as on, so that nothing is hidden behind the switch.

use super::{
    error::Problem,
    given::Given,
    sink::{self, Choice},
    store,
    table::Values,
    words::ConfigType,
};

/// A part of the service that can be off.
struct Part {
    /// Its settings by name; what ends in `_` stands for all that begin so.
    settings: &'static [&'static str],
    /// The settings that decide whether it is on.
    switches: &'static [&'static str],
    is_on: fn(&Values, &Given) -> bool,
    /// Why it is off, to stand after "has no effect".
    off: &'static str,
}

const SINKS: &[&str] = &["DISABLE_STATS", "USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS"];

const PARTS: &[Part] = &[
    Part {
        settings: &["GRPC_HOST", "GRPC_PORT"],
        switches: &["GRPC_UDS"],
        is_on: |values, _| values.grpc_uds.value.non_empty().is_none(),
        off: "while GRPC_UDS is set",
    },
    Part {
        settings: &["GRPC_SERVER_TLS_", "GRPC_CLIENT_TLS_"],
        switches: &["GRPC_SERVER_USE_TLS"],
        is_on: |values, _| values.grpc_server_use_tls.value,
        off: "without GRPC_SERVER_USE_TLS=true",
    },
    Part {
        settings: &["RUNTIME_"],
        switches: &["RULES", "CONFIG_TYPE"],
        is_on: |values, _| {
            values.rules.value.non_empty().is_none() && values.config_type.value == ConfigType::File
        },
        off: "where rules come from RULES or a control plane",
    },
    Part {
        settings: &["CONFIG_GRPC_XDS_", "XDS_CLIENT_", "RULES_CACHE_DIR"],
        switches: &["CONFIG_TYPE"],
        is_on: |values, _| values.config_type.value == ConfigType::GrpcXdsSotw,
        off: "without CONFIG_TYPE=GRPC_XDS_SOTW",
    },
    Part {
        settings: &[
            "REDIS_",
            "COUNTER_KEYS",
            "EXPIRATION_JITTER_MAX_SECONDS",
            "LOCAL_CACHE_SIZE_IN_BYTES",
            "MEMO_HORIZON",
            "LEASES",
            "LEASE_",
            "STORE_FAILURE_POSTURE",
            "LOCAL_FALLBACK_REPLICAS",
        ],
        switches: &["BACKEND_TYPE"],
        is_on: store::is_redis,
        off: "on counters in memory",
    },
    Part {
        settings: &["REDIS_PERSECOND_"],
        switches: &["REDIS_PERSECOND"],
        is_on: |values, _| values.redis_persecond.value,
        off: "without REDIS_PERSECOND=true",
    },
    Part {
        settings: &["LEASE_"],
        switches: &["LEASES"],
        is_on: |values, _| values.leases.value,
        off: "without LEASES=true",
    },
    Part {
        settings: &["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"],
        switches: &["LIMIT_RESPONSE_HEADERS_ENABLED"],
        is_on: |values, _| values.limit_response_headers_enabled.value,
        off: "without LIMIT_RESPONSE_HEADERS_ENABLED=true",
    },
    Part {
        settings: &["STATS_MAX_NAMES"],
        switches: &["DISABLE_STATS"],
        is_on: |values, _| !values.disable_stats.value,
        off: "with DISABLE_STATS=true",
    },
    Part {
        settings: &["EXTRA_TAGS"],
        switches: SINKS,
        is_on: |values, _| !sink::chosen(values).is_empty(),
        off: "while statistics go nowhere",
    },
    Part {
        settings: &["STATSD_HOST", "STATSD_PORT", "STATS_FLUSH_INTERVAL"],
        switches: SINKS,
        is_on: |values, _| goes_to(values, Choice::Statsd) || goes_to(values, Choice::DogStatsd),
        off: "while statistics do not go to statsd or DogStatsD",
    },
    Part {
        settings: &["STATSD_PROTOCOL"],
        switches: SINKS,
        is_on: |values, _| goes_to(values, Choice::Statsd),
        off: "while statistics do not go to statsd",
    },
    Part {
        settings: &["USE_DOG_STATSD_MOGRIFIERS"],
        switches: SINKS,
        is_on: |values, _| goes_to(values, Choice::DogStatsd),
        off: "while statistics do not go to DogStatsD",
    },
    Part {
        settings: &["PROMETHEUS_"],
        switches: SINKS,
        is_on: |values, _| goes_to(values, Choice::Prometheus),
        off: "while statistics do not go to Prometheus",
    },
    Part {
        settings: &["TRACING_", "OTEL_"],
        switches: &["TRACING_ENABLED"],
        is_on: |values, _| values.tracing_enabled.value,
        off: "without TRACING_ENABLED=true",
    },
];

fn goes_to(values: &Values, choice: Choice) -> bool {
    sink::chosen(values).iter().any(|switch| switch.choice == choice)
}

/// Makes a warning of each of these values that could not be read and that nothing asks for.
pub(super) fn spare(values: &Values, given: &Given, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) {
    let is_readable = |name: &&'static str| !problems.iter().any(|problem| problem.name == *name);
    let is_off = |part: &&Part| part.switches.iter().all(is_readable) && !(part.is_on)(values, given);
    let off: Vec<&Part> = PARTS.iter().filter(is_off).collect();
    problems.retain(|problem| {
        let Some(part) = off.iter().find(|part| part.has(problem.name)) else { return true };
        let problem = Problem { help: None, ..problem.clone() };
        warnings.push(format!("{problem}; it has no effect {}, and the default stands", part.off));
        false
    });
}

impl Part {
    fn has(&self, name: &str) -> bool {
        self.settings.iter().any(|known| name == *known || (known.ends_with('_') && name.starts_with(known)))
    }
}

#[cfg(test)]
mod tests;
