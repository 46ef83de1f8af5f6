//! Hits that are lent to this node: debited at once, and given back as far as they were not spent.
//!
//! **Invariant:** what was debited in one window is never given back to another: who gives back names it. (A token bucket has
//! none, and is at most full.)

use super::{
    Inner, Nodes, RedisStore, Request,
    clock::ShardClock,
    config::{KeyStyle, TimeSource},
    script::Together,
};
use crate::{
    clock::UnixMicros,
    key::CounterKey,
    limit::{Charged, Limit},
    store::{Budget, Charge, StoreError, WindowNow},
};

impl RedisStore {
    /// The window that this key is counted in now, by the clock of its server.
    pub fn window(&self, key: &CounterKey, limit: &Limit, now: UnixMicros) -> WindowNow {
        let config = &self.inner.shared.config;
        let by_server = config.keys == KeyStyle::Tidegate && config.time == TimeSource::Server;
        self.inner.with_clock(key, |clock| {
            let moment = if by_server { clock.at(now) } else { now };
            let length = limit.window.micros();
            let number = clock.window(moment, length);
            let ends_at = UnixMicros::new(number.saturating_add(1).saturating_mul(length));
            WindowNow { number, ends_after: moment.until(ends_at), uncertainty: clock.uncertainty() }
        })
    }

    /// Debits as much of the cost as may be lent at once: of a fixed window in this one, else in the one by the server's clock.
    /// Outcome: `used_after - used_before` is what was.
    pub async fn lend(
        &self,
        charge: &Charge<'_>,
        window: u64,
        now: UnixMicros,
        budget: Budget,
    ) -> Result<Charged, StoreError> {
        self.in_window(charge, window, Together::Lend, now, budget).await
    }

    /// Charges this cost, a refund, in this window. What it says of a sliding window is of a refund to any.
    pub async fn return_to(
        &self,
        charge: &Charge<'_>,
        window: u64,
        now: UnixMicros,
        budget: Budget,
    ) -> Result<Charged, StoreError> {
        self.in_window(charge, window, Together::No, now, budget).await
    }

    async fn in_window(
        &self,
        charge: &Charge<'_>,
        window: u64,
        together: Together,
        now: UnixMicros,
        budget: Budget,
    ) -> Result<Charged, StoreError> {
        let (charges, windows) = (std::slice::from_ref(charge), [window]);
        let request = Request { windows: &windows, ..self.inner.request(charges, &[], together, now) };
        self.inner.run(request, budget).await.pop().unwrap_or(Err(StoreError::Unavailable))
    }
}

impl Inner {
    fn with_clock<T>(&self, key: &CounterKey, read: impl FnOnce(&ShardClock) -> T) -> T {
        match &self.nodes {
            Nodes::One(link) => read(&link.shard.clock),
            Nodes::Ring(ring, links) => match links.get(ring.place(key.as_bytes())) {
                Some(link) => read(&link.shard.clock),
                None => read(&ShardClock::default()),
            },
            Nodes::Cluster(cluster) => cluster.with_clock(read),
        }
    }
}
