//! One lease, step by step.

use super::*;
use crate::limit::{Algorithm, Unit, Window};

const OPTIONS: Options = Options { min_rate: 200, ttl: Duration::from_millis(200) };

fn limit() -> Limit {
    Limit { requests_per_unit: 1_000, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow }
}

fn at(millis: u64) -> Tick {
    Tick::new(millis * 1_000)
}

fn hits(n: u64) -> Hits {
    Hits::new(n)
}

/// Granted at the moment zero, in a window that ends after a second.
fn grant(granted: u64, counted: u64) -> Grant {
    Grant {
        window: 7,
        window_ends: at(1_000),
        window_ends_at: UnixMicros::new(1_000_000),
        spent_until: OPTIONS.spent_until(at(0)),
        granted: hits(granted),
        counted: hits(counted),
    }
}

fn lease(granted: u64, counted: u64) -> Lease {
    let mut lease = Lease::asked(limit());
    assert_eq!(lease.granted(at(0), grant(granted, counted)), None);
    lease
}

/// What the store says in the same window to a charge at the moment zero.
fn said(admitted: bool, used_before: u64, used_after: u64) -> Charged {
    Charged {
        admitted,
        used_before: hits(used_before),
        used_after: hits(used_after),
        remaining: hits(1_000).minus(hits(used_after)),
        reset_after: Duration::from_secs(1),
        delay: Duration::ZERO,
    }
}

#[test]
fn what_is_held_is_spent_and_no_more() {
    let mut lease = lease(3, 503);
    let first = lease.spend(at(1), hits(2)).unwrap();
    assert_eq!((first.used_before, first.used_after, first.remaining), (hits(500), hits(502), hits(498)));
    assert_eq!(first.reset_after, Duration::from_millis(999));
    assert_eq!(lease.spend(at(1), hits(2)), None, "one is left");
    assert_eq!(lease.spend(at(1), hits(1)).unwrap().remaining, hits(497));
    assert_eq!(lease.spend(at(1), hits(1)), None);
}

#[test]
fn nothing_is_spent_after_its_time() {
    let mut lease = lease(3, 503);
    assert!(lease.spend(at(149), hits(1)).is_some());
    assert_eq!(lease.spend(at(150), hits(1)), None);
    let leftover = Leftover { window: 7, held: hits(2), owed: hits(0), is_past: false };
    assert_eq!((lease.end(at(149)), lease.end(at(150))), (None, Some(leftover)));
    assert_eq!(lease.end(at(150)), None, "once");
    assert!(!lease.is_over(at(150)) || lease.held() == Hits::ZERO);
}

#[test]
fn a_new_window_takes_nothing_over() {
    let mut lease = lease(3, 503);
    let later = Grant {
        window: 8,
        window_ends: at(61_000),
        window_ends_at: UnixMicros::from_secs(61),
        spent_until: at(1_150),
        ..grant(5, 5)
    };
    let leftover = lease.granted(at(1_000), later);
    assert_eq!(leftover, Some(Leftover { window: 7, held: hits(3), owed: hits(0), is_past: true }));
    assert_eq!((lease.held(), lease.spend(at(1_001), hits(1)).unwrap().remaining), (hits(5), hits(999)));
}

#[test]
fn more_is_asked_for_once_when_little_is_left() {
    let mut lease = lease(8, 8);
    assert!(lease.spend(at(1), hits(3)).is_some());
    assert!(!lease.ask(at(1)), "five of eight are left");
    assert!(lease.spend(at(1), hits(1)).is_some());
    assert_eq!((lease.ask(at(1)), lease.ask(at(1))), (true, false));
    lease.not_granted(at(2));
    assert_eq!((lease.ask(at(51)), lease.ask(at(52))), (false, true));
    assert_eq!(lease.granted(at(53), grant(0, 1_000)), None);
    assert!(lease.spend(at(54), hits(4)).is_some());
    assert_eq!((lease.ask(at(102)), lease.ask(at(103))), (false, true), "nothing was left to be had");
}

#[test]
fn what_the_store_says_is_seen_with_what_is_held() {
    let mut lease = lease(100, 600);
    let looked = lease.heard(UnixMicros::default(), Cost::Peek, said(true, 600, 600), true);
    assert_eq!((looked.used_after, looked.remaining), (hits(500), hits(500)));
    let charged = lease.heard(UnixMicros::default(), Cost::Charge(hits(10)), said(true, 600, 610), true);
    assert_eq!(
        (charged.used_before, charged.used_after, charged.remaining),
        (hits(500), hits(510), hits(490))
    );
    assert_eq!(lease.spend(at(1), hits(1)).unwrap().remaining, hits(489));
    let other = Charged { reset_after: Duration::from_secs(61), ..said(true, 0, 1) };
    assert_eq!(
        lease.heard(UnixMicros::default(), Cost::Charge(hits(1)), other, true),
        other,
        "another window"
    );
}

#[test]
fn remaining_never_grows_within_a_window() {
    let mut lease = lease(10, 510);
    assert_eq!(lease.spend(at(1), hits(1)).unwrap().remaining, hits(499));
    // Somebody gave back 200.
    assert_eq!(lease.granted(at(2), grant(10, 320)), None);
    assert_eq!(lease.spend(at(3), hits(1)).unwrap().remaining, hits(499));
    lease.stop(at(4));
    let refunded = lease.heard(UnixMicros::default(), Cost::Refund(hits(100)), said(true, 320, 220), true);
    assert_eq!(refunded.remaining, hits(780 + 18), "but for a refund");
}

