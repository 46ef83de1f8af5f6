//! Our own settings of a limit.

use super::*;
use crate::limit::{Algorithm, Unit};

fn limit(fields: &str) -> Limit {
    let set = rules(format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{fields}}}}}]\n"));
    let Grant::Limited(limit) = matched(&set, "d", &[("k", "x")]).unwrap().rule.grant else {
        panic!("limited")
    };
    limit
}

#[test]
fn each_algorithm_with_its_settings_and_defaults() {
    let ms = Duration::from_millis;
    let cases = [
        ("unit: hour, requests_per_unit: 5", Algorithm::FixedWindow),
        ("unit: hour, requests_per_unit: 5, algorithm: fixed_window", Algorithm::FixedWindow),
        ("unit: hour, requests_per_unit: 5, algorithm: sliding_window", Algorithm::SlidingWindow),
        ("unit: hour, requests_per_unit: 10000, algorithm: sliding_log", Algorithm::SlidingLog),
        ("unit: hour, requests_per_unit: 5, algorithm: token_bucket", Algorithm::TokenBucket { burst: 5 }),
        (
            "unit: hour, requests_per_unit: 5, algorithm: token_bucket, burst: 20",
            Algorithm::TokenBucket { burst: 20 },
        ),
        ("unit: hour, requests_per_unit: 0, algorithm: token_bucket", Algorithm::TokenBucket { burst: 0 }),
        (
            "unit: second, requests_per_unit: 1000, algorithm: leaky_bucket, max_delay: 10ms",
            Algorithm::LeakyBucket { burst: 10, max_delay: ms(10) },
        ),
        (
            "unit: second, requests_per_unit: 1000, algorithm: leaky_bucket, max_delay: 10ms, burst: 3",
            Algorithm::LeakyBucket { burst: 3, max_delay: ms(10) },
        ),
        (
            "unit: second, requests_per_unit: 1000, algorithm: leaky_bucket, max_delay: 0s",
            Algorithm::LeakyBucket { burst: 0, max_delay: ms(0) },
        ),
        (
            "unit: second, requests_per_unit: 1000, algorithm: leaky_bucket, max_delay: 0",
            Algorithm::LeakyBucket { burst: 0, max_delay: ms(0) },
        ),
    ];
    for (fields, algorithm) in cases {
        assert_eq!(limit(fields).algorithm, algorithm, "{fields}");
    }
}

#[test]
fn a_window_is_some_units_long() {
    let window = limit("unit: Minute, unit_multiplier: 5, requests_per_unit: 1").window;
    assert_eq!((window.unit(), window.secs()), (Unit::Minute, 300));
    assert_eq!(
        limit("unit: year, unit_multiplier: 100, requests_per_unit: 1").window.secs(),
        crate::limit::Window::MAX_SECS
    );
}

