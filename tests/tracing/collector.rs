//! An OpenTelemetry collector that keeps what it gets: OTLP over gRPC and over HTTP, a port each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use futures_util::StreamExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

/// Far longer than it takes.
const LONG: Duration = Duration::from_secs(60);

/// What came at once, of one scope.
#[derive(Clone, Debug)]
pub struct Batch {
    pub spans: Vec<Span>,
    pub scope: String,
    pub resource: Vec<KeyValue>,
    pub schema: String,
    /// The header `x-token`.
    pub token: String,
}

impl Batch {
    fn by_service(&self) -> Vec<(String, Span)> {
        let service = text(&self.resource, "service.name");
        self.spans.iter().map(|span| (service.clone(), span.clone())).collect()
    }
}

#[derive(Default)]
struct Kept {
    batches: Mutex<Vec<Batch>>,
    n_connections: AtomicUsize,
    arrived: Notify,
}

pub struct Collector {
    kept: Arc<Kept>,
    grpc: String,
    http: String,
}

impl Collector {
    /// Lives on the runtime of the test that starts it.
    pub async fn start() -> Self {
        let kept = Arc::new(Kept::default());
        let (grpc, http) = (listen().await, listen().await);
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { kept: Arc::clone(&kept), grpc: address(&grpc), http: address(&http) };

        let counted = Arc::clone(&kept);
        let connections = futures_util::stream::unfold(grpc, move |listener| {
            let counted = Arc::clone(&counted);
            async move {
                let accepted = listener.accept().await.map(|(stream, _)| stream);
                counted.n_connections.fetch_add(1, Ordering::Relaxed);
                Some((accepted, listener))
            }
        });
        let service = TraceServiceServer::new(Grpc(Arc::clone(&kept)));
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(connections.boxed()),
        );
        let router = Router::new().route("/v1/traces", post(take)).with_state(kept);
        tokio::spawn(async { axum::serve(http, router).await });
        collector
    }

    /// Where it is, as `OTEL_EXPORTER_OTLP_ENDPOINT` says it.
    pub fn endpoint(&self, protocol: &str) -> String {
        if protocol == "grpc" { self.grpc.clone() } else { self.http.clone() }
    }

    pub fn received(&self) -> Vec<Batch> {
        self.kept.batches.lock().unwrap().clone()
    }

    /// Waits for the first batch.
    pub async fn next(&self) -> Batch {
        tokio::time::timeout(LONG, self.kept.arrived.notified()).await.unwrap();
        self.received()[0].clone()
    }

    /// Waits until its spans, each with the name of its service, are these.
    pub async fn until(&self, are: impl Fn(&[(String, Span)]) -> bool) -> Vec<(String, Span)> {
        let all = async {
            loop {
                let spans: Vec<_> = self.received().iter().flat_map(Batch::by_service).collect();
                if are(&spans) {
                    return spans;
                }
                self.kept.arrived.notified().await;
            }
        };
        tokio::time::timeout(LONG, all).await.unwrap_or_else(|_| panic!("{:?}", self.received()))
    }

    /// Connections so far, over gRPC.
    pub fn n_connections(&self) -> usize {
        self.kept.n_connections.load(Ordering::Relaxed)
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

impl Kept {
    fn keep(&self, message: ExportTraceServiceRequest, token: &str) {
        let mut batches = self.batches.lock().unwrap();
        for of_resource in message.resource_spans {
            let resource = of_resource.resource.unwrap_or_default().attributes;
            batches.extend(of_resource.scope_spans.into_iter().map(|of_scope| Batch {
                spans: of_scope.spans,
                scope: of_scope.scope.unwrap_or_default().name,
                resource: resource.clone(),
                schema: of_resource.schema_url.clone(),
                token: token.to_owned(),
            }));
        }
        self.arrived.notify_one();
    }
}

struct Grpc(Arc<Kept>);

#[tonic::async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let token = request.metadata().get("x-token").map(|token| token.to_str().unwrap().to_owned());
        self.0.keep(request.into_inner(), &token.unwrap_or_default());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn take(State(kept): State<Arc<Kept>>, headers: HeaderMap, body: Bytes) -> (StatusCode, Vec<u8>) {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let token = headers.get("x-token").map_or("", |token| token.to_str().unwrap());
    kept.keep(ExportTraceServiceRequest::decode(body).unwrap(), token);
    (StatusCode::OK, Vec::new())
}

/// The value of an attribute as text; of a list, its texts in brackets.
pub fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|pair| pair.key == key);
    found.and_then(|pair| pair.value.as_ref()).map_or_else(|| "(none)".to_owned(), shown)
}

fn shown(value: &AnyValue) -> String {
    match &value.value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::ArrayValue(array)) => {
            format!("[{}]", array.values.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}
