//! Everything that must be refused is, with words that say what and where.

use super::*;

/// A file, the lines that its problems stand on, and words that the message must hold.
const REFUSED: &[(&str, &[u32], &[&str])] = &[
    // E1: no YAML, or no map.
    ("domain: d\ndescriptors:\n  - key: \"no closing quote\n", &[3], &["error loading config file", "quote"]),
    ("domain: d\ndescriptors: [{key: a}\n", &[2], &["error loading config file"]),
    ("'''", &[1], &["error loading config file"]),
    ("domain: d\n\tdescriptors: []\n", &[2], &["tab", "spaces"]),
    ("domain: d\ndescriptors:\n\t- key: a\n", &[3], &["tab", "spaces"]),
    ("domain: d\ndescriptors:\n  - key: a\n    value: *.png\n", &[4], &["'*.png'", "alias", "quotes"]),
    ("domain: d\ndescriptors:\n  - key: a\n    value: *\n", &[4], &["'*'", "quotes"]),
    ("domain: d\ndescriptors:\n  - key: @a\n", &[3], &["'@'", "quotes"]),
    ("domain: d\ndescriptors:\n  - key: a: b\n", &[3], &["mapping values", "quotes"]),
    ("domain: d\ndescriptors: &x [*x]\n", &[2], &["alias", "own anchor"]),
    ("domain: d\n# \u{1}\ndescriptors: []\n", &[2], &["U+0001"]),
    ("- domain: d\n", &[1], &["error loading config file", "root is a list", "domain"]),
    ("only some words\n", &[1], &["root is 'only some words'"]),
    ("12345\n", &[1], &["root is '12345'"]),
    ("<<: [1]\ndomain: d\n", &[1], &["cannot be merged by <<", "'1'"]),
    ("domain: d\ndescriptors:\n  - {key: a, value: !!int x}\n", &[3], &["'x'", "!!int"]),
    // E2: keys that are no text.
    ("domain: d\n7: seven\n", &[2], &["config error, key is not of type string: '7'"]),
    ("0.25: x\ndomain: d\n", &[1], &["config error, key is not of type string: '0.25'"]),
    (
        "domain: d\ndescriptors:\n  - key: a\n    no: really\n",
        &[4],
        &["key is not of type string", "boolean"],
    ),
    (
        "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, true: 1}\n",
        &[4],
        &["key is not of type string: 'true'"],
    ),
    ("domain: d\n[1]: x\n", &[2], &["key is not of type string: a list"]),
    ("domain: d\n~: x\n", &[2], &["key is not of type string: nothing"]),
    // E3: unknown keys.
    (
        "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, request_per_unit: 5}\n",
        &[4],
        &["unknown key 'request_per_unit'", "'requests_per_unit'"],
    ),
    (
        "domain: d\ndescriptors:\n  - key: a\n    ratelimit: {unit: hour}\n",
        &[4],
        &["unknown key 'ratelimit'", "'rate_limit'"],
    ),
    (
        "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {requestsperunit: 5, unit: hour}\n",
        &[4],
        &["unknown key 'requestsperunit'", "'requests_per_unit'"],
    ),
    (
        "domain: d\ndescriptors:\n  - {key: a, Shadow_Mode: true}\n",
        &[3],
        &["unknown key 'Shadow_Mode'", "'shadow_mode'"],
    ),
    (
        "x-base: &b {unit: hour}\ndomain: d\ndescriptors: [{key: a, rate_limit: *b}]\n",
        &[1],
        &["unknown key 'x-base'", "&anchor", "used first"],
    ),
    ("domain: d\nzzz: 1\n", &[2], &["unknown key 'zzz'", "docs/rules.md"]),
    ("domain: d\n\"<<\": {key: a}\n", &[2], &["unknown key '<<'"]),
    ("domain: d\ndescriptors: [{kye: a, vlaue: b}]\n", &[2, 2], &["'kye'", "'key'", "'vlaue'", "'value'"]),
    ("doamin: d\n", &[1], &["unknown key 'doamin'", "'domain'"]),
    // E4: lists of something else.
    ("domain: d\ndescriptors: [apple, pear]\n", &[2, 2], &["list of type other than map: 'apple'", "'pear'"]),
    (
        "domain: d\ndescriptors:\n  - key: a\n  -\n",
        &[4],
        &["list of type other than map: nothing", "descriptors[1]"],
    ),
    ("domain: d\ndescriptors:\n  - [{key: a}]\n", &[3], &["list of type other than map: a list"]),
    (
        "domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: hour\n      replaces: [other]\n",
        &[6],
        &["list of type other than map: 'other'", "replaces[0]"],
    ),
    // E5: wrong types.
    (
        "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, requests_per_unit: -1}\n",
        &[4],
        &[
            "found '-1'",
            "whole number from 0 to 4294967295",
            "descriptors[0].rate_limit.requests_per_unit",
            "rule d.a",
        ],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 4294967296}}]\n",
        &[2],
        &["found '4294967296'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: '10'}}]\n",
        &[2],
        &["found '10' (quoted text)", "without quotes"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: [1]}}]\n",
        &[2, 2],
        &["found a list"],
    ),
    ("domain: d\ndescriptors: [{key: a, shadow_mode: maybe}]\n", &[2], &["found 'maybe'", "true or false"]),
    (
        "domain: d\ndescriptors: [{key: a, shadow_mode: \"yes\"}]\n",
        &[2],
        &["found 'yes' (quoted text)", "without quotes"],
    ),
    (
        "domain: d\ndescriptors: {key: a}\n",
        &[2],
        &["found a map", "expected a list: write '- key: …' for each item"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, replaces: {name: n}}}]\n",
        &[2],
        &["found a map", "expected a list: write '- name: …' for each item"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, replaces: [n2]}}]\n",
        &[2],
        &["other than map: 'n2'", "write '- name: n2' "],
    ),
    ("domain: d\ndescriptors: [{key: a, shadow: true}]\n", &[2], &["did you mean 'shadow_mode'?"]),
    ("domain: d\ndescriptors: [{key: a, quota: true}]\n", &[2], &["did you mean 'quota_mode'?"]),
    ("domain: d\nburst_: 1\nunit_: 1\n", &[2, 3], &["did you mean 'burst'?", "did you mean 'unit'?"]),
    (
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  a.yaml: |\n    domain: d\n",
        &[1],
        &["object of Kubernetes", "texts under 'data'"],
    ),
    ("domain: d\ndescriptors: [{key: {name: a}}]\n", &[2], &["found a map", "expected text"]),
    ("domain: d\ndescriptors: [{key: a, rate_limit: hour}]\n", &[2], &["found 'hour'", "expected a map"]),
    ("domain: d\ndescriptors: [{key: a, rate_limit: ''}]\n", &[2], &["found ''", "expected a map"]),
    (
        "domain: d\ndescriptors: [{key: a, metadata: [one, two]}]\n",
        &[2],
        &["metadata is a list", "expected a map"],
    ),
    ("domain: d\ndescriptors: [{key: a, shadow_mode: x, shadow_mode: true}]\n", &[2], &["found 'x'"]),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, name: !!binary \"/w==\"}}]\n",
        &[2],
        &["UTF-8"],
    ),
    // E6: floats and wide integers.
    (
        "domain: d\ndescriptors:\n  - {key: v, value: 2.5}\n",
        &[3],
        &["error checking config: '2.5'", "quotes"],
    ),
    ("domain: d\ndescriptors:\n  - {key: v, value: 08001}\n", &[3], &["'08001'", "octal"]),
    (
        "domain: d\ndescriptors:\n  - {key: v, value: 18446744073709551615}\n",
        &[3],
        &["'18446744073709551615'", "quotes"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1e3}}]\n",
        &[2],
        &["'1e3'", "float"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 18446744073709551615}}]\n",
        &[2],
        &["18446744073709551615"],
    ),
    ("domain: .inf\n", &[1], &["'.inf'"]),
    // E7: no domain.
    (
        "descriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}\n",
        &[1],
        &["config file cannot have empty domain"],
    ),
    ("domain: ''\n", &[1], &["empty domain"]),
    ("\ndomain: ~\n", &[1], &["empty domain"]),
    ("", &[1], &["empty domain", "domain: "]),
    ("# nothing here yet\n", &[1], &["empty domain"]),
    ("---\n---\ndomain: d\n", &[1], &["empty domain"]),
    // E9: no key.
    ("domain: d\ndescriptors:\n  - value: only\n", &[3], &["descriptor has empty key"]),
    (
        "domain: d\ndescriptors: [{key: a, descriptors: [{key: '', value: x}]}]\n",
        &[2],
        &["empty key", "descriptors[0].descriptors[0]"],
    ),
    (
        "domain: d\ndescriptors:\n  - {key: a}\n  - {key: ~, value: x}\n",
        &[4],
        &["empty key", "descriptors[1]"],
    ),
    // E10: the same composite key twice.
    (
        "domain: double\ndescriptors:\n  - key: verb\n    value: get\n    descriptors:\n      - {key: size, value: big}\n      - {key: size, value: big}\n",
        &[7],
        &["duplicate descriptor composite key 'double.verb_get.size_big'", "line 6 of limits.yaml"],
    ),
    (
        "domain: d\ndescriptors: [{key: verb}, {key: verb, value: ''}]\n",
        &[2],
        &["composite key 'd.verb'", "line 2 of"],
    ),
    (
        "domain: d\ndescriptors:\n  - {key: a, value: b_c}\n  - {key: a_b, value: c}\n",
        &[4],
        &["composite key 'd.a_b_c'", "key 'a' on line 3", "rename"],
    ),
    (
        "domain: d\ndescriptors:\n  - {key: a_b}\n  - {key: a, value: b}\n",
        &[4],
        &["composite key 'd.a_b'", "key 'a_b' on line 3"],
    ),
    // E11 and E12: units.
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: Day}}]\n",
        &[2],
        &["should not specify rate limit unit when unlimited", "'Day'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minutes, requests_per_unit: 5}}]\n",
        &[2],
        &["invalid rate limit unit 'minutes'", "did you mean 'minute'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: 3, requests_per_unit: 5}}]\n",
        &[2],
        &["invalid rate limit unit '3'", "second, minute, hour, day, week, month or year"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: UNKNOWN, requests_per_unit: 5}}]\n",
        &[2],
        &["invalid rate limit unit 'UNKNOWN'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: ' hour ', requests_per_unit: 5}}]\n",
        &[2],
        &["invalid rate limit unit ' hour '", "did you mean 'hour'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: '', requests_per_unit: 5}}]\n",
        &[2],
        &["invalid rate limit unit ''"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {}}]\n",
        &[2],
        &["invalid rate limit unit ''", "write a unit"],
    ),
    ("domain: d\ndescriptors: [{key: a, rate_limit: NULL}]\n", &[2], &["invalid rate limit unit ''"]),
    // E13 and E14: replaces.
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: ''}]}}]\n",
        &[2],
        &["should not have an empty replaces entry"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 5, name: n, replaces: [{name: m}, {}]}}]\n",
        &[2],
        &["empty replaces entry", "replaces[1]"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 5, name: snake, replaces: [{name: bird}, {name: snake}]}}]\n",
        &[2],
        &["replaces should not contain name of same descriptor", "'snake'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, name: x, replaces: [{name: x}]}}]\n",
        &[2],
        &["replaces should not contain name of same descriptor"],
    ),
    // E15: share_threshold.
    (
        "domain: d\ndescriptors: [{key: a, value: b, share_threshold: true}]\n",
        &[2],
        &["share_threshold can only be used with wildcard values (containing '*'), but found key 'a_b'"],
    ),
    (
        "domain: d\ndescriptors: [{key: a, share_threshold: true}]\n",
        &[2],
        &["share_threshold", "found key 'a'"],
    ),
    // E16: metadata.
    (
        "domain: d\ndescriptors:\n  - key: a\n    metadata: {blob: !!binary \"//79/A==\"}\n",
        &[4],
        &["error parsing metadata", "UTF-8", "metadata.blob"],
    ),
    (
        "domain: d\ndescriptors:\n  - key: a\n    metadata: {[x]: 1}\n",
        &[4],
        &["error parsing metadata", "a key is a list"],
    ),
];

