use std::sync::atomic::AtomicBool;

use super::*;
use crate::{
    key::CounterKey,
    limit::{Unit, Window},
};

const SECOND: Duration = Duration::from_secs(1);

fn limit(requests_per_unit: u32, algorithm: Algorithm) -> Limit {
    Limit { requests_per_unit, window: Window::of(Unit::Minute), algorithm }
}

fn fixed(requests_per_unit: u32) -> Limit {
    limit(requests_per_unit, Algorithm::FixedWindow)
}

fn key(n: usize) -> KeyId {
    let value = n.to_string();
    CounterKey::new(b"", b"d", [(&b"user"[..], value.as_bytes())].into_iter(), &fixed(1)).id()
}

fn at(millis: u64) -> UnixMicros {
    UnixMicros::new(1_000_000_000 + millis * 1_000)
}

fn memo() -> Memo {
    Memo::new(Options::default())
}

fn hits(n: u64) -> Hits {
    Hits::new(n)
}

fn refused(found: Found) -> bool {
    matches!(found, Found::Refused { .. })
}

#[test]
fn a_refusal_is_kept_for_the_horizon_and_then_one_asks() {
    let (memo, key, limit) = (memo(), key(1), fixed(5));
    assert_eq!(memo.look(key, &limit, hits(1), at(0)), Found::Nothing);
    memo.remember(key, &limit, hits(1), at(0), Duration::from_secs(30));
    for millis in [0, 1, 999] {
        assert_eq!(memo.look(key, &limit, hits(1), at(millis)), Found::Refused { admits_at: at(30_000) });
    }
    assert_eq!(memo.look(key, &limit, hits(1), at(1_000)), Found::Ended);
    for millis in [1_000, 1_049] {
        assert!(refused(memo.look(key, &limit, hits(1), at(millis))), "others keep the old answer");
    }
    assert_eq!(memo.look(key, &limit, hits(1), at(1_050)), Found::Nothing, "who asked may be lost");
    memo.remember(key, &limit, hits(1), at(1_000), Duration::from_secs(29));
    assert_eq!(memo.look(key, &limit, hits(1), at(1_999)), Found::Refused { admits_at: at(30_000) });
    assert_eq!(memo.look(key, &limit, hits(1), at(2_000)), Found::Ended);
    assert_eq!(memo.refusals(), 6);
}

#[test]
fn nothing_is_refused_once_it_could_be_admitted() {
    let (memo, key, limit) = (memo(), key(1), fixed(5));
    memo.remember(key, &limit, hits(1), at(0), Duration::from_millis(300));
    assert!(refused(memo.look(key, &limit, hits(1), at(299))));
    assert_eq!(memo.look(key, &limit, hits(1), at(300)), Found::Nothing);
    memo.remember(key, &limit, hits(1), at(0), Duration::from_millis(1_010));
    assert_eq!(memo.look(key, &limit, hits(1), at(1_005)), Found::Ended);
    assert!(refused(memo.look(key, &limit, hits(1), at(1_009))));
    assert_eq!(memo.look(key, &limit, hits(1), at(1_010)), Found::Nothing);
}

#[test]
fn another_limit_or_a_smaller_cost_is_not_known() {
    let (memo, key) = (memo(), key(1));
    let bucket = |burst| limit(5, Algorithm::TokenBucket { burst });
    let leaky =
        |burst, millis| limit(5, Algorithm::LeakyBucket { burst, max_delay: Duration::from_millis(millis) });
    let known = [fixed(5), bucket(7), leaky(7, 10)];
    known.iter().for_each(|limit| memo.remember(key, limit, hits(3), at(0), 30 * SECOND));
    let hour = Limit { window: Window::of(Unit::Hour), ..fixed(5) };
    let others = [
        fixed(4),
        fixed(6),
        hour,
        limit(5, Algorithm::SlidingWindow),
        limit(5, Algorithm::SlidingLog),
        bucket(8),
        leaky(8, 10),
        leaky(7, 11),
    ];
    for limit in &known {
        assert!(refused(memo.look(key, limit, hits(3), at(1))), "{limit:?}");
        assert!(refused(memo.look(key, limit, hits(4), at(1))), "{limit:?}");
    }
    assert_eq!(memo.look(key, &fixed(5), hits(2), at(1)), Found::Nothing);
    for limit in &others {
        assert_eq!(memo.look(key, limit, hits(3), at(1)), Found::Nothing, "{limit:?}");
    }
}

