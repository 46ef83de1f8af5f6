//! Two counters have one name only if they are one counter: same domain, same entries, same shape of the limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::{
    key::CounterKey,
    limit::{Algorithm, Limit, Unit, Window},
};

/// Domain, entries, and a number that stands for the limit.
type Counter = (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>, u8);

fn limit(number: u8) -> Limit {
    let unit = Unit::ALL[usize::from(number) % Unit::ALL.len()];
    let algorithm = match number / 8 % 3 {
        0 => Algorithm::FixedWindow,
        1 => Algorithm::SlidingWindow,
        _ => Algorithm::TokenBucket { burst: 1 },
    };
    Limit { requests_per_unit: u32::from(number), window: Window::of(unit), algorithm }
}

fn key((domain, entries, number): &Counter) -> CounterKey {
    let entries = entries.iter().map(|(key, value)| (&key[..], &value[..]));
    CounterKey::new(b"", domain, entries, &limit(*number))
}

fuzz_target!(|counters: (Counter, Counter)| {
    let (a, b) = counters;
    let shape = |number| (limit(number).window, limit(number).algorithm);
    let same = a.0 == b.0 && a.1 == b.1 && shape(a.2) == shape(b.2);
    let (a, b) = (key(&a), key(&b));
    assert_eq!(a.as_bytes() == b.as_bytes(), same, "{a:?} {b:?}");
    assert!(a.as_bytes().iter().all(|byte| !byte.is_ascii_control()), "printable: {a:?}");
    assert!(std::str::from_utf8(a.as_bytes()).is_ok(), "text: {a:?}");
});