#[test]
fn every_refusal_names_the_thing_the_line_and_the_way_out() {
    for (yaml, lines, words) in REFUSED {
        let problems = load(*yaml).expect_err(yaml);
        let said = problems.to_string();
        assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), *lines, "{yaml}\n{said}");
        for word in *words {
            assert!(said.contains(word), "no {word:?} in\n{said}\nabout\n{yaml}");
        }
        assert!(said.lines().all(|line| line.starts_with("limits.yaml:")), "{said}");
    }
}

#[test]
fn quotes_are_named_where_there_are_some() {
    for (value, has_quotes) in [("-1", false), ("10k", false), ("'10'", true), ("\"x\"", true)] {
        let limit = format!("rate_limit: {{unit: hour, requests_per_unit: {value}}}");
        let said = load(format!("domain: d\ndescriptors: [{{key: a, {limit}}}]\n")).unwrap_err().to_string();
        assert_eq!(said.contains("without quotes"), has_quotes, "{said}");
    }
}

#[test]
fn warnings_stand_beside_the_problems() {
    let yaml =
        "domain: d\nunit: hour\ndescriptors: [{key: a, rate_limit: {unit: h, requests_per_unit: x}}]\n";
    let problems = load(yaml).unwrap_err();
    assert_eq!(problems.total(), 2, "{problems}");
    let warnings: Vec<_> = problems.warnings().iter().map(|warning| warning.found.as_str()).collect();
    assert_eq!(warnings, ["'unit' does nothing at the root of the file"]);
    let misspelt = "domain: d\ndescriptors: [{key: a, shadow_mode: true, ratelimit: {unit: hour}, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}]\n";
    assert!(load(misspelt).unwrap_err().warnings().is_empty(), "it has its rate_limit");
}

