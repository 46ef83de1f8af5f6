//! Where statistics go, variable by variable.

use super::*;
use crate::stats::{Protocol, Target};

#[test]
fn one_sink_at_most_and_what_is_set_beats_a_default() {
    for (variables, sink) in [
        ([("USE_PROMETHEUS", "true"), ("X", "")], "Prometheus"),
        ([("USE_DOG_STATSD", "1"), ("X", "")], "DogStatsD"),
        ([("USE_STATSD", "false"), ("X", "")], "off"),
        ([("USE_STATSD", "false"), ("USE_PROMETHEUS", "t")], "Prometheus"),
        ([("USE_PROMETHEUS", "true"), ("DISABLE_STATS", "true")], "off"),
    ] {
        assert_eq!(good(variables).stats.sink.name(), sink, "{variables:?}");
    }
    let all = [("USE_STATSD", "true"), ("USE_PROMETHEUS", "true"), ("DISABLE_STATS", "true")];
    assert_eq!((good(all).stats.sink.name(), good(all).stats.max_names), ("off", None));
    assert_says(&good([("USE_PROMETHEUS", "true")]).warnings.join("\n"), &["USE_PROMETHEUS"]);
    assert_says(
        &bad([("USE_STATSD", "true"), ("USE_PROMETHEUS", "true")]),
        &["one of USE_STATSD, USE_PROMETHEUS", "for USE_STATSD alone set USE_PROMETHEUS=false"],
    );
    assert_says(
        &bad([("USE_STATSD", "1"), ("USE_DOG_STATSD", "t"), ("USE_PROMETHEUS", "true")]),
        &["not 3", "set USE_DOG_STATSD=false and USE_PROMETHEUS=false"],
    );
}

/// The sink with these variables.
fn sink<const N: usize>(variables: [(&str, &str); N]) -> StatsSink {
    good(variables).stats.sink
}

fn target<const N: usize>(variables: [(&str, &str); N]) -> Target {
    let StatsSink::Send(target) = sink(variables) else { panic!("{variables:?}: statsd") };
    target
}

fn prometheus(name: &str, value: &str) -> PrometheusSettings {
    let StatsSink::Prometheus(settings) = sink([("USE_PROMETHEUS", "true"), (name, value)]) else {
        panic!("{name}={value:?}: Prometheus")
    };
    settings
}

#[test]
fn statsd_is_found_as_the_reference_finds_it() {
    let default = target([]);
    assert_eq!((&*default.host, default.port, default.protocol), ("localhost", 8125, Protocol::Tcp));
    assert_eq!(
        (default.interval, default.is_wanted, default.tags.len()),
        (Duration::from_secs(10), false, 0)
    );
    let set = target([
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "collector"),
        ("STATSD_PORT", "9125"),
        ("STATSD_PROTOCOL", "UDP"),
        ("STATS_FLUSH_INTERVAL", "200ms"),
        ("EXTRA_TAGS", "zone:z1,app:my-app"),
    ]);
    assert_eq!((&*set.host, set.port, set.protocol), ("collector", 9125, Protocol::Udp));
    assert_eq!((set.interval, set.is_wanted), (Duration::from_millis(200), true));
    assert_eq!(set.tags, [("zone", "z1"), ("app", "my-app")].map(|(key, value)| (key.into(), value.into())));
    for (name, value, says) in [
        ("STATSD_PORT", "statsd", "a port number"),
        ("STATSD_PORT", "", "unset it for the default, 8125"),
        ("STATSD_PROTOCOL", "unix", "tcp or udp"),
        ("STATS_FLUSH_INTERVAL", "0", "a duration from 1ms"),
        ("STATS_FLUSH_INTERVAL", "-1s", "a duration from 1ms"),
        ("EXTRA_TAGS", "zone", "key:value"),
        ("EXTRA_TAGS", "a:b:c", "key:value"),
        ("STATS_MAX_NAMES", "0", "from 1 to 10000000"),
        ("USE_STATSD", "yes", "true or false"),
        ("DISABLE_STATS", "", "true or false"),
    ] {
        assert_says(&bad([(name, value)]), &[name, says]);
    }
}

