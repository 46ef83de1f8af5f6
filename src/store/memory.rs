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
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::shard::{Room, Shard};
use crate::{
    clock::UnixMicros,
    limit::{Algorithm, Charged, Cost, State},
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

/// Shards that one call holds, in their order.
type Locked<'s> = SmallVec<[(usize, MutexGuard<'s, Shard>); 8]>;

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
        let mut shard = self.shard_at(self.place_of(charge)).lock();
        self.charge_in(&mut shard, charge, now)
    }

    /// Charges every counter, or none where a charge is refused whose element in `enforced` is true: in one atomic step, for
    /// which the shards of all keys are locked. A charge that was spared says what a look would have said.
    pub fn charge_all_or_nothing(
        &self,
        charges: &[Charge<'_>],
        enforced: &[bool],
        now: UnixMicros,
    ) -> SmallVec<[Charged; 4]> {
        let mut locked = self.lock(charges);
        let mut all: SmallVec<[Charged; 4]> =
            charges.iter().map(|charge| self.charge_locked(&mut locked, charge, now)).collect();
        let refused = charges.iter().zip(enforced).zip(&all).any(|((charge, enforced), charged)| {
            *enforced && !charged.admitted && matches!(charge.cost, Cost::Charge(_))
        });
        if refused {
            for (charge, charged) in charges.iter().zip(&mut all) {
                let Some(refund) = refund(charge, charged) else { continue };
                let looked = self.charge_locked(&mut locked, &refund, now);
                if charged.admitted {
                    *charged = Charged { used_before: looked.used_after, ..looked };
                }
            }
        }
        all
    }

    /// Gives back what these charges, which were admitted, have taken.
    pub fn give_back(&self, charges: &[Charge<'_>], now: UnixMicros) {
        for charge in charges {
            if let Cost::Charge(hits) = charge.cost {
                self.charge(&Charge { cost: Cost::refund(hits), ..charge.clone() }, now);
            }
        }
    }

    fn charge_in(&self, shard: &mut Shard, charge: &Charge<'_>, now: UnixMicros) -> Charged {
        let id = charge.key.id();
        if let Some(charged) = shard.charge(id, charge, now) {
            return charged;
        }
        let mut state = State::new(charge.limit);
        let charged = state.charge(charge.limit, now, charge.cost, charge.max_wait);
        if !state.is_empty() {
            self.make_room(shard, now);
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

    /// Which shard a key is in.
    fn place_of(&self, charge: &Charge<'_>) -> usize {
        // The table in the shard places by the lowest and the highest bits; these are others.
        (charge.key.id().hash() >> 40) as usize % self.shards.len()
    }

    fn shard_at(&self, place: usize) -> &Mutex<Shard> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the rest of a division by the length; and there is a shard at least"
        )]
        &self.shards[place]
    }

    /// The shards of all these keys, locked in their order: two that want the same ones never wait for each other.
    fn lock(&self, charges: &[Charge<'_>]) -> Locked<'_> {
        let mut places: SmallVec<[usize; 8]> = charges.iter().map(|charge| self.place_of(charge)).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| (place, self.shard_at(place).lock())).collect()
    }

    fn charge_locked(&self, locked: &mut Locked<'_>, charge: &Charge<'_>, now: UnixMicros) -> Charged {
        let place = self.place_of(charge);
        match locked.iter_mut().find(|(at, _)| *at == place) {
            Some((_, shard)) => self.charge_in(shard, charge, now),
            None => self.charge(charge, now),
        }
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

/// What takes back what a charge left behind; a fixed window counts what it refuses.
fn refund<'a>(charge: &Charge<'a>, charged: &Charged) -> Option<Charge<'a>> {
    let counted = charged.admitted || charge.limit.algorithm == Algorithm::FixedWindow;
    match charge.cost {
        Cost::Charge(hits) if counted => Some(Charge { cost: Cost::refund(hits), ..charge.clone() }),
        Cost::Charge(_) | Cost::Peek | Cost::Refund(_) => None,
    }
}