#[test]
fn what_the_reference_refuses_in_the_collected_snippets_is_refused() {
    let snippets = include_str!("../../../tests/real-configs/refused-snippets.txt");
    let lines = [4, 4, 4, 4, 4, 4, 4, 4, 4, 1, 5, 2, 5, 4, 6, 4];
    let mut n = 0;
    for (snippet, line) in snippets.split("\n=====").skip(1).zip(lines) {
        let (title, yaml) = snippet.split_once('\n').unwrap();
        let problems = load(yaml).expect_err(title);
        assert_eq!(problems.iter().next().unwrap().line, line, "{title}\n{problems}");
        n += 1;
    }
    assert_eq!(n, 16);
}

#[test]
fn all_problems_of_all_files_are_reported_at_once_in_order() {
    let files = [
        file("b.yaml", "domain: b\ndescriptors:\n  - {key: a, rate_limit: {unit: never}}\n  - {key: a}\n"),
        file("good.yaml", "domain: good\n"),
        file("a.yaml", "domain: a\ndescriptors:\n  - {key: x, value: 1.5, rate_limit: {unlimted: true}}\n"),
        file("c.yaml", "domain: good\ndescriptors:\n  - {value: x}\n"),
    ];
    let problems = RuleSet::load(&files, &LoadOptions::default()).unwrap_err();
    let found: Vec<_> = problems.iter().map(|problem| (&*problem.file, problem.line)).collect();
    assert_eq!(
        found,
        [("a.yaml", 3), ("a.yaml", 3), ("b.yaml", 3), ("b.yaml", 4), ("c.yaml", 3), ("good.yaml", 1)]
    );
    assert_eq!(problems.total(), 6);
    let said = problems.to_string();
    assert!(said.contains("duplicate domain 'good' in config file: it is in c.yaml too"), "{said}");
    // A misspelt key is not also reported as missing.
    assert!(!said.contains("invalid rate limit unit ''"), "{said}");
}

