//! Counters outlive a reload.

use super::*;

#[test]
fn a_rule_of_the_same_full_key_keeps_its_counters() {
    let first = rules(
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 5}}, {key: b, rate_limit: {unlimited: true}}]\n",
    );
    let of = |set: &RuleSet, key: &str| Arc::clone(&matched(set, "d", &[(key, "x")]).unwrap().rule.counters);
    of(&first, "a").record(Verdict::Ok, Counted { total: 1, ..Counted::default() });

    let options = LoadOptions { previous: Some(&first), ..LoadOptions::default() };
    let changed = [file(
        "other.yaml",
        "domain: d\ndescriptors: [{key: c, rate_limit: {unlimited: true}}, {key: a, rate_limit: {unit: day, requests_per_unit: 9}}]\n",
    )];
    let second = RuleSet::load(&changed, &options).unwrap().rules;
    assert_eq!(of(&second, "a").decisions(Verdict::Ok), 1);
    assert!(Arc::ptr_eq(&of(&first, "a"), &of(&second, "a")));
    assert_eq!(of(&second, "c").decisions(Verdict::Ok), 0);
}

#[test]
fn rules_of_one_full_key_count_together() {
    let set = rules(
        "domain: d\ndescriptors: [{key: a.b, rate_limit: {unlimited: true}}, {key: a, descriptors: [{key: b, rate_limit: {unlimited: true}}]}]\n",
    );
    let all: Vec<&Rule> = set.rules().collect();
    assert!(
        matches!(all.as_slice(), [x, y] if x.full_key == y.full_key && Arc::ptr_eq(&x.counters, &y.counters))
    );
}

#[test]
fn no_files_are_an_empty_set() {
    let set = RuleSet::load(&[], &LoadOptions::default()).unwrap().rules;
    assert!(set.is_empty() && set.rules().next().is_none());
    assert!(!rules("domain: d\n").is_empty());
    let place =
        &rules("domain: d\ndescriptors:\n  - value: x\n    key: a\n    rate_limit: {unlimited: true}\n");
    assert_eq!(place.rules().next().unwrap().place.to_string(), "line 3 of limits.yaml");
}

#[test]
fn a_set_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&RuleSet::default());
}