/// Found by the property of `local`: a bucket's debt is cut to what the limit of the day can hold.
#[test]
fn a_bucket_charged_under_another_limit_is_asked_anew() {
    let (memo, key) = (memo(), key(1));
    let [one, other] = [2, 1].map(|burst| limit(60, Algorithm::TokenBucket { burst }));
    memo.remember(key, &one, hits(1), at(0), 2 * SECOND);
    assert!(refused(memo.look(key, &one, hits(1), at(1))));
    assert_eq!(memo.look(key, &other, hits(1), at(2)), Found::Nothing);
    assert_eq!(memo.look(key, &one, hits(1), at(3)), Found::Nothing);
    memo.remember(key, &other, hits(1), at(3), 2 * SECOND);
    assert!(refused(memo.look(key, &other, hits(1), at(4))), "what was lifted is no other limit any more");
}

#[test]
fn the_smallest_cost_is_kept_while_it_holds() {
    let (memo, key, limit) = (memo(), key(1), fixed(5));
    memo.remember(key, &limit, hits(5), at(0), 30 * SECOND);
    memo.remember(key, &limit, hits(2), at(10), 30 * SECOND);
    memo.remember(key, &limit, hits(9), at(20), 30 * SECOND);
    assert!(refused(memo.look(key, &limit, hits(2), at(30))));
    memo.remember(key, &limit, hits(9), at(1_020), 30 * SECOND);
    assert_eq!(memo.look(key, &limit, hits(2), at(1_030)), Found::Nothing, "nobody knows any more");
    memo.remember(key, &limit, hits(9), at(900), 60 * SECOND);
    assert_eq!(
        memo.look(key, &limit, hits(9), at(1_030)),
        Found::Refused { admits_at: at(31_020) },
        "an answer that comes late is older than what is known"
    );
}

#[test]
fn a_refund_lifts_it_at_once_also_what_was_asked_before_and_comes_later() {
    let (memo, key, limit) = (memo(), key(1), fixed(5));
    memo.remember(key, &limit, hits(1), at(0), 30 * SECOND);
    memo.remember(key, &fixed(6), hits(1), at(0), 30 * SECOND);
    memo.lift(key, at(5));
    for limit in [limit, fixed(6)] {
        assert_eq!(memo.look(key, &limit, hits(1), at(5)), Found::Nothing);
    }
    memo.remember(key, &limit, hits(1), at(4), 30 * SECOND);
    assert_eq!(memo.look(key, &limit, hits(1), at(6)), Found::Nothing);
    memo.remember(key, &limit, hits(1), at(6), 30 * SECOND);
    assert!(refused(memo.look(key, &limit, hits(1), at(6))));
}

#[test]
fn what_was_lifted_does_not_keep_a_larger_cost_out() {
    let (memo, key, limit) = (memo(), key(1), fixed(5));
    memo.remember(key, &limit, hits(1), at(0), 30 * SECOND);
    memo.lift(key, at(1));
    memo.remember(key, &limit, hits(4), at(2), 30 * SECOND);
    assert!(refused(memo.look(key, &limit, hits(4), at(3))));
}

#[test]
fn a_clock_that_steps_back_asks_the_store_and_is_not_held_up() {
    let (memo, key, limit) = (memo(), key(1), fixed(5));
    let hour_ahead = 3_600_000;
    memo.remember(key, &limit, hits(1), at(hour_ahead), 30 * SECOND);
    memo.lift(key, at(hour_ahead));
    assert_eq!(memo.look(key, &limit, hits(1), at(0)), Found::Nothing);
    memo.remember(key, &limit, hits(1), at(0), 30 * SECOND);
    assert!(refused(memo.look(key, &limit, hits(1), at(0))));
}

#[test]
fn a_short_horizon_has_a_short_grace() {
    let memo = Memo::new(Options { horizon: Duration::from_millis(2), ..Options::default() });
    let (key, limit) = (key(1), fixed(5));
    memo.remember(key, &limit, hits(1), at(0), 30 * SECOND);
    assert!(refused(memo.look(key, &limit, hits(1), at(1))));
    assert_eq!(memo.look(key, &limit, hits(1), at(2)), Found::Ended);
    assert!(refused(memo.look(key, &limit, hits(1), at(3))));
    assert_eq!(memo.look(key, &limit, hits(1), at(4)), Found::Nothing);
}