#[test]
fn a_problem_is_one_line_and_cut_whatever_the_file_holds() {
    let long = "x".repeat(900);
    let said =
        load(format!("domain: d\n\"{long}\\n\\e[31m\": 1\n\"a\\nb\\u2028c\": 1\n")).unwrap_err().to_string();
    assert_eq!(said.lines().count(), 2);
    assert!(said.contains(r"a\nb\u{2028}c") && said.len() < 500, "{said}");
}

#[test]
fn names_of_files_and_ways_through_them_are_cut_too() {
    let long = "x".repeat(80);
    let deep = (0..200).fold("!!binary \"/w==\"".to_owned(), |inner, _| format!("{{{long}: {inner}}}"));
    let files = [
        file("a\nb.yaml", format!("domain: d\ndescriptors: [{{key: a, metadata: {deep}}}]\n")),
        file("c.yaml", "domain: d\n"),
    ];
    let said = RuleSet::load(&files, &LoadOptions::default()).unwrap_err().to_string();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.starts_with(r"a\nb.yaml:2:")
            && said.contains("(at …xx")
            && said.contains(r"it is in a\nb.yaml too"),
        "{said}"
    );
    assert!(said.len() < 2_000, "{said}");
}

#[test]
fn a_flood_of_problems_is_counted() {
    let yaml: String = (0..5_000).map(|n| format!("k{n}: 1\n")).collect();
    let problems = load(yaml).unwrap_err();
    assert_eq!((problems.iter().count(), problems.total()), (1_000, 5_000));
    assert!(problems.to_string().ends_with("and 4000 more"));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_line() {
    let problems = load(b"domain: d\n# \xFF\n".as_slice()).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "limits.yaml:2:3: error loading config file: byte 0xFF is not valid UTF-8: save the file as UTF-8, or as UTF-16 with a byte order mark"
    );
}

