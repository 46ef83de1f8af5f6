//! Files are read as the reference's YAML 1.1 reader reads them.

use super::*;

const BASE: &str = "domain: d\ndescriptors:\n  - key: a\n    value: x\n    rate_limit:\n      unit: hour\n      requests_per_unit: 5\n  - key: é\n    rate_limit: {unit: day, requests_per_unit: 6}\n";

#[test]
fn encodings_and_line_ends_make_no_difference() {
    let expected = rules(BASE).dump();
    let units: Vec<u16> = "\u{FEFF}".encode_utf16().chain(BASE.encode_utf16()).collect();
    let others: [Vec<u8>; 5] = [
        [b"\xEF\xBB\xBF", BASE.as_bytes()].concat(),
        BASE.replace('\n', "\r\n").into(),
        BASE.replace('\n', "\r").into(),
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        units.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
    ];
    for bytes in others {
        assert_eq!(rules(bytes).dump(), expected);
    }
    assert!(expected.contains("d.é: unit=DAY"));
}

#[test]
fn json_is_yaml() {
    let set = rules(
        r#"{"domain":"d","descriptors":[{"key":"a","value":"x","rate_limit":{"unit":"hour","requests_per_unit":3,"unlimited":false},"descriptors":null}]}"#,
    );
    assert_eq!(number(&set, "d", &[("a", "x")]), Some(3));
}

#[test]
fn unquoted_values_keep_their_text() {
    for text in [
        "404",
        "+14155550100",
        "12_34",
        "0042",
        "9223372036854775807",
        "-5",
        "0x1F",
        "true",
        "True",
        "yes",
        "off",
        "2031-05-06",
        "12:30",
        "10.0.0.1",
        "::1",
        "a b",
        "é",
        "1.2.3",
        "<<",
        "=",
    ] {
        let set = rules(format!(
            "domain: d\ndescriptors: [{{key: k, value: {text}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}]\n"
        ));
        assert_eq!(number(&set, "d", &[("k", text)]), Some(1), "{text}");
        assert_eq!(number(&set, "d", &[("k", "other")]), None, "{text}");
    }
    let set = rules(
        "domain: 7\ndescriptors: [{key: 99, rate_limit: {unit: hour, requests_per_unit: 1, name: 4711}}]\n",
    );
    assert_eq!(matched(&set, "7", &[("99", "x")]).unwrap().rule.name.as_deref(), Some("4711"));
}

#[test]
fn an_absent_null_or_empty_value_is_any_value() {
    for value in
        ["", "value: ,", "value: ~,", "value: null,", "value: Null,", "value: \"\",", "value: !!null null,"]
    {
        let set = rules(format!(
            "domain: d\ndescriptors: [{{key: k, {value} rate_limit: {{unit: hour, requests_per_unit: 1}}}}]\n"
        ));
        assert_eq!(number(&set, "d", &[("k", "anything")]), Some(1), "{value}");
    }
    for value in ["\"null\"", "'~'", "!!str null", "|-\n      null"] {
        let set = rules(format!(
            "domain: d\ndescriptors:\n  - key: k\n    value: {value}\n    rate_limit: {{unit: hour, requests_per_unit: 1}}\n"
        ));
        assert_eq!(number(&set, "d", &[("k", "anything")]), None, "{value}");
    }
}

#[test]
fn numbers_and_booleans_in_all_spellings() {
    for (text, n) in [
        ("1_000", 1_000),
        ("0x10", 16),
        ("010", 8),
        ("0b101", 5),
        ("0o17", 15),
        ("+7", 7),
        ("4294967295", u32::MAX),
        ("!!int \"12\"", 12),
        ("0", 0),
    ] {
        let set = rules(format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: {text}}}}}]\n"
        ));
        assert_eq!(number(&set, "d", &[("k", "x")]), Some(n), "{text}");
    }
    for (text, on) in [
        ("on", true),
        ("Yes", true),
        ("y", true),
        ("TRUE", true),
        ("off", false),
        ("N", false),
        ("~", false),
        ("", false),
        ("!!bool \"true\"", true),
    ] {
        let set = rules(format!(
            "domain: d\ndescriptors: [{{key: k, shadow_mode: {text}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}]\n"
        ));
        assert_eq!(matched(&set, "d", &[("k", "x")]).unwrap().rule.shadow_mode, on, "{text}");
    }
}

