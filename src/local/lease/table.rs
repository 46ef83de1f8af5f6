//! The leases of this node, shared by its workers: bounded, each behind a lock that is held for some additions.
//!
//! **Invariant:** at most [`MAX_LEASES`] at a time; a key beyond is counted as if it were cold. A key without a lease costs one
//! look at a filter, no lock.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use foldhash::HashMap;
use parking_lot::Mutex;

use super::{Grant, Lease, Leftover, Options};
use crate::{
    clock::{Tick, UnixMicros},
    key::{CounterKey, KeyId},
    limit::{Charged, Cost, Hits, Limit},
    per_worker::PerWorker,
    store::Charge,
};

/// Keys that are leased at a time: so many make 200,000 calls a second at the rate from which on they are.
pub const MAX_LEASES: usize = 1024;

const SHARDS: usize = 16;
const CELLS: usize = 8192;

/// A key that hits are to be asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub key: CounterKey,
    pub limit: Limit,
}

/// Hits that are to be given back.
#[derive(Clone, Debug)]
pub struct Return {
    pub key: CounterKey,
    pub limit: Limit,
    pub leftover: Leftover,
}

/// See the module.
#[derive(Debug)]
pub struct Leases {
    options: Options,
    shards: [Mutex<HashMap<KeyId, Entry>>; SHARDS],
    len: AtomicUsize,
    /// How many leases there are among the keys of each cell.
    filter: Box<[AtomicU8]>,
    spent: PerWorker<AtomicU64>,
    granted: AtomicU64,
    returned: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    key: CounterKey,
    lease: Lease,
}

/// How many hits went which way so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// Not given back: their window was over, or the store did not take them.
    pub dropped: u64,
}

impl Leases {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            shards: Default::default(),
            len: AtomicUsize::new(0),
            filter: std::iter::repeat_with(AtomicU8::default).take(CELLS).collect(),
            spent: PerWorker::default(),
            granted: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub fn options(&self) -> Options {
        self.options
    }

    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// How many there are, those that hold nothing just now included.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Pays `hits` out of a lease, if there is one that can. The flag: more is to be asked for.
    pub fn spend(&self, key: &CounterKey, limit: &Limit, hits: Hits, now: Tick) -> Option<(Charged, bool)> {
        let (charged, asks) = self.with(key, limit, |lease| {
            let charged = lease.spend(now, hits)?;
            Some((charged, lease.ask(now)))
        })??;
        self.spent.mine().fetch_add(hits.get(), Ordering::Relaxed);
        Some((charged, asks))
    }

    /// Before hits are given back by a caller: see [`Lease::stop`].
    pub fn stop(&self, key: &CounterKey, limit: &Limit, now: Tick) {
        self.with(key, limit, |lease| lease.stop(now));
    }

    /// What the store said to a charge, seen with what is held here; and whether more is to be asked for.
    pub fn heard(
        &self,
        charge: &Charge<'_>,
        charged: Charged,
        is_counted: bool,
        (asked_at, now): (UnixMicros, Tick),
    ) -> Option<(Charged, bool)> {
        self.with(charge.key, charge.limit, |lease| {
            let held = lease.held();
            let seen = lease.heard(asked_at, charge.cost, charged, is_counted);
            // A refund took the rest.
            self.gave_back(held.minus(lease.held()), true);
            let asks = charged.admitted && matches!(charge.cost, Cost::Charge(_)) && lease.ask(now);
            (seen, asks)
        })
    }

