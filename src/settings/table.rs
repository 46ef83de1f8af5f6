//! Every setting there is, one row each: the type, the flag, the help and the reference of settings come from here.
//!
//! A row: help (doc comment), variable, field, kind, default, and why that is the default. Knows nothing of what the
//! settings mean together.

use super::{
    compound::{HttpPath, ListenAddress, NameList, OrDefault, Pairs},
    error::Problem,
    given::{Given, Origin},
    sink::{METRICS_PATH, PROMETHEUS_PORT},
    value::{Addresses, Auto, Count, HeaderName, Host, Password, Presence, Span, Text, Unused, Value},
    words::{BackendType, ConfigType, LogFormat, LogLevel, OtlpProtocol, StatsdProtocol},
    xds::Map,
};
use crate::{
    rules::Posture,
    store::redis::config::{KeyStyle, SocketType, TopologyKind, masked},
};

/// An hour and a year, in milliseconds.
const HOUR: u64 = 3_600_000;
const YEAR: u64 = 8_760 * HOUR;

/// What is known of a setting, whatever its type.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The variable.
    pub name: &'static str,
    /// The heading that it stands under.
    pub group: &'static str,
    pub kind: &'static str,
    pub secret: bool,
    pub help: &'static str,
    /// Why the default is what it is.
    pub why: &'static str,
    /// What fits, to stand after "expected".
    pub expected: fn() -> String,
    /// The default, as an operator would write it.
    pub default: fn() -> String,
}

impl Row {
    /// The flag that stands for the variable, without its dashes.
    pub fn flag(&self) -> String {
        flag(self.name)
    }

    /// The help in one paragraph.
    pub fn help(&self) -> &'static str {
        self.help.trim_start()
    }
}

/// The flag that stands for a variable, without its dashes.
pub(super) fn flag(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// A value and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Read<T> {
    pub fn is_set(&self) -> bool {
        self.origin != Origin::Default
    }
}

/// A setting as it is in force.
#[derive(Clone, Debug)]
pub struct Shown {
    pub row: &'static Row,
    /// As an operator would write it; a secret is masked.
    pub value: String,
    pub origin: Origin,
}

/// What stands for a secret that is set.
const MASK: &str = "********";

fn shown<T: Value>(value: &T) -> String {
    let text = value.show();
    if T::SECRET && !text.is_empty() { MASK.to_owned() } else { text }
}

/// The value of one setting. One that cannot be read is a problem, and its default stands in for it.
fn read<T: Value>(
    name: &'static str,
    default: T,
    given: &Given,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> Read<T> {
    let Some((found, origin)) = given.value(name) else {
        return Read { value: default, origin: Origin::Default };
    };
    if origin == Origin::Environment
        && let Some(warning) = service_link(name, &found.to_string_lossy(), || default.show())
    {
        warnings.push(warning);
        return Read { value: default, origin: Origin::Default };
    }
    match found.to_str().and_then(T::parse) {
        Some(value) => Read { value, origin },
        None => {
            let found = found.to_string_lossy();
            problems.push(Problem {
                name,
                origin,
                help: help(name, &found, origin, || default.show()),
                // Whatever was expected, it may be an address.
                found: Some(if T::SECRET { MASK.to_owned() } else { masked(&found) }),
                expected: T::expected(),
            });
            Read { value: default, origin: Origin::Default }
        }
    }
}

/// What to do about the mistakes that many make.
fn help(name: &str, found: &str, origin: Origin, default: impl Fn() -> String) -> Option<String> {
    if origin == Origin::Flag {
        return None;
    }
    if is_link(found) {
        return Some(format!(
            "Kubernetes sets variables like this for each Service in the namespace: set `enableServiceLinks: false` in the \
             pod's spec, or set {name} there yourself"
        ));
    }
    found.is_empty().then(|| format!("it is set, but empty: unset it for the default, {}", default()))
}

fn is_link(found: &str) -> bool {
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| found.starts_with(scheme))
}

/// What to say of a variable that Kubernetes has set: for a Service called `grpc` each pod of its namespace gets
/// `GRPC_PORT=tcp://…`, unless its own manifest sets `GRPC_PORT`. So nobody has, and the default is what is meant.
fn service_link(name: &str, found: &str, default: impl Fn() -> String) -> Option<String> {
    let service = name.strip_suffix("_PORT")?.to_ascii_lowercase().replace('_', "-");
    let instead = match default() {
        default if default.is_empty() => "it is passed over".to_owned(),
        default => format!("{default} is used"),
    };
    is_link(found).then(|| {
        format!(
            "{name}={}: Kubernetes sets this for the Service called `{service}`; {instead}. Set \
             `enableServiceLinks: false` in the pod's spec, or {name} itself",
            masked(found)
        )
    })
}

