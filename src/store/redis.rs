//! Counters in Redis or Valkey: one server, a master under sentinels, a cluster, a ring of independent servers.
//!
//! Each worker has a [`RedisStore`] of its own, with its own connections, one to each server, on which many requests are
//! under way at once. What workers share is in [`Shared`]. All servers that a request needs are asked at the same time.
//!
//! **Invariant:** no call outlives its budget; a server that does not answer touches its own keys only; nothing is sent
//! twice that may have been counted.

mod batch;
pub mod breaker;
mod clock;
mod cluster;
pub mod config;
mod dial;
mod exchange;
mod hello;
mod lending;
mod link;
mod refunds;
mod reply;
mod ring;
mod script;
mod sentinel;
mod shard;
mod shared;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod tls;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::Instant;

pub use config::RedisConfig;
pub use shard::{Eviction, Shard};
pub use shared::{Health, Shared};

use self::{
    batch::{Members, Names, Request, Slots},
    cluster::Cluster,
    config::{KeyStyle, Topology},
    exchange::{Answer, Answers, Manner, exchange},
    link::{Link, Target},
    refunds::Refunds,
    ring::Ring,
    script::Together,
};
use super::{Budget, Charge, Outcomes, StoreError};
use crate::{
    clock::UnixMicros,
    limit::{Charged, Cost},
};

/// One worker's way to the counters.
#[derive(Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
    refunds: Refunds,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    nodes: Nodes,
    random: AtomicU64,
}

/// The links of a worker.
#[derive(Debug)]
enum Nodes {
    /// A single server, or the master of the day.
    One(Link),
    Ring(Ring, Vec<Link>),
    Cluster(Cluster),
}

impl RedisStore {
    /// Starts connecting in the background; to be called on the worker's own runtime, where all its tasks then live.
    pub fn connect(shared: Arc<Shared>) -> Self {
        let probe_key = probe_key(&shared.config.key_prefix);
        let nodes = match &shared.config.topology {
            Topology::Single(server) => {
                let shard = shared.shard(&server.endpoint.to_string());
                Nodes::One(Link::open(&shared, shard, Target::Fixed(server.clone()), probe_key))
            }
            Topology::Sentinel { master, .. } => {
                Nodes::One(Link::open(&shared, shared.shard(master), Target::Master, probe_key))
            }
            Topology::Ring(servers) => {
                let names: Vec<String> = servers.iter().map(shared::ring_name).collect();
                let ring = Ring::new(names.iter().map(String::as_str));
                let links = servers.iter().zip(&names).map(|(server, name)| {
                    Link::open(&shared, shared.shard(name), Target::Fixed(server.clone()), probe_key.clone())
                });
                Nodes::Ring(ring, links.collect())
            }
            Topology::Cluster(seeds) => Nodes::Cluster(Cluster::open(&shared, seeds.clone())),
        };
        let random = AtomicU64::new(shared.random());
        let inner = Arc::new(Inner { shared, nodes, random });
        let refunds = Refunds::start(inner.clone());
        Self { inner, refunds }
    }