    /// Begins a lease, which is to be asked for. False: there is one already, or no room.
    pub fn open(&self, key: &CounterKey, limit: &Limit) -> bool {
        let mut shard = self.shard(key.id()).lock();
        if shard.contains_key(&key.id()) || self.len.load(Ordering::Relaxed) >= MAX_LEASES {
            return false;
        }
        shard.insert(key.id(), Entry { key: key.clone(), lease: Lease::asked(*limit) });
        self.len.fetch_add(1, Ordering::Relaxed);
        self.cell(key.id()).fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes over what was granted. What is not to be spent here is to be given back.
    #[must_use]
    pub fn granted(&self, ask: &Ask, grant: Grant, now: Tick) -> Option<Return> {
        self.granted.fetch_add(grant.granted.get(), Ordering::Relaxed);
        let leftover = match self.with(&ask.key, &ask.limit, |lease| lease.granted(now, grant)) {
            Some(leftover) => leftover,
            None => Some(Leftover {
                window: grant.window,
                held: grant.granted,
                owed: Hits::ZERO,
                is_past: now >= grant.window_ends,
            }),
        };
        leftover.map(|leftover| Return { key: ask.key.clone(), limit: ask.limit, leftover })
    }

    /// Hits a second that were admitted here since the last grant; `None` before the first.
    pub fn rate(&self, ask: &Ask, now: Tick) -> Option<f64> {
        self.with(&ask.key, &ask.limit, |lease| lease.rate(now))?
    }

    /// The most that is worth asking for, by what the store said last.
    pub fn most_lent(&self, ask: &Ask) -> Option<Hits> {
        self.with(&ask.key, &ask.limit, |lease| lease.most_lent())
    }

    pub fn not_granted(&self, ask: &Ask, now: Tick) {
        self.with(&ask.key, &ask.limit, |lease| lease.not_granted(now));
    }

    /// What may not be spent any more; forgets what is over.
    pub fn sweep(&self, now: Tick) -> Vec<Return> {
        self.take(now, Lease::end, Lease::is_over)
    }

    /// All that is held.
    pub fn close(&self, now: Tick) -> Vec<Return> {
        self.take(now, Lease::take_all, |_, _| false)
    }

    /// These were given back, or not.
    pub fn gave_back(&self, hits: Hits, is_back: bool) {
        let total = if is_back { &self.returned } else { &self.dropped };
        total.fetch_add(hits.get(), Ordering::Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals {
            granted: self.granted.load(Ordering::Relaxed),
            spent: self.spent.all().map(|spent| spent.load(Ordering::Relaxed)).sum(),
            returned: self.returned.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Hits that would be lost with this node now.
    pub fn held(&self) -> u64 {
        let of_shard = |shard: &Mutex<HashMap<KeyId, Entry>>| {
            shard.lock().values().map(|entry| entry.lease.held().get()).sum::<u64>()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn take(
        &self,
        now: Tick,
        leftover: impl Fn(&mut Lease, Tick) -> Option<Leftover>,
        is_over: impl Fn(&Lease, Tick) -> bool,
    ) -> Vec<Return> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|id, Entry { key, lease }| {
                if let Some(leftover) = leftover(lease, now) {
                    returns.push(Return { key: key.clone(), limit: *lease.limit(), leftover });
                }
                let is_over = is_over(lease, now);
                if is_over {
                    self.len.fetch_sub(1, Ordering::Relaxed);
                    self.cell(*id).fetch_sub(1, Ordering::Relaxed);
                }
                !is_over
            });
        }
        returns
    }

    fn with<T>(&self, key: &CounterKey, limit: &Limit, act: impl FnOnce(&mut Lease) -> T) -> Option<T> {
        if self.cell(key.id()).load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut shard = self.shard(key.id()).lock();
        let entry = shard.get_mut(&key.id()).filter(|entry| entry.lease.limit() == limit)?;
        Some(act(&mut entry.lease))
    }

    fn shard(&self, key: KeyId) -> &Mutex<HashMap<KeyId, Entry>> {
        let [first, ..] = &self.shards;
        self.shards.get(place(key, SHARDS)).unwrap_or(first)
    }

    fn cell(&self, key: KeyId) -> &AtomicU8 {
        static NONE: AtomicU8 = AtomicU8::new(0);
        self.filter.get(place(key, CELLS)).unwrap_or(&NONE)
    }
}

/// Where a key belongs among `n` places.
fn place(key: KeyId, n: usize) -> usize {
    usize::try_from(key.hash() >> 32).unwrap_or(0) % n
}
