use super::*;
use crate::settings::{Given, Settings, SettingsError};

/// Reads these variables beside `CONFIG_TYPE=GRPC_XDS_SOTW`.
fn read<const N: usize>(variables: [(&str, &str); N]) -> Result<Settings, SettingsError> {
    let given =
        Given::of(variables).with_flag("BACKEND_TYPE", "memory").with_flag("CONFIG_TYPE", "GRPC_XDS_SOTW");
    Settings::read(&given)
}

/// What is asked for, and how many warnings there are.
fn good<const N: usize>(variables: [(&str, &str); N]) -> (Options, Vec<String>) {
    let settings = read(variables).unwrap_or_else(|error| panic!("{variables:?}: {error}"));
    (settings.control_plane.unwrap(), settings.warnings)
}

fn bad<const N: usize>(variables: [(&str, &str); N]) -> String {
    let problems = read(variables).expect_err(&format!("{variables:?}")).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

#[test]
fn nothing_set_gives_the_references_defaults() {
    let (options, warnings) = good([]);
    let address = Address::Tcp { host: "localhost".to_owned(), port: 18_000 };
    let keepalive = Keepalive { interval: Duration::from_secs(330), timeout: Duration::from_secs(20) };
    assert_eq!(options.server, Server { address, tls: None, keepalive });
    assert_eq!(options.node, Node { id: "default".to_owned(), metadata: BTreeMap::new() });
    assert_eq!((options.headers, options.max_message), (Headers::default(), 4 << 20));
    let schedule = Schedule {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(60),
        factor: 0.5,
        jitter: Jitter::Random,
    };
    assert_eq!((options.backoff, options.cache_directory), (schedule, None));
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// What Envoy Gateway deploys, with the memory store in place of Redis.
#[test]
fn envoy_gateways_manifest_is_read() {
    let (options, warnings) = good([
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ]);
    assert_eq!(options.server.address.to_string(), "envoy-gateway:18001");
    assert_eq!(options.node.id, "envoy-ratelimit");
    let tls = Tls {
        authorities: Some("/certs/ca.crt".into()),
        client: Some(("/certs/tls.crt".into(), "/certs/tls.key".into())),
        server_name: None,
    };
    assert_eq!(options.server.tls, Some(tls));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn every_setting_does_something() {
    let (options, warnings) = good([
        ("CONFIG_GRPC_XDS_SERVER_URL", "unix:/run/cp.sock"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a,url=x=y,,empty="),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "X-Token:Bearer abc,x-two: b "),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "other.example"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "250ms"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "2s"),
        ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "3"),
        ("XDS_CLIENT_BACKOFF_JITTER", "false"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0x1000000"),
        ("XDS_CLIENT_KEEPALIVE_INTERVAL", "5s"),
        ("RULES_CACHE_DIR", "/var/cache/tidegate"),
    ]);
    assert_eq!(options.server.address, Address::Unix("/run/cp.sock".into()));
    let metadata = [("zone", "a"), ("url", "x=y"), ("empty", "")];
    assert_eq!(options.node.metadata, metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let headers = [("x-token", "Bearer abc"), ("x-two", " b ")];
    assert_eq!(options.headers.0, headers.map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert!(!format!("{options:?}").contains("abc"), "a header's value may be a secret");
    assert_eq!(options.server.tls.unwrap().server_name.as_deref(), Some("other.example"));
    let schedule = Schedule {
        initial: Duration::from_millis(250),
        max: Duration::from_secs(2),
        factor: 3.0,
        jitter: Jitter::None,
    };
    assert_eq!((options.backoff, options.max_message), (schedule, 16 << 20));
    let second = Duration::from_secs(5);
    assert_eq!(options.server.keepalive, Keepalive { interval: second, timeout: second });
    assert_eq!(options.cache_directory, Some("/var/cache/tidegate".into()));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn what_cannot_be_read_is_a_problem() {
    for (name, value, expected) in [
        ("CONFIG_GRPC_XDS_SERVER_URL", "http://a:1", "host:port"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "", "host:port"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:b:c", "name:value"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a", "name:value"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a b:c", "name:value"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:é", "name:value"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "yes", "true or false"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10", "a duration"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "", "a duration"),
        ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "half", "a number"),
        ("XDS_CLIENT_BACKOFF_JITTER", "", "true or false"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "-1", "a whole number"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "", "a whole number"),
        ("XDS_CLIENT_KEEPALIVE_INTERVAL", "10ms", "from 1s"),
    ] {
        let said = bad([(name, value)]);
        assert!(said.contains(name) && said.contains(expected), "{said}");
    }
    assert!(
        !bad([("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:a:secret")]).contains("secret")
    );
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    for (name, value, said) in [
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone:a", "\"zone:a\" is left out"),
        ("RULES", "/rules", "rules come from the control plane"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/ca.pem", "not encrypted"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1s", "below"),
    ] {
        let (_, warnings) = good([(name, value)]);
        assert!(warnings.len() == 1 && warnings[0].contains(said), "{name}: {warnings:?}");
    }
    for name in ["CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"] {
        let (options, warnings) = good([("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"), (name, "/file")]);
        assert_eq!(options.server.tls, Some(Tls::default()));
        assert!(warnings.len() == 1 && warnings[0].contains("no certificate is shown"), "{warnings:?}");
    }
}

#[test]
fn with_files_none_of_it_matters() {
    let given = Given::of([
        ("BACKEND_TYPE", "memory"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "http://nonsense"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "nonsense"),
        ("RULES_CACHE_DIR", "/cache"),
    ]);
    let settings = Settings::read(&given).unwrap();
    assert!(settings.control_plane.is_none());
    assert_eq!(settings.warnings, ["RULES_CACHE_DIR has no effect with CONFIG_TYPE=FILE"]);
}

#[test]
fn what_changes_nothing_is_no_problem_whatever_it_says() {
    for value in ["3s", "3", ""] {
        let (_, warnings) = good([("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", value)]);
        assert!(matches!(warnings.as_slice(), [one] if one.contains("no effect")), "{warnings:?}");
    }
}
