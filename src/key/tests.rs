use std::num::NonZeroU32;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::limit::{Unit, Window};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn limit(unit: Unit, multiplier: u32, algorithm: Algorithm) -> Limit {
    let window = Window::new(unit, NonZeroU32::new(multiplier).unwrap()).unwrap();
    Limit { requests_per_unit: 5, window, algorithm }
}

fn per_minute() -> Limit {
    limit(Unit::Minute, 1, Algorithm::FixedWindow)
}

fn key(domain: &[u8], entries: &[(&[u8], &[u8])], limit: &Limit) -> CounterKey {
    CounterKey::new(b"", domain, entries.iter().copied(), limit)
}

fn text(key: &CounterKey) -> &str {
    std::str::from_utf8(key.as_bytes()).unwrap()
}

#[test]
fn a_key_reads_like_what_it_counts() {
    let long = [b'x'; 129];
    let token_bucket = limit(Unit::Hour, 2, Algorithm::TokenBucket { burst: 3 });
    for (entries, limit, expected) in [
        (&[][..], per_minute(), "shop|60s"),
        (&[(&b"path"[..], &b"/a/b"[..]), (b"to", b"")], per_minute(), "shop|path=/a/b|to=|60s"),
        (&[(b"user", "Zoë".as_bytes())], token_bucket, "shop|user=Zoë|7200s:token_bucket"),
        (&[(b"a|b", b"{c}=100%\n")], per_minute(), "shop|a%7Cb=%7Bc%7D%3D100%25%0A|60s"),
        (&[(b"k", b"\xff\xc3\xa9\xc3")], per_minute(), "shop|k=%FFé%C3|60s"),
        (
            &[(b"k", &long)],
            per_minute(),
            "shop|k=%h0EC9EB33E74510BCDD1F2EA55206E82F21649C5C2BECBF2B433EB475B34C01BD|60s",
        ),
    ] {
        assert_eq!(text(&key(b"shop", entries, &limit)), expected);
    }
}

#[test]
fn the_prefix_stands_in_front_as_it_is() {
    let key = CounterKey::new(b"{t}:", b"d", std::iter::empty(), &per_minute());
    assert_eq!(text(&key), "{t}:d|60s");
}

#[test]
fn the_number_of_a_limit_is_not_in_its_key() {
    let more = Limit { requests_per_unit: 6, ..per_minute() };
    assert_eq!(key(b"d", &[], &per_minute()), key(b"d", &[], &more));
    let bucket = |burst| limit(Unit::Minute, 1, Algorithm::TokenBucket { burst });
    assert_eq!(key(b"d", &[], &bucket(1)), key(b"d", &[], &bucket(2)));
    assert_eq!(
        key(b"d", &[], &per_minute()),
        key(b"d", &[], &limit(Unit::Second, 60, Algorithm::FixedWindow))
    );
}

#[test]
fn a_component_is_written_out_up_to_its_bound() {
    let value = vec![b'v'; MAX_COMPONENT];
    assert_eq!(text(&key(b"d", &[(b"k", &value)], &per_minute())).len(), "d|k=|60s".len() + MAX_COMPONENT);
    let key = key(b"d", &[(b"k", &vec![b'v'; 1 << 20])], &per_minute());
    assert_eq!(key.as_bytes().len(), "d|k=%h|60s".len() + 64);
}

#[test]
fn an_ordinary_key_stays_off_the_heap() {
    assert!(!key(b"shop", &[(b"path", &[b'x'; 100])], &per_minute()).bytes.spilled());
}

/// Components made of what could be mistaken for something else.
fn component() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(&b"|"[..]),
        Just(&b"="[..]),
        Just(&b"%"[..]),
        Just(&b"%7C"[..]),
        Just(&b"%h"[..]),
        Just(&b"60s"[..]),
        Just(&b"{"[..]),
        Just(&b"\xff"[..]),
        Just("é".as_bytes()),
        Just(&b"\0"[..]),
        Just(&b"a"[..]),
        Just(&[b'l'; 129][..]),
    ];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

fn shape() -> impl Strategy<Value = Limit> {
    (
        prop_oneof![Just(Unit::Second), Just(Unit::Minute)],
        prop_oneof![Just(1_u32), Just(60)],
        prop_oneof![
            Just(Algorithm::FixedWindow),
            Just(Algorithm::SlidingWindow),
            Just(Algorithm::TokenBucket { burst: 1 })
        ],
    )
        .prop_map(|(unit, multiplier, algorithm)| limit(unit, multiplier, algorithm))
}

fn named() -> impl Strategy<Value = (Vec<u8>, Entries, Limit)> {
    (component(), vec((component(), component()), 0..4), shape())
}

fn of((domain, entries, limit): &(Vec<u8>, Entries, Limit)) -> CounterKey {
    CounterKey::new(b"p", domain, entries.iter().map(|(k, v)| (&k[..], &v[..])), limit)
}

/// Splits and unescapes a key; a hashed component is given as its text.
fn undo(key: &[u8]) -> (Vec<Vec<u8>>, String) {
    let key = std::str::from_utf8(key).unwrap();
    let (components, shape) = key.rsplit_once('|').unwrap();
    let plain = |text: &str| {
        let mut bytes = text.bytes();
        let mut out = Vec::new();
        if text.starts_with("%h") {
            return text.as_bytes().to_vec();
        }
        while let Some(byte) = bytes.next() {
            if byte == b'%' {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            } else {
                out.push(byte);
            }
        }
        out
    };
    (components.split(['|', '=']).map(plain).collect(), shape.to_owned())
}

proptest! {
    #[test]
    fn different_names_get_different_keys(a in named(), b in named()) {
        let shape = |l: &Limit| (l.window.secs(), l.algorithm.name());
        let same = a.0 == b.0 && a.1 == b.1 && shape(&a.2) == shape(&b.2);
        prop_assert_eq!(of(&a).as_bytes() == of(&b).as_bytes(), same);
        prop_assert_eq!(of(&a).id() == of(&b).id(), same);
    }

    #[test]
    fn a_key_can_be_read_back(a in named()) {
        let (components, shape) = undo(&of(&a).as_bytes()[1..]);
        let sent = std::iter::once(&a.0).chain(a.1.iter().flat_map(|(k, v)| [k, v]));
        let mut read = components.iter();
        for component in sent {
            let read = read.next().unwrap();
            if component.len() > MAX_COMPONENT {
                prop_assert!(read.starts_with(b"%h"));
            } else {
                prop_assert_eq!(read, component);
            }
        }
        prop_assert!(read.next().is_none());
        let seconds = format!("{}s", a.2.window.secs());
        prop_assert!(shape.starts_with(&seconds));
    }
}
