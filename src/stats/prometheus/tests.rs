//! Pages, and what a scraper makes of them.

use std::time::Duration;

use super::*;
use crate::telemetry::timing::Timing;

fn counters(pairs: &[(&str, u64)]) -> Collected {
    pairs.iter().map(|(name, n)| ((*name).to_owned(), Value::Counter(*n))).collect()
}

fn built_in(all: &Collected) -> String {
    page(all, &Mapper::built_in().unwrap(), &[])
}

/// The lines that are no help.
fn lines(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.starts_with("# HELP ")).collect()
}

fn timer(millis: &[u64]) -> Value {
    let timing = Timing::default();
    millis.iter().for_each(|millis| timing.took(Duration::from_millis(*millis)));
    Value::Timer(Box::new(Timed::of(std::iter::once(&timing))))
}

#[test]
fn families_are_the_references_counters_without_total() {
    let all = counters(&[
        ("ratelimit.service.config_load_error", 0),
        ("ratelimit.service.config_load_success", 1),
        ("ratelimit.service.rate_limit.d.a.b.c.total_hits", 1),
        ("ratelimit.service.rate_limit.d.a.b.total_hits", 2),
        ("ratelimit.service.rate_limit.d.a.over_limit", 0),
        ("ratelimit.service.rate_limit.d.a.total_hits", 7),
        ("ratelimit.service.rate_limit.e\u{1f}f.a.total_hits", 3),
    ]);
    let expected = r#"# TYPE ratelimit_service_config_load_error counter
ratelimit_service_config_load_error 0
# TYPE ratelimit_service_config_load_success counter
ratelimit_service_config_load_success 1
# TYPE ratelimit_service_rate_limit_total_hits counter
ratelimit_service_rate_limit_total_hits{domain="d",key1="a"} 7
ratelimit_service_rate_limit_total_hits{domain="d",key1="a",key2="b"} 3
ratelimit_service_rate_limit_total_hits{domain="e.f",key1="a"} 3"#;
    assert_eq!(lines(&built_in(&all)).join("\n"), expected);
}

#[test]
fn response_times_are_a_histogram_in_seconds() {
    let name = "ratelimit_server.ShouldRateLimit.response_time";
    let all = Collected::from([(name.to_owned(), timer(&[1, 7, 20, 400, 60_000]))]);
    let page = built_in(&all);
    let family = "ratelimit_service_response_time_seconds";
    assert!(page.contains(&format!("# TYPE {family} histogram\n")));
    for (bound, n) in
        [("0.005", 1), ("0.01", 2), ("0.025", 3), ("0.25", 3), ("0.5", 4), ("10", 4), ("+Inf", 5)]
    {
        let line = format!("{family}_bucket{{grpc_method=\"ShouldRateLimit\",le=\"{bound}\"}} {n}\n");
        assert!(page.contains(&line), "{line} in {page}");
    }
    assert!(page.contains(&format!("{family}_count{{grpc_method=\"ShouldRateLimit\"}} 5\n")));
    assert!(page.contains(&format!("{family}_sum{{grpc_method=\"ShouldRateLimit\"}} 60.428\n")));

    let millis = page_of(&all, &Mapper::built_in().unwrap().without_scales());
    assert!(millis.contains(&format!("{family}_sum{{grpc_method=\"ShouldRateLimit\"}} 60428\n")), "{millis}");
    assert!(millis.contains("le=\"10\"} 2\n"), "{millis}");
}

fn page_of(all: &Collected, mapper: &Mapper) -> String {
    page(all, mapper, &[])
}

#[test]
fn a_timer_that_nothing_maps_is_a_summary() {
    let all = Collected::from([("t.x".to_owned(), timer(&[2, 3]))]);
    assert_eq!(
        lines(&page_of(&all, &Mapper::read("").unwrap())),
        ["# TYPE t_x summary", "t_x_sum 5", "t_x_count 2"]
    );
}

#[test]
fn tags_are_labels_and_give_way_to_a_mappings_own() {
    let tags = [("zone", "z\"1"), ("domain", "mine"), ("le", "x"), ("9-b", "y")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let all = counters(&[("ratelimit.service.rate_limit.d.a.total_hits", 1)]);
    let page = page(&all, &Mapper::built_in().unwrap(), &tags);
    let expected = r#"ratelimit_service_rate_limit_total_hits{domain="d",key1="a",tag_9_b="y",tag_le="x",zone="z\"1"} 1"#;
    assert_eq!(page.lines().last(), Some(expected));
}

#[test]
fn a_family_has_one_type_and_a_series_stands_once() {
    let mapper =
        Mapper::read("mappings: [{match: a.*, name: same, help: \"two\\nlines\", scale: 2}]").unwrap();
    let all = Collected::from([
        ("a.1".to_owned(), Value::Counter(3)),
        ("a.2".to_owned(), Value::Counter(4)),
        ("a.3".to_owned(), Value::Gauge(100)),
    ]);
    assert_eq!(page_of(&all, &mapper), "# HELP same two\\nlines\n# TYPE same counter\nsame 14\n");
}
