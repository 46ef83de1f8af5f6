//! Traces: one span for each sampled call, with a child for the store's part, sent to an OpenTelemetry collector.
//!
//! A call that is not sampled has no [`Trace`]: nothing is rendered and nothing allocated for it. Knows nothing of rules and
//! stores; what becomes of finished spans is `queue`'s.
//!
//! **Invariant:** a trace never holds a call up: its spans are queued, or dropped and counted. A call that is cut off leaves
//! its span behind all the same.

mod context;
mod otlp;
mod queue;
mod story;

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;
use opentelemetry::{
    InstrumentationScope, KeyValue, TraceFlags,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanData};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::{context::Parent, queue::Queue, story::Story};
pub use self::{otlp::StartError, queue::Sending};
use crate::{
    clock::Clock, decision::Answer, descriptor::Request, settings::TracingSettings,
    telemetry::metrics::Metrics,
};

/// What spans of ours are called after.
const SCOPE: &str = "tidegate";

/// The names of the spans. The server's is the path of the method, as OpenTelemetry wants it; the store's is the reference's.
const SERVER_SPAN: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const REDIS_SPAN: &str = "Redis Pipeline Execution";
const MEMORY_SPAN: &str = "Memory Execution";

/// Begins traces. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Below this, half a trace's lower number is sampled: see [`Tracer::chooses`].
    bound: u64,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
    clock: Clock,
    queue: Queue,
}

/// Starts sending to the collector, on the current runtime.
///
/// Errors: the exporter cannot be made of these settings. That nobody is there is no error.
pub fn start(
    settings: &TracingSettings,
    clock: Clock,
    metrics: Arc<Metrics>,
) -> Result<(Tracer, Sending), StartError> {
    let exporter = otlp::exporter(settings)?;
    let (queue, sending) = queue::start(exporter, settings.queue, &settings.collector(), metrics);
    Ok((Tracer::new(settings.sampling_rate, clock, queue), sending))
}

impl Tracer {
    fn new(sampling_rate: f64, clock: Clock, queue: Queue) -> Self {
        let scope = InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build();
        Self(Arc::new(Inner {
            bound: bound(sampling_rate),
            ids: RandomIdGenerator::default(),
            scope,
            clock,
            queue,
        }))
    }

    /// Begins the trace of a call, if it is to have one: where the caller has decided, as it has; else by the rate.
    ///
    /// `arrived`: when the call's bytes were read.
    pub fn begin(&self, headers: &HeaderMap, arrived: Instant) -> Option<Box<Trace>> {
        let parent = context::parent(headers);
        let trace_id = match &parent {
            Some(Parent { sampled: Some(false), .. }) => return None,
            Some(parent) => parent.trace_id,
            None => self.0.ids.new_trace_id(),
        };
        let is_decided = matches!(parent, Some(Parent { sampled: Some(true), .. }));
        if !is_decided && !self.chooses(u128::from_be_bytes(trace_id.to_bytes())) {
            return None;
        }
        let state = if parent.is_some() { context::state(headers) } else { TraceState::NONE };
        let context = SpanContext::new(trace_id, self.0.ids.new_span_id(), TraceFlags::SAMPLED, false, state);
        Some(Box::new(Trace {
            tracer: self.clone(),
            context,
            parent: parent.map_or(SpanId::INVALID, |parent| parent.span_id),
            began: self.moment(arrived),
            arrived,
            story: Mutex::default(),
        }))
    }

    /// By its number alone, so that every service with the same rate chooses the same traces (as OpenTelemetry's own
    /// samplers do).
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
    fn chooses(&self, trace_id: u128) -> bool {
        (trace_id as u64) >> 1 < self.0.bound
    }

    /// The wall time of a moment that has passed.
    fn moment(&self, then: Instant) -> SystemTime {
        let now = UNIX_EPOCH + Duration::from_micros(self.0.clock.now().get());
        now.checked_sub(then.elapsed()).unwrap_or(now)
    }
}

