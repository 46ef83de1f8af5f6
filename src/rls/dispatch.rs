//! Takes a call to where it is answered: the one hot method by a match on the path, everything else through tonic's router.
//!
//! **Invariant:** no call waits for its caller longer than its budget, and none but `ShouldRateLimit` outlives the beginning
//! of the drain: an open health `Watch` must not hold it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, body::Body, server::Grpc, service::Routes};
use tower::Service;

use super::{
    Decide,
    budget::Budgets,
    codec::SmallCodec,
    counts::{Method as Called, WorkerCounts},
    health::{Asker, Askers},
    request::{self, UnreadableError},
    response,
};
use crate::{
    decision::Answer,
    descriptor,
    limiter::DecideError,
    pb::RateLimitResponse,
    store::Budget,
    telemetry::traces::{Trace, Tracer},
};

/// The path of the hot method.
pub(super) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The path of a health check.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// How much of an unknown method's path is said back, in characters.
const MAX_SHOWN: usize = 200;

/// The longest message taken, in bytes: gRPC's usual bound. It also bounds the descriptors of a request and their entries.
pub const MAX_MESSAGE: usize = 4 << 20;

/// What answers the calls of one worker.
pub(super) struct Dispatch<D> {
    pub(super) decider: D,
    pub(super) budgets: Budgets,
    /// This worker's share of the bound on calls in flight.
    pub(super) max_in_flight: usize,
    pub(super) counts: Arc<CachePadded<WorkerCounts>>,
    /// `None`: no call is traced.
    pub(super) tracer: Option<Tracer>,
    pub(super) routes: Routes,
    pub(super) askers: Arc<Askers>,
    /// Cancelled when the drain begins.
    pub(super) drain: CancellationToken,
}

impl<D: Decide> Dispatch<D> {
    /// `arrived`: when the call's first bytes were read. `asker`: the connection that it came on.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        arrived: Instant,
        asker: &Asker,
    ) -> Result<Response<Body>, Infallible> {
        if request.uri().path() == SHOULD_RATE_LIMIT {
            let answer = self.should_rate_limit(request, arrived).await;
            self.counts.answered(Called::ShouldRateLimit, arrived.elapsed());
            Ok(answer)
        } else if request.uri().path() == HEALTH_CHECK {
            asker.asks(arrived);
            self.counts.called(Called::Check);
            let answer = Box::pin(self.other(request)).await;
            self.counts.answered(Called::Check, arrived.elapsed());
            answer
        } else {
            Box::pin(self.other(request)).await
        }
    }

    async fn should_rate_limit(&self, request: Request<Incoming>, arrived: Instant) -> Response<Body> {
        let Some(_in_flight) = self.counts.call(self.max_in_flight) else {
            return Status::unavailable("too many calls in flight").into_http();
        };
        let budget = self.budgets.of(request.headers(), arrived);
        let trace = self.tracer.as_ref().and_then(|tracer| tracer.begin(request.headers(), arrived));
        let request = request.map(|body| Timely { body, deadline: budget.deadline(), sleep: None });
        let decide = tower::service_fn(|message| self.decide(message, budget, trace.as_deref()));
        let answer =
            Grpc::new(SmallCodec).max_decoding_message_size(MAX_MESSAGE).unary(decide, request).await;
        let answer =
            if Status::from_header_map(answer.headers()).is_some_and(|it| it.code() == Code::OutOfRange) {
                Status::resource_exhausted(format!("a message may have {MAX_MESSAGE} bytes")).into_http()
            } else {
                answer
            };
        if let Some(trace) = trace {
            trace.ends(answer.headers());
        }
        answer
    }

    async fn decide(
        &self,
        message: tonic::Request<Bytes>,
        budget: Budget,
        trace: Option<&Trace>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let request = request::decode(message.into_inner()).inspect_err(|error| {
            if matches!(error, UnreadableError::Request(_)) {
                self.counts.invalid();
            }
        })?;
        let answer = match trace {
            None => self.decider.decide(&request, budget).await?,
            Some(trace) => Box::pin(self.traced(&request, budget, trace)).await?,
        };
        Ok(tonic::Response::new(response::write(answer)))
    }

    async fn traced(
        &self,
        request: &descriptor::Request,
        budget: Budget,
        trace: &Trace,
    ) -> Result<Answer, DecideError> {
        trace.asked(request);
        let answer = self.decider.decide_traced(request, budget, trace).await?;
        trace.answered(&answer);
        Ok(answer)
    }

    /// Health, reflection, and what there is not.
    async fn other(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        if request.method() != Method::POST {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return Ok(response);
        }
        let path = request.uri().path().to_owned();
        let answered = tokio::select! {
            biased;
            answered = self.routes.clone().call(request) => answered?,
            () = self.drain.cancelled() => return Ok(shutting_down().into_http()),
        };
        if is_unknown(answered.headers()) {
            return Ok(unknown(&path).into_http());
        }
        let ended = self.drain.clone().cancelled_owned().boxed();
        Ok(answered.map(|body| Body::new(UntilDrained { body, ended: Some(ended) })))
    }
}

/// Whether the router found no such service, or the service no such method: neither says which.
fn is_unknown(headers: &HeaderMap) -> bool {
    Status::from_header_map(headers)
        .is_some_and(|status| status.code() == Code::Unimplemented && status.message().is_empty())
}

fn unknown(path: &str) -> Status {
    let shown: String = path.chars().take(MAX_SHOWN).collect();
    Status::unimplemented(format!(
        "unknown method {shown}; there are {SHOULD_RATE_LIMIT}, grpc.health.v1.Health and grpc.reflection.v1"
    ))
}

fn shutting_down() -> Status {
    Status::unavailable("shutting down")
}

/// A call's body, waited for until its deadline. The timer is made only when there is something to wait for.
struct Timely {
    body: Incoming,
    deadline: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Timely {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))));
        }
        let deadline = self.deadline;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Some(Err(Status::deadline_exceeded("the request did not arrive in time"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer that may go on for ever, ended as soon as the drain has begun and nothing is left to be said.
struct UntilDrained {
    body: Body,
    ended: Option<BoxFuture<'static, ()>>,
}

impl http_body::Body for UntilDrained {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(mut ended) = self.ended.take() else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.ended = Some(ended);
            return Poll::Ready(frame);
        }
        if ended.poll_unpin(cx).is_pending() {
            self.ended = Some(ended);
            return Poll::Pending;
        }
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(shutting_down().add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended.is_none() || self.body.is_end_stream()
    }
}