macro_rules! settings {
    ($($group:literal: $($(#[doc = $help:literal])+ $name:ident $field:ident: $kind:ty = $default:expr, $why:literal;)+)+) => {
        /// Every setting's value.
        #[derive(Clone, Debug)]
        pub struct Values {
            $($($(#[doc = $help])+ pub $field: Read<$kind>,)+)+
        }

        /// Every setting, in the order of the reference of settings.
        pub static TABLE: &[Row] = &[
            $($(Row {
                name: stringify!($name),
                group: $group,
                kind: <$kind as Value>::KIND,
                secret: <$kind as Value>::SECRET,
                help: concat!($($help),+),
                why: $why,
                expected: <$kind as Value>::expected,
                default: || { let default: $kind = $default; default.show() },
            },)+)+
        ];

        impl Values {
            /// Reads every setting, and adds a problem for each that cannot be read, a warning for each that is passed over.
            pub fn read(given: &Given, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) -> Self {
                Self {
                    $($($field: read(stringify!($name), $default, given, problems, warnings),)+)+
                }
            }

            /// Every setting as it is in force, in the order of [`TABLE`].
            pub fn shown(&self) -> Vec<Shown> {
                let values = [$($((shown(&self.$field.value), self.$field.origin),)+)+];
                TABLE.iter().zip(values).map(|(row, (value, origin))| Shown { row, value, origin }).collect()
            }
        }
    };
}

settings! {
"Listeners":
    /// Host or address that HTTP listens on (`/healthcheck`, `/json`). `::` takes IPv4 too.
    HOST http_host: Host = Host::new("0.0.0.0"), "all IPv4 addresses, as the reference";
    /// Port of HTTP. 0 takes a free one.
    PORT http_port: u16 = 8080, "the reference's; probes in existing manifests go there";
    /// Host or address that gRPC listens on. `::` takes IPv4 too.
    GRPC_HOST grpc_host: Host = Host::new("0.0.0.0"), "all IPv4 addresses, as the reference";
    /// Port of gRPC, where Envoy asks. 0 takes a free one.
    GRPC_PORT grpc_port: u16 = 8081, "the reference's; Envoy's clusters in existing manifests go there";
    /// Path of a Unix socket. If it is not empty, gRPC listens there and on no port.
    GRPC_UDS grpc_uds: Text = Text::new(""), "gRPC listens on its port";
    /// Whether gRPC is served over TLS.
    GRPC_SERVER_USE_TLS grpc_server_use_tls: bool = false, "the reference's; in a mesh the proxies speak TLS";
    /// File with the certificate that is shown to clients, PEM, with those between it and its authority. It is followed: a new one is shown to whoever connects next.
    GRPC_SERVER_TLS_CERT grpc_server_tls_cert: Text = Text::new(""), "the reference's; needed with GRPC_SERVER_USE_TLS";
    /// File with the key of that certificate, PEM, without a password. Followed as well.
    GRPC_SERVER_TLS_KEY grpc_server_tls_key: Text = Text::new(""), "the reference's; needed with GRPC_SERVER_USE_TLS";
    /// File with the authorities that clients' certificates are trusted from, PEM, and no others. If it is not empty, a client without such a certificate is refused. Followed as well.
    GRPC_CLIENT_TLS_CACERT grpc_client_tls_cacert: Text = Text::new(""), "the reference's: no client is asked for a certificate";
    /// A DNS name or an IP address that a client's certificate must have among its subject alternative names. Needs GRPC_CLIENT_TLS_CACERT.
    GRPC_CLIENT_TLS_SAN grpc_client_tls_san: Text = Text::new(""), "the reference's: any name";
    /// Host or address of the debug page (`/metrics`, `/rlconfig`).
    DEBUG_HOST debug_host: Host = Host::new("0.0.0.0"), "all IPv4 addresses, as the reference";
    /// Port of the debug page. 0 takes a free one.
    DEBUG_PORT debug_port: u16 = 6070, "the reference's";
    /// Whether the debug page shows what the threads of the process do (`/debug/threads`).
    DEBUG_PROFILING debug_profiling: bool = false, "whoever reaches the port could keep it busy";
    /// A gRPC connection is told to go away after this long, give or take a tenth. 0 lets it stay.
    GRPC_MAX_CONNECTION_AGE grpc_max_connection_age: Span<0, YEAR> = Span::secs(86_400), "the reference's: clients spread over new replicas within a day";
    /// How long calls may go on after that before the connection is closed. 0 sets no end.
    GRPC_MAX_CONNECTION_AGE_GRACE grpc_max_connection_age_grace: Span<0, YEAR> = Span::secs(3_600), "the reference's";

"Logging":
    /// The least severe lines that are logged: panic, fatal, error, warn, warning, info, debug or trace, in any case.
    LOG_LEVEL log_level: LogLevel = LogLevel::Warn, "the reference's";
    /// `json` for one JSON object a line; anything else for text.
    LOG_FORMAT log_format: LogFormat = LogFormat::Text, "the reference's";
    /// If it is not empty, output is never coloured (no-color.org).
    NO_COLOR no_color: Presence = Presence(false), "a terminal gets colours";

"Rules":
    /// A directory or a file with rules. It beats the RUNTIME_ settings.
    RULES rules: Text = Text::new(""), "see \"Where rules come from\"";
    /// Where rules come from: `FILE`, or `GRPC_XDS_SOTW` for a control plane (see docs/xds.md).
    CONFIG_TYPE config_type: ConfigType = ConfigType::File, "the reference's";
    /// Whether one domain may be described in several files or resources.
    MERGE_DOMAIN_CONFIG merge_domain_config: bool = false, "the reference's: a domain described twice is more often a mistake";
    /// Whether the ports open before rules have been looked for.
    FORCE_START_WITHOUT_INITIAL_CONFIG force_start_without_initial_config: bool = false, "the reference's";
    /// Whether the health check fails until at least one domain is loaded.
    HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED healthy_with_at_least_one_config_loaded: bool = false, "the reference's";
    /// The directory that the other RUNTIME_ settings start from; often a symbolic link that is swapped.
    RUNTIME_ROOT runtime_root: Text = Text::new("/srv/runtime_data/current"), "the reference's";
    /// The directory within RUNTIME_ROOT.
    RUNTIME_SUBDIRECTORY runtime_subdirectory: Text = Text::new(""), "the reference's; RUNTIME_ROOT itself";
    /// The directory within that, which holds the rules.
    RUNTIME_APPDIRECTORY runtime_appdirectory: Text = Text::new("config"), "the reference's";
    /// Whether files and directories whose name starts with a dot are left out. A Kubernetes ConfigMap needs `true`.
    RUNTIME_IGNOREDOTFILES runtime_ignoredotfiles: bool = false, "the reference's";
    /// true: rules are read again when RUNTIME_ROOT is replaced. false: when a file of theirs changes.
    RUNTIME_WATCH_ROOT runtime_watch_root: bool = true, "the reference's";

"Rules from a control plane":
    /// Where the control plane is: `host:port`, or `unix:path`.
    CONFIG_GRPC_XDS_SERVER_URL config_grpc_xds_server_url: Addresses = Addresses::new("localhost:18000"), "the reference's";
    /// What this process is called there (`node.id`).
    CONFIG_GRPC_XDS_NODE_ID config_grpc_xds_node_id: Text = Text::new("default"), "the reference's";
    /// What else it says of itself (`node.metadata`): `key=value,key=value`.
    CONFIG_GRPC_XDS_NODE_METADATA config_grpc_xds_node_metadata: Text = Text::new(""), "the reference's";
    /// Headers that are sent along: `name:value,name:value`.
    CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS config_grpc_xds_client_additional_headers: Map = Map::EMPTY, "the reference's";
    /// Whether the connection is encrypted.
    CONFIG_GRPC_XDS_SERVER_USE_TLS config_grpc_xds_server_use_tls: bool = false, "the reference's";
    /// File with the authorities that the control plane's certificate is trusted from, PEM. If it is empty, the system's are.
    CONFIG_GRPC_XDS_SERVER_TLS_CACERT config_grpc_xds_server_tls_cacert: Text = Text::new(""), "the reference's";
    /// What the control plane's certificate must name. If it is empty, the host of CONFIG_GRPC_XDS_SERVER_URL.
    CONFIG_GRPC_XDS_SERVER_TLS_SAN config_grpc_xds_server_tls_san: Text = Text::new(""), "the reference's";
    /// File with the certificate that is shown to the control plane, PEM. It needs its key. Read anew for each connection, as are the other two files.
    CONFIG_GRPC_XDS_CLIENT_TLS_CERT config_grpc_xds_client_tls_cert: Text = Text::new(""), "the reference's";
    /// File with the key of that certificate, PEM.
    CONFIG_GRPC_XDS_CLIENT_TLS_KEY config_grpc_xds_client_tls_key: Text = Text::new(""), "the reference's";
    /// The pause before the second attempt after a failure; it grows from there, and is this again once the control plane has answered.
    XDS_CLIENT_BACKOFF_INITIAL_INTERVAL xds_client_backoff_initial_interval: Span<0, YEAR> = Span::secs(10), "the reference's";
    /// The longest such pause.
    XDS_CLIENT_BACKOFF_MAX_INTERVAL xds_client_backoff_max_interval: Span<0, YEAR> = Span::secs(60), "the reference's";
    /// Up to 1: the share of each pause that is random. Above 1: what a pause grows by each time, which is otherwise 2.
    XDS_CLIENT_BACKOFF_RANDOM_FACTOR xds_client_backoff_random_factor: f32 = 0.5, "the reference's, which multiplies each pause by it and so never lets it grow";
    /// Whether pauses are random at all.
    XDS_CLIENT_BACKOFF_JITTER xds_client_backoff_jitter: bool = true, "the reference's: replicas do not come back at the same moment";
    /// The largest snapshot, in bytes. 0: 4 MiB.
    XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES xds_client_max_msg_size_in_bytes: Count<0, 1_073_741_824> = Count::new(0), "the reference's, which is gRPC's";
    /// A connection on which nothing arrives for so long is asked for a sign of life, and given up 20 s later.
    XDS_CLIENT_KEEPALIVE_INTERVAL xds_client_keepalive_interval: Span<1_000, YEAR> = Span::secs(330), "above five minutes: servers in Go hang up on who asks more often, unless they are told not to";
    /// Without an effect, as in the reference: the XDS_CLIENT_BACKOFF_ settings say when to try again.
    CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL config_grpc_xds_server_connect_retry_interval: Unused = Unused::new("3s"), "the reference's";
    /// A directory in which the last good snapshot is kept, so that a restart while the control plane is away still limits. Empty: none is kept.
    RULES_CACHE_DIR rules_cache_dir: Text = Text::new(""), "the file system may be read-only";

"Store":
    /// Where hits are counted: `redis`, or `memory` for this process alone. Empty chooses: redis if a REDIS_ setting is set or the program is called ratelimit, else memory.
    BACKEND_TYPE backend_type: BackendType = BackendType::Auto, "one node without Redis needs no setting, an existing deployment keeps its Redis";
    /// How many counters the memory store keeps. Beyond it an expired counter makes room, else the emptiest of a few.
    MEMORY_MAX_KEYS memory_max_keys: Count<1, 1_000_000_000> = Count::new(1_000_000), "at most some 150 MB: a counter takes 90 to 150 bytes, whatever its key is";
    /// What a rule answers when the store cannot, unless it says so itself: error (Envoy's failure_mode_deny decides), allow, deny or local (counted by this node alone).
    STORE_FAILURE_POSTURE store_failure_posture: Posture = Posture::Error, "the reference's";
    /// How many replicas share a limit that is counted locally: each then enforces its share, rounded up.
    LOCAL_FALLBACK_REPLICAS local_fallback_replicas: Count<1, 1_000_000> = Count::new(1), "each node enforces the whole limit, so that nobody is refused who would not be";
    /// What every counter's key starts with.
    CACHE_KEY_PREFIX cache_key_prefix: Text = Text::new(""), "the reference's";
    /// How counters are named in Redis: tidegate, or envoyproxy for the reference's own keys, so that both can count together during a migration (fixed windows only).
    COUNTER_KEYS counter_keys: KeyStyle = KeyStyle::Tidegate, "no two limits share a counter, and a name shows its window";
    /// Counters in Redis expire late by a random number of seconds below this. 0 or less: on time.
    EXPIRATION_JITTER_MAX_SECONDS expiration_jitter_max_seconds: i64 = 300, "the reference's; expiries at one moment stall a Redis";
    /// Memory for keys that are known to be over their limit in Redis, which is then not asked about them; see MEMO_HORIZON. 0: none are remembered. Less than 16384, also below zero, is taken as that.
    LOCAL_CACHE_SIZE_IN_BYTES local_cache_size_in_bytes: Auto<i64> = Auto(None), "4 MiB: 61,000 keys, more than one node refuses within a second";
    /// How long such a key is refused without asking, at most. So much later a limit is seen that was raised, or given hits back, by another process. 0: none are remembered.
    MEMO_HORIZON memo_horizon: Span<0, HOUR> = Span::secs(1), "one question a second for a key that is refused thousands of times; nobody waits long for a change";
    /// Whether a process may take hits of a much asked-for key from Redis in advance and spend them without asking. A rule's `lease` may say no by itself.
    LEASES leases: bool = true, "a hot key costs Redis 20 questions a second and process instead of one a call, and no limit admits more for it";
    /// A key is leased that this process is asked for more often than this, in hits a second.
    LEASE_MIN_RATE lease_min_rate: Count<1, 1_000_000_000> = Count::new(200), "ten calls in the 50 ms that a lease is for: with fewer it saves little";
    /// What was leased and not spent is given back after this time. At least 50ms.
    LEASE_TTL lease_ttl: Span<50, 10_000> = Span::millis(200), "four times what a lease is for; what a process that dies takes with it is not much older";
    /// Whether `/top` on the debug port names the keys that are asked for most. They hold what clients sent.
    TOP_NAMES_KEYS top_names_keys: bool = true, "the first question about a hot key is which one it is";
    /// Whether a request that is refused charges no counter at all, whatever the domain's `charge` says.
    STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT stop_cache_key_increment_when_overlimit: bool = false, "the reference's";

"Redis":
    /// How a single server is reached: unix or tcp. Unless it is set, an address that is no path means tcp.
    REDIS_SOCKET_TYPE redis_socket_type: SocketType = SocketType::Unix, "the reference's";
    /// single, sentinel, cluster, or ring (several independent servers that share the keys), in any case.
    REDIS_TYPE redis_type: TopologyKind = TopologyKind::Single, "the reference's";
    /// single: host:port, a path, or redis://user:pass@host:port/db (rediss:// for TLS). sentinel: the master's name and the sentinels. cluster, ring: a list. Commas between.
    REDIS_URL redis_url: Addresses = Addresses::new("/var/run/nutcracker/ratelimit.sock"), "the reference's";
    /// A password, or `user:password`. It goes before what the address says.
    REDIS_AUTH redis_auth: Password = Password::NONE, "the reference's";
    /// The same for sentinels.
    REDIS_SENTINEL_AUTH redis_sentinel_auth: Password = Password::NONE, "the reference's; sentinels often have none";
    /// Whether connections to servers and sentinels are encrypted.
    REDIS_TLS redis_tls: bool = false, "the reference's";
    /// File with the certificate that is shown to servers, PEM. It needs its key.
    REDIS_TLS_CLIENT_CERT redis_tls_client_cert: Text = Text::new(""), "the reference's";
    /// File with the key of that certificate, PEM.
    REDIS_TLS_CLIENT_KEY redis_tls_client_key: Text = Text::new(""), "the reference's";
    /// File with the authorities that servers' certificates are trusted from, PEM. If it is empty, the system's are.
    REDIS_TLS_CACERT redis_tls_cacert: Text = Text::new(""), "the reference's";
    /// Whether a server's certificate may name another host. Its chain is verified all the same.
    REDIS_TLS_SKIP_HOSTNAME_VERIFICATION redis_tls_skip_hostname_verification: bool = false, "the reference's";
    /// The longest that dialling, or any one call, may take, whatever the request's budget. 0: no bound of its own.
    REDIS_TIMEOUT redis_timeout: Span<0, YEAR> = Span::secs(10), "the reference's, which bounds dialling only";
    /// Whether health follows the connections from then on: none left is unhealthy. If false, once connected is enough.
    REDIS_HEALTH_CHECK_ACTIVE_CONNECTION redis_health_check_active_connection: bool = false, "the reference's: a Redis that is away does not take every replica out of service";
    /// The pause before the second attempt to connect for the first time; it doubles from there. Later connections are tried for within a second.
    REDIS_STARTUP_INITIAL_INTERVAL redis_startup_initial_interval: Span<0, YEAR> = Span::secs(1), "the reference's";
    /// The longest such pause.
    REDIS_STARTUP_MAX_INTERVAL redis_startup_max_interval: Span<0, YEAR> = Span::secs(30), "the reference's";
    /// The process ends with an error if the first connection has not been made after this long. 0: it goes on trying.
    REDIS_STARTUP_MAX_ELAPSED_TIME redis_startup_max_elapsed_time: Span<0, YEAR> = Span::secs(0), "the reference's";
    /// Without an effect, and can be removed: each thread has one connection to each server. Only a number below WORKERS is warned of.
    REDIS_POOL_SIZE redis_pool_size: Unused = Unused::new("10"), "the reference's";
    /// Without an effect: what a request needs of a server always goes in one write, at once.
    REDIS_PIPELINE_WINDOW redis_pipeline_window: Unused = Unused::new("0s"), "the reference's";
    /// Without an effect, as in the reference.
    REDIS_PIPELINE_LIMIT redis_pipeline_limit: Unused = Unused::new("0"), "the reference's";
    /// Without an effect: all nodes of a cluster are always asked at the same time.
    REDIS_CLUSTER_PIPELINE_PARALLELISM redis_cluster_pipeline_parallelism: Unused = Unused::new("1"), "the reference's";
    /// Without an effect: there is no pool that could be empty. A request without a connection gets its rule's on_store_failure at once.
    REDIS_POOL_ON_EMPTY_BEHAVIOR redis_pool_on_empty_behavior: Unused = Unused::new("WAIT"), "the reference's";

"Redis for limits per second":
    /// Whether limits per second are counted in a Redis of their own.
    REDIS_PERSECOND redis_persecond: bool = false, "the reference's";
    /// As REDIS_SOCKET_TYPE.
    REDIS_PERSECOND_SOCKET_TYPE redis_persecond_socket_type: SocketType = SocketType::Unix, "the reference's";
    /// As REDIS_TYPE.
    REDIS_PERSECOND_TYPE redis_persecond_type: TopologyKind = TopologyKind::Single, "the reference's";
    /// As REDIS_URL.
    REDIS_PERSECOND_URL redis_persecond_url: Addresses = Addresses::new("/var/run/nutcracker/ratelimitpersecond.sock"), "the reference's";
    /// As REDIS_AUTH.
    REDIS_PERSECOND_AUTH redis_persecond_auth: Password = Password::NONE, "the reference's";
    /// As REDIS_SENTINEL_AUTH.
    REDIS_PERSECOND_SENTINEL_AUTH redis_persecond_sentinel_auth: Password = Password::NONE, "the reference's";
    /// As REDIS_TLS; the files are the same.
    REDIS_PERSECOND_TLS redis_persecond_tls: bool = false, "the reference's";
    /// As REDIS_TIMEOUT.
    REDIS_PERSECOND_TIMEOUT redis_persecond_timeout: Span<0, YEAR> = Span::secs(10), "the reference's";
    /// Without an effect, as REDIS_POOL_SIZE.
    REDIS_PERSECOND_POOL_SIZE redis_persecond_pool_size: Unused = Unused::new("10"), "the reference's";
    /// Without an effect, as REDIS_PIPELINE_WINDOW.
    REDIS_PERSECOND_PIPELINE_WINDOW redis_persecond_pipeline_window: Unused = Unused::new("0s"), "the reference's";
    /// Without an effect, as REDIS_PIPELINE_LIMIT.
    REDIS_PERSECOND_PIPELINE_LIMIT redis_persecond_pipeline_limit: Unused = Unused::new("0"), "the reference's";
    /// Without an effect, as REDIS_CLUSTER_PIPELINE_PARALLELISM.
    REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM redis_persecond_cluster_pipeline_parallelism: Unused = Unused::new("1"), "the reference's";
    /// Without an effect, as REDIS_POOL_ON_EMPTY_BEHAVIOR.
    REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR redis_persecond_pool_on_empty_behavior: Unused = Unused::new("WAIT"), "the reference's";

"Memcached, which is not supported":
    /// Without an effect, as all of these.
    MEMCACHE_HOST_PORT memcache_host_port: Unused = Unused::new(""), "the reference's";
    /// Without an effect.
    MEMCACHE_SRV memcache_srv: Unused = Unused::new(""), "the reference's";
    /// Without an effect.
    MEMCACHE_SRV_REFRESH memcache_srv_refresh: Unused = Unused::new("0s"), "the reference's";
    /// Without an effect.
    MEMCACHE_MAX_IDLE_CONNS memcache_max_idle_conns: Unused = Unused::new("2"), "the reference's";
    /// Without an effect.
    MEMCACHE_TLS memcache_tls: Unused = Unused::new("false"), "the reference's";
    /// Without an effect.
    MEMCACHE_TLS_CLIENT_CERT memcache_tls_client_cert: Unused = Unused::new(""), "the reference's";
    /// Without an effect.
    MEMCACHE_TLS_CLIENT_KEY memcache_tls_client_key: Unused = Unused::new(""), "the reference's";
    /// Without an effect.
    MEMCACHE_TLS_CACERT memcache_tls_cacert: Unused = Unused::new(""), "the reference's";
    /// Without an effect.
    MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION memcache_tls_skip_hostname_verification: Unused = Unused::new("false"), "the reference's";

"Limits":
    /// The share of a limit from which hits count as near it, in statistics only.
    NEAR_LIMIT_RATIO near_limit_ratio: f32 = 0.8, "the reference's";
    /// Whether nothing is enforced: limits are counted, as shadow in the metrics, and every answer is OK.
    SHADOW_MODE shadow_mode: bool = false, "the reference's";
    /// Whether every rule is in quota mode.
    QUOTA_MODE quota_mode: bool = false, "the reference's";

"Answers":
    /// Whether answers carry the request and the rules that matched, as dynamic metadata.
    RESPONSE_DYNAMIC_METADATA response_dynamic_metadata: bool = false, "the reference's";
    /// Whether answers carry the three headers below.
    LIMIT_RESPONSE_HEADERS_ENABLED limit_response_headers_enabled: bool = false, "the reference's";
    /// Name of the header that holds the limit.
    LIMIT_LIMIT_HEADER limit_limit_header: HeaderName = HeaderName::new("RateLimit-Limit"), "the reference's";
    /// Name of the header that holds the hits that are left.
    LIMIT_REMAINING_HEADER limit_remaining_header: HeaderName = HeaderName::new("RateLimit-Remaining"), "the reference's";
    /// Name of the header that holds the seconds until the limit starts anew.
    LIMIT_RESET_HEADER limit_reset_header: HeaderName = HeaderName::new("RateLimit-Reset"), "the reference's";
    /// Whether a refusal carries `Retry-After`. `auto`: as LIMIT_RESPONSE_HEADERS_ENABLED.
    RETRY_AFTER_HEADER_ENABLED retry_after_header_enabled: Auto<bool> = Auto(None), "whoever wants headers wants this one";

"Statistics":
    /// Turns statistics off, whatever the others say.
    DISABLE_STATS disable_stats: bool = false, "the reference's";
    /// Sends statistics to statsd. At most one of the three may be set to true.
    USE_STATSD use_statsd: bool = true, "the reference's; another one that is set beats it";
    /// Sends statistics to a DogStatsD agent, over UDP.
    USE_DOG_STATSD use_dog_statsd: bool = false, "the reference's";
    /// Shows statistics to Prometheus, on a port of their own.
    USE_PROMETHEUS use_prometheus: bool = false, "the reference's";
    /// How statsd is reached: tcp or udp.
    STATSD_PROTOCOL statsd_protocol: StatsdProtocol = StatsdProtocol::Tcp, "the reference's";
    /// Host of statsd, or of the DogStatsD agent.
    STATSD_HOST statsd_host: Addresses = Addresses::new("localhost"), "the reference's";
    /// Port of statsd, or of the DogStatsD agent.
    STATSD_PORT statsd_port: u16 = 8125, "the reference's";
    /// How often statistics are sent.
    STATS_FLUSH_INTERVAL stats_flush_interval: Span<1, HOUR> = Span::secs(10), "the reference's";
    /// Tags of every statistic, `key:value` with commas between; labels for Prometheus.
    EXTRA_TAGS extra_tags: Pairs = Pairs(Vec::new()), "the reference's";
    /// Names that stand in DOG_STATSD_MOGRIFIER_name_PATTERN, _NAME and _TAGS: each turns parts of a name into tags.
    USE_DOG_STATSD_MOGRIFIERS use_dog_statsd_mogrifiers: NameList = NameList(Vec::new()), "the reference's";
    /// Where Prometheus finds statistics. Empty: `:9090`.
    PROMETHEUS_ADDR prometheus_addr: OrDefault<ListenAddress> = OrDefault(Some(ListenAddress::any(PROMETHEUS_PORT))), "the reference's";
    /// Under which path. Empty: `/metrics`.
    PROMETHEUS_PATH prometheus_path: OrDefault<HttpPath> = OrDefault(Some(HttpPath::new(METRICS_PATH))), "the reference's";
    /// File with mappings of names to families and labels, as `statsd_exporter` has them, in place of the built-in ones.
    PROMETHEUS_MAPPER_YAML prometheus_mapper_yaml: Text = Text::new(""), "the reference's";
    /// Whether response times are shown in milliseconds, under the name that says seconds. Without an effect on a file of mappings.
    PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS prometheus_response_time_as_milliseconds: bool = false, "the reference's";
    /// How many names that callers bring are kept apart (`detailed_metric`, `value_to_metric`, limits of requests). What is above is counted as `_other`.
    STATS_MAX_NAMES stats_max_names: Count<1, 10_000_000> = Count::new(10_000), "at some 400 bytes each, 4 MB, and a page that Prometheus reads in a moment";

"Tracing":
    /// Whether calls are traced: spans go to an OpenTelemetry collector. See [tracing](tracing.md).
    TRACING_ENABLED tracing_enabled: bool = false, "the reference's";
    /// How spans are sent: `http` (OTLP, protobuf) or `grpc`. Empty means http.
    TRACING_EXPORTER_PROTOCOL tracing_exporter_protocol: OtlpProtocol = OtlpProtocol::Http, "the reference's";
    /// The resource's `service.name`.
    TRACING_SERVICE_NAME tracing_service_name: Text = Text::new("RateLimit"), "the reference's";
    /// The resource's `service.namespace`.
    TRACING_SERVICE_NAMESPACE tracing_service_namespace: Text = Text::new(""), "the reference's";
    /// The resource's `service.instance.id`. Empty: a random UUID for each start.
    TRACING_SERVICE_INSTANCE_ID tracing_service_instance_id: Text = Text::new(""), "the reference's";
    /// The share of calls that are traced, from 0 to 1, where the caller has not decided; its decision goes before.
    TRACING_SAMPLING_RATE tracing_sampling_rate: f64 = 1.0, "the reference's; Envoy's own sampling decides before";
    /// Where the collector is, as a URL. `/v1/traces` is added for http.
    OTEL_EXPORTER_OTLP_ENDPOINT otel_exporter_otlp_endpoint: Addresses = Addresses::new(""), "OpenTelemetry's: http://localhost:4318, for grpc http://localhost:4317";
    /// The same for traces alone, used as it is. It goes before the other.
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT otel_exporter_otlp_traces_endpoint: Addresses = Addresses::new(""), "as OTEL_EXPORTER_OTLP_ENDPOINT";
    /// Headers for the collector, `name=value,name=value`; `%2C` for a comma in a value.
    OTEL_EXPORTER_OTLP_HEADERS otel_exporter_otlp_headers: Password = Password::NONE, "a collector in the cluster asks for none";
    /// The same for traces alone. It goes before the other.
    OTEL_EXPORTER_OTLP_TRACES_HEADERS otel_exporter_otlp_traces_headers: Password = Password::NONE, "as OTEL_EXPORTER_OTLP_HEADERS";
    /// The longest that sending one batch may take, in milliseconds.
    OTEL_EXPORTER_OTLP_TIMEOUT otel_exporter_otlp_timeout: Text = Text::new("10000"), "OpenTelemetry's";
    /// The same for traces alone. It goes before the other.
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT otel_exporter_otlp_traces_timeout: Text = Text::new(""), "as OTEL_EXPORTER_OTLP_TIMEOUT";
    /// File with the authorities that an https collector's certificate is trusted from, PEM. If it is empty, the system's are.
    OTEL_EXPORTER_OTLP_CERTIFICATE otel_exporter_otlp_certificate: Text = Text::new(""), "OpenTelemetry's";
    /// The same for traces alone. It goes before the other.
    OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE otel_exporter_otlp_traces_certificate: Text = Text::new(""), "as OTEL_EXPORTER_OTLP_CERTIFICATE";
    /// File with the certificate that is shown to the collector, PEM. It needs its key.
    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE otel_exporter_otlp_client_certificate: Text = Text::new(""), "OpenTelemetry's";
    /// The same for traces alone. It goes before the other.
    OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE otel_exporter_otlp_traces_client_certificate: Text = Text::new(""), "as OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
    /// File with the key of that certificate, PEM.
    OTEL_EXPORTER_OTLP_CLIENT_KEY otel_exporter_otlp_client_key: Text = Text::new(""), "OpenTelemetry's";
    /// The same for traces alone. It goes before the other.
    OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY otel_exporter_otlp_traces_client_key: Text = Text::new(""), "as OTEL_EXPORTER_OTLP_CLIENT_KEY";
    /// Further attributes of the resource, `key=value,key=value`. The three TRACING_SERVICE_ settings go before.
    OTEL_RESOURCE_ATTRIBUTES otel_resource_attributes: Text = Text::new(""), "the reference's";
    /// The resource's `service.name` if TRACING_SERVICE_NAME is not set.
    OTEL_SERVICE_NAME otel_service_name: Text = Text::new(""), "what was set beats a default";
    /// How many spans may wait to be sent; more are dropped and counted.
    OTEL_BSP_MAX_QUEUE_SIZE otel_bsp_max_queue_size: Text = Text::new("2048"), "OpenTelemetry's; at most some 10 MB";
    /// How many spans are sent at once, at most.
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE otel_bsp_max_export_batch_size: Text = Text::new("512"), "OpenTelemetry's";
    /// How long a span waits for others to be sent with, in milliseconds.
    OTEL_BSP_SCHEDULE_DELAY otel_bsp_schedule_delay: Text = Text::new("5000"), "OpenTelemetry's";
    /// The longest that sending one batch may take with all its attempts, in milliseconds.
    OTEL_BSP_EXPORT_TIMEOUT otel_bsp_export_timeout: Text = Text::new("30000"), "OpenTelemetry's";

"Process":
    /// How many threads answer calls. `auto`: as many as there are cores.
    WORKERS workers: Auto<Count<1, 1024>> = Auto(None), "a call lives on one core; more threads than cores only switch";
    /// The longest that a call may take. A caller that names a shorter time gets three quarters of it.
    REQUEST_BUDGET request_budget: Span<1, 60_000> = Span::secs(1), "fifty times Envoy's own 20 ms: whoever raised those still gets an answer";
    /// How many calls are worked on at a time; the next one is turned away at once.
    MAX_IN_FLIGHT max_in_flight: Count<1, 1_000_000> = Count::new(10_000), "100,000 calls a second that take 100 ms each; more would wait longer than Envoy does";
    /// How long to go on serving after SIGTERM, once health has said no: for load balancers that look at it seldom. A second signal ends it.
    PRE_STOP_DELAY pre_stop_delay: Span<0, HOUR> = Span::secs(0), "who asks for health over gRPC is waited for anyhow";
    /// How long the rest of the shutdown may take: until clients have noticed (at most half of it), and until running calls have ended.
    DRAIN_TIMEOUT drain_timeout: Span<0, HOUR> = Span::secs(20), "two thirds of the 30 s that Kubernetes gives a pod";
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

    use super::*;

    #[test]
    fn a_secret_is_masked_whether_it_fits_or_not() {
        let mut problems = Vec::new();
        let good =
            read("AUTH", Password::NONE, &Given::of([("AUTH", "hunter2")]), &mut problems, &mut Vec::new());
        assert_eq!((shown(&good.value).as_str(), problems.len()), (MASK, 0));
        assert_eq!(shown(&Password::NONE), "", "that there is none is no secret");
        let given = Given::of([]).with_flag("AUTH", OsString::from_vec(b"hunter\xff".to_vec()));
        read("AUTH", Password::NONE, &given, &mut problems, &mut Vec::new());
        assert_eq!(problems[0].to_string(), "--auth=\"********\": expected text in UTF-8");
    }

    #[test]
    fn what_is_not_utf_8_is_a_problem() {
        let mut problems = Vec::new();
        let given = Given::of([]).with_flag("RULES", OsString::from_vec(b"a\xff".to_vec()));
        read("RULES", Text::new(""), &given, &mut problems, &mut Vec::new());
        assert_eq!(problems[0].to_string(), "--rules=\"a\u{fffd}\": expected text in UTF-8");
    }
}
