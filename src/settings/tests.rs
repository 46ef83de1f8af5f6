mod statistics;

use std::path::Path;

use super::*;
use crate::rules::source::{DotFiles, RuntimeDirectory, Watch};

/// Reads these variables beside `BACKEND_TYPE=memory`.
fn read<const N: usize>(variables: [(&str, &str); N]) -> Result<Settings, SettingsError> {
    Settings::read(&Given::of(variables).with_flag("BACKEND_TYPE", "memory"))
}

fn good<const N: usize>(variables: [(&str, &str); N]) -> Settings {
    read(variables).unwrap_or_else(|error| panic!("{variables:?}: {error}"))
}

/// The only problem with these variables, as it is told.
fn bad<const N: usize>(variables: [(&str, &str); N]) -> String {
    let problems = read(variables).expect_err(&format!("{variables:?}")).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

/// The text holds all of these.
fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing: {text}");
    }
}

#[test]
fn every_default_is_what_its_kind_reads() {
    assert!(Settings::read(&Given::of([])).is_ok());
    for row in TABLE {
        let default = (row.default)();
        // As if an operator had set it to what the reference of settings says.
        let set = Settings::read(&Given::of([("BACKEND_TYPE", "memory"), (row.name, &default)]));
        assert!(set.is_ok(), "{}={default:?}: {}", row.name, set.unwrap_err());
        assert!(row.help().ends_with('.') && !row.why.is_empty(), "{}", row.name);
    }
}

