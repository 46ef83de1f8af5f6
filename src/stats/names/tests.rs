//! Names without end, and what is kept of them.

use super::*;

const ONE: Counted = Counted {
    total: 1,
    over_limit: 0,
    near_limit: 0,
    within_limit: 1,
    shadow_mode: 0,
    over_limit_with_local_cache: 0,
};

fn name(domain: &str, value: &str) -> StatKey {
    let mut name = StatKey::domain(domain.as_bytes());
    name.level(b"key", Some(value.as_bytes()));
    name
}

fn hits(names: &Names) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    names.each_hits(|name, hits| all.push((name.to_string(), hits.total)));
    all.sort();
    all
}

fn at(seconds: u64) -> UnixMicros {
    UnixMicros::from_secs(seconds)
}

#[test]
fn a_million_names_take_the_room_of_those_that_are_kept() {
    let names = Names::at_most(100);
    for n in 0..1_000_000 {
        names.decided(name("d", &n.to_string()), ONE, at(1_000));
    }
    let all = hits(&names);
    assert_eq!((all.len(), names.len()), (101, 100));
    assert_eq!(all.iter().map(|(_, n)| n).sum::<u64>(), 1_000_000);
    assert!(all.contains(&("d._other".to_owned(), 999_900)));
    assert_eq!(names.folded(), 999_900);
}

#[test]
fn unknown_domains_are_bounded_too() {
    let names = Names::default();
    for n in 0..5_000 {
        names.unknown_domain(format!("domain{n}").as_bytes(), 2, at(1_000));
    }
    let mut all = Vec::new();
    names.each_unknown_domain(|name, n| all.push((name.to_string(), *n)));
    assert_eq!(all.len(), MAX_DOMAINS + 1);
    assert!(all.contains(&(OTHER.to_owned(), 9_800)));
}

#[test]
fn a_name_that_nobody_uses_makes_room() {
    let names = Names::at_most(1);
    names.decided(name("d", "old"), ONE, at(1_000));
    names.decided(name("d", "new"), ONE, at(1_000 + IDLE - 1));
    assert_eq!(hits(&names), [("d._other".to_owned(), 1), ("d.key_old".to_owned(), 1)]);
    // Both may lie in different parts of the table: a name makes room in its own.
    for n in 0..100 {
        names.decided(name("d", &format!("{n}")), ONE, at(1_000 + 2 * IDLE));
    }
    let kept = hits(&names);
    assert_eq!(kept.len(), 2);
    assert!(!kept.contains(&("d.key_old".to_owned(), 1)), "{kept:?}");
}

#[test]
fn a_name_of_any_length_is_counted() {
    let names = Names::default();
    names.decided(name("d", &"x".repeat(1 << 20)), ONE, at(1));
    assert_eq!(hits(&names), [("d._other".to_owned(), 1)]);
}

#[test]
fn parts_that_read_alike_are_two_names() {
    let names = Names::default();
    let mut other = StatKey::domain(b"d.key");
    other.level(b"x", None);
    let mut same_text = StatKey::domain(b"d");
    same_text.level(b"key.x", None);
    names.decided(other, ONE, at(1));
    names.decided(same_text, ONE, at(1));
    assert_eq!(names.len(), 2);
}
