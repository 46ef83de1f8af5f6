//! Settings: the environment and the flags, read once, checked together, all problems at once.
//!
//! The table in `settings/table.rs` is where a setting is declared; here is what settings mean together.
//!
//! **Invariant:** nothing else reads the environment; a [`Settings`] is whole and valid, or there is none.

mod compound;
mod error;
mod given;
mod go;
mod idle;
mod markdown;
mod memcached;
mod redis;
mod rules_source;
mod sink;
mod store;
mod table;
mod tls;
mod traces;
mod value;
mod words;
mod xds;

use std::{
    fmt,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

pub use self::{
    error::{Problem, SettingsError},
    given::{Given, Origin},
    markdown::markdown,
    redis::{RedisHealth, RedisSettings, TlsFiles},
    sink::{PrometheusSettings, StatsSettings, StatsSink},
    store::{StoreKind, StoreSettings},
    table::{Row, Shown, TABLE},
    traces::{Headers, Queue, TracingSettings},
    words::{LogFormat, LogLevel, OtlpProtocol},
};
pub(crate) use self::{
    go::{boolean, duration, show_duration},
    store::REFERENCE_PROGRAM,
};
use self::{
    table::{Read, Values},
    value::{Host, Value},
};
use crate::{
    local::{lease, memo},
    rules::{Algorithms, LoadOptions, Posture, source::RulesSource, xds::Options as XdsOptions},
    store::redis::config::KeyStyle,
    tls::Files,
};

/// Everything that an operator decides.
#[derive(Clone, Debug)]
pub struct Settings {
    pub http: Endpoint,
    pub grpc: GrpcListener,
    pub debug: Endpoint,
    /// `None`: gRPC is served in the clear.
    pub grpc_tls: Option<Files>,
    /// `None`: a connection may stay for ever.
    pub grpc_max_connection_age: Option<Duration>,
    /// `None`: calls on a connection that is too old may go on for ever.
    pub grpc_max_connection_age_grace: Option<Duration>,

    pub log_level: LogLevel,
    pub log_format: LogFormat,

    /// Where files with rules are.
    pub rules: RulesSource,
    /// The control plane that rules come from instead of files.
    pub control_plane: Option<XdsOptions>,
    pub merge_domains: bool,
    pub force_start_without_initial_config: bool,
    pub healthy_with_at_least_one_config_loaded: bool,

    pub store: StoreSettings,
    pub store_failure_posture: Posture,
    /// How many replicas share a limit that is counted locally.
    pub local_fallback_replicas: NonZeroU32,
    /// A refused request charges nothing, in every domain.
    pub charge_admitted: bool,
    pub cache_key_prefix: String,
    /// `None`: no refusal is remembered.
    pub memo: Option<memo::Options>,
    /// `None`: no key is leased.
    pub leases: Option<lease::Options>,
    /// Whether the keys that are asked for most are named.
    pub top_names_keys: bool,

    pub near_limit_ratio: f32,
    pub shadow_mode: bool,
    pub quota_mode: bool,

    pub response_dynamic_metadata: bool,
    /// `None`: no such headers.
    pub limit_headers: Option<LimitHeaders>,
    pub retry_after_header: bool,

    pub stats: StatsSettings,

    /// `None`: no call is traced.
    pub tracing: Option<TracingSettings>,

    pub workers: NonZeroUsize,
    pub request_budget: Duration,
    /// In the whole process.
    pub max_in_flight: NonZeroUsize,
    /// After health has said no, before anything else ends.
    pub pre_stop_delay: Duration,
    /// All of it: until clients have noticed, and until their calls have ended.
    pub drain_timeout: Duration,
    /// Whether the debug port shows what the process's threads do.
    pub debug_profiling: bool,

    /// What is probably not meant; to be logged.
    pub warnings: Vec<String>,
    /// Every setting as it is in force, in the order of [`TABLE`].
    pub shown: Vec<Shown>,
}

/// A host and a port to listen on. The host is a name or an address without brackets, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    /// `host:port`, an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Where gRPC listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcListener {
    Tcp(Endpoint),
    Unix(PathBuf),
}

/// Names of the headers that an answer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitHeaders {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

/// The longest path that a Unix socket can have, in bytes (`sockaddr_un`, without its closing zero).
const MAX_SOCKET_PATH: usize = 107;

