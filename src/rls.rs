//! The gRPC edge: bytes from Envoy in, bytes out. Owns listening, connections, the budget of a call and the bound on calls
//! in flight; decides nothing.
//!
//! **Invariant:** an error of a request or of the store becomes a gRPC status here and nowhere else. Over the limit is an
//! answer, never an error; to Envoy every error means "the rate-limit service failed".

pub mod budget;
pub mod constant;
pub mod health;
pub mod listener;
pub mod request;
pub mod response;
pub mod serve;

mod acceptor;
mod authority;
mod balance;
mod bound;
mod codec;
mod connection;
mod counts;
mod dispatch;
mod executor;
mod io;
mod worker;

#[cfg(test)]
mod frames;

use std::sync::Arc;

pub use dispatch::MAX_MESSAGE;

use crate::{
    decision::Answer,
    descriptor::Request,
    limiter::{DecideError, Limiter},
    rls::request::UnreadableError,
    store::Budget,
    telemetry::traces::Trace,
};

/// What stands behind the edge: the limiter, or a constant in tests and benchmarks.
///
/// Its futures live and die on one worker's thread, so they need not be `Send`; they are dropped when the caller hangs up.
pub trait Decide: 'static {
    /// Bound: returns within `budget`.
    fn decide(&self, request: &Request, budget: Budget) -> impl Future<Output = Result<Answer, DecideError>>;

    /// The same for a call that is traced.
    fn decide_traced(
        &self,
        request: &Request,
        budget: Budget,
        _trace: &Trace,
    ) -> impl Future<Output = Result<Answer, DecideError>> {
        self.decide(request, budget)
    }

    /// Returns when it can decide, or when waiting longer would help nobody; bounded by itself. No call comes before.
    fn ready(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Ends what it still has to do once all calls were answered; bounded by itself.
    fn close(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

impl Decide for Limiter {
    fn decide(&self, request: &Request, budget: Budget) -> impl Future<Output = Result<Answer, DecideError>> {
        Limiter::decide(self, request, budget)
    }

    fn decide_traced(
        &self,
        request: &Request,
        budget: Budget,
        trace: &Trace,
    ) -> impl Future<Output = Result<Answer, DecideError>> {
        Limiter::decide_traced(self, request, budget, trace)
    }

    async fn ready(&self) {
        Limiter::ready(self).await;
    }

    async fn close(&self) {
        Limiter::close(self).await;
    }
}

impl<D: Decide> Decide for Arc<D> {
    fn decide(&self, request: &Request, budget: Budget) -> impl Future<Output = Result<Answer, DecideError>> {
        (**self).decide(request, budget)
    }

    fn decide_traced(
        &self,
        request: &Request,
        budget: Budget,
        trace: &Trace,
    ) -> impl Future<Output = Result<Answer, DecideError>> {
        (**self).decide_traced(request, budget, trace)
    }

    fn ready(&self) -> impl Future<Output = ()> {
        (**self).ready()
    }

    fn close(&self) -> impl Future<Output = ()> {
        (**self).close()
    }
}

/// A message that cannot be read is `INTERNAL`, as gRPC libraries have it; one that says what it may not, the caller's fault.
impl From<UnreadableError> for tonic::Status {
    fn from(error: UnreadableError) -> Self {
        match error {
            UnreadableError::Malformed(error) => Self::internal(error.to_string()),
            UnreadableError::Request(error) => Self::invalid_argument(error.to_string()),
        }
    }
}

/// An outage is `UNAVAILABLE`, whatever its cause: it must not look like a refusal of this one caller.
impl From<DecideError> for tonic::Status {
    fn from(error: DecideError) -> Self {
        Self::unavailable(error.to_string())
    }
}
