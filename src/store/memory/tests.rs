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

/// Every algorithm: what a refused request took is as if it had never been asked for, and every other answer is a look's.
#[test]
fn all_or_nothing_leaves_no_trace_of_a_refusal() {
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: 10 },
        Algorithm::LeakyBucket { burst: 10, max_delay: Duration::from_secs(36_000) },
    ];
    for algorithm in algorithms {
        let store = MemoryStore::new(1_000);
        let narrow = match algorithm {
            Algorithm::TokenBucket { .. } => Algorithm::TokenBucket { burst: 2 },
            Algorithm::LeakyBucket { max_delay, .. } => Algorithm::LeakyBucket { burst: 2, max_delay },
            other => other,
        };
        let narrow = limit(2, Unit::Hour, narrow);
        let limits = [limit(10, Unit::Hour, algorithm), narrow];
        let names = [&b"wide"[..], b"narrow"];
        let keys: Vec<_> = names
            .iter()
            .zip(&limits)
            .map(|(name, limit)| CounterKey::new(b"", name, std::iter::empty(), limit))
            .collect();
        let ask = |cost: u64, enforced: [bool; 2]| {
            let charges: Vec<_> = keys
                .iter()
                .zip(&limits)
                .map(|(key, limit)| Charge {
                    key,
                    limit,
                    cost: Cost::charge(Hits::new(cost)),
                    max_wait: Duration::MAX,
                })
                .collect();
            store.charge_all_or_nothing(&charges, &enforced, at(0))
        };
        let used = |n: usize| {
            let charge =
                Charge { key: &keys[n], limit: &limits[n], cost: Cost::Peek, max_wait: Duration::MAX };
            store.charge(&charge, at(0)).used_after.get()
        };
        assert!(ask(1, [true; 2]).iter().all(|charged| charged.admitted), "{algorithm:?}");
        let before = [used(0), used(1)];
        let refused = ask(9, [true; 2]);
        assert_eq!([refused[0].admitted, refused[1].admitted], [true, false], "{algorithm:?}");
        assert_eq!(refused[0].used_after.get(), before[0], "{algorithm:?}: as a look");
        assert_eq!([used(0), used(1)], before, "{algorithm:?}");
        let unenforced = ask(9, [true, false]);
        assert!(unenforced[0].admitted && !unenforced[1].admitted);
        assert_eq!(used(0), before[0] + 9, "{algorithm:?}: what is not enforced spares nobody");
    }
}

/// Threads that want the same counters in different orders neither wait for each other for ever nor leave a trace.
#[test]
fn all_or_nothing_is_one_step_whatever_the_order() {
    let store = MemoryStore::new(100_000);
    let (room, none) = (per_hour(1_000_000), per_hour(0));
    let key = |n: usize| CounterKey::new(b"", n.to_string().as_bytes(), std::iter::empty(), &room);
    let keys: Vec<_> = (0..40).map(key).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, keys, room, none) = (&store, &keys, &room, &none);
            scope.spawn(move || {
                for round in 0..200_usize {
                    let order = (0..keys.len()).map(|n| (n * [1, 3, 7, 39][thread] + round) % keys.len());
                    let charges: Vec<_> = order
                        .enumerate()
                        .map(|(place, n)| Charge {
                            key: &keys[n],
                            limit: if place == 20 { none } else { room },
                            cost: Cost::charge(Hits::new(1)),
                            max_wait: Duration::MAX,
                        })
                        .collect();
                    let charged = store.charge_all_or_nothing(&charges, &vec![true; charges.len()], at(0));
                    assert!(charged.iter().all(|charged| charged.used_after.get() <= 1));
                }
            });
        }
    });
    for key in &keys {
        let charge = Charge { key, limit: &room, cost: Cost::Peek, max_wait: Duration::MAX };
        assert_eq!(store.charge(&charge, at(0)).used_after, Hits::ZERO);
    }
}
