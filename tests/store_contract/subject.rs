//! A store as the suite sees it: something that charges, and a clock that can be turned.

use std::{sync::Arc, time::Duration};

use tidegate::{
    clock::{Clock, UnixMicros},
    key::CounterKey,
    limit::{Algorithm, Charged, Cost, Hits, Limit, Unit, Window},
    store::{Budget, Charge, Store, memory::MemoryStore},
};

/// A store to be held to the contract, with the clock that it counts by.
pub trait Subject: Sync {
    /// Has the store's clock show `at` from now on.
    fn turn(&self, at: UnixMicros);

    /// Charges in one call. Gives the moment that the store counted at, and what each charge came to.
    fn charge(&self, charges: &[Charge<'_>]) -> (UnixMicros, Vec<Charged>);
}

/// The memory store on a manual clock.
pub struct InMemory {
    store: Store,
    clock: Clock,
    runtime: tokio::runtime::Runtime,
}

impl InMemory {
    pub fn new(max_keys: usize) -> Self {
        Self {
            store: Store::Memory(Arc::new(MemoryStore::new(max_keys))),
            clock: Clock::manual(UnixMicros::from_secs(1)),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
        }
    }

    /// Full to the brim with counters that are all but empty.
    pub fn crowded(max_keys: usize) -> Self {
        let subject = Self::new(max_keys);
        let limit = Limit {
            requests_per_unit: u32::MAX,
            window: Window::of(Unit::Year),
            algorithm: Algorithm::TokenBucket { burst: u32::MAX },
        };
        // A hundred years on, so that nothing the suite does finds one of them at its end.
        subject.turn(UnixMicros::from_secs(4_000_000_000));
        for n in 0..max_keys * 2 {
            let entry = (&b"n"[..], n.to_string());
            let key = CounterKey::new(b"", b"crowd", [(entry.0, entry.1.as_bytes())].into_iter(), &limit);
            let cost = Cost::Charge(Hits::new(1));
            subject.charge(&[Charge { key: &key, limit: &limit, cost, max_wait: Duration::MAX }]);
        }
        subject
    }
}

impl Subject for InMemory {
    fn turn(&self, at: UnixMicros) {
        self.clock.set(at);
    }

    fn charge(&self, charges: &[Charge<'_>]) -> (UnixMicros, Vec<Charged>) {
        let now = self.clock.now();
        let budget = Budget::of(Duration::from_secs(5));
        let outcomes = self.runtime.block_on(self.store.charge(charges, now, budget));
        (now, outcomes.into_iter().map(Result::unwrap).collect())
    }
}
