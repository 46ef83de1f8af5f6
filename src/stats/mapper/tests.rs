//! Names as they come, and where mappings put them.

use super::*;
use crate::rules::StatKey;

/// The family and labels of a name whose parts these are.
fn shown(mapper: &Mapper, parts: &[&str], kind: Kind) -> Option<String> {
    let hidden: Vec<String> =
        parts.iter().map(|part| name::hidden(&StatKey::domain(part.as_bytes()))).collect();
    let mapped = mapper.map(&hidden.join("."), kind)?;
    let labels: Vec<_> = mapped.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Some(format!("{}{{{}}}", mapped.family, labels.join(",")))
}

fn rule(mapper: &Mapper, parts: &[&str]) -> Option<String> {
    let all: Vec<&str> =
        ["ratelimit", "service", "rate_limit"].into_iter().chain(parts.iter().copied()).collect();
    shown(mapper, &all, Kind::Counter)
}

#[test]
fn the_built_in_mapping_is_the_references() {
    let mapper = Mapper::built_in().unwrap();
    for (parts, expected) in [
        (
            &["prom", "a_one", "total_hits"][..],
            "ratelimit_service_rate_limit_total_hits{domain=prom,key1=a_one}",
        ),
        (
            &["prom", "a_one", "b_two", "near_limit"],
            "ratelimit_service_rate_limit_near_limit{domain=prom,key1=a_one,key2=b_two}",
        ),
        (
            &["prom", "a_one", "b_two", "c", "d_4", "shadow_mode"],
            "ratelimit_service_rate_limit_shadow_mode{domain=prom,key1=a_one,key2=b_two}",
        ),
        (
            &["api.example.test", "grpc.method_/a.b.C/D", "over_limit"],
            "ratelimit_service_rate_limit_over_limit{domain=api.example.test,key1=grpc.method_/a.b.C/D}",
        ),
        (
            &["a.b", "c.d", "e.f", "within_limit"],
            "ratelimit_service_rate_limit_within_limit{domain=a.b,key1=c.d,key2=e.f}",
        ),
        (
            &["d", "k_1", "over_limit_with_local_cache"],
            "ratelimit_service_rate_limit_d_k_1_over_limit_with_local_cache{}",
        ),
        (
            &["d", "k", "l", "over_limit_with_local_cache"],
            "ratelimit_service_rate_limit_d_k_l_over_limit_with_local_cache{}",
        ),
        (&["no.such", "domain_not_found"], "ratelimit_service_rate_limit_no_such_domain_not_found{}"),
    ] {
        assert_eq!(rule(&mapper, parts).as_deref(), Some(expected));
    }
    for (parts, kind, expected) in [
        (
            &["ratelimit", "service", "call", "should_rate_limit", "redis_error"][..],
            Kind::Counter,
            "ratelimit_service_should_rate_limit_error{err_type=redis_error}",
        ),
        (
            &["ratelimit_server", "Check", "total_requests"],
            Kind::Counter,
            "ratelimit_service_total_requests{grpc_method=Check}",
        ),
        (
            &["ratelimit_server", "Check", "response_time"],
            Kind::Observer,
            "ratelimit_service_response_time_seconds{grpc_method=Check}",
        ),
        (
            &["ratelimit", "service", "config_load_error"],
            Kind::Counter,
            "ratelimit_service_config_load_error{}",
        ),
        (&["ratelimit", "redis_pool", "cx_active"], Kind::Gauge, "ratelimit_redis_pool_cx_active{}"),
    ] {
        assert_eq!(shown(&mapper, parts, kind).as_deref(), Some(expected));
    }
    let hidden = "ratelimit_server.Check.response_time";
    let mapped = mapper.map(hidden, Kind::Observer).unwrap();
    assert_eq!((mapped.scale, mapped.observer), (0.001, &Observer::Histogram(DEFAULT_BOUNDS.to_vec())));
    let millis = mapper.without_scales();
    assert_eq!(millis.map(hidden, Kind::Observer).unwrap().scale, 1.0);
}

