use std::{num::NonZeroU32, sync::Arc};

use serde_json::json;
use smallvec::smallvec;

use super::*;
use crate::limit::{Algorithm, Limit, Window};

fn answer(statuses: Vec<Status>) -> Answer {
    Answer { overall: Code::Ok, statuses: statuses.into(), headers: smallvec![], dynamic_metadata: None }
}

fn limited(unit: Unit, multiplier: u32, name: &str) -> Status {
    let window = Window::new(unit, NonZeroU32::new(multiplier).unwrap()).unwrap();
    let limit = Limit { requests_per_unit: 10, window, algorithm: Algorithm::FixedWindow };
    Status {
        code: Code::OverLimit,
        limit: Some(CurrentLimit {
            limit,
            name: Some(Arc::from(name)).filter(|name: &Arc<str>| !name.is_empty()),
        }),
        remaining: 3,
        reset_after: Some(Duration::from_millis(42_100)),
    }
}

#[test]
fn a_status_says_limit_rest_and_reset() {
    let response = write(answer(vec![limited(Unit::Week, 1, "per-ip"), limited(Unit::Minute, 5, "")]));
    assert_eq!(response.overall_code, 1);
    let [first, second] = &*response.statuses else { panic!("two statuses") };
    assert_eq!((first.code, first.limit_remaining), (2, 3));
    let limit = first.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (10, 7, "per-ip"));
    assert_eq!(limit.unit_multiplier, None);
    let limit = second.current_limit.as_ref().unwrap();
    assert_eq!((limit.unit, limit.unit_multiplier, &*limit.name), (2, Some(5), ""));
}

#[test]
fn a_status_without_a_limit_says_only_its_code() {
    let status = Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None };
    let response = write(Answer { overall: Code::OverLimit, ..answer(vec![status]) });
    assert_eq!(response.overall_code, 2);
    let expected = wire::DescriptorStatus { code: 1, ..wire::DescriptorStatus::default() };
    assert_eq!(response.statuses, [expected]);
}

#[test]
fn every_unit_has_the_wires_number() {
    let numbers = Unit::ALL.map(|of| unit(of) as i32);
    assert_eq!(numbers, [1, 2, 3, 4, 7, 5, 6]);
}

#[test]
fn a_reset_is_in_whole_seconds_and_never_too_early() {
    let rounded = |nanos| seconds(Duration::from_nanos(nanos));
    for (nanos, expected) in [(0, 0), (1, 1), (500_000_000, 1), (1_000_000_000, 1), (42_000_000_001, 43)] {
        assert_eq!(rounded(nanos), prost_types::Duration { seconds: expected, nanos: 0 });
    }
    assert_eq!(seconds(Duration::MAX).seconds, i64::MAX);
}

#[test]
fn headers_are_decimal_numbers_in_their_order() {
    let headers = smallvec![(Arc::from("x-limit"), u64::MAX), (Arc::from("x-left"), 0)];
    let response = write(Answer { headers, ..answer(vec![]) });
    let pairs: Vec<_> =
        response.response_headers_to_add.iter().map(|header| (&*header.key, &*header.value)).collect();
    assert_eq!(pairs, [("x-limit", "18446744073709551615"), ("x-left", "0")]);
    assert!(response.response_headers_to_add.iter().all(|header| header.raw_value.is_empty()));
}

#[test]
fn metadata_keeps_every_kind_of_value() {
    use prost_types::value::Kind;
    let Value::Object(map) = json!({"n": 1.5, "b": true, "s": "x", "z": null, "l": [1, {"in": "side"}]})
    else {
        panic!("an object")
    };
    let response = write(Answer { dynamic_metadata: Some(map), ..answer(vec![]) });
    let fields = response.dynamic_metadata.unwrap().fields;
    let kind = |name: &str| fields[name].kind.clone().unwrap();
    assert_eq!(kind("n"), Kind::NumberValue(1.5));
    assert_eq!(kind("b"), Kind::BoolValue(true));
    assert_eq!(kind("s"), Kind::StringValue("x".into()));
    assert_eq!(kind("z"), Kind::NullValue(0));
    let Kind::ListValue(list) = kind("l") else { panic!("a list") };
    assert_eq!(list.values[0].kind, Some(Kind::NumberValue(1.0)));
    let Some(Kind::StructValue(inner)) = &list.values[1].kind else { panic!("an object") };
    assert_eq!(inner.fields["in"].kind, Some(Kind::StringValue("side".into())));
}
