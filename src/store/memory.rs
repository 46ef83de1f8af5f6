//! Counters in this process: exact, bounded, spread over shards. Each shard is a lock of its own.
//!
//! **Invariant:** a charge is one step: of any number of threads that charge one key, those admitted are what its algorithm
//! admits. The store holds at most its bound of keys, give or take one a shard, and says how many counters it gave up
//! for that, and what they had counted.

mod shard;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use self::shard::{Room, Shard};
use crate::{
    clock::UnixMicros,
    limit::{Charged, State},
    store::Charge,
};

/// How many keys a store holds if nobody says: about 120 MB when full. One key is one client of one limit, so it is far above
/// what one node of a service sees within a window, and far below what a node's memory can hold.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

/// The most shards: many more than threads, so that these seldom wait for each other, or for a table that grows.
const MAX_SHARDS: usize = 64;

/// The fewest keys that a shard has room for. Room is made within a shard: in a small one the emptiest of the sample may
/// be far from the emptiest of the store, and what has ended may all be elsewhere.
const KEYS_PER_SHARD: usize = 1_024;

/// A bounded, sharded map of counters.
///
/// A key is known by its 128 seeded bits; its bytes are not kept.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    max_keys: usize,
    /// Touched when a key comes or goes, never by a charge of a known one.
    len: CachePadded<AtomicUsize>,
    evictions: AtomicU64,
    evicted_hits: AtomicU64,
}

impl MemoryStore {
    /// A store of at most `max_keys` counters; of one, if that is zero.
    pub fn new(max_keys: usize) -> Self {
        let n_shards = (max_keys / KEYS_PER_SHARD).clamp(1, MAX_SHARDS).next_power_of_two();
        Self {
            shards: (0..n_shards).map(|_| CachePadded::default()).collect(),
            max_keys: max_keys.clamp(1, u32::MAX as usize),
            len: CachePadded::default(),
            evictions: AtomicU64::new(0),
            evicted_hits: AtomicU64::new(0),
        }
    }

    /// Charges one counter in one atomic step. Allocates for a new key, and for a new hit of a sliding log, only.
    pub fn charge(&self, charge: &Charge<'_>, now: UnixMicros) -> Charged {
        let id = charge.key.id();
        let mut shard = self.shard_of(id.hash()).lock();
        if let Some(charged) = shard.charge(id, charge, now) {
            return charged;
        }
        let mut state = State::new(charge.limit);
        let charged = state.charge(charge.limit, now, charge.cost, charge.max_wait);
        if !state.is_empty() {
            self.make_room(&mut shard, now);
            shard.insert(id, charge.limit, state);
        }
        charged
    }

    /// How many counters there are, ended ones included that nobody came across yet.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Counters given up while they still counted, since the start.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// What they had used of their limits: at most so many hits were admitted that a larger store would have refused.
    pub fn evicted_hits(&self) -> u64 {
        self.evicted_hits.load(Ordering::Relaxed)
    }

    fn shard_of(&self, hash: u64) -> &Mutex<Shard> {
        // The table in the shard places by the lowest and the highest bits; these are others.
        let n = (hash >> 40) as usize % self.shards.len();
        #[expect(
            clippy::indexing_slicing,
            reason = "the rest of a division by the length; and there is a shard at least"
        )]
        &self.shards[n]
    }

    /// Counts one more key in, and lets go of what has ended; if the store is full, of one that has not.
    fn make_room(&self, shard: &mut Shard, now: UnixMicros) {
        let ended = shard.sweep(now);
        self.len.fetch_sub(ended, Ordering::Relaxed);
        if self.len.fetch_add(1, Ordering::Relaxed) < self.max_keys {
            return;
        }
        match shard.make_room(now) {
            Room::NothingHere => return,
            Room::Ended => {}
            Room::Evicted(hits) => {
                self.evictions.fetch_add(1, Ordering::Relaxed);
                self.evicted_hits.fetch_add(hits.get(), Ordering::Relaxed);
            }
        }
        self.len.fetch_sub(1, Ordering::Relaxed);
    }
}
