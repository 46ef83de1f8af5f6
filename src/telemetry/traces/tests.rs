use std::{sync::Mutex as StdMutex, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use opentelemetry::{Array, Key, Value, trace::TraceId};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SamplingDecision, ShouldSample as _, SpanExporter},
};
use smallvec::smallvec;

use super::*;
use crate::{
    clock::UnixMicros,
    decision::{Code, CurrentLimit, Status as DescriptorStatus},
    descriptor::{Descriptor, Entry},
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    settings::Queue as QueueOptions,
};

const NOW: u64 = 1_700_000_000;

/// Keeps what it is given.
#[derive(Clone, Debug, Default)]
struct Keeps(Arc<StdMutex<Vec<SpanData>>>);

impl SpanExporter for Keeps {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// A tracer, and what it has sent by the end.
struct Traced {
    tracer: Tracer,
    exporter: Keeps,
    sending: Sending,
}

impl Traced {
    fn at_rate(rate: f64) -> Self {
        let exporter = Keeps::default();
        let long = Duration::from_secs(60);
        let options = QueueOptions { size: 100, batch: 10, delay: long, timeout: long };
        let (queue, sending) = queue::start(exporter.clone(), options, "here", Arc::default());
        let tracer = Tracer::new(rate, Clock::manual(UnixMicros::from_secs(NOW)), queue);
        Self { tracer, exporter, sending }
    }