#[test]
fn memory_is_what_was_given_and_the_oldest_makes_room() {
    for bytes in [0, MIN_BYTES, 100_000, DEFAULT_BYTES] {
        let memo = Memo::new(Options { bytes, ..Options::default() });
        assert!(memo.bytes() <= bytes.max(MIN_BYTES), "{bytes}");
        assert!(memo.bytes() + Memo::BYTES_PER_BUCKET > bytes, "{bytes}");
        assert_eq!(memo.bytes(), memo.entries.len() * 64 + (memo.tags.len() + memo.lifted.len()) * 8);
    }
    assert_eq!(size_of::<Entry>(), 64);
    let (memo, limit) = (Memo::new(Options { bytes: MIN_BYTES, ..Options::default() }), fixed(5));
    let n_entries = memo.entries.len();
    let ids: Vec<_> = (0..20 * n_entries).map(key).collect();
    for (n, id) in ids.iter().enumerate() {
        memo.remember(*id, &limit, hits(1), at(n as u64 / 100), 30 * SECOND);
    }
    let now = at(ids.len() as u64 / 100);
    let known: Vec<usize> =
        (0..ids.len()).filter(|n| refused(memo.look(ids[*n], &limit, hits(1), now))).collect();
    assert!(known.len() > n_entries * 9 / 10, "{} of {n_entries}", known.len());
    assert!(known.len() <= n_entries);
    let mean_age = known.iter().map(|n| ids.len() - n).sum::<usize>() / known.len();
    assert!(mean_age < 2 * n_entries, "the newest are known: {mean_age} of {n_entries}");
    assert_eq!(memo.evictions(), (ids.len() - known.len()) as u64);
}

#[test]
fn what_has_ended_makes_room_before_what_has_not() {
    let (memo, limit) = (Memo::new(Options { bytes: MIN_BYTES, ..Options::default() }), fixed(5));
    let n_entries = memo.entries.len();
    for n in 0..10 * n_entries {
        memo.remember(key(n), &limit, hits(1), at(10), 30 * SECOND);
    }
    let before = memo.evictions();
    for n in 0..n_entries / 2 {
        memo.remember(key(10 * n_entries + n), &limit, hits(1), at(5_000), 30 * SECOND);
    }
    assert!(memo.evictions() - before < n_entries as u64 / 8, "{before} {}", memo.evictions());
}

/// Every remembered refusal of a key carries numbers that only it can have: a reader that mixed two would see it.
#[test]
fn readers_see_whole_refusals_while_others_write() {
    const N_KEYS: usize = 64;
    let memo = Memo::new(Options { bytes: 0, horizon: Duration::from_secs(3_600) });
    let limits: Vec<_> = (0..N_KEYS).map(|n| fixed(n as u32 + 1)).collect();
    let ids: Vec<_> = (0..N_KEYS).map(key).collect();
    // One bucket for all of them: four entries, rewritten all the time.
    let [sip, _] = ids[0].halves();
    let bucket = memo.bucket_of(sip);
    let entries = &memo.entries[bucket * WAYS..(bucket + 1) * WAYS];
    let (done, n_seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..20_000_u64 {
                    let n = round as usize % N_KEYS;
                    let number = round % 1_000 + 1;
                    entries[round as usize % WAYS].write(&Refusal {
                        identity: identity_of(ids[n], &limits[n]),
                        cost: number,
                        asked_at: number,
                        admits_at: number + n as u64,
                    });
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for refusal in entries.iter().filter_map(Entry::read).filter(|refusal| refusal.cost > 0) {
                        let n = (refusal.admits_at - refusal.asked_at) as usize;
                        assert_eq!(refusal.identity, identity_of(ids[n], &limits[n]));
                        assert_eq!(refusal.cost, refusal.asked_at);
                        n_seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(entries.iter().all(|entry| entry.sequence.load(Ordering::Relaxed).is_multiple_of(2)));
}

#[test]
fn of_many_threads_one_asks() {
    for round in 0..50 {
        let (memo, key, limit) = (memo(), key(round), fixed(5));
        memo.remember(key, &limit, hits(1), at(0), 30 * SECOND);
        let n_asks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| match memo.look(key, &limit, hits(1), at(1_001)) {
                    Found::Ended => _ = n_asks.fetch_add(1, Ordering::Relaxed),
                    found => assert!(refused(found)),
                });
            }
        });
        assert_eq!(n_asks.load(Ordering::Relaxed), 1);
    }
}
