use super::*;
use crate::{
    settings::{SettingsError, StoreKind},
    store::redis::config::{Endpoint, masked},
};

fn read<const N: usize>(variables: [(&str, &str); N]) -> Result<Settings, SettingsError> {
    Settings::read(&Given::of(variables).with_flag("BACKEND_TYPE", "redis"))
}

fn redis<const N: usize>(variables: [(&str, &str); N]) -> (RedisSettings, Vec<String>) {
    let settings = read(variables).unwrap_or_else(|error| panic!("{variables:?}: {error}"));
    let StoreKind::Redis(redis) = settings.store.kind else { panic!("memory") };
    (*redis, settings.warnings)
}

fn endpoint(config: &RedisConfig) -> Endpoint {
    servers(&config.topology)[0].endpoint.clone()
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

#[test]
fn nothing_set_gives_the_references_defaults() {
    let (redis, warnings) = redis([]);
    assert_eq!(endpoint(&redis.main), Endpoint::Unix("/var/run/nutcracker/ratelimit.sock".into()));
    let RedisConfig { auth, sentinel_auth, tls, timeout, startup, keys, expiry_jitter, .. } = redis.main;
    assert_eq!((auth, sentinel_auth, tls), (None, None, None));
    assert_eq!((timeout, expiry_jitter), (Duration::from_secs(10), Duration::from_secs(300)));
    assert_eq!((startup, keys), (Startup::default(), KeyStyle::Tidegate));
    assert!(redis.per_second.is_none() && redis.health == RedisHealth::ConnectedOnce);
    assert_eq!((redis.tls_files, warnings.len()), (TlsFiles::default(), 0));
}

#[test]
fn each_setting_arrives() {
    let (redis, warnings) = redis([
        ("REDIS_TYPE", "Sentinel"),
        ("REDIS_URL", "main,s1:1,s2:2"),
        ("REDIS_AUTH", "ann:secret"),
        ("REDIS_SENTINEL_AUTH", "other"),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CLIENT_CERT", "/c"),
        ("REDIS_TLS_CLIENT_KEY", "/k"),
        ("REDIS_TLS_CACERT", "/ca"),
        ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true"),
        ("REDIS_TIMEOUT", "250ms"),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
        ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms"),
        ("REDIS_STARTUP_MAX_INTERVAL", "20ms"),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "1m"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "7"),
        ("COUNTER_KEYS", "envoyproxy"),
        ("CACHE_KEY_PREFIX", "p:"),
    ]);
    let main = redis.main;
    assert!(matches!(main.topology, Topology::Sentinel { ref master, ref sentinels }
        if master == "main" && sentinels.len() == 2));
    assert_eq!(main.auth, Some(Auth::new(Some("ann"), "secret")));
    assert_eq!(main.sentinel_auth, Some(Auth::new(None, "other")));
    assert_eq!(main.tls.unwrap().host_name, HostName::Ignored);
    assert_eq!((main.timeout, main.expiry_jitter), (Duration::from_millis(250), Duration::from_secs(7)));
    assert_eq!(main.startup.initial_interval, Duration::from_millis(10));
    assert_eq!(main.startup.max_interval, Duration::from_millis(20));
    assert_eq!(main.startup.max_elapsed, Some(Duration::from_secs(60)));
    assert_eq!((main.keys, main.key_prefix), (KeyStyle::Envoyproxy, b"p:".to_vec()));
    assert_eq!(redis.health, RedisHealth::FollowsConnections);
    assert_eq!(redis.tls_files.client, Some(("/c".into(), "/k".into())));
    assert_eq!(redis.tls_files.authorities, Some("/ca".into()));
    assert_eq!(warnings, [] as [&str; 0]);
}

#[test]
fn limits_per_second_may_have_a_redis_of_their_own() {
    let given = [
        ("REDIS_URL", "main:1"),
        ("REDIS_PERSECOND_URL", "redis://:pw@second:2/3"),
        ("REDIS_PERSECOND_TIMEOUT", "0"),
    ];
    let (without, warnings) = redis(given);
    assert!(
        without.per_second.is_none() && warnings[0].contains("REDIS_PERSECOND is not true"),
        "{warnings:?}"
    );
    let with = Given::of(given).with_flag("REDIS_PERSECOND", "true");
    let settings = Settings::read(&with).unwrap();
    let redis = settings.store.redis().unwrap();
    assert_eq!(endpoint(&redis.main), tcp("main", 1));
    let second = redis.per_second.as_ref().unwrap();
    assert_eq!((endpoint(second), second.timeout), (tcp("second", 2), NO_TIMEOUT));
    assert_eq!(servers(&second.topology)[0].db, 3);
}

