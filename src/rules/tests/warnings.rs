//! What loads and is odd is said.

use super::*;

fn warnings(yaml: &str) -> Vec<String> {
    load(yaml)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn odd_things_are_warned_of_with_their_line() {
    let cases: &[(&str, u32, &[&str])] = &[
        ("domain: d\n---\ndomain: e\n---\ndomain: f\n", 2, &["2 more YAML documents", "ignored"]),
        ("domain: d\n---\n[\n", 2, &["1 more YAML document "]),
        (
            "domain: d\ndescriptors:\n  - key: a\n    value: x\n    value: y\n",
            5,
            &["'value' stands here and on line 4", "last value counts"],
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, requests_per_unit: 5}\n    rate_limit: {requests_per_unit: 7}\n",
            5,
            &["'rate_limit' stands here and on line 4", "merged"],
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, requests_per_unit: 1, shadow_mode: true}\n",
            4,
            &["'shadow_mode' does nothing under rate_limit", "beside its key"],
        ),
        ("domain: d\nunit: hour\n", 2, &["'unit' does nothing at the root", "under rate_limit"]),
        (
            "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: hour}}\n",
            3,
            &["requests_per_unit", "every request is refused"],
        ),
        (
            "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: ~}}\n",
            3,
            &["requests_per_unit"],
        ),
        ("domain: d\ndescriptors:\n  - {key: \"a*\"}\n", 3, &["* in key 'a*' is an ordinary character"]),
        ("domain: d\ndescriptors:\n  - {key: \"a*\", value: \"*\"}\n", 3, &["* in key 'a*'"]),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, max_delay: 16ms}\n",
            4,
            &["max_delay 16ms is longer than Envoy waits", "15ms"],
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    shadow_mode: true\n    descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]\n",
            3,
            &["shadow_mode does nothing", "not inherited", "rule d.a"],
        ),
    ];
    for (yaml, line, words) in cases {
        let found = load(*yaml).unwrap_or_else(|problems| panic!("{problems}")).warnings;
        let said = warnings(yaml).concat();
        assert_eq!(found.iter().map(|warning| warning.line).collect::<Vec<_>>(), [*line], "{yaml}\n{said}");
        for word in *words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
    }
}

#[test]
fn what_is_usual_is_not_warned_of() {
    let quiet = [
        // As control planes print their resources.
        "name: n\ndomain: d\ndescriptors: [{key: a/*, value: a/*, rate_limit: null, descriptors: []}]\n",
        "domain: d\n---\n",
        "--- \ndomain: d\n...\n",
        // A merge is there to be overridden.
        "domain: d\ndescriptors:\n  - {key: a, rate_limit: &x {unit: hour, requests_per_unit: 5}}\n  - {key: b, rate_limit: {<<: *x, requests_per_unit: 6}}\n",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]\n",
        "domain: d\ndescriptors: [{key: a, shadow_mode: true, descriptors: [{key: b, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}]}]\n",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, max_delay: 15ms}}]\n",
    ];
    for yaml in quiet {
        assert_eq!(warnings(yaml), Vec::<String>::new(), "{yaml}");
    }
}

#[test]
fn a_merge_after_a_written_key_wins_and_is_warned_of() {
    let yaml = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: &x {unit: hour, requests_per_unit: 5}\n  - key: b\n    rate_limit: {requests_per_unit: 6, <<: *x}\n";
    assert_eq!(number(&rules(yaml), "d", &[("b", "x")]), Some(5));
    let said = warnings(yaml);
    assert!(
        matches!(said.as_slice(), [one] if one.contains("'requests_per_unit' stands here and on line 6")),
        "{said:?}"
    );
}
