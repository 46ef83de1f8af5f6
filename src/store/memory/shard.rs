//! One shard of the memory store: counters in a dense list, and an index into it. Knows nothing of locks or of the bound.
//!
//! **Invariant:** the index has exactly one number for each element of the list, under the hash of its key.
//!
//! The list is what makes it small (no empty places but those it grows into), and what makes it cheap to draw a random
//! counter, or to look at the next one, when room is needed.

use std::time::Duration;

use hashbrown::HashTable;

use crate::{
    clock::UnixMicros,
    key::KeyId,
    limit::{Charged, Hits, Limit, Scale, State},
    store::Charge,
};

/// Counters drawn to find the emptiest. With 16, one of the emptier half is among them but once in 65,536 times.
const SAMPLE: usize = 16;

/// Counters looked at for each new key. Two, so that what has ended leaves faster than new keys come.
const SWEPT_PER_INSERT: usize = 2;

/// How long an ended counter is kept, so that a small step back of the clock finds it again.
const KEPT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Positions in `counters`.
    index: HashTable<u32>,
    counters: Vec<Counter>,
    /// Where the next sweep starts.
    hand: usize,
    /// State of the generator that draws samples.
    draws: u64,
}

/// At most 56 bytes; a test holds it to that.
#[derive(Debug)]
pub(super) struct Counter {
    id: KeyId,
    state: State,
    scale: Scale,
}

/// How room was made for one counter.
pub(super) enum Room {
    NothingHere,
    /// By letting go of one that had ended.
    Ended,
    /// By giving up one that counted so many hits.
    Evicted(Hits),
}

impl Shard {
    /// `None` if the key is not here.
    pub(super) fn charge(&mut self, id: KeyId, charge: &Charge<'_>, now: UnixMicros) -> Option<Charged> {
        let counters = &mut self.counters;
        let &at =
            self.index.find(id.hash(), |&at| counters.get(at as usize).is_some_and(|it| it.id == id))?;
        let counter = counters.get_mut(at as usize)?;
        counter.scale = Scale::of(charge.limit);
        Some(counter.state.charge(charge.limit, now, charge.cost, charge.max_wait))
    }

    /// Adds a key that is not here.
    pub(super) fn insert(&mut self, id: KeyId, limit: &Limit, state: State) {
        // The store's bound keeps it far below.
        let Ok(at) = u32::try_from(self.counters.len()) else { return };
        if self.counters.len() == self.counters.capacity() {
            // By a quarter: doubling would leave half of the memory empty just after.
            self.counters.reserve_exact((self.counters.len() / 4).max(SAMPLE));
        }
        self.counters.push(Counter { id, state, scale: Scale::of(limit) });
        let counters = &self.counters;
        self.index.insert_unique(id.hash(), at, |&at| hash_at(counters, at));
        self.draws ^= id.hash();
    }

    /// Looks at the next few counters and lets go of those that have ended; says how many.
    pub(super) fn sweep(&mut self, now: UnixMicros) -> usize {
        let mut ended = 0;
        for _ in 0..SWEPT_PER_INSERT {
            if self.hand >= self.counters.len() {
                self.hand = 0;
            }
            match self.counters.get(self.hand) {
                // Another takes its place: the hand stays.
                Some(counter) if counter.has_ended(now, KEPT) => {
                    self.remove(self.hand);
                    ended += 1;
                }
                Some(_) => self.hand += 1,
                None => break,
            }
        }
        self.shrink();
        ended
    }

    /// Lets go of one counter: the first of a sample that has ended, else the emptiest.
    ///
    /// Emptiest is the smallest share of its limit used; of equal shares the one with the fewest hits, since what
    /// it has used can be had again.
    pub(super) fn make_room(&mut self, now: UnixMicros) -> Room {
        let mut emptiest: Option<(u64, Hits, usize)> = None;
        for _ in 0..SAMPLE {
            let at = self.draw();
            let Some(counter) = self.counters.get(at) else { return Room::NothingHere };
            if counter.has_ended(now, Duration::ZERO) {
                self.remove(at);
                return Room::Ended;
            }
            let (share, used) = counter.fill(now);
            if emptiest.is_none_or(|(least, fewest, _)| (share, used) < (least, fewest)) {
                emptiest = Some((share, used, at));
            }
        }
        let Some((_, used, at)) = emptiest else { return Room::NothingHere };
        self.remove(at);
        Room::Evicted(used)
    }