#[test]
fn an_address_that_is_no_path_means_tcp_unless_unix_was_asked_for() {
    let main = |variables: [(&str, &str); 2]| endpoint(&redis(variables).0.main);
    assert_eq!(main([("REDIS_URL", "redis:6379"), ("REDIS_TYPE", "single")]), tcp("redis", 6379));
    assert_eq!(
        main([("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "unix")]),
        Endpoint::Unix("redis:6379".into())
    );
    assert_eq!(main([("REDIS_URL", "/r.sock"), ("REDIS_TYPE", "single")]), Endpoint::Unix("/r.sock".into()));
}

#[test]
fn what_cannot_be_used_is_told_with_its_name() {
    let bad = |variables: [(&str, &str); 2]| read(variables).expect_err("refused").to_string();
    for (variables, words) in [
        ([("REDIS_URL", ""), ("REDIS_SOCKET_TYPE", "tcp")], ["REDIS_URL=\"\"", "host:port"]),
        ([("REDIS_URL", "one"), ("REDIS_TYPE", "sentinel")], ["REDIS_URL=\"one\"", "the master's name"]),
        ([("REDIS_URL", "r:99999"), ("REDIS_SOCKET_TYPE", "tcp")], ["REDIS_URL=\"r:99999\"", "is no port"]),
        (
            [("REDIS_TYPE", ""), ("REDIS_URL", "r:1")],
            ["REDIS_TYPE=\"\"", "single, sentinel, cluster or ring"],
        ),
        (
            [("REDIS_TLS_CLIENT_CERT", "/c"), ("REDIS_URL", "r:1")],
            ["REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CLIENT_CERT is set"],
        ),
        ([("REDIS_TLS_CLIENT_KEY", "/k"), ("REDIS_URL", "r:1")], ["REDIS_TLS_CLIENT_CERT", "needs its key"]),
        ([("REDIS_TIMEOUT", ""), ("REDIS_URL", "r:1")], ["REDIS_TIMEOUT=\"\"", "10s"]),
        (
            [("COUNTER_KEYS", "envoy"), ("REDIS_URL", "r:1")],
            ["COUNTER_KEYS=\"envoy\"", "tidegate or envoyproxy"],
        ),
        ([("LOCAL_FALLBACK_REPLICAS", "0"), ("REDIS_URL", "r:1")], ["LOCAL_FALLBACK_REPLICAS", "from 1 to"]),
    ] {
        let text = bad(variables);
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    }
}

#[test]
fn no_password_is_shown_wherever_it_stands() {
    for url in ["redis://ann:hunter2@r:port", "ann:hunter2@r:1:2"] {
        let text = read([("REDIS_URL", url), ("REDIS_AUTH", "hunter2"), ("REDIS_SOCKET_TYPE", "tcp")])
            .expect_err("refused")
            .to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(&masked(url)), "{text}");
    }
    let settings = read([("REDIS_URL", "redis://ann:hunter2@r:1"), ("REDIS_AUTH", "hunter2")]).unwrap();
    let debug = format!("{settings:?}");
    assert!(!debug.contains("hunter2"), "{debug}");
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let (_, warnings) = redis([
        ("REDIS_PIPELINE_WINDOW", "150us"),
        ("REDIS_PIPELINE_LIMIT", "8"),
        ("REDIS_CLUSTER_PIPELINE_PARALLELISM", "-1"),
        ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "CREATE"),
        ("REDIS_POOL_SIZE", "1"),
    ]);
    let begins = [
        "REDIS_POOL_SIZE=1",
        "REDIS_PIPELINE_WINDOW",
        "REDIS_PIPELINE_LIMIT",
        "REDIS_CLUSTER",
        "REDIS_POOL_ON_EMPTY",
    ];
    for start in begins {
        assert!(warnings.iter().any(|warning| warning.starts_with(start)), "{start}: {warnings:?}");
    }
    assert_eq!(warnings.len(), begins.len());
    let odd = redis([("REDIS_POOL_SIZE", "some"), ("REDIS_PIPELINE_WINDOW", "")]).1;
    assert_eq!(odd.len(), 2, "what changes nothing is no problem, whatever it says: {odd:?}");
    let quiet = redis([("REDIS_POOL_SIZE", "2"), ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "wait")]).1;
    assert_eq!(quiet, [] as [&str; 0]);
}

#[test]
fn a_jitter_below_zero_is_none() {
    for (text, secs) in [("0", 0), ("-5", 0), ("20", 20)] {
        let (redis, _) = redis([("EXPIRATION_JITTER_MAX_SECONDS", text)]);
        assert_eq!(redis.main.expiry_jitter, Duration::from_secs(secs));
    }
}