#[test]
fn one_domain_in_two_files_needs_merging() {
    let files = [
        file(
            "one.yaml",
            "domain: twins\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}\n",
        ),
        file(
            "two.yaml",
            "domain: twins\ndescriptors:\n  - {key: b, rate_limit: {unit: hour, requests_per_unit: 6}}\n",
        ),
    ];
    let problems = RuleSet::load(&files, &LoadOptions::default()).unwrap_err();
    let said = problems.to_string();
    assert!(
        said.starts_with("two.yaml:1:9: duplicate domain 'twins' in config file")
            && said.contains("one.yaml"),
        "{said}"
    );
    assert_eq!(problems.total(), 1);

    let merging = LoadOptions { merge_domains: true, ..LoadOptions::default() };
    let rules = RuleSet::load(&files, &merging).unwrap().rules;
    assert_eq!(
        (number(&rules, "twins", &[("a", "x")]), number(&rules, "twins", &[("b", "x")])),
        (Some(5), Some(6))
    );
    assert_eq!(rules.n_domains(), 1);

    let third = file("three.yaml", "domain: twins\ndescriptors: [{key: b, descriptors: [{key: c}]}]\n");
    let said = RuleSet::load(&[files.to_vec(), vec![third]].concat(), &merging).unwrap_err().to_string();
    assert!(
        said.starts_with("two.yaml:3:")
            && said.contains("duplicate descriptor composite key 'twins.b'")
            && said.contains("line 2 of three.yaml"),
        "{said}"
    );
}
