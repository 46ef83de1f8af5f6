//! The refusal memo: a key that is over its limit is refused again without asking, until it could be admitted, and at most for
//! the horizon. Shared by all workers.
//!
//! A refusal is remembered for its key under its limit, the number included, together with the smallest cost that was
//! refused. It is known by 128 seeded bits, since a collision would be somebody else's 429. A fixed table of buckets: in a full
//! one the oldest makes room. Reading takes no lock: one look at the bucket's tags tells nearly every key that nothing is
//! known of it; an entry is read under its own sequence number.
//!
//! Moments are those at which a request began, so an answer counts as older than it is, never as younger.
//!
//! **Invariant:** nothing is refused from the moment on at which the store could admit it, as far as this node can know; what
//! it cannot (a refund, a higher limit elsewhere) goes unseen for the horizon, and while one request asks, at most
//! [`GRACE`] more.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering, fence},
    time::Duration,
};

use crate::{
    clock::UnixMicros,
    key::KeyId,
    limit::{Algorithm, Hits, Limit},
    per_worker::PerWorker,
};

/// While one request asks anew, the others are refused as before for so long: many round trips to a store that is well, and
/// short enough for a request that is lost.
pub const GRACE: Duration = Duration::from_millis(50);

/// The memory of a memo if nobody says: 61,000 refused keys at a time, above what one node is asked for and refuses within a
/// second.
pub const DEFAULT_BYTES: usize = 4 << 20;

/// The least memory: fewer buckets than these forget each other's keys.
pub const MIN_BYTES: usize = 16 << 10;

/// The most, so that a slip of the pen is no start without memory.
pub const MAX_BYTES: usize = 16 << 30;

/// The horizon if nobody says: what an operator waits for who raised a limit, and one question a second for a key that is refused
/// thousands of times.
pub const DEFAULT_HORIZON: Duration = Duration::from_secs(1);

/// Entries of a bucket: as many as a word holds tags.
const WAYS: usize = 4;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The memory for it, at least [`MIN_BYTES`].
    pub bytes: usize,
    /// How long a refusal may be kept.
    pub horizon: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes: DEFAULT_BYTES, horizon: DEFAULT_HORIZON }
    }
}

/// What is known of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Refused {
        admits_at: UnixMicros,
    },
    /// It was refused, and that is too long ago: the caller asks, on behalf of those that are still refused.
    Ended,
}

/// See the module.
#[derive(Debug)]
pub struct Memo {
    horizon: Duration,
    /// Of each bucket: a tag for each entry, 16 bits of its key, none of them zero but for an entry that was never used.
    tags: Box<[AtomicU64]>,
    /// Of each bucket: what was asked up to this moment is not to be believed, because a key of it was given hits back.
    lifted: Box<[AtomicU64]>,
    entries: Box<[Entry]>,
    refusals: PerWorker<AtomicU64>,
    evictions: AtomicU64,
}

/// A refusal. One cache line; all fields but the last belong to `sequence`, which is odd while they are written.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry {
    sequence: AtomicU64,
    identity: [AtomicU64; 2],
    cost: AtomicU64,
    asked_at: AtomicU64,
    admits_at: AtomicU64,
    /// The `asked_at` of the refusal that somebody asks anew about.
    claimed: AtomicU64,
}

/// What an entry says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refusal {
    identity: [u64; 2],
    /// The smallest cost that was refused, in hits.
    cost: u64,
    /// When the request began that was refused, in microseconds.
    asked_at: u64,
    /// From when on this cost can be admitted.
    admits_at: u64,
}

impl Memo {
    pub fn new(options: Options) -> Self {
        let n_buckets = options.bytes.clamp(MIN_BYTES, MAX_BYTES) / Self::BYTES_PER_BUCKET;
        let zeros = || iter::repeat_with(AtomicU64::default).take(n_buckets).collect();
        Self {
            horizon: options.horizon,
            tags: zeros(),
            lifted: zeros(),
            entries: iter::repeat_with(Entry::default).take(n_buckets * WAYS).collect(),
            refusals: PerWorker::default(),
            evictions: AtomicU64::new(0),
        }
    }

    /// For how long a refusal is kept at most.
    pub fn horizon(&self) -> Duration {
        self.horizon
    }

    const BYTES_PER_BUCKET: usize = 2 * size_of::<AtomicU64>() + WAYS * size_of::<Entry>();

    /// What is known of a charge of `hits`. Takes no lock.
    pub fn look(&self, key: KeyId, limit: &Limit, hits: Hits, now: UnixMicros) -> Found {
        let [sip, fold] = key.halves();
        let bucket = self.bucket_of(sip);
        let tags = load(self.tags.get(bucket));
        let matching = lanes_with(tags, tag_of(fold));
        if matching == 0 {
            return Found::Nothing;
        }
        self.look_closer(bucket, matching, key, limit, hits, now)
    }

