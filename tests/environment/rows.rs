//! The variables of `envoyproxy/ratelimit`, in the order of its settings.

/// One variable.
pub struct Row {
    pub name: &'static str,
    /// As `tidegate settings` shows it. The reference's, unless the row says otherwise.
    pub default: &'static str,
    /// A value that fits, and how it is shown.
    pub good: (&'static str, &'static str),
    pub bad: Bad,
    /// What must be set too, for the value to be looked at or to fit.
    pub beside: &'static [(&'static str, &'static str)],
}

/// A value that does not fit, or hardly.
#[derive(Clone, Copy)]
pub enum Bad {
    /// The value; what the problem says.
    Refused(&'static str, &'static str),
    /// Every text fits, so only what is no text is refused.
    NotText,
    /// The value, how what is in force is shown, and what the warning says.
    Warned(&'static str, &'static str, &'static str),
}

use Bad::{NotText, Refused, Warned};

const fn row(
    name: &'static str,
    default: &'static str,
    good: (&'static str, &'static str),
    bad: Bad,
    beside: &'static [(&'static str, &'static str)],
) -> Row {
    Row { name, default, good, bad, beside }
}

/// 108 bytes, one more than a socket's path may have.
const LONG: &str = concat!(
    "/run/",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
);

const XDS: &[(&str, &str)] = &[("CONFIG_TYPE", "GRPC_XDS_SOTW")];
const XDS_TLS: &[(&str, &str)] =
    &[("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")];
const REDIS: &[(&str, &str)] = &[("BACKEND_TYPE", "redis")];
const PROMETHEUS: &[(&str, &str)] = &[("USE_PROMETHEUS", "true")];
const HEADERS: &[(&str, &str)] = &[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")];
const TRACING: &[(&str, &str)] = &[("TRACING_ENABLED", "true")];
const PER_SECOND: &[(&str, &str)] = &[("BACKEND_TYPE", "redis"), ("REDIS_PERSECOND", "true")];

#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    // Listeners, the gRPC server, TLS
    row("HOST", "0.0.0.0", ("::", "::"), Refused("0.0.0.0:8080", "without a port"), &[]),
    row("PORT", "8080", ("0x1f92", "8082"), Refused("70000", "a port number"), &[]),
    row("DEBUG_HOST", "0.0.0.0", ("127.0.0.1", "127.0.0.1"), Refused("http://0.0.0.0", "without a port"), &[]),
    row("DEBUG_PORT", "6070", ("0", "0"), Warned("tcp://10.0.0.7:6070", "6070", "`debug`"), &[]),
    row("GRPC_UDS", "", ("/run/rl.sock", "/run/rl.sock"), Refused(LONG, "at most 107 bytes"), &[]),
    row("GRPC_HOST", "0.0.0.0", ("[::1]", "::1"), Refused("two words", "without a port"), &[]),
    row("GRPC_PORT", "8081", ("9090", "9090"), Warned("tcp://10.0.0.7:8081", "8081", "`grpc`"), &[]),
    row("GRPC_MAX_CONNECTION_AGE", "24h", ("0", "0s"), Refused("3600", "with its unit"), &[]),
    row("GRPC_MAX_CONNECTION_AGE_GRACE", "1h", ("1h30m", "1h30m"), Refused("-1s", "a duration from"), &[]),
    row("GRPC_SERVER_USE_TLS", "false", ("t", "true"), Refused("yes", "true or false"), &[("GRPC_SERVER_TLS_CERT", "/c/tls.crt"), ("GRPC_SERVER_TLS_KEY", "/c/tls.key")]),
    row("GRPC_SERVER_TLS_CERT", "", ("/c/tls.crt", "/c/tls.crt"), Refused("", "since GRPC_SERVER_USE_TLS is true"), &[("GRPC_SERVER_USE_TLS", "true"), ("GRPC_SERVER_TLS_KEY", "/c/tls.key")]),
    row("GRPC_SERVER_TLS_KEY", "", ("/c/tls.key", "/c/tls.key"), Refused("", "since GRPC_SERVER_USE_TLS is true"), &[("GRPC_SERVER_USE_TLS", "true"), ("GRPC_SERVER_TLS_CERT", "/c/tls.crt")]),
    row("GRPC_CLIENT_TLS_CACERT", "", ("", ""), Warned("/c/ca.crt", "/c/ca.crt", "without GRPC_SERVER_USE_TLS=true"), &[]),
    row("GRPC_CLIENT_TLS_SAN", "", ("envoy.example", "envoy.example"), Refused("two words", "a DNS name"), &[("GRPC_SERVER_USE_TLS", "true"), ("GRPC_SERVER_TLS_CERT", "/c/tls.crt"), ("GRPC_SERVER_TLS_KEY", "/c/tls.key"), ("GRPC_CLIENT_TLS_CACERT", "/c/ca.crt")]),
    // Logging
    row("LOG_LEVEL", "WARN", ("Fatal", "FATAL"), Refused("chatty", "panic, fatal, error"), &[]),
    row("LOG_FORMAT", "text", ("JSON", "json"), Warned("logfmt", "text", "text or json"), &[]),
    // Where rules come from
    row("CONFIG_TYPE", "FILE", ("GRPC_XDS_SOTW", "GRPC_XDS_SOTW"), Refused("file", "capitals count"), &[]),
    row("FORCE_START_WITHOUT_INITIAL_CONFIG", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("MERGE_DOMAIN_CONFIG", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("RUNTIME_ROOT", "/srv/runtime_data/current", ("/data", "/data"), NotText, &[]),
    row("RUNTIME_SUBDIRECTORY", "", ("ratelimit", "ratelimit"), NotText, &[]),
    row("RUNTIME_APPDIRECTORY", "config", ("limits", "limits"), NotText, &[]),
    row("RUNTIME_IGNOREDOTFILES", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("RUNTIME_WATCH_ROOT", "true", ("0", "false"), Refused("yes", "true or false"), &[]),
    row("CONFIG_GRPC_XDS_NODE_ID", "default", ("envoy-ratelimit", "envoy-ratelimit"), NotText, XDS),
    row("CONFIG_GRPC_XDS_NODE_METADATA", "", ("zone=a,tier=b", "zone=a,tier=b"), Warned("zone", "zone", "key=value"), XDS),
    row("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", ("envoy-gateway:18001", "envoy-gateway:18001"), Refused("http://nowhere", "host:port"), XDS),
    row("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", ("1s", "1s"), Warned("often", "often", "no effect"), XDS),
    row("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", ("x-token:abc", "********"), Refused("no-colon", "name:value"), XDS),
    row("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", ("t", "true"), Refused("yes", "true or false"), XDS),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", ("/c/tls.crt", "/c/tls.crt"), Warned("/c/alone.crt", "/c/alone.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"), XDS_TLS),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", ("/c/tls.key", "/c/tls.key"), Warned("/c/alone.key", "/c/alone.key", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"), XDS_TLS),
    row("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", ("/c/ca.crt", "/c/ca.crt"), NotText, XDS_TLS),
    row("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", ("envoy-gateway", "envoy-gateway"), NotText, XDS_TLS),
    row("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", ("500ms", "500ms"), Refused("10", "a duration from"), XDS),
    row("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1m", ("90s", "1m30s"), Refused("soon", "a duration from"), XDS),
    row("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", ("2", "2"), Refused("half", "a number"), XDS),
    row("XDS_CLIENT_BACKOFF_JITTER", "true", ("0", "false"), Refused("yes", "true or false"), XDS),
    row("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", ("8_388_608", "8388608"), Refused("8MB", "a whole number"), XDS),
    // Statistics
    row("DISABLE_STATS", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("USE_STATSD", "true", ("false", "false"), Refused("true", "one of USE_STATSD, USE_PROMETHEUS"), &[("USE_PROMETHEUS", "true")]),
    row("USE_DOG_STATSD", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("USE_PROMETHEUS", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("STATSD_HOST", "localhost", ("statsd.monitoring", "statsd.monitoring"), NotText, &[]),
    row("STATSD_PORT", "8125", ("9125", "9125"), Warned("tcp://10.0.0.7:8125", "8125", "`statsd`"), &[]),
    row("USE_DOG_STATSD_MOGRIFIERS", "", ("", ""), Refused("FOO", "DOG_STATSD_MOGRIFIER_FOO_PATTERN"), &[("USE_DOG_STATSD", "true")]),
    row("EXTRA_TAGS", "", ("zone:a,tier:b", "zone:a,tier:b"), Refused("zone", "one colon"), &[]),
    row("STATS_FLUSH_INTERVAL", "10s", ("1m", "1m"), Refused("0", "a duration from"), &[]),
    row("PROMETHEUS_ADDR", ":9090", (":19001", ":19001"), Refused("9090", "host:port or :port"), PROMETHEUS),
    row("PROMETHEUS_PATH", "/metrics", ("/stats/prometheus", "/stats/prometheus"), Refused("metrics", "/"), PROMETHEUS),
    row("PROMETHEUS_MAPPER_YAML", "", ("/etc/statsd-exporter/conf.yaml", "/etc/statsd-exporter/conf.yaml"), NotText, PROMETHEUS),
    row("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", ("t", "true"), Refused("yes", "true or false"), PROMETHEUS),
    // The store and limits
    // The reference's default is redis, and ours depends: see docs/settings.md.
    row("BACKEND_TYPE", "", ("redis", "redis"), Refused("memcache", "memcached is not supported"), &[]),
    row("EXPIRATION_JITTER_MAX_SECONDS", "300", ("0x10", "16"), Refused("5m", "a whole number"), REDIS),
    // The reference's default is 0, none: ours changes no answer.
    row("LOCAL_CACHE_SIZE_IN_BYTES", "auto", ("1048576", "1048576"), Refused("1MB", "a whole number"), REDIS),
    row("NEAR_LIMIT_RATIO", "0.8", ("0.5", "0.5"), Refused("80%", "a number"), &[]),
    row("CACHE_KEY_PREFIX", "", ("rl:", "rl:"), NotText, &[]),
    row("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("SHADOW_MODE", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("QUOTA_MODE", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("RESPONSE_DYNAMIC_METADATA", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("LIMIT_RESPONSE_HEADERS_ENABLED", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("LIMIT_LIMIT_HEADER", "RateLimit-Limit", ("X-Limit", "X-Limit"), Refused("Rate Limit", "the name of an HTTP header"), HEADERS),
    row("LIMIT_REMAINING_HEADER", "RateLimit-Remaining", ("X-Remaining", "X-Remaining"), Refused("Rate Limit", "the name of an HTTP header"), HEADERS),
    row("LIMIT_RESET_HEADER", "RateLimit-Reset", ("X-Reset", "X-Reset"), Refused("Rate Limit", "the name of an HTTP header"), HEADERS),
    row("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    // Redis
    row("REDIS_PERSECOND", "false", ("t", "true"), Refused("yes", "true or false"), REDIS),
    row("REDIS_SOCKET_TYPE", "unix", ("TCP", "tcp"), Refused("udp", "unix or tcp"), &[("BACKEND_TYPE", "redis"), ("REDIS_URL", "redis:6379")]),
    row("REDIS_TYPE", "single", ("Cluster", "cluster"), Refused("", "single, sentinel, cluster"), &[("BACKEND_TYPE", "redis"), ("REDIS_URL", "redis:6379")]),
    row("REDIS_URL", "/var/run/nutcracker/ratelimit.sock", ("redis://ann:secret@redis:6379/1", "redis://*****@redis:6379/1"), Refused("redis:port", "is no port"), &[("BACKEND_TYPE", "redis"), ("REDIS_SOCKET_TYPE", "tcp")]),
    row("REDIS_POOL_SIZE", "10", ("20", "20"), Warned("many", "many", "a connection of its own"), REDIS),
    row("REDIS_AUTH", "", ("ann:secret", "********"), NotText, REDIS),
    row("REDIS_SENTINEL_AUTH", "", ("secret", "********"), NotText, REDIS),
    row("REDIS_TLS", "false", ("t", "true"), Refused("yes", "true or false"), REDIS),
    row("REDIS_TIMEOUT", "10s", ("250ms", "250ms"), Refused("-1s", "a duration from"), REDIS),
    row("REDIS_PIPELINE_WINDOW", "0s", ("0", "0"), Warned("150us", "150us", "no effect"), REDIS),
    row("REDIS_PIPELINE_LIMIT", "0", ("0", "0"), Warned("", "", "no effect"), REDIS),
    row("REDIS_CLUSTER_PIPELINE_PARALLELISM", "1", ("8", "8"), Warned("-1", "-1", "no effect"), REDIS),
    row("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", ("wait", "wait"), Warned("CREATE", "CREATE", "no effect"), REDIS),
    row("REDIS_TLS_CACERT", "", ("/c/ca.crt", "/c/ca.crt"), NotText, REDIS),
    row("REDIS_TLS_CLIENT_CERT", "", ("/c/tls.crt", "/c/tls.crt"), Refused("", "REDIS_TLS_CLIENT_KEY is set"), &[("BACKEND_TYPE", "redis"), ("REDIS_TLS_CLIENT_KEY", "/c/tls.key")]),
    row("REDIS_TLS_CLIENT_KEY", "", ("/c/tls.key", "/c/tls.key"), Refused("", "REDIS_TLS_CLIENT_CERT is set"), &[("BACKEND_TYPE", "redis"), ("REDIS_TLS_CLIENT_CERT", "/c/tls.crt")]),
    row("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", ("t", "true"), Refused("yes", "true or false"), REDIS),
    row("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", ("t", "true"), Refused("yes", "true or false"), REDIS),
    row("REDIS_STARTUP_INITIAL_INTERVAL", "1s", ("100ms", "100ms"), Refused("1", "a duration from"), REDIS),
    row("REDIS_STARTUP_MAX_INTERVAL", "30s", ("1m", "1m"), Refused("", "a duration from"), REDIS),
    row("REDIS_STARTUP_MAX_ELAPSED_TIME", "0s", ("5m", "5m"), Refused("never", "a duration from"), REDIS),
    row("REDIS_PERSECOND_SOCKET_TYPE", "unix", ("TCP", "tcp"), Refused("udp", "unix or tcp"), &[("BACKEND_TYPE", "redis"), ("REDIS_PERSECOND", "true"), ("REDIS_PERSECOND_URL", "redis:6379")]),
    row("REDIS_PERSECOND_TYPE", "single", ("Cluster", "cluster"), Refused("", "single, sentinel, cluster"), &[("BACKEND_TYPE", "redis"), ("REDIS_PERSECOND", "true"), ("REDIS_PERSECOND_URL", "redis:6379")]),
    row("REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", ("redis://ann:secret@redis:6379/1", "redis://*****@redis:6379/1"), Refused("redis:port", "is no port"), &[("BACKEND_TYPE", "redis"), ("REDIS_PERSECOND", "true"), ("REDIS_PERSECOND_SOCKET_TYPE", "tcp")]),
    row("REDIS_PERSECOND_POOL_SIZE", "10", ("20", "20"), Warned("many", "many", "a connection of its own"), PER_SECOND),
    row("REDIS_PERSECOND_AUTH", "", ("ann:secret", "********"), NotText, PER_SECOND),
    row("REDIS_PERSECOND_SENTINEL_AUTH", "", ("secret", "********"), NotText, PER_SECOND),
    row("REDIS_PERSECOND_TLS", "false", ("t", "true"), Refused("yes", "true or false"), PER_SECOND),
    row("REDIS_PERSECOND_TIMEOUT", "10s", ("250ms", "250ms"), Refused("-1s", "a duration from"), PER_SECOND),
    row("REDIS_PERSECOND_PIPELINE_WINDOW", "0s", ("0", "0"), Warned("150us", "150us", "no effect"), PER_SECOND),
    row("REDIS_PERSECOND_PIPELINE_LIMIT", "0", ("0", "0"), Warned("", "", "no effect"), PER_SECOND),
    row("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", ("8", "8"), Warned("-1", "-1", "no effect"), PER_SECOND),
    row("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", ("wait", "wait"), Warned("CREATE", "CREATE", "no effect"), PER_SECOND),
    // Memcached, which is not served: whatever these say is known, and changes nothing
    row("MEMCACHE_HOST_PORT", "", ("", ""), Warned("cache:11211", "cache:11211", "memcached is not supported"), &[]),
    row("MEMCACHE_SRV", "", ("", ""), Warned("_cache._tcp.example", "_cache._tcp.example", "memcached is not supported"), &[]),
    row("MEMCACHE_SRV_REFRESH", "0s", ("", ""), Warned("10", "10", "memcached is not supported"), &[]),
    row("MEMCACHE_MAX_IDLE_CONNS", "2", ("", ""), Warned("some", "some", "memcached is not supported"), &[]),
    row("MEMCACHE_TLS", "false", ("", ""), Warned("yes", "yes", "memcached is not supported"), &[]),
    row("MEMCACHE_TLS_CLIENT_CERT", "", ("", ""), Warned("/c/file", "/c/file", "memcached is not supported"), &[]),
    row("MEMCACHE_TLS_CLIENT_KEY", "", ("", ""), Warned("/c/file", "/c/file", "memcached is not supported"), &[]),
    row("MEMCACHE_TLS_CACERT", "", ("", ""), Warned("/c/file", "/c/file", "memcached is not supported"), &[]),
    row("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", ("", ""), Warned("maybe", "maybe", "memcached is not supported"), &[]),
    // Tracing
    row("TRACING_ENABLED", "false", ("t", "true"), Refused("yes", "true or false"), &[]),
    row("TRACING_EXPORTER_PROTOCOL", "http", ("grpc", "grpc"), Refused("thrift", "http or grpc"), TRACING),
    row("TRACING_SERVICE_NAME", "RateLimit", ("envoy-ratelimit", "envoy-ratelimit"), NotText, TRACING),
    row("TRACING_SERVICE_NAMESPACE", "", ("shop", "shop"), NotText, TRACING),
    row("TRACING_SERVICE_INSTANCE_ID", "", ("pod-1", "pod-1"), NotText, TRACING),
    row("TRACING_SAMPLING_RATE", "1", ("0.25", "0.25"), Refused("often", "a number"), TRACING),
];
