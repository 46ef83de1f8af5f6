use bytes::Bytes;

use super::*;

fn entry(key: &'static str, value: &'static [u8]) -> wire::Entry {
    wire::Entry { key: Bytes::from(key), value: Bytes::from_static(value) }
}

fn descriptor() -> RateLimitDescriptor {
    RateLimitDescriptor { entries: vec![entry("a", b"1")], ..RateLimitDescriptor::default() }
}

fn message(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: Bytes::from("d"), descriptors, hits_addend: 0 }
}

fn with_override(requests_per_unit: u32, unit: i32, unit_multiplier: Option<u32>) -> RateLimitRequest {
    let limit = Some(RateLimitOverride { requests_per_unit, unit, unit_multiplier });
    message(vec![descriptor(), RateLimitDescriptor { limit, ..descriptor() }])
}

fn override_window(unit: i32, unit_multiplier: Option<u32>) -> Window {
    let request = read(with_override(9, unit, unit_multiplier)).unwrap();
    assert_eq!(request.descriptors[0].override_limit, None);
    let limit = request.descriptors[1].override_limit.unwrap();
    assert_eq!((limit.requests_per_unit, limit.algorithm), (9, Algorithm::FixedWindow));
    limit.window
}

#[test]
fn a_request_without_domain_or_descriptors_is_refused_in_the_words_of_the_reference() {
    let text = |message| read(message).unwrap_err().to_string();
    assert_eq!(text(RateLimitRequest::default()), "rate limit domain must not be empty");
    assert_eq!(text(message(vec![])), "rate limit descriptor list must not be empty");
}

#[test]
fn the_cost_is_the_descriptors_own_else_the_requests_else_one() {
    let cost = |request_hits, descriptor_hits, is_negative_hits| {
        let descriptor =
            RateLimitDescriptor { hits_addend: descriptor_hits, is_negative_hits, ..descriptor() };
        let message = RateLimitRequest { hits_addend: request_hits, ..message(vec![descriptor]) };
        read(message).unwrap().descriptors[0].cost
    };
    let (charge, refund) = (|n| Cost::Charge(Hits::new(n)), |n| Cost::Refund(Hits::new(n)));
    for (request, own, negative, expected) in [
        (0, None, false, charge(1)),
        (5, None, false, charge(5)),
        (5, Some(3), false, charge(3)),
        (5, Some(0), false, Cost::Peek),
        (0, Some(u64::MAX), false, Cost::Charge(Hits::MAX)),
        (u32::MAX, None, false, charge(u64::from(u32::MAX))),
        (0, None, true, refund(1)),
        (5, None, true, refund(5)),
        (5, Some(3), true, refund(3)),
        (5, Some(0), true, Cost::Peek),
    ] {
        assert_eq!(cost(request, own, negative), expected, "{request} {own:?} {negative}");
    }
}

#[test]
fn entries_stay_in_order_and_in_place() {
    let entries = vec![entry("", b""), entry("user", b"caf\xe9"), entry("user", b"caf\xe9")];
    let buffer = entries.as_ptr().addr();
    let request = read(message(vec![RateLimitDescriptor { entries, ..descriptor() }])).unwrap();
    let [descriptor] = &*request.descriptors else { panic!("one descriptor") };
    assert_eq!(descriptor.entries.as_ptr().addr(), buffer);
    let values: Vec<_> = descriptor.entries.iter().map(|entry| entry.value.as_ref()).collect();
    assert_eq!(values, [&b""[..], b"caf\xe9", b"caf\xe9"]);
}

#[test]
fn an_override_takes_every_unit_and_multiplier() {
    for (number, unit) in UNITS {
        assert_eq!(override_window(number, None), Window::of(unit));
        assert_eq!(override_window(number, Some(1)), Window::of(unit));
    }
    assert_eq!(override_window(2, Some(5)).secs(), 300);
}

#[test]
fn a_window_that_is_too_long_becomes_the_longest_there_is() {
    for (number, unit) in UNITS {
        let window = override_window(number, Some(u32::MAX));
        assert_eq!(window.unit(), unit);
        assert!(window.secs() <= Window::MAX_SECS);
        let longer = window.multiplier().checked_add(1);
        assert!(longer.is_none_or(|longer| Window::new(unit, longer).is_none()), "{window:?}");
    }
}

#[test]
fn an_override_without_a_unit_is_refused_with_its_place_and_the_units_there_are() {
    for unit in [0, 8, -1] {
        let error = read(with_override(9, unit, None)).unwrap_err();
        assert_eq!(error, RequestError::OverrideUnit { descriptor: 1, found: unit });
    }
    assert_eq!(
        read(with_override(9, 0, None)).unwrap_err().to_string(),
        "descriptors[1].limit.unit is 0, expected one of SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), \
         YEAR (6), WEEK (7)"
    );
    let error = read(with_override(9, 1, Some(0))).unwrap_err();
    assert_eq!(error, RequestError::OverrideMultiplier { descriptor: 1 });
}