    #[inline(never)]
    fn look_closer(
        &self,
        bucket: usize,
        mut matching: u64,
        key: KeyId,
        limit: &Limit,
        hits: Hits,
        now: UnixMicros,
    ) -> Found {
        let identity = identity_of(key, limit);
        let mut has_other_limit = false;
        let lifted = load(self.lifted.get(bucket));
        while matching != 0 {
            let way = matching.trailing_zeros() as usize / LANE;
            matching &= matching - 1;
            let Some(entry) = self.entries.get(bucket * WAYS + way) else { continue };
            let Some(refusal) = entry.read() else { continue };
            if refusal.asked_at <= lifted {
                continue;
            }
            if refusal.identity != identity {
                has_other_limit = true;
            } else {
                match self.judge(entry, &refusal, hits.get(), now.get()) {
                    Found::Nothing => {}
                    found => return found,
                }
            }
        }
        if has_other_limit && forgives(limit) {
            self.lift(key, now);
        }
        Found::Nothing
    }

    fn judge(&self, entry: &Entry, refusal: &Refusal, hits: u64, now: u64) -> Found {
        let is_known = hits >= refusal.cost && (refusal.asked_at..refusal.admits_at).contains(&now);
        let age = Duration::from_micros(now.saturating_sub(refusal.asked_at));
        if !is_known || age >= self.horizon + self.grace() {
            return Found::Nothing;
        }
        if age >= self.horizon && entry.claim(refusal.asked_at) {
            return Found::Ended;
        }
        self.refusals.mine().fetch_add(1, Ordering::Relaxed);
        Found::Refused { admits_at: UnixMicros::new(refusal.admits_at) }
    }

    /// Remembers that a charge of `hits`, by a request that began at `asked_at`, was refused, and fits `reset_after` later.
    ///
    /// Never waits: where two write at the same time, one of them leaves it.
    pub fn remember(
        &self,
        key: KeyId,
        limit: &Limit,
        hits: Hits,
        asked_at: UnixMicros,
        reset_after: Duration,
    ) {
        let [sip, fold] = key.halves();
        let bucket = self.bucket_of(sip);
        let refusal = Refusal {
            identity: identity_of(key, limit),
            cost: hits.get(),
            asked_at: asked_at.get(),
            admits_at: asked_at.after(reset_after).get(),
        };
        if self.is_lifted(bucket, &refusal) {
            return;
        }
        let Some(entries) = self.entries.get(bucket * WAYS..(bucket + 1) * WAYS) else { return };
        let lifted = load(self.lifted.get(bucket));
        let Some((way, entry)) = self.place_for(&refusal, lifted, entries) else { return };
        if entry.write(&refusal)
            && let Some(tags) = self.tags.get(bucket)
        {
            let (shift, tag) = (way * LANE, tag_of(fold));
            let with_tag = |tags: u64| Some(tags & !(LANE_MASK << shift) | tag << shift);
            let _ = tags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_tag);
        }
    }

    /// Whether its key was given hits back since. What lies far ahead is of a clock that has stepped back, and forgotten.
    fn is_lifted(&self, bucket: usize, refusal: &Refusal) -> bool {
        let Some(lifted) = self.lifted.get(bucket) else { return true };
        let until = lifted.load(Ordering::Relaxed);
        if until > refusal.asked_at.saturating_add(micros(self.horizon + GRACE) + 1_000_000) {
            lifted.store(0, Ordering::Relaxed);
            return false;
        }
        refusal.asked_at <= until
    }

    /// Where to write this: over its predecessor, else over what has ended, else over the oldest. `None`: what is there says
    /// more.
    fn place_for<'e>(&self, new: &Refusal, lifted: u64, entries: &'e [Entry]) -> Option<(usize, &'e Entry)> {
        let kept_for = micros(self.horizon + self.grace());
        let mut oldest = None;
        let mut oldest_at = u64::MAX;
        for (way, entry) in entries.iter().enumerate() {
            let Some(old) = entry.read() else { continue };
            let until = old.admits_at.min(old.asked_at.saturating_add(kept_for));
            let in_force = old.asked_at > lifted && (old.asked_at..until).contains(&new.asked_at);
            if old.identity == new.identity {
                let says_more = in_force && old.cost < new.cost && !self.is_stale(&old, new.asked_at);
                let is_newer = old.asked_at > new.asked_at && old.asked_at - new.asked_at < kept_for;
                return (!says_more && !is_newer).then_some((way, entry));
            }
            let at = if in_force { old.asked_at } else { 0 };
            if at < oldest_at {
                (oldest, oldest_at) = (Some((way, entry)), at);
            }
        }
        if oldest_at > 0 && oldest.is_some() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        oldest
    }

    fn is_stale(&self, refusal: &Refusal, now: u64) -> bool {
        now.saturating_sub(refusal.asked_at) >= micros(self.horizon)
    }

    /// Forgets what is known of this key under any limit, from requests that began up to `until`, also if their answer is still
    /// to come. Keys of the same bucket are forgotten too.
    pub fn lift(&self, key: KeyId, until: UnixMicros) {
        let [sip, _] = key.halves();
        if let Some(lifted) = self.lifted.get(self.bucket_of(sip)) {
            lifted.fetch_max(until.get(), Ordering::Relaxed);
        }
    }

    /// How often a charge was refused from memory.
    pub fn refusals(&self) -> u64 {
        self.refusals.all().fold(0, |sum, n| sum.wrapping_add(n.load(Ordering::Relaxed)))
    }

    /// Refusals still in force that had to make room for others.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Its memory, which never changes.
    pub fn bytes(&self) -> usize {
        self.tags.len() * Self::BYTES_PER_BUCKET
    }

    fn grace(&self) -> Duration {
        GRACE.min(self.horizon)
    }

    fn bucket_of(&self, hash: u64) -> usize {
        // Below the number of buckets, so it fits.
        ((u128::from(hash) * self.tags.len() as u128) >> 64) as usize
    }
}

