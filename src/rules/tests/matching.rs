//! Lookups: by example, and against the definition written down plainly.

use proptest::prelude::*;

use super::*;

#[test]
fn exact_then_pattern_then_any_value() {
    let set = rules(
        "domain: orchard
descriptors:
  - {key: tree, rate_limit: {unit: hour, requests_per_unit: 30}}
  - {key: tree, value: \"*ple*\", rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: tree, value: \"apple*\", rate_limit: {unit: hour, requests_per_unit: 21}}
  - {key: tree, value: apple-old, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: tree, value: apple-free}
  - {key: wing, value: \"*\", rate_limit: {unit: hour, requests_per_unit: 8}}
",
    );
    let tree = |value: &str| number(&set, "orchard", &[("tree", value)]);
    assert_eq!(tree("apple-old"), Some(10));
    assert_eq!(tree("apple-new"), Some(20));
    assert_eq!(tree("pear"), Some(30));
    assert_eq!(tree(""), Some(30));
    assert_eq!(tree("apple-free"), None);
    assert!(matches!(set.lookup(b"orchard", &entries(&[("tree", "apple-free")])), Lookup::NoRule));
    assert_eq!(number(&set, "orchard", &[("wing", "")]), Some(8));
    assert_eq!(number(&set, "Orchard", &[("tree", "pear")]), None);
    assert!(matches!(set.lookup(b"Orchard", &entries(&[("tree", "pear")])), Lookup::UnknownDomain));
    assert!(matches!(set.lookup(b"orchard", &[]), Lookup::NoRule));
}

#[test]
fn depth_must_agree_and_there_is_no_second_try() {
    let set = rules(
        "domain: forks
descriptors:
  - key: road
    value: a1
    descriptors: [{key: car, value: red, rate_limit: {unit: hour, requests_per_unit: 3}}]
  - key: road
    value: a*
    descriptors: [{key: bike, rate_limit: {unit: hour, requests_per_unit: 2}}]
  - key: road
    rate_limit: {unit: hour, requests_per_unit: 9}
    descriptors: [{key: car, rate_limit: {unit: hour, requests_per_unit: 8}}]
",
    );
    let number = |pairs: &[(&str, &str)]| number(&set, "forks", pairs);
    assert_eq!(number(&[("road", "a1"), ("car", "red")]), Some(3));
    assert_eq!(number(&[("road", "a1"), ("car", "blue")]), None);
    assert_eq!(number(&[("road", "a1"), ("bike", "x")]), None);
    assert_eq!(number(&[("road", "a2"), ("bike", "x")]), Some(2));
    assert_eq!(number(&[("road", "a2"), ("car", "x")]), None);
    assert_eq!(number(&[("road", "b"), ("car", "x")]), Some(8));
    assert_eq!(number(&[("road", "b")]), Some(9));
    assert_eq!(number(&[("road", "a2")]), None);
    assert_eq!(number(&[("car", "x"), ("road", "b")]), None);
    assert_eq!(number(&[("road", "b"), ("car", "x"), ("extra", "1")]), None);
}

#[test]
fn a_key_is_never_split_otherwise_and_a_star_in_it_is_a_star() {
    let set = rules(
        "domain: d
descriptors:
  - {key: a, value: b_c, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: foo, value: \"*\", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: \"w*\", rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: g/*, value: g/*, rate_limit: {unit: hour, requests_per_unit: 4}}
",
    );
    assert_eq!(number(&set, "d", &[("a_b", "c")]), None);
    assert_eq!(number(&set, "d", &[("foo_bar", "x")]), None);
    assert_eq!(number(&set, "d", &[("a_b_c", "")]), None);
    assert_eq!(number(&set, "d", &[("wide", "x")]), None);
    assert_eq!(number(&set, "d", &[("w*", "x")]), Some(3));
    assert_eq!(number(&set, "d", &[("g/*", "g/*")]), Some(4));
    assert_eq!(number(&set, "d", &[("g/1", "g/1")]), None);
}

#[test]
fn sharing_is_noted_for_each_entry_also_above_the_limit() {
    let set = rules(
        "domain: depot
descriptors:
  - key: yard
    value: y*
    share_threshold: true
    descriptors:
      - {key: truck, rate_limit: &x {unit: hour, requests_per_unit: 3}}
      - {key: truck, value: red*, share_threshold: true, rate_limit: *x}
      - {key: truck, value: red-one, rate_limit: *x}
      - {key: yard, value: z*, rate_limit: *x}
  - {key: plain, value: p*, rate_limit: *x}
",
    );
    let shared = |pairs: &[(&str, &str)]| {
        let found = matched(&set, "depot", pairs).unwrap();
        found
            .shared
            .iter()
            .map(|pattern| pattern.map(|p| String::from_utf8(p.to_vec()).unwrap()))
            .collect::<Vec<_>>()
    };
    let some = |pattern: &str| Some(pattern.to_owned());
    assert_eq!(shared(&[("yard", "y1"), ("truck", "green")]), [some("y*"), None]);
    assert_eq!(shared(&[("yard", "y1"), ("truck", "red1")]), [some("y*"), some("red*")]);
    assert_eq!(shared(&[("yard", "y1"), ("truck", "red-one")]), [some("y*"), None]);
    assert_eq!(shared(&[("yard", "y1"), ("yard", "z1")]), [some("y*"), None]);
    // Its own text matches a pattern exactly, and is its own counter key then.
    assert_eq!(
        shared(&[("yard", "y*"), ("truck", "red*")]),
        [None, None].map(|none: Option<String>| none)[..0].to_vec()
    );
    assert_eq!(shared(&[("plain", "p1")]), Vec::<Option<String>>::new());
}

#[test]
fn values_need_not_be_utf8() {
    let set = rules(
        "domain: d\ndescriptors: [{key: k, value: !!binary \"/w==\", rate_limit: {unit: hour, requests_per_unit: 7}}, {key: k, value: \"*\", rate_limit: {unit: hour, requests_per_unit: 8}}]\n",
    );
    let limit = |value: &[u8]| match set.lookup(b"d", &entries(&[(b"k".as_slice(), value)])) {
        Lookup::Found(Match { rule: Rule { grant: Grant::Limited(limit), .. }, .. }) => {
            limit.requests_per_unit
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((limit(b"\xFF"), limit(b"\xFE")), (7, 8));
}

/// A descriptor of a random rules file.
#[derive(Clone, Debug)]
struct Spec {
    key: String,
    value: String,
    limited: bool,
    shares: bool,
    children: Vec<Spec>,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let leaf = ("[ab]", "[xy*]{0,3}", any::<bool>(), any::<bool>())
        .prop_map(|(key, value, limited, shares)| Spec { key, value, limited, shares, children: Vec::new() });
    let tree = leaf.prop_recursive(3, 40, 6, |inner| {
        ("[ab]", "[xy*]{0,3}", any::<bool>(), any::<bool>(), prop::collection::vec(inner, 0..6)).prop_map(
            |(key, value, limited, shares, children)| Spec { key, value, limited, shares, children },
        )
    });
    prop::collection::vec(tree, 0..8).prop_map(without_repeats)
}

fn without_repeats(specs: Vec<Spec>) -> Vec<Spec> {
    let mut seen = std::collections::HashSet::new();
    let mut kept: Vec<Spec> =
        specs.into_iter().filter(|spec| seen.insert((spec.key.clone(), spec.value.clone()))).collect();
    for spec in &mut kept {
        spec.shares &= spec.value.contains('*');
        spec.children = without_repeats(std::mem::take(&mut spec.children));
    }
    kept
}

/// As JSON; the limit's number tells the descriptors apart.
fn json(specs: &[Spec], next: &mut u32) -> serde_json::Value {
    let one = |spec: &Spec| {
        *next += 1;
        let limit = spec.limited.then(|| serde_json::json!({"unit": "hour", "requests_per_unit": *next}));
        serde_json::json!({
            "key": spec.key, "value": spec.value, "share_threshold": spec.shares, "rate_limit": limit,
            "descriptors": json(&spec.children, next),
        })
    };
    specs.iter().map(one).collect()
}

fn star_matches(pattern: &[u8], value: &[u8]) -> bool {
    match (pattern, value) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=value.len()).any(|n| star_matches(rest, &value[n..])),
        ([p, pattern @ ..], [v, value @ ..]) => p == v && star_matches(pattern, value),
        _ => false,
    }
}

/// The definition: which number applies, and the shared patterns.
fn oracle(
    specs: &[Spec],
    numbers: &serde_json::Value,
    pairs: &[(String, String)],
) -> Option<(u32, Vec<Option<String>>)> {
    let (mut level, mut numbers, mut shared) = (specs, numbers, Vec::new());
    for (depth, (key, value)) in pairs.iter().enumerate() {
        let of_key = || level.iter().enumerate().filter(|(_, spec)| spec.key == *key);
        let exact = of_key().find(|(_, spec)| !spec.value.is_empty() && spec.value == *value);
        let wild = || {
            of_key().find(|(_, spec)| {
                spec.value.contains('*') && star_matches(spec.value.as_bytes(), value.as_bytes())
            })
        };
        let any = || of_key().find(|(_, spec)| spec.value.is_empty());
        let pattern = if exact.is_none() {
            wild().filter(|(_, spec)| spec.shares).map(|(_, spec)| spec.value.clone())
        } else {
            None
        };
        let (index, spec) = exact.or_else(wild).or_else(any)?;
        shared.push(pattern);
        let here = &numbers[index];
        if depth + 1 == pairs.len() {
            let number = u32::try_from(here["rate_limit"]["requests_per_unit"].as_u64()?).unwrap();
            let none = shared.iter().all(Option::is_none);
            return Some((number, if none { Vec::new() } else { shared }));
        }
        level = &spec.children;
        numbers = &here["descriptors"];
    }
    None
}

proptest! {
    #[test]
    fn lookups_agree_with_the_definition(
        specs in specs(),
        requests in prop::collection::vec(prop::collection::vec(("[abc]", "[xy*]{0,4}"), 0..4), 1..30),
    ) {
        let descriptors = json(&specs, &mut 0);
        let set = rules(serde_json::json!({"domain": "d", "descriptors": descriptors.clone()}).to_string());
        for pairs in requests {
            let found = match set.lookup(b"d", &entries(&pairs)) {
                Lookup::Found(Match { rule: Rule { grant: Grant::Limited(limit), .. }, shared }) => {
                    let text = |pattern: &[u8]| String::from_utf8(pattern.to_vec()).unwrap();
                    Some((limit.requests_per_unit, shared.iter().map(|pattern| pattern.map(text)).collect::<Vec<_>>()))
                }
                _ => None,
            };
            prop_assert_eq!(found, oracle(&specs, &descriptors, &pairs), "{:?}", pairs);
        }
    }
}