    /// Charges every counter: atomically each, and all of one server in one write.
    ///
    /// Shapes: the reply has one element per charge, in the same order.
    /// Bound: returns within `budget`. Cancel safe: what was written is executed, its replies are dropped.
    pub async fn charge(&self, charges: &[Charge<'_>], now: UnixMicros, budget: Budget) -> Outcomes {
        self.inner.run(self.inner.request(charges, &[], Together::No, now), budget).await
    }

    /// Charges every counter, or none where a charge is refused whose refusal counts.
    ///
    /// `enforced`: for each charge whether its refusal refuses the request. Atomic within one server, on a cluster within
    /// one slot. What other servers have counted by then is given back after the answer, so that for a moment it counts
    /// against others, never in their favour. Where a charge fails, the caller decides: see [`RedisStore::give_back`].
    /// A charge that was spared says what a look would have said.
    pub async fn charge_all_or_nothing(
        &self,
        charges: &[Charge<'_>],
        enforced: &[bool],
        now: UnixMicros,
        budget: Budget,
    ) -> Outcomes {
        let together = match self.inner.shared.config.keys {
            KeyStyle::Tidegate => Together::AllOrNothing,
            KeyStyle::Envoyproxy => Together::RefuserPays,
        };
        let request = self.inner.request(charges, enforced, together, now);
        let mut outcomes = self.inner.run(request, budget).await;
        if request.refuses(&outcomes) {
            self.spare_the_others(request, &mut outcomes);
        }
        outcomes
    }

    /// Queues refunds for these charges, which were counted at `now`; never waits.
    pub fn give_back(&self, charges: &[Charge<'_>], now: UnixMicros) {
        charges.iter().for_each(|charge| self.refunds.push(&self.inner.shared, charge, now));
    }

    /// Gives back what still waits for it, and takes no more refunds; at most `within`.
    pub async fn close(&self, within: Duration) {
        self.refunds.close(within).await;
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Waits until every server was tried once; for tests and for a start that wants to be ready with its first call.
    pub async fn tried(&self, within: Duration) {
        let until = Instant::now() + within;
        match &self.inner.nodes {
            Nodes::One(link) => link.tried(until).await,
            Nodes::Ring(_, links) => drop(join_all(links.iter().map(|link| link.tried(until))).await),
            Nodes::Cluster(cluster) => cluster.tried(until).await,
        }
    }

    /// Gives back what was counted at servers that know nothing of the refusal.
    fn spare_the_others(&self, request: Request<'_>, outcomes: &mut Outcomes) {
        let groups = self.inner.groups(request);
        for group in &groups {
            let refuses = |member: &usize| {
                outcomes.get(*member).is_some_and(|outcome| request.is_refusal(*member, outcome))
            };
            if group.iter().any(refuses) {
                continue;
            }
            for &member in group {
                let (Some(charge), Some(Ok(charged))) =
                    (request.charges.get(member), outcomes.get_mut(member))
                else {
                    continue;
                };
                if let Cost::Charge(hits) = charge.cost
                    && charged.admitted
                {
                    self.refunds.push(&self.inner.shared, charge, request.now);
                    *charged = Charged {
                        used_after: charged.used_before,
                        remaining: charged.remaining.plus(hits),
                        delay: Duration::ZERO,
                        ..*charged
                    };
                }
            }
        }
    }
}

impl Inner {
    fn request<'a>(
        &'a self,
        charges: &'a [Charge<'a>],
        enforced: &'a [bool],
        together: Together,
        now: UnixMicros,
    ) -> Request<'a> {
        let config = &self.shared.config;
        Request {
            charges,
            now,
            clock: &self.shared.clock,
            together,
            enforced,
            keys: config.keys,
            time: config.time,
            jitter: u64::try_from(config.expiry_jitter.as_millis()).unwrap_or(u64::MAX).max(1),
            random: mix(self.random.fetch_add(1, Ordering::Relaxed)),
            windows: &[],
            slots: if self.shared.is_cluster() { Slots::Apart } else { Slots::Together },
        }
    }

    async fn run(&self, request: Request<'_>, budget: Budget) -> Outcomes {
        let deadline = budget.deadline().min(Instant::now() + self.shared.config.timeout);
        let mut outcomes = Outcomes::from_elem(Err(StoreError::Unavailable), request.charges.len());
        match &self.nodes {
            Nodes::One(link) => {
                let all: Members = (0..request.charges.len()).collect();
                place(&mut outcomes, ask(link, request, &all, deadline).await);
            }
            // Boxed: what asks many servers is large, and every call would be moved about with room for it.
            Nodes::Ring(_, links) => Box::pin(self.ask_ring(links, request, deadline, &mut outcomes)).await,
            Nodes::Cluster(cluster) => Box::pin(cluster.run(request, deadline, &mut outcomes)).await,
        }
        outcomes
    }

    async fn ask_ring(
        &self,
        links: &[Link],
        request: Request<'_>,
        deadline: Instant,
        outcomes: &mut Outcomes,
    ) {
        let groups = self.groups(request);
        let asked = links
            .iter()
            .zip(&groups)
            .filter(|(_, group)| !group.is_empty())
            .map(|(link, group)| ask(link, request, group, deadline));
        join_all(asked).await.into_iter().for_each(|answers| place(outcomes, answers));
    }

    /// The charges that are made in one atomic step each: of one server, or of one slot.
    fn groups(&self, request: Request<'_>) -> Vec<Members> {
        match &self.nodes {
            Nodes::One(_) => vec![(0..request.charges.len()).collect()],
            Nodes::Ring(ring, links) => {
                let mut groups = vec![Members::new(); links.len()];
                for (member, charge) in request.charges.iter().enumerate() {
                    if let Some(group) = groups.get_mut(ring.place(charge.key.as_bytes())) {
                        group.push(member);
                    }
                }
                groups
            }
            Nodes::Cluster(cluster) => cluster.groups(request),
        }
    }
}

/// Asks a server that counts by a clock of its own.
async fn ask(link: &Link, request: Request<'_>, members: &[usize], deadline: Instant) -> Answers {
    let names = Names::of(request, &link.shard.clock);
    exchange(link, request, &names, members, Manner::Plain, deadline).await
}

/// Puts answers where they belong. A server that is no cluster and points elsewhere cannot be used.
fn place(outcomes: &mut Outcomes, answers: Answers) {
    for (member, answer) in answers {
        if let Some(outcome) = outcomes.get_mut(member) {
            *outcome = match answer {
                Answer::Done(done) => done,
                Answer::Elsewhere(_) => Err(StoreError::Unavailable),
            };
        }
    }
}

impl Request<'_> {
    /// Whether some refusal refuses the request.
    fn refuses(&self, outcomes: &Outcomes) -> bool {
        outcomes.iter().enumerate().any(|(member, outcome)| self.is_refusal(member, outcome))
    }

    fn is_refusal(&self, member: usize, outcome: &Result<Charged, StoreError>) -> bool {
        let charges = self.charges.get(member).is_some_and(|charge| matches!(charge.cost, Cost::Charge(_)));
        let enforced = self.enforced.get(member).copied().unwrap_or(false);
        charges && enforced && matches!(outcome, Ok(charged) if !charged.admitted)
    }
}

/// The key that a new connection is tried with.
fn probe_key(prefix: &[u8]) -> Vec<u8> {
    [prefix, b"tidegate|probe"].concat()
}

/// Spreads a number over all 64 bits (the finalizer of splitmix64). Part of where a ring keeps its keys: never to change.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