/// The shape of the file that Envoy Gateway mounts: globs for one and two levels, and everything else dropped.
const GATEWAY: &str = r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.total_hits"
    name: "ratelimit_service_rate_limit_total_hits"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
  - match: "ratelimit.service.rate_limit.*.*.*.total_hits"
    name: "ratelimit_service_rate_limit_total_hits"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
      key2: "$3"
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#;

#[test]
fn what_a_file_drops_is_dropped() {
    let mapper = Mapper::read(GATEWAY).unwrap();
    let expected = "ratelimit_service_rate_limit_total_hits{domain=default/eg/http,key1=a.b_c,key2=d}";
    assert_eq!(rule(&mapper, &["default/eg/http", "a.b_c", "d", "total_hits"]).as_deref(), Some(expected));
    for dropped in
        [&["d", "k", "over_limit"][..], &["d", "a", "b", "c", "total_hits"], &["d", "domain_not_found"]]
    {
        assert_eq!(rule(&mapper, dropped), None);
    }
}

#[test]
fn globs_come_before_expressions_and_each_in_their_order() {
    let mapper = Mapper::read(
        "mappings:
  - {match: '^a\\.(.+)$', match_type: regex, name: 'expression_$1'}
  - {match: a.*, match_metric_type: gauge, name: only_gauges}
  - {match: a.b, name: second}
  - {match: a.*, name: 'third_$1', labels: {x: '${1}0-$1', y: $2}}
",
    )
    .unwrap();
    for (parts, kind, expected) in [
        (&["a", "b"][..], Kind::Gauge, "only_gauges{}"),
        (&["a", "b"], Kind::Counter, "second{}"),
        (&["a", "c-d"], Kind::Counter, "third_c_d{x=c-d0-c-d,y=}"),
        (&["a", "b", "c"], Kind::Counter, "expression_b_c{}"),
        (&["1b", "ü"], Kind::Counter, "_1b__{}"),
    ] {
        assert_eq!(shown(&mapper, parts, kind).as_deref(), Some(expected));
    }
}

#[test]
fn a_pattern_written_for_plain_text_still_matches() {
    let mapper = Mapper::read(
        "mappings:
  - {match: ratelimit.service.rate_limit.shop.example.test.*.total_hits, name: glob, labels: {k: $1}}
  - {match: 'rate_limit\\.api\\.example\\.test\\.(.*)\\.over_limit', match_type: regex, name: expression, labels: {k: $1}}
",
    )
    .unwrap();
    assert_eq!(rule(&mapper, &["shop.example.test", "a", "total_hits"]).as_deref(), Some("glob{k=a}"));
    assert_eq!(
        rule(&mapper, &["api.example.test", "b.c", "over_limit"]).as_deref(),
        Some("expression{k=b.c}")
    );
    let twice = rule(&mapper, &["api.example.test", "b", "over_limit_with_local_cache"]).unwrap();
    assert!(twice.ends_with("_over_limit_with_local_cache{}"), "{twice}");
}

#[test]
fn timers_are_summaries_unless_something_says_histogram() {
    let kinds = |yaml: &str| Mapper::read(yaml).unwrap().map("t.x", Kind::Observer).unwrap().observer.clone();
    assert_eq!(kinds(""), Observer::Summary);
    assert_eq!(kinds("mappings: [{match: t.x, name: t}]"), Observer::Summary);
    let defaults = "defaults: {timer_type: histogram, buckets: [1, 2.5], ttl: 10s, unheard_of: 1}\n";
    assert_eq!(kinds(defaults), Observer::Histogram(vec![1.0, 2.5]));
    let own = "mappings: [{match: t.x, name: t, histogram_options: {buckets: [3]}, summary_options: {quantiles: []}}]";
    assert_eq!(kinds(&format!("{defaults}{own}")), Observer::Histogram(vec![3.0]));
}