impl Settings {
    /// How rules are read.
    pub fn rules_options(&self) -> LoadOptions<'static> {
        load_options(self.merge_domains, self.key_style())
    }

    /// Reads and checks every setting.
    ///
    /// Errors: all problems, not only the first.
    pub fn read(given: &Given) -> Result<Self, SettingsError> {
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let values = Values::read(given, &mut problems, &mut warnings);
        idle::spare(&values, given, &mut problems, &mut warnings);
        let grpc = grpc_listener(&values, &mut problems);
        let rules = rules_source::choose(&values, given);
        let control_plane = xds::choose(&values, &mut problems, &mut warnings);
        let store = store::choose(&values, given, &mut problems, &mut warnings);
        let memo = store::memo(&values, &store, &mut warnings);
        let leases = store::leases(&values, &store);
        let stats = sink::choose(&values, given, &mut problems, &mut warnings);
        ports_differ(&values, &stats.sink, &mut problems);
        let grpc_tls = tls::choose(&values, &mut problems, &mut warnings);
        let tracing = traces::choose(&values, given, &mut problems, &mut warnings);
        warn(&values, given, &mut warnings);
        if !problems.is_empty() {
            return Err(SettingsError { problems });
        }
        let headers_enabled = values.limit_response_headers_enabled.value;
        let shown = values.shown();
        Ok(Self {
            http: endpoint(&values.http_host, &values.http_port),
            grpc,
            debug: endpoint(&values.debug_host, &values.debug_port),
            grpc_tls,
            grpc_max_connection_age: non_zero(values.grpc_max_connection_age.value.get()),
            grpc_max_connection_age_grace: non_zero(values.grpc_max_connection_age_grace.value.get()),
            log_level: values.log_level.value,
            log_format: values.log_format.value,
            rules,
            control_plane,
            merge_domains: values.merge_domain_config.value,
            force_start_without_initial_config: values.force_start_without_initial_config.value,
            healthy_with_at_least_one_config_loaded: values.healthy_with_at_least_one_config_loaded.value,
            store,
            store_failure_posture: values.store_failure_posture.value,
            local_fallback_replicas: NonZeroU32::new(values.local_fallback_replicas.value.get())
                .unwrap_or(NonZeroU32::MIN),
            charge_admitted: values.stop_cache_key_increment_when_overlimit.value,
            cache_key_prefix: values.cache_key_prefix.value.as_str().to_owned(),
            memo,
            leases,
            top_names_keys: values.top_names_keys.value,
            near_limit_ratio: values.near_limit_ratio.value,
            shadow_mode: values.shadow_mode.value,
            quota_mode: values.quota_mode.value,
            response_dynamic_metadata: values.response_dynamic_metadata.value,
            limit_headers: headers_enabled.then(|| limit_headers(&values)),
            retry_after_header: values.retry_after_header_enabled.value.0.unwrap_or(headers_enabled),
            stats,
            tracing,
            workers: workers(&values, given),
            request_budget: values.request_budget.value.get(),
            max_in_flight: non_zero_usize(values.max_in_flight.value.get()).unwrap_or(NonZeroUsize::MIN),
            pre_stop_delay: values.pre_stop_delay.value.get(),
            drain_timeout: values.drain_timeout.value.get(),
            debug_profiling: values.debug_profiling.value,
            warnings,
            shown,
        })
    }
}

/// How rules are read, as far as the settings say. Known without the others, which `check` does not need.
///
/// Errors: of the two settings that decide it.
pub fn rules_options(given: &Given) -> Result<LoadOptions<'static>, SettingsError> {
    let mut problems = Vec::new();
    let values = Values::read(given, &mut problems, &mut Vec::new());
    problems.retain(|problem| ["MERGE_DOMAIN_CONFIG", "COUNTER_KEYS"].contains(&problem.name));
    if problems.is_empty() {
        Ok(load_options(values.merge_domain_config.value, values.counter_keys.value))
    } else {
        Err(SettingsError { problems })
    }
}

fn load_options(merge_domains: bool, counter_keys: KeyStyle) -> LoadOptions<'static> {
    let algorithms = match counter_keys {
        KeyStyle::Tidegate => Algorithms::All,
        KeyStyle::Envoyproxy => Algorithms::FixedWindow,
    };
    LoadOptions { merge_domains, algorithms, previous: None }
}

