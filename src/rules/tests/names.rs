//! Listings and the names of rules in statistics.

use super::*;

#[test]
fn the_listing_is_the_references_with_ours_behind() {
    let set = rules(
        "domain: plan
descriptors:
  - key: a
    value: \"one*two\"
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: a
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 4294967295, name: named}
    descriptors:
      - {key: b.c, value: d e, rate_limit: {unlimited: true, requests_per_unit: 5}}
      - {key: bare}
      - {key: bare, value: \"10.0.0.1\", rate_limit: {unit: second, requests_per_unit: 0}}
  - key: t
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 9, algorithm: token_bucket, burst: 20, on_store_failure: local}
  - {key: l, rate_limit: {unit: second, requests_per_unit: 1000, algorithm: leaky_bucket, max_delay: 10ms}}
  - {key: s, rate_limit: {unit: second, requests_per_unit: 1, algorithm: sliding_log}}
",
    );
    let expected = "plan.a.b.c_d e: unit=UNKNOWN requests_per_unit=5, shadow_mode: false, quota_mode: false
plan.a.bare_10.0.0.1: unit=SECOND requests_per_unit=0, shadow_mode: false, quota_mode: false
plan.a: unit=YEAR requests_per_unit=4294967295, shadow_mode: false, quota_mode: true
plan.a_one*two: unit=MINUTE requests_per_unit=1, shadow_mode: true, quota_mode: false
plan.l: unit=SECOND requests_per_unit=1000, shadow_mode: false, quota_mode: false, algorithm: leaky_bucket, burst: 10, max_delay: 10ms
plan.s: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: false, algorithm: sliding_log
plan.t: unit=MINUTE requests_per_unit=9, shadow_mode: false, quota_mode: false, unit_multiplier: 5, algorithm: token_bucket, burst: 20, on_store_failure: local
";
    assert_eq!(set.dump(), expected);
    assert_eq!(RuleSet::default().dump(), "");
}

/// The name for a descriptor, by the values of its entries.
fn name(set: &RuleSet, pairs: &[(&str, &str)]) -> String {
    let full_key = matched(set, "d", pairs).unwrap().rule.full_key.to_string();
    let named = set.stat_key(b"d", &entries(pairs)).map(|key| key.to_string());
    assert_ne!(named.as_ref(), Some(&full_key));
    named.unwrap_or(full_key)
}

#[test]
fn detailed_names_show_every_value() {
    let set = rules(
        "domain: d
descriptors:
  - key: street
    detailed_metric: true
    rate_limit: &x {unit: hour, requests_per_unit: 9}
    descriptors:
      - {key: house, rate_limit: *x}
      - {key: garden, detailed_metric: true, rate_limit: *x}
  - key: yard
    value: y*
    share_threshold: true
    descriptors: [{key: truck, value: b*, detailed_metric: true, rate_limit: *x}]
",
    );
    assert_eq!(name(&set, &[("street", "elm")]), "d.street_elm");
    assert_eq!(name(&set, &[("street", "")]), "d.street_");
    assert_eq!(name(&set, &[("street", "elm"), ("house", "5")]), "d.street.house");
    assert_eq!(name(&set, &[("street", "elm"), ("garden", "roses")]), "d.street_elm.garden_roses");
    assert_eq!(name(&set, &[("yard", "y1"), ("truck", "b2")]), "d.yard_y*.truck_b2");
}

#[test]
fn value_to_metric_shows_the_value_at_its_level() {
    let set = rules(
        "domain: d
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value_to_metric: true
        descriptors: [{key: subject, rate_limit: &x {unit: hour, requests_per_unit: 9}}]
      - key: method
        value: DELETE
        descriptors: [{key: subject, rate_limit: *x}]
      - {key: foot, value_to_metric: true, detailed_metric: true, rate_limit: *x}
  - {key: ferry, value: night*, value_to_metric: true, rate_limit: *x}
  - {key: wild, value: w*, rate_limit: *x}
  - {key: shared, value: s*, value_to_metric: true, share_threshold: true, rate_limit: *x}
  - {key: raft, rate_limit: *x}
",
    );
    assert_eq!(
        name(&set, &[("route", "draw"), ("method", "GET"), ("subject", "1")]),
        "d.route_draw.method_GET.subject"
    );
    assert_eq!(
        name(&set, &[("route", "draw"), ("method", "DELETE"), ("subject", "1")]),
        "d.route_draw.method_DELETE.subject"
    );
    assert_eq!(
        name(&set, &[("route", ""), ("method", "GET"), ("subject", "1")]),
        "d.route.method_GET.subject"
    );
    assert_eq!(name(&set, &[("route", "x"), ("foot", "bare")]), "d.route_x.foot_bare");
    assert_eq!(name(&set, &[("ferry", "night-boat")]), "d.ferry_night-boat");
    assert_eq!(name(&set, &[("wild", "w1")]), "d.wild_w*");
    assert_eq!(name(&set, &[("shared", "s1")]), "d.shared_s*");
    assert_eq!(name(&set, &[("raft", "log")]), "d.raft");
    let flags = |pairs: &[(&str, &str)]| matched(&set, "d", pairs).unwrap().rule.value_to_metric;
    assert!(flags(&[("route", "x"), ("method", "DELETE"), ("subject", "1")]) && !flags(&[("raft", "log")]));
}
