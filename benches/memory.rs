//! How much memory a key takes: what the resident memory of a process grows by, at a million keys and around it.
//! Linux only, for it reads `/proc`. Each figure comes from a process of its own: `cargo bench --bench memory`.

use std::{process::Command, time::Duration};

use tidegate::{
    clock::UnixMicros,
    key::CounterKey,
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    store::{Charge, memory::MemoryStore},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket { burst: 10 },
    Algorithm::LeakyBucket { burst: 2, max_delay: Duration::from_millis(10) },
];

/// Which algorithm, the room of the store, and how many keys come.
const CASES: [(usize, usize, usize); 8] = [
    (0, 4_000_000, 600_000),
    (0, 4_000_000, 1_000_000),
    (0, 4_000_000, 1_300_000),
    (1, 4_000_000, 1_000_000),
    (2, 4_000_000, 1_000_000),
    (3, 4_000_000, 1_000_000),
    (4, 4_000_000, 1_000_000),
    // Full, and three times as many come and go.
    (0, 1_000_000, 4_000_000),
];

fn main() {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    match number.and_then(|n: usize| CASES.get(n)) {
        Some(&(algorithm, room, n_keys)) => measure(algorithm, room, n_keys),
        None => {
            for n in 0..CASES.len() {
                let this = std::env::current_exe().unwrap_or_default();
                if !Command::new(this).arg(n.to_string()).status().is_ok_and(|status| status.success()) {
                    std::process::exit(1);
                }
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figure is what this is for")]
fn measure(algorithm: usize, room: usize, n_keys: usize) {
    let Some(&algorithm) = ALGORITHMS.get(algorithm) else { return };
    let before = resident();
    let store = MemoryStore::new(room);
    (0..n_keys).for_each(|n| add(&store, algorithm, n));
    let bytes = resident().saturating_sub(before) / store.len();
    println!("{bytes} bytes a key: {}, {} of {n_keys} keys", algorithm.name(), store.len());
}

fn add(store: &MemoryStore, algorithm: Algorithm, n: usize) {
    let limit = Limit { requests_per_unit: 10, window: Window::of(Unit::Hour), algorithm };
    let address = format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
    let entry = (&b"remote_address"[..], address.as_bytes());
    let key = CounterKey::new(b"", b"edge-gateway", [entry].into_iter(), &limit);
    let charge =
        Charge { key: &key, limit: &limit, cost: Cost::Charge(Hits::new(1)), max_wait: Duration::MAX };
    store.charge(&charge, UnixMicros::from_secs(1_700_000_000));
}

/// Resident memory, in bytes; zero where there is no `/proc`.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()));
    pages.unwrap_or(0) * 4_096
}