#[test]
fn a_name_stands_in_the_table_once() {
    let mut names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn nothing_set_gives_the_references_defaults() {
    let settings = Settings::read(&Given::of([])).unwrap();
    assert_eq!(settings.http.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.grpc, GrpcListener::Tcp(Endpoint { host: "0.0.0.0".to_owned(), port: 8081 }));
    assert_eq!(settings.debug.to_string(), "0.0.0.0:6070");
    assert_eq!((settings.log_level, settings.log_format), (LogLevel::Warn, LogFormat::Text));
    assert_eq!(settings.grpc_max_connection_age, Some(Duration::from_secs(86_400)));
    assert_eq!(settings.near_limit_ratio.to_bits(), 0.8_f32.to_bits());
    assert_eq!((settings.limit_headers, settings.retry_after_header), (None, false));
    assert!(matches!(settings.store.kind, StoreKind::Memory));
    assert_eq!(settings.store.memory_max_keys, 1_000_000);
    assert_eq!(settings.workers.get(), 2);
    assert_eq!(settings.request_budget, Duration::from_secs(1));
    assert_eq!(settings.stats.sink.name(), "statsd");
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

/// The manifest that Istio's sample ships, with the memory store in place of Redis.
#[test]
fn istios_manifest_is_read() {
    let settings = good([
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
    ]);
    assert_eq!(settings.http.to_string(), "[::]:8080");
    assert_eq!(settings.rules.to_string(), "/data/ratelimit/config");
    assert_eq!(
        settings.rules,
        RulesSource::Runtime(RuntimeDirectory {
            root: "/data".into(),
            subdirectory: "ratelimit".to_owned(),
            app_directory: "config".to_owned(),
            dot_files: DotFiles::Skipped,
            watch: Watch::Files,
        })
    );
    assert_eq!(settings.stats.sink.name(), "off");
}

#[test]
fn all_problems_are_told_at_once() {
    let error = read([
        ("PORT", "tcp://10.0.0.1:8080"),
        ("GRPC_PORT", "70000"),
        ("SHADOW_MODE", "yes"),
        ("LOG_LEVEL", "chatty"),
        ("DRAIN_TIMEOUT", "10"),
        ("CONFIG_TYPE", "file"),
        ("NEAR_LIMIT_RATIO", "80%"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "Rate Limit"),
        ("USE_STATSD", "true"),
        ("USE_PROMETHEUS", "true"),
    ])
    .unwrap_err();
    let names: Vec<_> = error.problems.iter().map(|problem| problem.name).collect();
    let expected = [
        "PORT",
        "GRPC_PORT",
        "LOG_LEVEL",
        "CONFIG_TYPE",
        "NEAR_LIMIT_RATIO",
        "SHADOW_MODE",
        "LIMIT_RESET_HEADER",
        "DRAIN_TIMEOUT",
        "USE_STATSD",
    ];
    assert_eq!(names, expected);
    let text = error.to_string();
    assert_says(
        &text,
        &["9 settings cannot be used\n", "\n  GRPC_PORT=\"70000\": expected a port number from 0 to 65535"],
    );
}

/// A pod that sets the variable itself does not get the link, so whoever sees the link wants the default.
#[test]
fn a_service_link_is_passed_over_with_a_warning() {
    for (name, default) in [("GRPC_PORT", "8081"), ("DEBUG_PORT", "6070")] {
        for link in ["tcp://10.0.0.1:8080", "udp://[fd00::1]:53", "sctp://10.0.0.1:1"] {
            let settings = good([(name, link)]);
            let shown = settings.shown.iter().find(|shown| shown.row.name == name).unwrap();
            assert_eq!((shown.value.as_str(), shown.origin.name()), (default, "default"));
            let service = name.strip_suffix("_PORT").unwrap().to_ascii_lowercase();
            let [warning] = settings.warnings.as_slice() else { panic!("{:?}", settings.warnings) };
            assert_says(
                warning,
                &[name, link, &format!("`{service}`"), default, "enableServiceLinks: false"],
            );
        }
    }
    let flag = Given::of([]).with_flag("GRPC_PORT", "tcp://10.0.0.1:8080");
    assert_says(&Settings::read(&flag).unwrap_err().to_string(), &["--grpc-port", "a port number"]);
}

/// No Service has the name that would set this one, so somebody has.
#[test]
fn what_only_looks_like_a_service_link_is_explained() {
    assert_says(
        &bad([("PORT", "tcp://10.0.0.1:8080")]),
        &["Kubernetes", "enableServiceLinks: false", "set PORT there yourself"],
    );
}

#[test]
fn empty_is_a_value_of_texts_and_an_error_elsewhere() {
    assert_says(&bad([("PORT", "")]), &["PORT=\"\"", "set, but empty", "unset it for the default, 8080"]);
    assert_says(&bad([("SHADOW_MODE", "")]), &["true or false"]);
    assert_says(&bad([("REQUEST_BUDGET", "")]), &["1s"]);
    assert_says(&bad([("LOG_LEVEL", "")]), &["warning"]);
    let settings = good([("CACHE_KEY_PREFIX", ""), ("GRPC_UDS", ""), ("LOG_FORMAT", ""), ("HOST", "")]);
    assert_eq!(settings.http.to_string(), "[::]:8080");
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn spellings_of_go_are_read() {
    let settings = good([
        ("GRPC_PORT", "0x1F91"),
        ("SHADOW_MODE", "T"),
        ("DRAIN_TIMEOUT", "1m30s"),
        ("GRPC_MAX_CONNECTION_AGE", "0"),
        ("LOG_LEVEL", "Warning"),
        ("LOG_FORMAT", "JSON"),
        ("WORKERS", "3"),
    ]);
    assert_eq!(settings.grpc, GrpcListener::Tcp(Endpoint { host: "0.0.0.0".to_owned(), port: 8081 }));
    assert!(settings.shadow_mode);
    assert_eq!(settings.drain_timeout, Duration::from_secs(90));
    assert_eq!(settings.grpc_max_connection_age, None);
    assert_eq!(settings.log_format, LogFormat::Json);
    assert_eq!(settings.workers.get(), 3);
}

#[test]
fn bounds_are_named() {
    assert_says(&bad([("WORKERS", "0")]), &["auto, or a whole number from 1 to 1024"]);
    assert_says(&bad([("REQUEST_BUDGET", "-1s")]), &["from 1ms to 1m"]);
    assert_says(&bad([("REQUEST_BUDGET", "0")]), &["from 1ms to 1m"]);
    assert_says(&bad([("MEMORY_MAX_KEYS", "0")]), &["from 1 to 1000000000"]);
    assert_says(&bad([("MAX_IN_FLIGHT", "-1")]), &["from 1 to 1000000"]);
}

#[test]
fn hosts_stand_without_ports_and_schemes() {
    for (host, endpoint) in
        [("[::1]", "[::1]:8080"), ("localhost", "localhost:8080"), ("fe80::1%eth0", "[fe80::1%eth0]:8080")]
    {
        assert_eq!(good([("HOST", host)]).http.to_string(), endpoint);
    }
    for host in ["http://0.0.0.0", "0.0.0.0:8080", "a b", "[localhost]"] {
        assert_says(&bad([("HOST", host)]), &["without a port"]);
    }
}

#[test]
fn a_unix_socket_takes_the_place_of_the_port() {
    assert_eq!(good([("GRPC_UDS", "/run/rl.sock")]).grpc, GrpcListener::Unix("/run/rl.sock".into()));
    let long = format!("/{}", "x".repeat(107));
    assert_says(&bad([("GRPC_UDS", &long)]), &["at most 107 bytes, not 108"]);
}

#[test]
fn the_store_is_chosen_and_the_choice_explained() {
    let store = |given: Given| Settings::read(&given).map(|settings| settings.store);
    assert_says(&store(Given::of([])).unwrap().why, &["no REDIS_ setting"]);
    assert_says(&store(Given::of([("BACKEND_TYPE", "")])).unwrap().why, &["no REDIS_ setting"]);
    let both = Given::of([("BACKEND_TYPE", "memory"), ("REDIS_URL", "redis:6379"), ("MEMORY_MAX_KEYS", "7")]);
    let memory = store(both).unwrap();
    assert!(memory.redis().is_none() && memory.memory_max_keys == 7);

    let redis = |given| store(given).map(|store| (store.redis().is_some(), store.why)).unwrap();
    for (given, why) in [
        (Given::of([("BACKEND_TYPE", "redis")]), "BACKEND_TYPE=redis"),
        (Given::of([("REDIS_TYPE", "single")]), "REDIS_TYPE is set"),
        (Given::of([("REDIS_PERSECOND_URL", "r:1"), ("BACKEND_TYPE", "")]), "REDIS_PERSECOND_URL is set"),
        (Given::of([]).with_program("ratelimit"), "the program was started as `ratelimit`"),
    ] {
        assert_eq!(redis(given), (true, why.to_owned()));
    }
    let refused = |given| store(given).unwrap_err().to_string();
    assert_says(
        &refused(Given::of([("BACKEND_TYPE", "memcache")])),
        &["memcached is not supported", "set BACKEND_TYPE=memory"],
    );
    assert_says(&refused(Given::of([("BACKEND_TYPE", "etcd")])), &["expected redis or memory"]);
}

/// What Kubernetes sets wherever a Service is called `redis` says nothing about our store.
#[test]
fn refusals_are_remembered_in_front_of_redis_unless_told_not_to() {
    let memo = |name, value| {
        let given = Given::of([("REDIS_URL", "redis:6379"), (name, value)]);
        Settings::read(&given).map(|settings| settings.memo).unwrap()
    };
    assert_eq!(memo("LOCAL_CACHE_SIZE_IN_BYTES", "auto"), Some(memo::Options::default()));
    assert_eq!(memo("LOCAL_CACHE_SIZE_IN_BYTES", "0"), None);
    assert_eq!(memo("MEMO_HORIZON", "0"), None);
    let sized = |bytes| Some(memo::Options { bytes, ..memo::Options::default() });
    assert_eq!(memo("LOCAL_CACHE_SIZE_IN_BYTES", "1048576"), sized(1 << 20));
    for least in ["1", "-5"] {
        assert_eq!(memo("LOCAL_CACHE_SIZE_IN_BYTES", least), sized(memo::MIN_BYTES));
    }
    let in_memory = good([("LOCAL_CACHE_SIZE_IN_BYTES", "1048576")]);
    assert_eq!(in_memory.memo, None);
    assert_says(&in_memory.warnings.join("\n"), &["LOCAL_CACHE_SIZE_IN_BYTES has no effect in memory"]);
}

#[test]
fn service_links_to_redis_do_not_ask_for_redis() {
    let links = Given::of([
        ("REDIS_PORT", "tcp://10.0.0.9:6379"),
        ("REDIS_SERVICE_HOST", "10.0.0.9"),
        ("REDIS_PORT_6379_TCP_ADDR", "10.0.0.9"),
    ]);
    assert!(Settings::read(&links).is_ok());
}

#[test]
fn retry_after_goes_with_the_headers_unless_it_is_set() {
    let both = |headers: &str, retry: &str| {
        let settings =
            good([("LIMIT_RESPONSE_HEADERS_ENABLED", headers), ("RETRY_AFTER_HEADER_ENABLED", retry)]);
        (settings.limit_headers.is_some(), settings.retry_after_header)
    };
    assert_eq!(both("true", "auto"), (true, true));
    assert_eq!(both("true", "false"), (true, false));
    assert_eq!(both("false", "auto"), (false, false));
    assert_eq!(both("false", "true"), (false, true));
    let named = good([("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_LIMIT_HEADER", "X-Limit")])
        .limit_headers
        .unwrap();
    assert_eq!((named.limit.as_str(), named.remaining.as_str()), ("X-Limit", "RateLimit-Remaining"));
}

#[test]
fn rules_come_from_the_first_place_that_applies() {
    let here = Path::new("config");
    let source =
        |given: Given| Settings::read(&given.with_flag("BACKEND_TYPE", "memory")).unwrap().rules.to_string();
    let rules = Given::of([("RULES", "/rules"), ("RUNTIME_ROOT", "/data")]).with_config_here(here);
    assert_eq!(source(rules.clone()), "/rules");
    assert_eq!(source(rules.with_flag("RULES", "flagged.yaml")), "flagged.yaml");
    assert_eq!(source(Given::of([("RUNTIME_ROOT", "/data")]).with_config_here(here)), "/data/config");
    assert_eq!(
        source(Given::of([("RUNTIME_SUBDIRECTORY", "/rl/")]).with_config_here(here)),
        "/srv/runtime_data/current/rl/config"
    );
    assert_eq!(source(Given::of([("RULES", "")]).with_config_here(here)), "config");
    assert_eq!(
        source(Given::of([]).with_program("ratelimit").with_config_here(here)),
        "/srv/runtime_data/current/config"
    );
    assert_eq!(source(Given::of([])), "/srv/runtime_data/current/config");
}

#[test]
fn the_type_of_the_configuration_counts_in_capitals() {
    assert_says(&bad([("CONFIG_TYPE", "file")]), &["FILE or GRPC_XDS_SOTW (capitals count)"]);
    assert_says(&bad([("CONFIG_TYPE", "")]), &["FILE or GRPC_XDS_SOTW (capitals count)"]);
}

#[test]
fn odd_values_are_warned_of() {
    let warned = |name, value| good([(name, value)]).warnings.join("\n");
    assert_says(&warned("NEAR_LIMIT_RATIO", "1.5"), &["no hit"]);
    assert_says(&warned("NEAR_LIMIT_RATIO", "-0.5"), &["every hit"]);
    assert_says(&warned("LOG_FORMAT", "logfmt"), &["text or json"]);
    assert_says(&good([("RULES", "/r"), ("RUNTIME_ROOT", "/d")]).warnings.join("\n"), &["from RULES"]);
}

#[test]
fn a_flag_beats_the_environment_and_each_setting_knows_its_origin() {
    let given = Given::of([("PORT", "1"), ("GRPC_PORT", "2")]).with_flag("PORT", "0x3");
    let settings = Settings::read(&given).unwrap();
    assert_eq!(settings.http.port, 3);
    let bad = Settings::read(&given.with_flag("GRPC_PORT", "x")).unwrap_err();
    assert_says(&bad.to_string(), &["1 setting cannot be used\n  --grpc-port=\"x\": expected a port"]);
    let shown = |name| {
        let shown = settings.shown.iter().find(|shown| shown.row.name == name).unwrap();
        (shown.value.as_str(), shown.origin.name())
    };
    assert_eq!(shown("PORT"), ("3", "flag"));
    assert_eq!(shown("GRPC_PORT"), ("2", "environment"));
    assert_eq!(shown("DEBUG_PORT"), ("6070", "default"));
    assert_eq!(shown("GRPC_MAX_CONNECTION_AGE"), ("24h", "default"));
    assert_eq!(shown("WORKERS"), ("auto", "default"));
}

#[test]
fn colour_is_a_matter_of_no_color() {
    assert!(colour_is_welcome(&Given::of([])));
    assert!(colour_is_welcome(&Given::of([("NO_COLOR", "")])));
    assert!(!colour_is_welcome(&Given::of([("NO_COLOR", "1")])));
}

#[test]
fn the_reference_of_settings_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == markdown(),
        "{}: run `cargo run -- settings --markdown > docs/settings.md`",
        path.display()
    );
}

#[test]
fn two_listeners_on_one_port_are_refused() {
    let error = Settings::read(&Given::of([("PORT", "8081"), ("RULES", "r")])).unwrap_err();
    assert_says(&error.to_string(), &["PORT=\"8081\": expected another port than GRPC_PORT"]);
    assert!(Settings::read(&Given::of([("PORT", "8081"), ("GRPC_UDS", "/s"), ("RULES", "r")])).is_ok());
    let any = [("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0"), ("RULES", "r")];
    assert!(Settings::read(&Given::of(any)).is_ok());
}

#[test]
fn tls_needs_its_files_and_says_what_has_no_effect() {
    let on = ("GRPC_SERVER_USE_TLS", "true");
    let files = [("GRPC_SERVER_TLS_CERT", "/c"), ("GRPC_SERVER_TLS_KEY", "/k")];
    let tls = |more: [(&'static str, &'static str); 2]| good([on, files[0], files[1], more[0], more[1]]);
    let (ca, san) = (("GRPC_CLIENT_TLS_CACERT", "/ca"), ("GRPC_CLIENT_TLS_SAN", "envoy.example"));

    let error = read([on, ("GRPC_SERVER_TLS_KEY", "")]).unwrap_err().to_string();
    let expected = "expected a file, since GRPC_SERVER_USE_TLS is true";
    assert_says(
        &error,
        &[&format!("GRPC_SERVER_TLS_CERT: {expected}"), &format!("GRPC_SERVER_TLS_KEY=\"\": {expected}")],
    );

    let both = tls([ca, san]);
    let clients = both.grpc_tls.unwrap().clients.unwrap();
    assert_eq!(clients.authorities, Path::new("/ca"));
    assert_eq!(clients.name.unwrap().to_str(), "envoy.example");
    assert!(both.warnings.is_empty(), "{:?}", both.warnings);
    for (address, shown) in [("10.0.0.1", "10.0.0.1"), ("[::1]", "::1")] {
        let clients = tls([ca, ("GRPC_CLIENT_TLS_SAN", address)]).grpc_tls.unwrap().clients.unwrap();
        assert_eq!(clients.name.unwrap().to_str(), shown);
    }
    for bad in ["spiffe://mesh/ns/a", "*.example", "two names"] {
        let error = read([on, files[0], files[1], ca, ("GRPC_CLIENT_TLS_SAN", bad)]).unwrap_err();
        assert_says(&error.to_string(), &["expected a DNS name or an IP address"]);
    }

    let no_authority = good([on, files[0], files[1], san]);
    assert_eq!(no_authority.grpc_tls.unwrap().clients, None);
    assert_says(&no_authority.warnings.join("\n"), &["GRPC_CLIENT_TLS_SAN is set and has no effect"]);
    let in_the_clear = good([files[0], files[1], ca]);
    assert_eq!(in_the_clear.grpc_tls, None);
    assert_says(&in_the_clear.warnings.join("\n"), &["GRPC_CLIENT_TLS_CACERT is set and has no effect"]);
    assert_eq!(good([files[0], files[1]]).warnings, Vec::<String>::new(), "as Envoy Gateway sets them");
}

#[test]
fn no_credential_is_shown_in_any_address() {
    for (name, value, shown) in [
        ("REDIS_PERSECOND_URL", "rediss://u:x@h/1?password=SECRET", "rediss://*****@h/1?password=*****"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c:4318?api-key=SECRET", "https://c:4318?api-key=*****"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "u:SECRET@h:1", "*****@h:1"),
        ("MEMCACHE_HOST_PORT", "u:SECRET@x", "*****@x"),
        ("STATSD_HOST", "u:SECRET@x", "*****@x"),
        ("STATSD_PORT", "tcp://u:SECRET@x:1", "8125"),
    ] {
        let settings = good([(name, value)]);
        let found = settings.shown.iter().find(|shown| shown.row.name == name).unwrap();
        assert_eq!(found.value, shown);
        assert!(!settings.warnings.join("\n").contains("SECRET"), "{:?}", settings.warnings);
    }
    for (name, value) in [
        ("PORT", "tcp://u:SECRET@h:1"),
        ("HOST", "u:SECRET@h"),
        ("PROMETHEUS_ADDR", "u:SECRET@h:1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://u:SECRET@h"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "u:SECRET@h:1"),
        ("REDIS_URL", "rediss://h:x?password=SECRET"),
    ] {
        let given = Given::of([
            ("USE_PROMETHEUS", "true"),
            ("TRACING_ENABLED", "true"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("BACKEND_TYPE", "redis"),
        ]);
        let told = Settings::read(&given.with_flag(name, value)).unwrap_err().to_string();
        let flag = name.to_ascii_lowercase().replace('_', "-");
        assert!(told.contains(&flag) && !told.contains("SECRET"), "{told}");
    }
}
