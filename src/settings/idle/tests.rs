use super::*;
use crate::settings::{Settings, TABLE};

/// With statistics, tracing and headers off, and counters in memory.
fn all_off(name: &str, value: &str) -> Given {
    Given::of([("USE_STATSD", "false"), ("BACKEND_TYPE", "memory"), (name, value)])
}

#[test]
fn a_value_of_a_part_that_is_off_is_a_warning_and_the_default_stands() {
    for (name, value) in [
        ("PROMETHEUS_ADDR", "9090"),
        ("PROMETHEUS_PATH", "metrics"),
        ("STATSD_PROTOCOL", "x"),
        ("STATSD_PORT", "x"),
        ("EXTRA_TAGS", "zone"),
        ("TRACING_EXPORTER_PROTOCOL", "otlp"),
        ("TRACING_SAMPLING_RATE", "abc"),
        ("REDIS_PERSECOND_TYPE", ""),
        ("LIMIT_LIMIT_HEADER", ""),
        ("REDIS_TIMEOUT", ""),
        ("REDIS_TYPE", ""),
        ("XDS_CLIENT_BACKOFF_JITTER", "often"),
        ("COUNTER_KEYS", "both"),
        ("LEASE_TTL", "1"),
    ] {
        let settings = Settings::read(&all_off(name, value));
        let settings = settings.unwrap_or_else(|error| panic!("{name}={value}: {error}"));
        let shown = settings.shown.iter().find(|shown| shown.row.name == name).unwrap();
        assert_eq!(shown.value, (shown.row.default)(), "{name}");
        let [warning] = settings.warnings.as_slice() else { panic!("{:?}", settings.warnings) };
        let said = [format!("{name}={value:?}: expected "), "; it has no effect ".to_owned()];
        assert!(said.iter().all(|said| warning.contains(said)), "{warning}");
    }
}

#[test]
fn a_part_that_is_on_takes_no_such_value() {
    for (switch, on, name, value) in [
        ("USE_PROMETHEUS", "true", "PROMETHEUS_ADDR", "9090"),
        ("USE_PROMETHEUS", "true", "EXTRA_TAGS", "zone"),
        ("USE_STATSD", "true", "STATSD_PROTOCOL", "x"),
        ("USE_DOG_STATSD", "true", "STATSD_PORT", "x"),
        ("TRACING_ENABLED", "true", "TRACING_SAMPLING_RATE", "abc"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true", "LIMIT_LIMIT_HEADER", ""),
        ("BACKEND_TYPE", "redis", "REDIS_TIMEOUT", ""),
        ("BACKEND_TYPE", "", "REDIS_TYPE", ""),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "XDS_CLIENT_BACKOFF_JITTER", "often"),
    ] {
        let given = all_off(name, value).with_flag(switch, on);
        let problems = Settings::read(&given).expect_err(name).problems;
        assert!(problems.iter().any(|problem| problem.name == name), "{switch}={on}: {problems:?}");
    }
}

#[test]
fn nothing_hides_behind_a_switch_that_cannot_be_read() {
    let given = all_off("TRACING_SAMPLING_RATE", "abc").with_flag("TRACING_ENABLED", "yes");
    assert_eq!(Settings::read(&given).unwrap_err().problems.len(), 2);
}

#[test]
fn every_name_in_the_list_is_a_setting() {
    for name in PARTS.iter().flat_map(|part| part.settings.iter().chain(part.switches)) {
        let known = |row: &crate::settings::Row| row.name == *name || row.name.starts_with(name);
        assert!(TABLE.iter().any(known), "{name}");
    }
}
