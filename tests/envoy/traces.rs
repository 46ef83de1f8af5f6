//! Envoy's trace goes on in the server: its decision holds, and the server's span stands under its own.

use std::sync::Arc;

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};

use crate::collector::{Collector, text};
use crate::lab::Envoy;
use crate::port::Port;
use crate::tidegate::Tidegate;

const RULES: &str =
    "{domain: lab, descriptors: [{key: generic_key, rate_limit: {unit: hour, requests_per_unit: 1}}]}";

/// An Envoy that samples this share of its requests, in percent, a server, and where the spans of both go.
async fn lab(sampling: &str) -> anyhow::Result<(Envoy, Tidegate, Arc<Port>, Collector)> {
    let collector = Collector::start().await;
    let endpoint = collector.endpoint("grpc");
    let grpc = Arc::new(Port::reserve()?);
    let traced = [
        ("TRACING_ENABLED", "true"),
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
    ];
    let tidegate = Tidegate::start_with(&grpc, &[RULES], &traced).await?;
    let port = endpoint.rsplit(':').next().unwrap_or_default();
    let marks = [("@rls@", &*grpc.number().to_string()), ("@collector@", port), ("@sampling@", sampling)];
    let envoy = Envoy::start(include_str!("traced.yaml"), &marks).await?;
    Ok((envoy, tidegate, grpc, collector))
}

#[tokio::test]
async fn the_span_of_a_call_stands_under_envoys() -> anyhow::Result<()> {
    let (envoy, tidegate, _grpc, collector) = lab("100").await?;
    assert_eq!(envoy.get("/").await?.status, 200);
    assert_eq!(envoy.get("/").await?.status, 429);
    tidegate.stop().await?;
    let parent_of = |spans: &[(String, Span)], call: &Span| {
        spans.iter().any(|(service, span)| {
            service == "the-envoy" && span.trace_id == call.trace_id && span.span_id == call.parent_span_id
        })
    };
    let calls = |spans: &[(String, Span)]| -> Vec<Span> {
        let ours = spans.iter().filter(|(service, _)| service == "RateLimit").map(|(_, span)| span.clone());
        ours.filter(|span| span.kind() == SpanKind::Server).collect()
    };
    let spans = collector
        .until(|spans| {
            let calls = calls(spans);
            calls.len() == 2 && calls.iter().all(|call| parent_of(spans, call))
        })
        .await;
    let codes: Vec<_> = calls(&spans).iter().map(|call| text(&call.attributes, "ratelimit.code")).collect();
    assert_eq!(codes, ["OK", "OVER_LIMIT"]);
    Ok(())
}

#[tokio::test]
async fn what_envoy_does_not_sample_is_not_traced() -> anyhow::Result<()> {
    let (envoy, tidegate, _grpc, collector) = lab("0").await?;
    assert_eq!(envoy.get("/").await?.status, 200);
    assert_eq!(envoy.get("/").await?.status, 429);
    tidegate.stop().await?;
    assert!(collector.received().is_empty(), "{:?}", collector.received());
    Ok(())
}