impl Entry {
    /// What it says; `None` while it is being written.
    fn read(&self) -> Option<Refusal> {
        let before = self.sequence.load(Ordering::Acquire);
        let [sip, fold] = &self.identity;
        let refusal = Refusal {
            identity: [sip.load(Ordering::Relaxed), fold.load(Ordering::Relaxed)],
            cost: self.cost.load(Ordering::Relaxed),
            asked_at: self.asked_at.load(Ordering::Relaxed),
            admits_at: self.admits_at.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        is_whole.then_some(refusal)
    }

    /// Whether it was written; it is not while somebody else writes.
    fn write(&self, refusal: &Refusal) -> bool {
        let before = self.sequence.load(Ordering::Relaxed);
        let is_ours = before.is_multiple_of(2)
            && self
                .sequence
                .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !is_ours {
            return false;
        }
        fence(Ordering::Release);
        for (cell, value) in self.identity.iter().zip(refusal.identity) {
            cell.store(value, Ordering::Relaxed);
        }
        self.cost.store(refusal.cost, Ordering::Relaxed);
        self.asked_at.store(refusal.asked_at, Ordering::Relaxed);
        self.admits_at.store(refusal.admits_at, Ordering::Relaxed);
        self.claimed.store(0, Ordering::Relaxed);
        self.sequence.store(before + 2, Ordering::Release);
        true
    }

    /// Whether the caller is the one that asks anew about the refusal of this moment.
    fn claim(&self, asked_at: u64) -> bool {
        let claimed = self.claimed.load(Ordering::Relaxed);
        claimed != asked_at
            && self.claimed.compare_exchange(claimed, asked_at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// 128 bits of key and limit. The key's are seeded, so what is known of the limit's helps nobody to a collision.
fn identity_of(key: KeyId, limit: &Limit) -> [u64; 2] {
    let [sip, fold] = key.halves();
    let number = u64::from(limit.requests_per_unit) | limit.window.secs() << 32;
    let shape = match limit.algorithm {
        Algorithm::FixedWindow => 0,
        Algorithm::SlidingWindow => 1,
        Algorithm::SlidingLog => 2,
        Algorithm::TokenBucket { burst } => 3 | u64::from(burst) << 3,
        // The longest wait, of minutes, fits the 29 bits above the burst to the microsecond.
        Algorithm::LeakyBucket { burst, max_delay } => 4 | u64::from(burst) << 3 | micros(max_delay) << 35,
    };
    [sip ^ number, fold ^ shape]
}

/// Whether a charge under this limit may bring what its counter owes under another one down.
fn forgives(limit: &Limit) -> bool {
    matches!(limit.algorithm, Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. })
}

/// Bits of a tag.
const LANE: usize = 16;
const LANE_MASK: u64 = 0xFFFF;
const LANE_ONES: u64 = 0x0001_0001_0001_0001;
const LANE_TOPS: u64 = 0x8000_8000_8000_8000;

/// A key's tag: never zero.
fn tag_of(fold: u64) -> u64 {
    fold & LANE_MASK | 1
}

/// A bit in every lane that holds this tag; above such a lane perhaps in one that does not.
fn lanes_with(tags: u64, tag: u64) -> u64 {
    let zero_where_equal = tags ^ (tag * LANE_ONES);
    zero_where_equal.wrapping_sub(LANE_ONES) & !zero_where_equal & LANE_TOPS
}

fn load(cell: Option<&AtomicU64>) -> u64 {
    cell.map_or(0, |cell| cell.load(Ordering::Relaxed))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