#[test]
fn what_was_refused_and_counted_goes_back_with_the_rest() {
    let mut lease = lease(10, 1_000);
    let refused = lease.heard(UnixMicros::default(), Cost::Charge(hits(20)), said(false, 1_000, 1_020), true);
    assert!(!refused.admitted);
    let _ = lease.heard(UnixMicros::default(), Cost::Charge(hits(20)), said(false, 1_000, 1_020), false);
    assert_eq!(
        lease.end(at(150)),
        Some(Leftover { window: 7, held: hits(10), owed: hits(20), is_past: false })
    );
}

#[test]
fn a_stopped_lease_is_given_back() {
    let mut lease = lease(10, 500);
    lease.stop(at(1));
    assert_eq!(lease.spend(at(1), hits(1)), None);
    assert_eq!(lease.end(at(1)).map(|leftover| leftover.held), Some(hits(10)));
}

#[test]
fn as_much_is_wanted_as_is_spent_in_fifty_milliseconds() {
    let wanted = |rate| OPTIONS.wanted(rate).get();
    assert_eq!([wanted(10.0), wanted(200.0), wanted(5_000.0)], [10, 10, 250]);
    assert_eq!(wanted(f64::INFINITY), Hits::MAX.get());
    assert_eq!(Options { min_rate: 1, ..OPTIONS }.wanted(1.0).get(), 1);
    assert_eq!([OPTIONS.is_hot(199.9), OPTIONS.is_hot(200.0)], [false, true]);
}

#[test]
fn a_rate_is_taken_since_the_last_grant() {
    assert_eq!(Lease::asked(limit()).rate(at(1)), None);
    let mut lease = lease(100, 100);
    assert!(lease.spend(at(1), hits(50)).is_some());
    assert_eq!(lease.rate(at(1)), Some(5_000.0), "as if it had been ten milliseconds");
    assert_eq!(lease.rate(at(50)), Some(1_000.0));
    assert_eq!(lease.granted(at(50), grant(10, 110)), None);
    assert_eq!(lease.rate(at(60)), Some(0.0));
}

#[test]
fn remaining_does_not_grow_when_a_grant_comes_back() {
    let mut lease = Lease::asked(limit());
    // Of the 110, ten were debited for this node, which does not know it yet.
    let charged = lease.heard(UnixMicros::default(), Cost::Charge(hits(1)), said(true, 110, 111), true);
    assert_eq!(charged.remaining, hits(889));
    assert_eq!(lease.granted(at(1), grant(10, 110)), None);
    assert_eq!(lease.spend(at(1), hits(1)).unwrap().remaining, hits(889));
}

#[test]
fn an_answer_from_before_a_grant_may_come_after_it() {
    let mut lease = lease(10, 602);
    let late = lease.heard(UnixMicros::default(), Cost::Charge(hits(1)), said(true, 591, 592), true);
    assert_eq!((late.used_before, late.used_after, late.remaining), (hits(591), hits(592), hits(408)));
    assert_eq!(lease.spend(at(1), hits(1)).unwrap().remaining, hits(407));
}

#[test]
fn a_grant_counts_what_is_on_its_way_back() {
    let mut lease = lease(3, 503);
    let later = Grant { spent_until: at(300), ..grant(5, 508) };
    let leftover = Leftover { window: 7, held: hits(3), owed: hits(0), is_past: false };
    assert_eq!(lease.granted(at(160), later), Some(leftover));
    assert_eq!(lease.spend(at(160), hits(1)).unwrap().used_before, hits(500));
}

#[test]
fn a_bucket_says_what_is_left_of_it_and_when_it_is_full_again() {
    let limit = Limit { algorithm: Algorithm::TokenBucket { burst: 100 }, ..limit() };
    let mut lease = Lease::asked(limit);
    assert_eq!(lease.granted(at(0), grant(3, 23)), None);
    let charged = lease.spend(at(1), hits(1)).unwrap();
    assert_eq!((charged.used_before, charged.used_after, charged.remaining), (hits(20), hits(21), hits(79)));
    // 1,000 a minute.
    assert_eq!(charged.reset_after, Duration::from_millis(21 * 60));
    // Said before the grant was made, and later when nothing is held any more.
    assert_eq!(
        lease.heard(UnixMicros::default(), Cost::charge(hits(1)), said(true, 18, 19), false).used_after,
        hits(21)
    );
    assert!(lease.spend(at(1), hits(2)).is_some());
    assert_eq!(lease.heard(UnixMicros::default(), Cost::Peek, said(true, 5, 5), false).used_after, hits(5));
    assert_eq!(lease.most_lent(), hits(95 / 16));
}

#[test]
fn what_a_refund_took_off_the_rest_is_not_given_back_again() {
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket { burst: 1_000 }]
    {
        let mut lease = Lease::asked(Limit { algorithm, ..limit() });
        assert_eq!(lease.granted(at(0), grant(6, 7)), None);
        lease.stop(at(1));
        // One hit was used, and four are given back.
        let seen = lease.heard(UnixMicros::default(), Cost::refund(hits(4)), said(true, 7, 3), false);
        assert_eq!(seen.used_after, hits(0));
        assert_eq!(lease.end(at(1)).map(|leftover| leftover.held), Some(hits(3)), "{algorithm:?}");
    }
}