#[test]
fn of_a_repeated_key_the_last_value_counts_and_a_limit_is_merged() {
    let set = rules(
        "domain: dup
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 5}
    rate_limit: {requests_per_unit: 7}
  - key: b
    rate_limit: {unit: hour, requests_per_unit: 5, name: first}
    rate_limit: {unit: day, requests_per_unit: 7}
  - key: c
    shadow_mode: true
    shadow_mode: false
    rate_limit: {unit: hour, requests_per_unit: 5}
    descriptors: [{key: d, rate_limit: {unit: hour, requests_per_unit: 3}}]
    descriptors: [{key: e, rate_limit: {unit: hour, requests_per_unit: 3}}]
    rate_limit: ~
  - key: f
    value: 1.5
    value: x
    rate_limit: {unlimted: true, unit: minute}
    rate_limit: {requests_per_unit: 4}
    metadata: {a: 1, b: 1}
    metadata: {b: 2}
",
    );
    let expected = "dup.a: unit=HOUR requests_per_unit=7, shadow_mode: false, quota_mode: false
dup.b: unit=DAY requests_per_unit=7, shadow_mode: false, quota_mode: false
dup.c.e: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false
dup.f_x: unit=MINUTE requests_per_unit=4, shadow_mode: false, quota_mode: false
";
    assert_eq!(set.dump(), expected);
    assert_eq!(matched(&set, "dup", &[("b", "x")]).unwrap().rule.name.as_deref(), Some("first"));
    let metadata = matched(&set, "dup", &[("f", "x")]).unwrap().rule.metadata.as_ref().unwrap();
    assert_eq!(serde_json::to_string(metadata).unwrap(), r#"{"a":1.0,"b":2.0}"#);
}

#[test]
fn aliases_and_merges_share_text() {
    let set = rules(
        "domain: d
descriptors:
  - key: red
    rate_limit: &base {unit: minute, requests_per_unit: 50, name: base}
  - {key: blue, rate_limit: *base}
  - {key: green, rate_limit: {<<: *base, requests_per_unit: 5}}
  - key: grey
    descriptors: &leaves [{key: op, rate_limit: *base}]
  - {key: gold, descriptors: *leaves}
  - {key: both, rate_limit: {<<: [{unit: hour}, *base]}}
",
    );
    assert_eq!(number(&set, "d", &[("blue", "x")]), Some(50));
    assert_eq!(number(&set, "d", &[("green", "x")]), Some(5));
    assert_eq!(number(&set, "d", &[("gold", "x"), ("op", "y")]), Some(50));
    let Grant::Limited(limit) = matched(&set, "d", &[("both", "x")]).unwrap().rule.grant else {
        panic!("limited")
    };
    assert_eq!(limit.to_string(), "50/hour");
}

#[test]
fn metadata_becomes_json() {
    let set = rules(
        "domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 1}
    metadata:
      owner: anna
      weight: 2.5
      count: 010
      on: yes
      0: zero
      tags: [dry, cold, ~]
      nested: {deep: {er: true}, none: ~, date: 2024-01-02}
      blob: !!binary aGVsbG8=
      big: .inf
      unknown_keys: {requests: [1, [2]]}
",
    );
    let metadata = matched(&set, "d", &[("a", "x")]).unwrap().rule.metadata.clone().unwrap();
    let expected = serde_json::json!({
        "owner": "anna", "weight": 2.5, "count": 8.0, "on": true, "0": "zero", "tags": ["dry", "cold", null],
        "nested": {"deep": {"er": true}, "none": null, "date": "2024-01-02"}, "blob": "hello", "big": "Infinity",
        "unknown_keys": {"requests": [1.0, [2.0]]},
    });
    assert_eq!(serde_json::Value::Object(metadata), expected);
}

#[test]
fn only_the_first_document_is_read() {
    let set = rules("domain: d\n---\ndomain: e\n--- [\n");
    assert!(matches!(set.lookup(b"e", &[]), Lookup::UnknownDomain));
    assert_eq!(set.n_domains(), 1);
}