#[test]
fn postures() {
    for (word, posture) in [
        ("error", Posture::Error),
        ("allow", Posture::Allow),
        ("deny", Posture::Deny),
        ("local", Posture::Local),
    ] {
        let set = rules(format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: 1, on_store_failure: {word}}}}}]\n"
        ));
        assert_eq!(matched(&set, "d", &[("k", "x")]).unwrap().rule.on_store_failure, Some(posture));
    }
    assert_eq!(
        matched(
            &rules("domain: d\ndescriptors: [{key: k, rate_limit: {unlimited: on}}]"),
            "d",
            &[("k", "x")]
        )
        .unwrap()
        .rule
        .on_store_failure,
        None
    );
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let cases: &[(&str, &[&str])] = &[
        (
            "unit: hour, requests_per_unit: 5, burst: 5",
            &["burst means nothing to fixed_window", "token_bucket or leaky_bucket"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: sliding_window, burst: 5",
            &["burst means nothing to sliding_window"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: token_bucket, max_delay: 1ms",
            &["max_delay means nothing to token_bucket"],
        ),
        ("unit: hour, requests_per_unit: 5, algorithm: token_bucket, burst: 0", &["burst 0", "at least 1"]),
        (
            "unit: hour, requests_per_unit: 5, algorithm: leaky_bucket",
            &["leaky_bucket without max_delay", "max_delay: 10ms"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: leaky_bucket, max_delay: 10",
            &["invalid max_delay '10'", "a number and a unit"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: leaky_bucket, max_delay: -1ms",
            &["invalid max_delay '-1ms'"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: leaky_bucket, max_delay: 61s",
            &["invalid max_delay '61s'", "at most 60s"],
        ),
        (
            "unit: hour, requests_per_unit: 10001, algorithm: sliding_log",
            &["sliding_log with requests_per_unit 10001", "10000", "sliding_window"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: tokenbucket",
            &["unknown algorithm 'tokenbucket'", "did you mean 'token_bucket'?", "leaky_bucket"],
        ),
        ("unit: hour, requests_per_unit: 5, algorithm: ~x", &["unknown algorithm '~x'"]),
        (
            "unit: hour, requests_per_unit: 5, unit_multiplier: 0",
            &["invalid unit_multiplier 0", "1 to 876000"],
        ),
        (
            "unit: year, requests_per_unit: 5, unit_multiplier: 101",
            &["invalid unit_multiplier 101", "1 to 100", "100 years"],
        ),
        (
            "unit: hour, requests_per_unit: 5, on_store_failure: open",
            &["invalid on_store_failure 'open'", "error, allow, deny or local"],
        ),
        ("unlimited: true, algorithm: token_bucket", &["should not specify algorithm when unlimited"]),
        ("unlimited: true, on_store_failure: deny", &["should not specify on_store_failure when unlimited"]),
        ("unit: hour, requests_per_unit: 5, lease: 1", &["invalid lease '1'", "auto, on or off"]),
        ("unlimited: true, lease: off", &["should not specify lease when unlimited"]),
        (
            "unit: hour, requests_per_unit: 5, algorithm: leaky_bucket, max_delay: 5ms, lease: on",
            &["lease: on with leaky_bucket", "only the store"],
        ),
        (
            "unit: hour, requests_per_unit: 5, algorithm: sliding_log, lease: 'on'",
            &["lease: on with sliding_log", "only the store"],
        ),
        (
            "unit: hour, requests_per_unit: 5, candidate: {unit: day}",
            &["'candidate' is described and not built yet"],
        ),
        (
            "unit: years, requests_per_unit: 5, algorithm: leaky",
            &["invalid rate limit unit 'years'", "unknown algorithm 'leaky'"],
        ),
    ];
    for (fields, words) in cases {
        let said = load(format!("domain: d\ndescriptors:\n  - {{key: k, rate_limit: {{{fields}}}}}\n"))
            .expect_err(fields)
            .to_string();
        for word in *words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        assert!(said.starts_with("limits.yaml:3:"), "{said}");
    }
}

#[test]
fn our_settings_at_a_wrong_level_are_refused_and_not_ignored() {
    for (yaml, words) in [
        (
            "domain: d\ndescriptors: [{key: k, burst: 5}]",
            "'burst' does not belong in a descriptor, beside its key: it belongs under rate_limit",
        ),
        ("domain: d\nalgorithm: token_bucket\n", "'algorithm' does not belong at the root of the file"),
        ("domain: d\ncharge: never\n", "invalid charge 'never': expected admitted"),
        (
            "domain: d\ndescriptors: [{key: k, charge: admitted}]",
            "'charge' does not belong in a descriptor, beside its key: it belongs at the root of the file",
        ),
        ("domain: d\ndescriptors: [{key: k, soft_mode: true}]", "'soft_mode' is described and not built yet"),
        (
            "domain: d\ndescriptors: [{key: k, enforce_percent: 5}]",
            "'enforce_percent' is described and not built yet",
        ),
    ] {
        let said = load(yaml).expect_err(yaml).to_string();
        assert!(said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_domain_may_charge_admitted_requests_only() {
    let rules = load("domain: d\ncharge: admitted\n").unwrap().rules;
    assert_eq!(rules.charging(b"d"), Charging::Admitted);
    assert_eq!(rules.charging(b"e"), Charging::Always);
    assert_eq!(load("domain: d\n").unwrap().rules.charging(b"d"), Charging::Always);
}

#[test]
fn a_store_that_counts_fixed_windows_only_takes_no_other_rules() {
    let options = LoadOptions { algorithms: Algorithms::FixedWindow, ..LoadOptions::default() };
    let load = |limit: &str| {
        let yaml = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]");
        RuleSet::load(&[RuleFile { name: "limits.yaml".to_owned(), bytes: yaml.into_bytes() }], &options)
    };
    assert!(load("unit: hour, requests_per_unit: 5").is_ok());
    let said = load("unit: hour, requests_per_unit: 5, algorithm: token_bucket").unwrap_err().to_string();
    assert!(said.contains("token_bucket with COUNTER_KEYS=envoyproxy"), "{said}");
}
