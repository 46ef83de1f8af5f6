//! Traces from outside: a real process, a collector of the test's, calls with and without a caller's trace.

#![cfg(test)]

#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod http;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;
#[path = "support/settings.rs"]
mod settings;
#[path = "support/tidegate.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod tidegate_process;

#[path = "support/tls_front.rs"]
mod tls_front;

#[path = "tracing/collector.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod collector;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use tidegate::pb::rate_limit_response::Code;
use tidegate::pb::rate_limit_service_client::RateLimitServiceClient;
use tidegate::pb::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry};
use tonic::transport::{Channel, Endpoint};

use collector::{Collector, text};
use port::Port;
use redis::certificates::{self, Certificates, ServerName};
use redis::server::{Kind, Server};
use tidegate_process::Tidegate;

const RULES: &str =
    "domain: shop\ndescriptors:\n- key: user\n  rate_limit: {unit: hour, requests_per_unit: 1}\n";

const TRACE_ID: [u8; 16] =
    [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36];
const SPAN_ID: [u8; 8] = [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7];
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const NOT_SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// A process that is traced, and a way to ask it.
struct Service {
    process: Tidegate,
    client: RateLimitServiceClient<Channel>,
}

impl Service {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let grpc = Arc::new(Port::reserve().unwrap());
        let process = Tidegate::start_with(&grpc, &[RULES], variables).await.unwrap();
        let channel = Endpoint::new(format!("http://{}", grpc.address())).unwrap().connect().await.unwrap();
        Self { process, client: RateLimitServiceClient::new(channel) }
    }

    /// One call for a user; `traceparent` as Envoy sends it.
    async fn ask(&self, user: &'static str, traceparent: Option<&'static str>) -> Code {
        let entry = Entry { key: Bytes::from_static(b"user"), value: Bytes::from_static(user.as_bytes()) };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let message = RateLimitRequest {
            domain: Bytes::from_static(b"shop"),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let mut request = tonic::Request::new(message);
        request.set_timeout(Duration::from_secs(30));
        if let Some(traceparent) = traceparent {
            request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        }
        self.client.clone().should_rate_limit(request).await.unwrap().into_inner().overall_code()
    }

    /// Ends it, which sends what is queued.
    async fn stop(self) {
        self.process.stop().await.unwrap();
    }
}

/// What turns tracing on and sends at once.
fn traced<'a>(protocol: &'a str, endpoint: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("TRACING_ENABLED", "true"),
        ("TRACING_EXPORTER_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
    ]
}

/// The two spans of a call: the server's, and the store's part of it.
fn call_and_store(spans: &[Span]) -> (&Span, &Span) {
    let [a, b] = spans else { panic!("{spans:?}") };
    if a.kind() == SpanKind::Server { (a, b) } else { (b, a) }
}