    async fn sent(self) -> Vec<SpanData> {
        self.sending.flush().await;
        self.exporter.0.lock().unwrap().clone()
    }
}

fn headers<const N: usize>(headers: [(&'static str, &str); N]) -> HeaderMap {
    headers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn attribute(span: &SpanData, key: &'static str) -> Option<Value> {
    span.attributes.iter().find(|pair| pair.key == Key::from_static_str(key)).map(|pair| pair.value.clone())
}

fn request(value: &[u8], n_descriptors: usize) -> Request {
    let entry = Entry { key: Bytes::from_static(b"user"), value: Bytes::copy_from_slice(value) };
    let descriptor = Descriptor {
        entries: vec![entry],
        cost: Cost::charge(Hits::new(1)),
        hits_addend: None,
        override_limit: None,
    };
    Request {
        domain: Bytes::from_static(b"shop"),
        descriptors: vec![descriptor; n_descriptors],
        hits_addend: 0,
    }
}

fn refusal() -> Answer {
    let limit =
        Limit { requests_per_unit: 5, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow };
    let limited = DescriptorStatus {
        code: Code::OverLimit,
        limit: Some(CurrentLimit { limit, name: None }),
        remaining: 0,
        reset_after: None,
    };
    let free = DescriptorStatus { code: Code::Ok, limit: None, remaining: 0, reset_after: None };
    Answer {
        overall: Code::OverLimit,
        statuses: smallvec![limited, free],
        headers: smallvec![],
        dynamic_metadata: None,
    }
}

#[test]
fn the_rate_chooses_what_opentelemetrys_sampler_chooses() {
    let ids = RandomIdGenerator::default();
    for rate in [0.0, 0.000_1, 0.25, 0.5, 0.999, 1.0, -1.0, 7.0] {
        let sampler = Sampler::TraceIdRatioBased(rate);
        let bound = bound(rate);
        let edges = [0_u128, 1, u128::from(u64::MAX), u128::MAX, 1 << 63];
        let random = std::iter::repeat_with(|| u128::from_be_bytes(ids.new_trace_id().to_bytes()));
        for id in edges.into_iter().chain(random.take(1_000)) {
            let theirs =
                sampler.should_sample(None, TraceId::from(id), "", &SpanKind::Server, &[], &[]).decision;
            let ours = u64::try_from(id & u128::from(u64::MAX)).unwrap() >> 1 < bound;
            assert_eq!(ours, theirs == SamplingDecision::RecordAndSample, "{rate} {id:x}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_caller_decides_and_else_the_rate() {
    let parent = |flags| format!("00-{:032x}-{:016x}-{flags}", 7, 8);
    for rate in [0.0, 1.0] {
        let traced = Traced::at_rate(rate);
        let begun = |headers| traced.tracer.begin(&headers, Instant::now()).is_some();
        assert!(begun(headers([("traceparent", &parent("01"))])));
        assert!(!begun(headers([("traceparent", &parent("00"))])));
        for undecided in [
            headers([]),
            headers([("traceparent", "?")]),
            headers([("b3", &format!("{:032x}-{:016x}", 7, 8))]),
        ] {
            assert_eq!(begun(undecided), rate > 0.5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_told_with_its_store_call() {
    let traced = Traced::at_rate(1.0);
    let parent = headers([
        ("traceparent", "00-00000000000000000000000000000007-0000000000000008-01"),
        ("tracestate", "a=1"),
    ]);
    let arrived = Instant::now();
    tokio::time::advance(Duration::from_millis(10)).await;
    let trace = traced.tracer.begin(&parent, arrived).unwrap();
    trace.asked(&request(b"42", 2));
    tokio::time::advance(Duration::from_millis(10)).await;
    let call = trace.store_call(StoreKind::Redis, Charges { all: 3, per_second: 1 });
    tokio::time::advance(Duration::from_millis(10)).await;
    call.came_back(0);
    trace.answered(&refusal());
    trace.ends(&HeaderMap::new());
    drop(trace);
    let spans = traced.sent().await;
    let [store, call] = &spans[..] else { panic!("{spans:?}") };

    let began = UNIX_EPOCH + Duration::from_secs(NOW) - Duration::from_millis(10);
    assert_eq!((call.start_time, call.end_time), (began, began + Duration::from_millis(30)));
    assert_eq!((&call.name[..], &call.span_kind), (SERVER_SPAN, &SpanKind::Server));
    assert_eq!(call.span_context.trace_id(), TraceId::from(7_u128));
    assert_eq!((call.parent_span_id, call.parent_span_is_remote), (SpanId::from(8), true));
    assert_eq!(call.span_context.trace_state().header(), "a=1");
    for (key, value) in [
        ("domain", Value::from("shop")),
        ("request string", Value::from("user=42; user=42")),
        ("ratelimit.code", Value::from("OVER_LIMIT")),
        (
            "ratelimit.verdicts",
            Value::Array(Array::String(vec!["OVER_LIMIT 5/minute, 0 left".into(), "OK".into()])),
        ),
        ("rpc.system", Value::from("grpc")),
        ("rpc.method", Value::from("ShouldRateLimit")),
        ("rpc.grpc.status_code", Value::from(0)),
    ] {
        assert_eq!(attribute(call, key), Some(value), "{key}");
    }
    assert_eq!(call.status, Status::Unset, "over the limit is an answer");

    assert_eq!(store.span_context.trace_id(), TraceId::from(7_u128));
    assert_eq!((store.parent_span_id, store.parent_span_is_remote), (call.span_context.span_id(), false));
    assert_eq!((&store.name[..], &store.span_kind), ("Redis Pipeline Execution", &SpanKind::Client));
    assert_eq!(
        (store.start_time, store.end_time),
        (began + Duration::from_millis(20), began + Duration::from_millis(30))
    );
    assert_eq!(attribute(store, "pipeline length"), Some(Value::from(2)));
    assert_eq!(attribute(store, "perSecondPipeline length"), Some(Value::from(1)));
    assert_eq!(attribute(store, "db.system"), Some(Value::from("redis")));
    assert_eq!(store.status, Status::Unset);
}

#[tokio::test(start_paused = true)]
async fn what_is_cut_off_or_fails_is_told_too() {
    let traced = Traced::at_rate(1.0);
    let begin = || traced.tracer.begin(&HeaderMap::new(), Instant::now()).unwrap();
    let cut_off = begin();
    drop(cut_off.store_call(StoreKind::Memory, Charges { all: 1, per_second: 0 }));
    drop(cut_off);
    let failed = begin();
    failed.store_call(StoreKind::Redis, Charges { all: 2, per_second: 0 }).came_back(2);
    failed.ends(&headers([("grpc-status", "14"), ("grpc-message", "no store")]));
    drop(failed);
    let wrong = begin();
    wrong.ends(&headers([("grpc-status", "3")]));
    drop(wrong);
    let spans = traced.sent().await;
    let told: Vec<_> = spans
        .iter()
        .map(|span| {
            (attribute(span, "rpc.grpc.status_code").map(|code| code.to_string()), span.status.clone())
        })
        .collect();
    assert_eq!(
        told,
        [
            (None, Status::error("given up before the store answered")),
            (Some("1".to_owned()), Status::Unset),
            (None, Status::error("2 counters could not be charged")),
            (Some("14".to_owned()), Status::error("no store")),
            (Some("3".to_owned()), Status::Unset),
        ]
    );
    assert_ne!(spans[1].span_context.trace_id(), spans[3].span_context.trace_id());
    assert_eq!((spans[1].parent_span_id, spans[1].parent_span_is_remote), (SpanId::INVALID, false));
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sends_is_cut() {
    let traced = Traced::at_rate(1.0);
    let trace = traced.tracer.begin(&HeaderMap::new(), Instant::now()).unwrap();
    trace.asked(&request(&[0xff; 1 << 20], 1_000));
    drop(trace);
    let spans = traced.sent().await;
    let text = attribute(&spans[0], "request string").unwrap().to_string();
    assert!(
        text.len() < 4 * 1_024 && text.starts_with("user=\u{fffd}") && text.ends_with('…'),
        "{}",
        text.len()
    );
}