    fn remove(&mut self, at: usize) {
        let Some(last) = self.counters.len().checked_sub(1) else { return };
        let counters = &self.counters;
        if let Ok(found) = self.index.find_entry(hash_at(counters, at as u32), |&it| it as usize == at) {
            found.remove();
        }
        if at != last
            && let Some(moved) =
                self.index.find_mut(hash_at(counters, last as u32), |&it| it as usize == last)
        {
            *moved = at as u32;
        }
        self.counters.swap_remove(at);
    }

    /// Gives memory back once three quarters of it are empty.
    fn shrink(&mut self) {
        let len = self.counters.len();
        if self.counters.capacity() > 4 * len.max(SAMPLE) {
            self.counters.shrink_to(2 * len);
            let counters = &self.counters;
            self.index.shrink_to(2 * len, |&at| hash_at(counters, at));
        }
    }

    /// A random position (splitmix64, started from the keys' seeded hashes).
    fn draw(&mut self) -> usize {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.draws ^ (self.draws >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let drawn = u128::from(mixed ^ (mixed >> 31)) * self.counters.len() as u128;
        (drawn >> 64) as usize
    }
}

impl Counter {
    /// Whether it has been as good as new for so long, or stands further ahead than a clock that stepped back explains.
    fn has_ended(&self, now: UnixMicros, kept: Duration) -> bool {
        let end = self.state.expires_at(self.scale);
        end.after(kept) <= now || end > now.after(self.scale.horizon())
    }

    /// The share of its limit that it has used, in 2^32nds, and the hits.
    fn fill(&self, now: UnixMicros) -> (u64, Hits) {
        let used = self.state.used(self.scale, now);
        ((used.get() << 32) / self.scale.capacity().get().max(1), used)
    }
}

fn hash_at(counters: &[Counter], at: u32) -> u64 {
    counters.get(at as usize).map_or(0, |counter| counter.id.hash())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        key::CounterKey,
        limit::{Algorithm, Cost, Unit, Window},
    };

    fn limit() -> Limit {
        Limit { requests_per_unit: 10, window: Window::of(Unit::Second), algorithm: Algorithm::FixedWindow }
    }

    fn key(n: u16) -> CounterKey {
        CounterKey::new(b"", &n.to_le_bytes(), std::iter::empty(), &limit())
    }

    /// Charges a key as the store does: known, or new.
    fn charge(shard: &mut Shard, n: u16, now: UnixMicros) {
        let (key, limit, cost) = (key(n), limit(), Cost::Charge(Hits::new(1)));
        let charge = Charge { key: &key, limit: &limit, cost, max_wait: Duration::MAX };
        if shard.charge(key.id(), &charge, now).is_none() {
            let mut state = State::new(&limit);
            state.charge(&limit, now, cost, Duration::MAX);
            shard.insert(key.id(), &limit, state);
        }
    }

    #[test]
    fn a_counter_is_small() {
        assert!(size_of::<Counter>() <= 56, "{}", size_of::<Counter>());
    }

    #[test]
    fn memory_is_given_back_when_most_counters_have_left() {
        let mut shard = Shard::default();
        (0..10_000).for_each(|n| charge(&mut shard, n, UnixMicros::from_secs(1)));
        let grown = (shard.counters.capacity(), shard.index.capacity());
        while shard.sweep(UnixMicros::from_secs(9)) > 0 {}
        assert_eq!(shard.counters.len(), 0);
        assert!(shard.counters.capacity() < grown.0 / 10 && shard.index.capacity() < grown.1 / 10);
    }

    proptest! {
        #[test]
        fn the_index_knows_every_counter(steps in vec((0_u8..4, 0_u16..200, 0_u64..4), 0..400)) {
            let (mut shard, mut now) = (Shard::default(), 100);
            for (act, n, later) in steps {
                now += later / 3;
                let moment = UnixMicros::from_secs(now);
                match act {
                    0 => assert!(shard.sweep(moment) <= SWEPT_PER_INSERT),
                    1 => {
                        let empty = shard.counters.is_empty();
                        assert_eq!(matches!(shard.make_room(moment), Room::NothingHere), empty);
                    }
                    _ => charge(&mut shard, n, moment),
                }
                prop_assert_eq!(shard.index.len(), shard.counters.len());
            }
            for (at, counter) in shard.counters.iter().enumerate() {
                let found = shard.index.find(counter.id.hash(), |&it| shard.counters[it as usize].id == counter.id);
                prop_assert_eq!(found.map(|&it| it as usize), Some(at));
            }
        }
    }
}