async fn a_refusal_is_told(protocol: &str) {
    let collector = Collector::start().await;
    let endpoint = collector.endpoint(protocol);
    let more = [
        ("TRACING_SERVICE_NAMESPACE", "edge"),
        ("TRACING_SERVICE_INSTANCE_ID", "pod-7"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=limits"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=100%25%20sure"),
    ];
    let service = Service::start(&[&traced(protocol, &endpoint)[..], &more].concat()).await;
    assert_eq!(service.ask("42", Some(NOT_SAMPLED)).await, Code::Ok);
    assert_eq!(service.ask("42", Some(SAMPLED)).await, Code::OverLimit);
    service.stop().await;

    let received = collector.received();
    let spans: Vec<Span> = received.iter().flat_map(|batch| batch.spans.clone()).collect();
    let (call, store) = call_and_store(&spans);
    assert_eq!(call.name, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    assert_eq!((&call.trace_id[..], &call.parent_span_id[..]), (&TRACE_ID[..], &SPAN_ID[..]));
    assert!(call.start_time_unix_nano > 0 && call.end_time_unix_nano >= call.start_time_unix_nano);
    for (key, value) in [
        ("domain", "shop"),
        ("request string", "user=42"),
        ("ratelimit.code", "OVER_LIMIT"),
        ("ratelimit.verdicts", "[OVER_LIMIT 1/hour, 0 left]"),
        ("rpc.system", "grpc"),
        ("rpc.service", "envoy.service.ratelimit.v3.RateLimitService"),
        ("rpc.method", "ShouldRateLimit"),
        ("rpc.grpc.status_code", "0"),
    ] {
        assert_eq!(text(&call.attributes, key), value, "{key}");
    }
    assert_eq!((store.name.as_str(), store.kind()), ("Memory Execution", SpanKind::Internal));
    assert_eq!((&store.trace_id, &store.parent_span_id), (&call.trace_id, &call.span_id));
    assert_eq!(text(&store.attributes, "pipeline length"), "1");

    for batch in &received {
        for (key, value) in [
            ("service.name", "RateLimit"),
            ("service.namespace", "edge"),
            ("service.instance.id", "pod-7"),
            ("team", "limits"),
        ] {
            assert_eq!(text(&batch.resource, key), value, "{key}");
        }
        assert_eq!(batch.schema, "https://opentelemetry.io/schemas/1.7.0");
        assert_eq!(batch.token, "100% sure");
        assert_eq!(batch.scope, "tidegate");
    }
}

#[tokio::test]
async fn a_sampled_call_is_told_over_grpc() {
    a_refusal_is_told("grpc").await;
}

#[tokio::test]
async fn a_sampled_call_is_told_over_http() {
    a_refusal_is_told("http").await;
}

#[tokio::test]
async fn a_collector_gets_spans_while_the_process_runs() {
    let collector = Collector::start().await;
    let service = Service::start(&traced("grpc", &collector.endpoint("grpc"))).await;
    service.ask("42", None).await;
    assert!(!collector.next().await.spans.is_empty());
}

#[tokio::test]
async fn the_rate_counts_where_nobody_has_decided() {
    let collector = Collector::start().await;
    let endpoint = collector.endpoint("grpc");
    let never = [("TRACING_SAMPLING_RATE", "0")];
    let service = Service::start(&[&traced("grpc", &endpoint)[..], &never].concat()).await;
    service.ask("1", None).await;
    service.ask("2", Some(SAMPLED)).await;
    service.ask("3", None).await;
    service.stop().await;
    let spans: Vec<Span> = collector.received().into_iter().flat_map(|batch| batch.spans).collect();
    let (call, _) = call_and_store(&spans);
    assert_eq!(text(&call.attributes, "request string"), "user=2");
}

#[tokio::test]
async fn nothing_is_sent_unless_it_is_asked_for() {
    let collector = Collector::start().await;
    let endpoint = collector.endpoint("grpc");
    let variables = &traced("grpc", &endpoint)[1..];
    let service = Service::start(variables).await;
    service.ask("42", Some(SAMPLED)).await;
    service.stop().await;
    assert_eq!(collector.n_connections(), 0);
}

#[tokio::test]
async fn a_collector_may_ask_for_tls_and_a_certificate() {
    let files = Certificates::of(ServerName::Right).unwrap();
    let [ca, cert, key] =
        [&files.authority, &files.client.certificate, &files.client.key].map(|path| path.to_str().unwrap());
    for protocol in ["grpc", "http"] {
        let collector = Collector::start().await;
        let inside = collector.endpoint(protocol).trim_start_matches("http://").parse().unwrap();
        let port = tls_front::start(inside, &files).await.unwrap();
        let endpoint = format!("https://localhost:{port}");
        let who = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", cert),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", key),
        ];
        // Who does not trust it, and who is not trusted by it, sends nothing.
        for who in [&who[..], &who[..1], &who[1..]] {
            let service = Service::start(&[&traced(protocol, &endpoint)[..], who].concat()).await;
            service.ask("42", Some(SAMPLED)).await;
            service.stop().await;
        }
        assert_eq!(
            collector.received().iter().map(|batch| batch.spans.len()).sum::<usize>(),
            2,
            "{protocol}"
        );
    }
}

/// The process starts, answers and ends as if nothing were amiss.
#[tokio::test]
async fn a_collector_that_is_away_fails_no_call() {
    let nobody = Port::reserve().unwrap();
    let endpoint = format!("http://{}", nobody.address());
    for protocol in ["grpc", "http"] {
        let service = Service::start(&traced(protocol, &endpoint)).await;
        for _ in 0..20 {
            service.ask("42", Some(SAMPLED)).await;
        }
        service.stop().await;
    }
}

#[tokio::test]
async fn redis_has_a_part_of_its_own() {
    let redis = Server::start(Kind::Redis7).await.unwrap();
    let collector = Collector::start().await;
    let endpoint = collector.endpoint("grpc");
    let url = redis.address().to_string();
    let store = [("BACKEND_TYPE", "redis"), ("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", &url)];
    let service = Service::start(&[&traced("grpc", &endpoint)[..], &store].concat()).await;
    assert_eq!(service.ask("42", Some(SAMPLED)).await, Code::Ok);
    service.stop().await;
    let spans: Vec<Span> = collector.received().into_iter().flat_map(|batch| batch.spans).collect();
    let (call, store) = call_and_store(&spans);
    assert_eq!((store.name.as_str(), store.kind()), ("Redis Pipeline Execution", SpanKind::Client));
    assert_eq!((&store.trace_id, &store.parent_span_id), (&call.trace_id, &call.span_id));
    assert_eq!(text(&store.attributes, "db.system"), "redis");
    assert!(store.status.as_ref().is_none_or(|status| status.code() == StatusCode::Unset));
}