#[test]
fn a_service_called_statsd_does_not_stop_the_start() {
    let settings = good([("STATSD_PORT", "tcp://10.0.0.7:8125")]);
    let StatsSink::Send(target) = settings.stats.sink else { panic!("statsd") };
    assert_eq!(target.port, 8125);
    assert_says(&settings.warnings.join("\n"), &["STATSD_PORT=tcp://10.0.0.7:8125", "enableServiceLinks"]);
}

#[test]
fn prometheus_finds_its_page_where_the_reference_has_it() {
    let default = prometheus("X", "");
    assert_eq!((default.listen.to_string(), &*default.path), ("[::]:9090".to_owned(), "/metrics"));
    assert_eq!((default.mapper, default.in_millis), (None, false));
    for (value, listen) in [("", "[::]:9090"), (":19001", "[::]:19001"), ("127.0.0.1:0", "127.0.0.1:0")] {
        assert_eq!(prometheus("PROMETHEUS_ADDR", value).listen.to_string(), listen);
    }
    for (value, path) in [("", "/metrics"), ("/a/b", "/a/b")] {
        assert_eq!(prometheus("PROMETHEUS_PATH", value).path, path);
    }
    let file = prometheus("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml").mapper;
    assert_eq!(file.as_deref(), Some(Path::new("/etc/statsd-exporter/conf.yaml")));
    assert!(prometheus("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "true").in_millis);
    for (name, value, says) in [
        ("PROMETHEUS_ADDR", "9090", "host:port or :port"),
        ("PROMETHEUS_PATH", "metrics", "begins with /"),
        ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "ms", "true or false"),
    ] {
        assert_says(&bad([("USE_PROMETHEUS", "true"), (name, value)]), &[name, says]);
    }
    let taken = bad([("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", ":8080")]);
    assert_says(&taken, &["PROMETHEUS_ADDR", "another port than PORT"]);
}

#[test]
fn mogrifiers_stand_in_variables_of_their_names() {
    let dog = ("USE_DOG_STATSD", "true");
    let names = ("USE_DOG_STATSD_MOGRIFIERS", "HIT,MISS");
    let hit = ("DOG_STATSD_MOGRIFIER_HIT_PATTERN", "^a\\.(.*)$");
    let complete = [
        dog,
        names,
        hit,
        ("DOG_STATSD_MOGRIFIER_HIT_NAME", "a"),
        ("DOG_STATSD_MOGRIFIER_HIT_TAGS", "b:$1,c:d"),
        ("DOG_STATSD_MOGRIFIER_MISS_PATTERN", "x"),
        ("DOG_STATSD_MOGRIFIER_MISS_NAME", "y"),
    ];
    let target = target(complete);
    assert_eq!((target.protocol, target.port), (Protocol::Udp, 8125));
    let mogrifiers = target.dogstatsd.unwrap();
    assert_eq!((mogrifiers.len(), mogrifiers[0].tags.len(), mogrifiers[1].tags.len()), (2, 2, 0));
    for (without, says) in [
        (2, "DOG_STATSD_MOGRIFIER_HIT_PATTERN to be set"),
        (3, "DOG_STATSD_MOGRIFIER_HIT_NAME to be set"),
        (5, "DOG_STATSD_MOGRIFIER_MISS_PATTERN to be set"),
    ] {
        let mut variables = complete;
        variables[without] = ("X", "");
        assert_says(&bad(variables), &["USE_DOG_STATSD_MOGRIFIERS", says]);
    }
    for (instead, says) in [
        (("DOG_STATSD_MOGRIFIER_HIT_PATTERN", "("), "a regular expression"),
        (("DOG_STATSD_MOGRIFIER_HIT_TAGS", "b:"), "key:value"),
        (("DOG_STATSD_MOGRIFIER_HIT_TAGS", "b"), "key:value"),
    ] {
        let mut variables = complete;
        variables[if instead.0 == hit.0 { 2 } else { 4 }] = instead;
        assert_says(&bad(variables), &[says]);
    }
    let unused = [("USE_STATSD", "true"), names];
    assert_eq!(good(unused).stats.sink.name(), "statsd", "they are DogStatsD's alone");
    assert!(super::statistics::target([dog]).dogstatsd.unwrap().is_empty());
}