#[test]
fn a_mistake_is_named() {
    for (yaml, says) in [
        ("mappings: 5", "not YAML of the expected form"),
        ("mappings: [", "not YAML of the expected form"),
        ("mappings: [{name: x}]", "mapping 1: expected what it is to match"),
        ("mappings: [{match: a, name: x}, {match: b}]", "mapping 2, match \"b\": expected a name"),
        ("mappings: [{match: '(', match_type: regex, name: x}]", "mapping 1, match \"(\": "),
        ("mappings: [{match: a, name: x, labels: {1x: y}}]", "label \"1x\""),
        ("mappings: [{match: a, name: x, scale: 0}]", "scale 0"),
        ("mappings: [{match: a, name: x, timer_type: histogram, buckets: [2, 1]}]", "ascending"),
        ("mappings: [{match: a, match_type: wild, name: x}]", "mapping 1, match \"a\": "),
        ("mappings: [{match: a, match_type: wild, name: x}]", "wild"),
        (
            "mappings: [{match: a, nam: x, lables: {}}]",
            "(unknown key \"nam\", did you mean \"name\"?, \"lables\", did you mean \"labels\"?)",
        ),
    ] {
        let error = Mapper::read(yaml).unwrap_err().to_string();
        assert!(error.contains(says), "{yaml}: {error}");
    }
}

#[test]
fn every_mappings_mistake_is_told() {
    let yaml = "mappings: [{match: a}, {match: b, name: x}, {match: c, match_type: wild}, 5, {match: d, name: x, scale: 0}]";
    let error =
        Mapper::read(&format!("defaults: {{timer_type: histogram, buckets: [2, 1]}}\n{yaml}")).unwrap_err();
    let MapperError::Mistakes(mistakes) = &error else { panic!("{error}") };
    let places = [
        "mapping 1, match \"a\"",
        "mapping 2, match \"b\": buckets",
        "mapping 3",
        "mapping 4",
        "mapping 5",
        "defaults",
    ];
    assert!(mistakes.iter().zip(places).all(|(told, place)| told.starts_with(place)), "{mistakes:#?}");
    assert_eq!(mistakes.len(), places.len(), "{mistakes:#?}");
    let many = "{match: a}, ".repeat(25);
    assert!(Mapper::read(&format!("mappings: [{many}]")).unwrap_err().to_string().ends_with("; and 5 more"));
}

#[test]
fn an_empty_word_is_the_default_and_an_unknown_one_is_passed_over() {
    let yaml = "defaults: {match_type: '', observer_type: ''}
mappings: [{match: a.*, match_type: '', action: '', timer_type: '', name: x, lables: {}, ttl: 1s}]";
    let mapper = Mapper::read(yaml).unwrap();
    assert_eq!(shown(&mapper, &["a", "b"], Kind::Counter).as_deref(), Some("x{}"));
    let told = "mapping 1, match \"a.*\": unknown key \"lables\", did you mean \"labels\"?";
    assert_eq!(mapper.passed_over(), [told]);
    assert!(Mapper::built_in().unwrap().passed_over().is_empty());
}

#[test]
fn references_are_those_of_the_kind_of_pattern() {
    let labels = "labels: {a: '$1', b: '$9', c: '$1_x', d: '$$1', e: '${last}'}";
    let glob = Mapper::read(&format!("mappings: [{{match: a.*, name: x, {labels}}}]")).unwrap();
    assert_eq!(shown(&glob, &["a", "v"], Kind::Counter).as_deref(), Some("x{a=v,b=,c=,d=,e=}"));
    let expression =
        format!("mappings: [{{match: '^a.(?P<last>.*)$', match_type: regex, name: x, {labels}}}]");
    let expression = Mapper::read(&expression).unwrap();
    assert_eq!(shown(&expression, &["a", "v"], Kind::Counter).as_deref(), Some("x{a=v,b=,c=,d=$1,e=v}"));
}
