use std::{sync::atomic::AtomicBool, time::Duration};

use super::*;
use crate::{
    key::CounterKey,
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
};

const START: u64 = 1_700_006_400_000_000;

fn limit(requests_per_unit: u32, unit: Unit, algorithm: Algorithm) -> Limit {
    Limit { requests_per_unit, window: Window::of(unit), algorithm }
}

fn per_hour(requests_per_unit: u32) -> Limit {
    limit(requests_per_unit, Unit::Hour, Algorithm::FixedWindow)
}

fn at(micros: u64) -> UnixMicros {
    UnixMicros::new(START + micros)
}

/// Charges the counter of this name and number.
fn charge(store: &MemoryStore, name: &str, n: usize, limit: &Limit, now: UnixMicros, cost: Cost) -> Charged {
    let n = n.to_string();
    let key = CounterKey::new(b"", name.as_bytes(), [(&b"n"[..], n.as_bytes())].into_iter(), limit);
    store.charge(&Charge { key: &key, limit, cost, max_wait: Duration::MAX }, now)
}

fn hit(store: &MemoryStore, name: &str, n: usize, limit: &Limit) -> bool {
    charge(store, name, n, limit, at(0), Cost::charge(Hits::new(1))).admitted
}

#[test]
fn eight_threads_share_exactly_the_limit_while_others_come_and_go() {
    let (store, limit) = (MemoryStore::new(1_000), per_hour(4_000));
    let (admitted, over) = (AtomicU64::new(0), AtomicBool::new(false));
    // Half used: nothing of the flood is fuller, so it is never the one to go.
    assert!(charge(&store, "hot", 0, &limit, at(0), Cost::charge(Hits::new(2_000))).admitted);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                hit(&store, "flood", n, &limit);
                n += 1;
            }
        });
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        admitted.fetch_add(u64::from(hit(&store, "hot", 0, &limit)), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    });
    assert_eq!(admitted.into_inner(), 2_000);
}

#[test]
fn a_full_store_never_holds_more_than_its_bound() {
    for max_keys in [1, 100, 4_096] {
        let store = MemoryStore::new(max_keys);
        for n in 0..5_000 {
            assert!(hit(&store, "new", n, &per_hour(10)), "a new key is let in");
            assert!(store.len() <= max_keys);
        }
        assert_eq!(store.len() as u64 + store.evictions(), 5_000);
        assert_eq!(store.len(), max_keys);
    }
}

/// Case: a thousand keys of room, five thousand clients, all of them far over their limits.
#[test]
fn what_is_admitted_over_the_limits_is_bounded_by_what_evicted_counters_had_used() {
    let (store, limit) = (MemoryStore::new(1_000), per_hour(5));
    let admitted: u64 =
        (0..10).flat_map(|_| 0..5_000).map(|n| u64::from(hit(&store, "client", n, &limit))).sum();
    let over = admitted - 5_000 * 5;
    assert!(store.evictions() > 0 && over > 0, "the room is too small for all");
    assert!(over <= store.evicted_hits(), "{over} over the limits, {} bound", store.evicted_hits());
}

#[test]
fn a_flood_of_new_keys_washes_out_no_counter_that_matters() {
    let (store, limit) = (MemoryStore::new(2_000), per_hour(100));
    // Two hundred clients that have used half of their limits to all of it.
    for n in 0..200 {
        charge(&store, "client", n, &limit, at(0), Cost::charge(Hits::new(50 + n as u64 / 4)));
    }
    for n in 0..20_000 {
        assert!(hit(&store, "flood", n, &limit));
    }
    assert!(store.evictions() >= 18_000);
    // Each evicted flood key had used one hit: nothing else was lost.
    assert_eq!(store.evicted_hits(), store.evictions());
    for n in 0..200 {
        let used = charge(&store, "client", n, &limit, at(0), Cost::Peek).used_before.get();
        assert_eq!(used, 50 + n as u64 / 4);
    }
}

#[test]
fn what_has_ended_makes_room_before_what_has_not() {
    let store = MemoryStore::new(1_000);
    let second = limit(10, Unit::Second, Algorithm::FixedWindow);
    for n in 0..500 {
        hit(&store, "short", n, &second);
        charge(&store, "long", n, &per_hour(10), at(0), Cost::charge(Hits::new(1)));
    }
    for n in 0..150 {
        charge(&store, "new", n, &per_hour(10), at(5_000_000), Cost::charge(Hits::new(1)));
    }
    // At least a third has ended all the while: a sample of 16 misses them once in a thousand times.
    assert!(store.evictions() <= 3);
}

#[test]
fn ended_counters_leave_as_new_ones_come() {
    let store = MemoryStore::new(1_000_000);
    let second = limit(10, Unit::Second, Algorithm::FixedWindow);
    for n in 0..30_000 {
        // A thousand new keys a second, each of which counts for one and is kept for another.
        charge(&store, "visitor", n, &second, at(n as u64 * 1_000), Cost::charge(Hits::new(1)));
        assert!(store.len() <= 5_000, "{} after {n}", store.len());
    }
    assert_eq!(store.evictions(), 0);
}

#[test]
fn looks_and_refusals_and_refunds_of_unknown_keys_take_no_room() {
    let store = MemoryStore::new(10);
    let bucket = limit(10, Unit::Hour, Algorithm::TokenBucket { burst: 10 });
    for n in 0..100 {
        for cost in [Cost::Peek, Cost::refund(Hits::new(3)), Cost::charge(Hits::new(11))] {
            charge(&store, "nobody", n, &bucket, at(0), cost);
        }
    }
    assert!(store.is_empty());
}

#[test]
fn counters_left_in_the_future_by_a_clock_that_went_back_do_not_stay() {
    let store = MemoryStore::new(1_000);
    let minute = limit(10, Unit::Minute, Algorithm::TokenBucket { burst: 10 });
    for n in 0..900 {
        charge(&store, "future", n, &minute, at(86_400_000_000), Cost::charge(Hits::new(10)));
    }
    for n in 0..900 {
        charge(&store, "now", n, &minute, at(0), Cost::charge(Hits::new(1)));
    }
    assert_eq!(store.evictions(), 0);
    assert!(store.len() <= 1_000);
}

#[test]
fn a_second_s_step_back_finds_a_counter_that_had_ended() {
    let store = MemoryStore::new(1_000);
    let second = limit(1, Unit::Second, Algorithm::FixedWindow);
    let hit_at = |name: &str, n: usize, micros: u64| {
        charge(&store, name, n, &second, at(micros), Cost::charge(Hits::new(1))).admitted
    };
    assert!(hit_at("one", 0, 900_000));
    for n in 0..500 {
        hit_at("other", n, 1_800_000);
    }
    assert!(!hit_at("one", 0, 900_000));
}
