//! The counters: charge them, learn what they say. A closed set of stores behind one call.
//!
//! **Invariant:** the answer has one element per charge, in the same order; a descriptor that is sent twice sees its own
//! first charge.

pub mod memory;

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

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

/// Why a counter could not be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the store did not answer within the request's budget")]
    DeadlineExceeded,
    #[error("the store cannot be reached")]
    Unavailable,
}

/// The stores there are.
#[derive(Debug)]
pub enum Store {
    Memory(memory::MemoryStore),
}

impl Store {
    /// Charges every counter, each in one atomic step.
    ///
    /// Shapes: the reply has one element per charge, in the same order.
    /// Bound: returns within `budget`.
    #[expect(
        clippy::unused_async,
        reason = "the stores on the network await; callers must not depend on memory's not doing so"
    )]
    pub async fn charge(&self, charges: &[Charge<'_>], now: UnixMicros, _budget: Budget) -> Outcomes {
        match self {
            Self::Memory(store) => charges.iter().map(|charge| Ok(store.charge(charge, now))).collect(),
        }
    }
}
