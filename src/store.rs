//! The counters: charge them, learn what they say. A closed set of stores behind one call.
//!
//! **Invariant:** the answer has one element per charge, in the same order; a descriptor that is sent twice sees its own
//! first charge.

pub mod memory;
pub mod pair;
pub mod redis;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use self::{memory::MemoryStore, pair::Pair};
use crate::{
    clock::UnixMicros,
    key::CounterKey,
    limit::{Charged, Cost, Limit},
};

/// One counter to be charged. What must outlive the call is copied by the store.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    pub key: &'a CounterKey,
    pub limit: &'a Limit,
    pub cost: Cost,
    /// The longest that a leaky bucket may hold the answer, on top of its own `max_delay`; [`Duration::MAX`] if nothing else
    /// bounds it.
    pub max_wait: Duration,
}

/// What each charge came to, in the order of the charges.
pub type Outcomes = SmallVec<[Result<Charged, StoreError>; 4]>;

/// Until when an answer is worth having.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(Instant);

impl Budget {
    pub fn until(deadline: Instant) -> Self {
        Self(deadline)
    }

    pub fn of(span: Duration) -> Self {
        Self(Instant::now() + span)
    }

    pub fn deadline(self) -> Instant {
        self.0
    }

    /// What is left; zero once it is spent.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// The window that a counter of `fixed_window` stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowNow {
    pub number: u64,
    /// By the clock that it is counted by, as far as this node knows it.
    pub ends_after: Duration,
    /// How far that can be wrong.
    pub uncertainty: Duration,
}

/// Why a counter could not be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the store did not answer within the request's budget")]
    DeadlineExceeded,
    #[error("the store cannot be reached")]
    Unavailable,
}

/// One worker's way to the counters.
///
/// What waits for Redis has a place of its own in memory, so that a call that is counted here is not as large as one that
/// asks a cluster: calls are moved about while they are set up.
#[derive(Debug)]
pub enum Store {
    /// All workers have the same counters.
    Memory(Arc<MemoryStore>),
    Redis(Pair),
}

impl Store {
    /// Charges every counter, each in one atomic step.
    ///
    /// Shapes: the reply has one element per charge, in the same order.
    /// Bound: returns within `budget`.
    pub async fn charge(&self, charges: &[Charge<'_>], now: UnixMicros, budget: Budget) -> Outcomes {
        match self {
            Self::Memory(store) => charges.iter().map(|charge| Ok(store.charge(charge, now))).collect(),
            Self::Redis(pair) => Box::pin(pair.charge(charges, now, budget)).await,
        }
    }

    /// Charges every counter, or none where a charge is refused whose element in `enforced` is true. A charge that was
    /// spared says what a look would have said.
    ///
    /// In memory this is one atomic step. In Redis it is one on each server (on a cluster, in each slot); what others have
    /// counted is given back after the answer.
    pub async fn charge_all_or_nothing(
        &self,
        charges: &[Charge<'_>],
        enforced: &[bool],
        now: UnixMicros,
        budget: Budget,
    ) -> Outcomes {
        match self {
            Self::Memory(store) => {
                store.charge_all_or_nothing(charges, enforced, now).into_iter().map(Ok).collect()
            }
            Self::Redis(pair) => Box::pin(pair.charge_all_or_nothing(charges, enforced, now, budget)).await,
        }
    }

    /// Gives back what these charges, which were admitted at `now`, have taken. Never waits: in Redis after the answer.
    pub fn give_back(&self, charges: &[Charge<'_>], now: UnixMicros) {
        match self {
            Self::Memory(store) => store.give_back(charges, now),
            Self::Redis(pair) => pair.give_back(charges, now),
        }
    }

    /// Waits until every server was tried once, at most `within`.
    pub async fn tried(&self, within: Duration) {
        if let Self::Redis(pair) = self {
            pair.tried(within).await;
        }
    }

    /// What is wrong with it, for people; empty while all is well.
    pub fn troubles(&self) -> Vec<String> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(pair) => pair.troubles(),
        }
    }

    /// Ends what is still under way, within `within`.
    pub async fn close(&self, within: Duration) {
        if let Self::Redis(pair) = self {
            pair.close(within).await;
        }
    }
}

/// Whether some refusal refuses the request: it is enforced, and it is of a charge, not of a look.
pub fn refuses(charges: &[Charge<'_>], enforced: &[bool], outcomes: &Outcomes) -> bool {
    let mut all = charges.iter().zip(enforced).zip(outcomes);
    all.any(|((charge, enforced), outcome)| {
        let refused = matches!(outcome, Ok(charged) if !charged.admitted);
        refused && *enforced && matches!(charge.cost, Cost::Charge(_))
    })
}
