//! What one charge costs in memory: a hot key, a million keys, new keys in a full store; and making the key.
//! Reported per charge; with two threads, the time in which each of them does one.

use std::{
    hint::black_box,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate::{
    clock::UnixMicros,
    key::CounterKey,
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    store::{Charge, memory::MemoryStore},
};

const KEYS: usize = 1_000_000;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket { burst: 5_000 },
    Algorithm::LeakyBucket { burst: 50, max_delay: Duration::from_millis(10) },
];

fn limit(algorithm: Algorithm) -> Limit {
    Limit { requests_per_unit: 5_000, window: Window::of(Unit::Minute), algorithm }
}

fn key(n: usize, limit: &Limit) -> CounterKey {
    let address = format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
    let entries = [(&b"remote_address"[..], address.as_bytes()), (b"path", b"/api/v1/checkout")];
    CounterKey::new(b"", b"edge-gateway", entries.into_iter(), limit)
}

fn charge(store: &MemoryStore, key: &CounterKey, limit: &Limit, now: u64) {
    let charge = Charge { key, limit, cost: Cost::Charge(Hits::new(1)), max_wait: Duration::MAX };
    black_box(store.charge(&charge, UnixMicros::new(1_700_000_000_000_000 + now)));
}

/// So many charges on each of so many threads; `nth` says which key is next, and gets the thread and a count.
fn on_threads(
    n_threads: usize,
    iterations: u64,
    store: &MemoryStore,
    keys: &[CounterKey],
    nth: fn(usize, u64) -> usize,
) -> Duration {
    // Each run goes on where the last one stopped, or it would find what that one left in the caches and the store.
    static DONE: AtomicU64 = AtomicU64::new(0);
    let done = DONE.fetch_add(iterations, Ordering::Relaxed);
    let limit = limit(Algorithm::FixedWindow);
    let barrier = Barrier::new(n_threads);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads)
            .map(|thread| {
                let (barrier, limit) = (&barrier, &limit);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    for n in done..done + iterations {
                        if let Some(key) = keys.get(nth(thread, n) % keys.len()) {
                            charge(store, key, limit, n - done);
                        }
                    }
                    start.elapsed()
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    })
}

/// An order that no cache foresees.
fn scattered(thread: usize, n: u64) -> usize {
    (n.wrapping_add(thread as u64 * 7_919).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize
}

fn one(_: usize, _: u64) -> usize {
    0
}

fn charges(c: &mut Criterion) {
    for algorithm in ALGORITHMS {
        let (store, limit) = (MemoryStore::new(KEYS), limit(algorithm));
        let (key, mut now) = (key(1, &limit), 0);
        c.bench_function(&format!("hot key, {}", algorithm.name()), |b| {
            b.iter(|| {
                now += 100;
                charge(&store, &key, &limit, now);
            });
        });
    }
    let limit = limit(Algorithm::FixedWindow);
    let keys: Vec<_> = (0..KEYS).map(|n| key(n, &limit)).collect();
    let store = MemoryStore::new(2 * KEYS);
    keys.iter().for_each(|key| charge(&store, key, &limit, 0));
    for n_threads in [1, 2] {
        c.bench_function(&format!("hot key, {n_threads} threads"), |b| {
            b.iter_custom(|n| on_threads(n_threads, n, &store, &keys, one));
        });
        c.bench_function(&format!("a million keys, {n_threads} threads"), |b| {
            b.iter_custom(|n| on_threads(n_threads, n, &store, &keys, scattered));
        });
    }
    let full = MemoryStore::new(100_000);
    keys.iter().for_each(|key| charge(&full, key, &limit, 0));
    c.bench_function("mostly new keys, a full store", |b| {
        b.iter_custom(|n| on_threads(1, n, &full, &keys, scattered));
    });
}

fn names(c: &mut Criterion) {
    let limit = limit(Algorithm::FixedWindow);
    let long = [b'x'; 300];
    let entries = [(&b"remote_address"[..], &b"10.20.30.40"[..]), (b"path", b"/api/v1/checkout")];
    for (name, entries) in [
        ("key of two entries", &entries[..]),
        ("key to be escaped", &[(b"path", "/naïve/{id}?a=b|c".as_bytes())]),
        ("key to be hashed", &[(b"path", &long)]),
    ] {
        c.bench_function(name, |b| {
            b.iter(|| {
                black_box(CounterKey::new(b"", b"edge-gateway", black_box(entries).iter().copied(), &limit))
                    .hash()
            });
        });
    }
}

criterion_group!(benches, names, charges);
criterion_main!(benches);
