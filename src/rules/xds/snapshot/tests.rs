use proptest::prelude::*;
use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::json;

use super::*;
use crate::{
    pb::ratelimit::config::ratelimit::v3::{RateLimitDescriptor, RateLimitPolicy, RateLimitReplace},
    rules::Grant,
};

fn resource(config: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

fn config(name: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig { name: name.to_owned(), domain: name.to_owned(), descriptors }
}

fn rule(key: &str, policy: RateLimitPolicy) -> RateLimitDescriptor {
    RateLimitDescriptor { key: key.to_owned(), rate_limit: Some(policy), ..RateLimitDescriptor::default() }
}

fn policy(unit: i32) -> RateLimitPolicy {
    RateLimitPolicy { unit, requests_per_unit: 5, ..RateLimitPolicy::default() }
}

fn load(configs: &[RateLimitConfig]) -> Result<Reloaded, LoadFailure> {
    let resources: Vec<_> = configs.iter().map(resource).collect();
    Loader::new(LoadOptions::default()).load(&resources)
}

/// The lines of the refusal.
fn refused(configs: &[RateLimitConfig]) -> Vec<String> {
    load(configs).expect_err("this should be refused").lines().collect()
}

#[test]
fn every_field_becomes_what_a_file_would_say() {
    let value = |kind| Value { kind: Some(kind) };
    let list = value(Kind::ListValue(ListValue {
        values: vec![value(Kind::BoolValue(true)), Value { kind: None }],
    }));
    let fields = [
        ("n".to_owned(), value(Kind::NumberValue(1.5))),
        ("nan".to_owned(), value(Kind::NumberValue(f64::NAN))),
        ("l".to_owned(), list),
        ("o".to_owned(), value(Kind::StructValue(Struct::default()))),
    ];
    let descriptor = RateLimitDescriptor {
        value: "v*".to_owned(),
        shadow_mode: true,
        quota_mode: true,
        detailed_metric: true,
        metadata: Some(Struct { fields: fields.into() }),
        ..rule(
            "k",
            RateLimitPolicy {
                name: "mine".to_owned(),
                replaces: vec![RateLimitReplace { name: "theirs".to_owned() }],
                ..policy(7)
            },
        )
    };
    let loaded = load(&[config("d", vec![descriptor])]).unwrap();
    let rule = loaded.rules.rules().next().unwrap();
    assert_eq!(&*rule.full_key, "d.k_v*");
    assert!(matches!(rule.grant, Grant::Limited(limit) if limit.requests_per_unit == 5));
    assert_eq!((rule.name.as_deref(), &*rule.replaces[0]), (Some("mine"), "theirs"));
    assert!(rule.shadow_mode && rule.quota_mode && rule.detailed_metric && !rule.value_to_metric);
    let metadata = json!({"n": 1.5, "nan": "NaN", "l": [true, null], "o": {}});
    assert_eq!(json!(rule.metadata), metadata);
    assert_eq!((loaded.n_files, loaded.warnings.len()), (1, 0));
}

#[test]
fn problems_name_the_resource_and_the_way_and_stand_in_the_order_sent() {
    let nested = RateLimitDescriptor {
        key: "top".to_owned(),
        descriptors: vec![
            rule("", policy(1)),
            rule("x", RateLimitPolicy { unlimited: true, ..policy(1) }),
            rule("y", policy(42)),
            rule("z", RateLimitPolicy { replaces: vec![RateLimitReplace::default()], ..policy(0) }),
            rule("y", policy(1)),
        ],
        ..RateLimitDescriptor::default()
    };
    let lines = refused(&[config("shop", vec![nested]), config("", vec![])]);
    let expected = [
        "the name of the domain is empty",
        "shop: descriptor has empty key",
        "shop: should not specify rate limit unit when unlimited: found 'SECOND'",
        "shop: invalid rate limit unit '42'",
        "shop: invalid rate limit unit 'UNKNOWN'",
        "shop: should not have an empty replaces entry",
        "shop: duplicate descriptor composite key 'shop.top.y'",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    assert!(
        lines[0].starts_with("a resource without a name: config file cannot have empty domain"),
        "{}",
        lines[0]
    );
    for (line, expected) in lines.iter().zip(expected).skip(1) {
        assert!(line.starts_with(expected), "{line}\nshould begin with {expected}");
    }
    assert!(
        lines[3].ends_with("(at descriptors[0].descriptors[2].rate_limit.unit, rule shop.top.y)"),
        "{}",
        lines[3]
    );
    assert!(lines[6].contains("another descriptor of shop"), "{}", lines[6]);
}

#[test]
fn two_like_problems_at_two_places_are_two() {
    assert_eq!(refused(&[config("d", vec![rule("a", policy(0)), rule("b", policy(0))])]).len(), 2);
}

#[test]
fn the_order_of_resources_means_nothing() {
    let (a, b) = (config("a", vec![rule("k", policy(1))]), config("b", vec![rule("k", policy(2))]));
    let [one, other] = [[&a, &b], [&b, &a]].map(|configs| configs.map(resource));
    assert_eq!(fingerprint(&one), fingerprint(&other));
    assert_ne!(fingerprint(&one), fingerprint(&one[..1]));
    let listing = |resources: &[Any]| {
        let loaded = Loader::new(LoadOptions::default()).load(resources).unwrap();
        loaded.rules.rules().map(|rule| rule.full_key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listing(&one), listing(&other));
}

#[test]
fn a_set_goes_on_with_the_counters_of_the_one_before() {
    let mut loader = Loader::new(LoadOptions::default());
    let mut counters = |unit| {
        let loaded = loader.load(&[resource(&config("d", vec![rule("k", policy(unit))]))]);
        loaded.ok().map(|loaded| Arc::clone(&loaded.rules.rules().next().unwrap().counters))
    };
    let (first, refused, second) = (counters(1).unwrap(), counters(0), counters(2).unwrap());
    assert!(refused.is_none() && Arc::ptr_eq(&first, &second));
}

#[test]
fn resources_that_cannot_be_read_are_named_and_then_counted() {
    let garbage = Any { type_url: TYPE_URL.to_owned(), value: vec![0xff] };
    let text = Any { type_url: TYPE_URL.to_owned(), value: b"\x12\x02\xc3\x28".to_vec() };
    let wrap = |value: Vec<u8>| Any { type_url: WRAPPER.to_owned(), value };
    let inner = wrap(Resource::default().encode_to_vec());
    let twice = wrap(Resource { resource: Some(inner.clone()), ..Resource::default() }.encode_to_vec());
    let load = |resources: &[Any]| Loader::new(LoadOptions::default()).load(resources).unwrap_err();
    let failure = load(&[garbage.clone(), text, inner, twice, wrap(vec![0xff])]);
    assert_eq!(failure.unreadable.len(), 5, "{failure}");
    let failure = load(&vec![garbage; 1_000]);
    assert_eq!(failure.unreadable.len(), MAX_NAMED + 1);
    assert!(failure.to_string().ends_with("and: 900 more resources that cannot be read"), "{failure}");
}

/// A resource whose descriptors nest so deep, put together by hand.
fn nested(depth: usize) -> Any {
    let field = |tag: u8, inner: Vec<u8>| {
        let mut bytes = vec![tag];
        prost::encode_length_delimiter(inner.len(), &mut bytes).unwrap();
        [bytes, inner].concat()
    };
    let leaf = rule("k", policy(1)).encode_to_vec();
    let descriptor =
        (1..depth).fold(leaf, |below, _| [field(0x0a, b"k".to_vec()), field(0x22, below)].concat());
    let value = [field(0x12, b"d".to_vec()), field(0x1a, descriptor)].concat();
    Any { type_url: TYPE_URL.to_owned(), value }
}

#[test]
fn nesting_has_an_end() {
    let load = |depth| Loader::new(LoadOptions::default()).load(&[nested(depth)]);
    assert_eq!(load(90).unwrap().rules.rules().next().unwrap().full_key.matches('k').count(), 90);
    let failure = load(50_000).unwrap_err();
    assert!(failure.to_string().contains("recursion limit"), "{failure}");
}

proptest! {
    /// Whatever is sent is taken or refused with a reason.
    #[test]
    fn no_bytes_are_too_strange(
        noise in prop::collection::vec(any::<u8>(), 0..64),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let descriptors = vec![rule("k", policy(1)), rule("", policy(0)), rule("*", policy(99))];
        let mut bent = config("d", descriptors).encode_to_vec();
        for (at, byte) in flips {
            let at = at.index(bent.len());
            bent[at] = byte;
        }
        for value in [noise, bent] {
            for type_url in [TYPE_URL, WRAPPER] {
                let resource = Any { type_url: type_url.to_owned(), value: value.clone() };
                if let Err(failure) = Loader::new(LoadOptions::default()).load(&[resource]) {
                    prop_assert!(failure.lines().next().is_some());
                }
            }
        }
    }
}

#[test]
fn descriptors_are_nested_99_deep_at_most() {
    let nested = |n_levels: usize| {
        let inner = (1..n_levels).fold(rule("a", policy(1)), |inner, _| RateLimitDescriptor {
            key: "a".to_owned(),
            descriptors: vec![inner],
            ..RateLimitDescriptor::default()
        });
        config("deep", vec![inner])
    };
    assert!(load(&[nested(99)]).is_ok());
    assert!(refused(&[nested(100)])[0].contains("cannot be read as a RateLimitConfig"));
}