/// Whether output may be coloured, as far as the environment says. Known without the other settings, which `check` and
/// `ask` do not need.
pub fn colour_is_welcome(given: &Given) -> bool {
    given.value("NO_COLOR").is_none_or(|(value, _)| value.is_empty())
}

fn endpoint(host: &Read<Host>, port: &Read<u16>) -> Endpoint {
    let host = host.value.as_str();
    Endpoint { host: if host.is_empty() { "::" } else { host }.to_owned(), port: port.value }
}

fn grpc_listener(values: &Values, problems: &mut Vec<Problem>) -> GrpcListener {
    let Some(path) = values.grpc_uds.value.non_empty() else {
        return GrpcListener::Tcp(endpoint(&values.grpc_host, &values.grpc_port));
    };
    if path.len() > MAX_SOCKET_PATH {
        problems.push(Problem {
            name: "GRPC_UDS",
            origin: values.grpc_uds.origin,
            found: Some(path.to_owned()),
            expected: format!("a path of at most {MAX_SOCKET_PATH} bytes, not {}", path.len()),
            help: None,
        });
    }
    GrpcListener::Unix(PathBuf::from(path))
}

/// The ports are shared with a process that takes over, so this one would share them with itself, too.
fn ports_differ(values: &Values, sink: &StatsSink, problems: &mut Vec<Problem>) {
    let grpc = values.grpc_uds.value.non_empty().is_none().then_some(("GRPC_PORT", &values.grpc_port));
    let prometheus = match sink {
        StatsSink::Prometheus(prometheus) => {
            Some(("PROMETHEUS_ADDR", prometheus.listen.port, values.prometheus_addr.origin))
        }
        StatsSink::Off | StatsSink::Send(_) => None,
    };
    let ports = grpc.into_iter().chain([("PORT", &values.http_port), ("DEBUG_PORT", &values.debug_port)]);
    let ports = ports.map(|(name, port)| (name, port.value, port.origin)).chain(prometheus);
    let mut taken: Vec<(&'static str, u16)> = Vec::new();
    for (name, port, origin) in ports {
        if let Some((other, _)) = taken.iter().find(|(_, known)| *known == port && port != 0) {
            problems.push(Problem {
                name,
                origin,
                found: Some(port.to_string()),
                expected: format!("another port than {other}"),
                help: None,
            });
        }
        taken.push((name, port));
    }
}

fn limit_headers(values: &Values) -> LimitHeaders {
    LimitHeaders {
        limit: values.limit_limit_header.value.as_str().to_owned(),
        remaining: values.limit_remaining_header.value.as_str().to_owned(),
        reset: values.limit_reset_header.value.as_str().to_owned(),
    }
}

fn workers(values: &Values, given: &Given) -> NonZeroUsize {
    values.workers.value.0.and_then(|workers| non_zero_usize(workers.get())).unwrap_or(given.cores())
}

fn non_zero(span: Duration) -> Option<Duration> {
    Some(span).filter(|span| !span.is_zero())
}

fn non_zero_usize(n: u32) -> Option<NonZeroUsize> {
    usize::try_from(n).ok().and_then(NonZeroUsize::new)
}

/// Warns of what is legal and probably not meant.
fn warn(values: &Values, given: &Given, warnings: &mut Vec<String>) {
    memcached::warn(values, warnings);
    let ratio = values.near_limit_ratio.value;
    if !(0.0..=1.0).contains(&ratio) {
        let effect = if ratio < 0.0 { "every hit" } else { "no hit" };
        warnings.push(format!(
            "NEAR_LIMIT_RATIO={}: outside 0 to 1, so {effect} counts as near its limit",
            ratio.show()
        ));
    }
    if let Some((format, _)) = given.value("LOG_FORMAT")
        && !["text", "json", ""].iter().any(|known| format.eq_ignore_ascii_case(known))
    {
        warnings.push(format!("LOG_FORMAT={format:?}: expected text or json, lines are text"));
    }
    if values.rules.value.non_empty().is_some() && values.rules.origin == values.runtime_root.origin {
        warnings.push("RULES and RUNTIME_ROOT are both set: rules are read from RULES".to_owned());
    }
}

#[cfg(test)]
mod tests;