/// This share of 2^63, at most all of it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^63")]
#[expect(clippy::cast_precision_loss, reason = "2^63 is exact")]
fn bound(rate: f64) -> u64 {
    (rate.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64
}

/// The trace of one call, from its arrival until it is dropped, which ends it.
#[derive(Debug)]
pub struct Trace {
    tracer: Tracer,
    context: SpanContext,
    parent: SpanId,
    began: SystemTime,
    arrived: Instant,
    story: Mutex<Story>,
}

impl Trace {
    /// Notes what is asked.
    pub fn asked(&self, request: &Request) {
        self.story.lock().asked(request);
    }

    /// Notes what is answered.
    pub fn answered(&self, answer: &Answer) {
        self.story.lock().answered(answer);
    }

    /// Notes how the call ends on the wire. Without this it was given up.
    pub fn ends(&self, answer: &HeaderMap) {
        self.story.lock().ends(answer);
    }

    /// Begins the store's part.
    pub fn store_call(&self, store: StoreKind, n: Charges) -> StoreCall<'_> {
        StoreCall { trace: self, store, n, began: Instant::now(), n_failed: None }
    }

    fn span(&self, span: Span) -> SpanData {
        let inner = &self.tracer.0;
        let age = span.began.saturating_duration_since(self.arrived);
        let start_time = self.began.checked_add(age).unwrap_or(self.began);
        SpanData {
            span_context: span.context,
            parent_span_id: span.parent,
            parent_span_is_remote: span.kind == SpanKind::Server && span.parent != SpanId::INVALID,
            span_kind: span.kind,
            name: Cow::Borrowed(span.name),
            start_time,
            end_time: start_time.checked_add(span.began.elapsed()).unwrap_or(start_time),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: span.status,
            instrumentation_scope: inner.scope.clone(),
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let story = std::mem::take(&mut *self.story.lock());
        let (attributes, status) = story.told();
        self.tracer.0.queue.push(self.span(Span {
            context: self.context.clone(),
            parent: self.parent,
            kind: SpanKind::Server,
            name: SERVER_SPAN,
            began: self.arrived,
            attributes,
            status,
        }));
    }
}

/// What sets one span apart from another of the same trace.
struct Span {
    context: SpanContext,
    parent: SpanId,
    kind: SpanKind,
    name: &'static str,
    began: Instant,
    attributes: Vec<KeyValue>,
    status: Status,
}

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Memory,
    Redis,
}

/// How many counters are charged, and how many of them in the Redis for limits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charges {
    pub all: usize,
    pub per_second: usize,
}

/// The store's part of a call, until it is dropped.
#[derive(Debug)]
pub struct StoreCall<'t> {
    trace: &'t Trace,
    store: StoreKind,
    n: Charges,
    began: Instant,
    /// `None` while nothing came back.
    n_failed: Option<usize>,
}

impl StoreCall<'_> {
    /// It came back; so many counters could not be charged.
    pub fn came_back(mut self, n_failed: usize) {
        self.n_failed = Some(n_failed);
    }
}

impl Drop for StoreCall<'_> {
    fn drop(&mut self) {
        let trace = self.trace;
        let (name, kind) = match self.store {
            StoreKind::Memory => (MEMORY_SPAN, SpanKind::Internal),
            StoreKind::Redis => (REDIS_SPAN, SpanKind::Client),
        };
        let of_trace = &trace.context;
        let span_id = trace.tracer.0.ids.new_span_id();
        let state = of_trace.trace_state().clone();
        trace.tracer.0.queue.push(trace.span(Span {
            context: SpanContext::new(of_trace.trace_id(), span_id, TraceFlags::SAMPLED, false, state),
            parent: of_trace.span_id(),
            kind,
            name,
            began: self.began,
            attributes: story::of_store(self.store, self.n),
            status: story::of_failures(self.n_failed),
        }));
    }
}

#[cfg(test)]
mod tests;
