//! Envoy Gateway: rules over xDS with TLS on both sides, TLS on the gRPC port, statistics for Prometheus with a file of mappings,
//! tracing; and a health check that waits for none of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper_util::rt::TokioIo;
use prost_types::Any;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tidegate::pb::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::task::AbortOnDropHandle;

use crate::configmap::ConfigMap;
use crate::container::{ask, code};
use crate::control_plane::{ControlPlane, any};
use crate::grpc::Client;
use crate::http;
use crate::pod::{Env, Pod, Volumes};
use crate::port::Port;
use crate::redis::certificates::{Certificates, ServerName as Names};
use crate::redis::wait::eventually;

const AT_LAST: Duration = Duration::from_secs(30);

/// The Deployment `envoy-ratelimit`, with metrics and tracing on.
const ENVOY_GATEWAY: Env = &[
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "@control-plane@"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
    ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "@redis@"),
    ("USE_PROMETHEUS", "true"),
    ("PROMETHEUS_ADDR", "@metrics@"),
    ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
    ("TRACING_ENABLED", "true"),
    ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
    ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
    ("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-5c8f7d9c4-x2x7k"),
    ("TRACING_SAMPLING_RATE", "1.0"),
    // Nobody is there, as when a collector is restarted.
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
];

/// What Envoy Gateway mounts is longer, and of this shape.
const MAPPINGS: &str = r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.*.over_limit"
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels: { domain: "$1", key1: "$2", key2: "$3" }
  - match: "ratelimit.service.rate_limit.*.*.*.total_hits"
    name: "ratelimit_service_rate_limit_total_hits"
    timer_type: "histogram"
    labels: { domain: "$1", key1: "$2", key2: "$3" }
"#;

const DOMAIN: &str = "default/eg/http";
const ROUTE: &str = "httproute/default/http-ratelimit/rule/0/match/0/*";
const NO_SELECTOR: &str = "rule-0-match--1";
/// What Envoy sends for a route whose limit has no selector.
const ENTRIES: &[(&str, &str)] = &[(ROUTE, ROUTE), (NO_SELECTOR, NO_SELECTOR)];

fn resources(requests_per_unit: u32) -> Vec<Any> {
    let unit = RateLimitUnit::Year.into();
    let limited = RateLimitDescriptor {
        key: NO_SELECTOR.to_owned(),
        value: NO_SELECTOR.to_owned(),
        rate_limit: Some(RateLimitPolicy { unit, requests_per_unit, ..RateLimitPolicy::default() }),
        ..RateLimitDescriptor::default()
    };
    let route = RateLimitDescriptor {
        key: ROUTE.to_owned(),
        value: ROUTE.to_owned(),
        descriptors: vec![limited],
        ..RateLimitDescriptor::default()
    };
    let config =
        RateLimitConfig { name: DOMAIN.to_owned(), domain: DOMAIN.to_owned(), descriptors: vec![route] };
    vec![any(&config)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_gateways_deployment() -> anyhow::Result<()> {
    let certificates = Certificates::of(Names::Right)?;
    let plane = ControlPlane::start().await;
    let front = Front::of(plane.address(), &certificates).await?;
    let volumes = Volumes::new()?;
    let read = std::fs::read_to_string;
    let secret = [
        ("tls.crt", read(&certificates.server.certificate)?),
        ("tls.key", read(&certificates.server.key)?),
        ("ca.crt", read(&certificates.authority)?),
    ];
    let _secret = ConfigMap::mount(&volumes.at("/certs"), &secret)?;
    let _mappings = ConfigMap::mount(&volumes.at("/etc/statsd-exporter"), &[("conf.yaml", MAPPINGS)])?;
    let metrics = Port::reserve()?;
    let replaced = [
        ("@control-plane@", format!("localhost:{}", front.port)),
        ("@metrics@", format!(":{}", metrics.number())),
    ];
    let mut pod = volumes.start_with(ENVOY_GATEWAY, &replaced).await?;

    // Startup, readiness and liveness: one path, in the clear, and no rules are needed for it.
    assert_eq!(pod.container.ready("/healthcheck").await?.body, "OK");
    let envoy = envoy(pod.container.grpc.number(), &certificates)?;
    let refused = ask(&envoy, DOMAIN, ENTRIES).await.expect_err("there are no rules yet").to_string();
    ensure!(refused.contains("no rate limit configuration loaded"), "{refused}");

    plane.send("1", resources(2));
    comes_to_limit(&envoy, 2, &pod).await?;
    let first = &plane.seen()[0].request;
    assert_eq!(first.node.as_ref().context("no node")?.id, "envoy-ratelimit");
    while code(&ask(&envoy, DOMAIN, ENTRIES).await?) == "OK" {}

    plane.send("2", resources(1_000));
    comes_to_limit(&envoy, 1_000, &pod).await?;
    let page = http::send(metrics.address(), ::http::Request::get("/metrics").body(http::Body::default())?);
    let page = page.await?.body;
    let over = page.lines().find(|line| line.starts_with("ratelimit_service_rate_limit_over_limit{"));
    let over = over.with_context(|| format!("nothing is over its limit:\n{page}"))?;
    ensure!(over.contains(&format!("domain=\"{DOMAIN}\"")) && over.contains("key1="), "{over}");
    ensure!(over.rsplit(' ').next().is_some_and(|n| n.parse::<f64>().is_ok_and(|n| n >= 1.0)), "{over}");
    pod.container.stop().await
}

async fn comes_to_limit(envoy: &Client, limit: u32, pod: &Pod) -> anyhow::Result<()> {
    eventually(AT_LAST, async || {
        let answer = ask(envoy, DOMAIN, ENTRIES).await?;
        let found = answer.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit);
        ensure!(found == Some(limit), "{found:?}: {}", pod.container.output());
        Ok(())
    })
    .await
}

fn roots(certificates: &Certificates) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificates.authority)?)?;
    Ok(roots)
}

/// A client as Envoy Gateway sets Envoy up: it verifies the authority, and shows a certificate if it is asked for one.
fn envoy(port: u16, certificates: &Certificates) -> anyhow::Result<Client> {
    let chain = vec![CertificateDer::from_pem_file(&certificates.client.certificate)?];
    let key = PrivateKeyDer::from_pem_file(&certificates.client.key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(certificates)?)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.enable_sni = false;
    let connector = TlsConnector::from(Arc::new(config));
    let connect = tower::service_fn(move |_| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
            connector.connect(name, stream).await.map(TokioIo::new)
        }
    });
    Ok(Client::over(
        tonic::transport::Endpoint::from_static("http://ratelimit").connect_with_connector_lazy(connect),
    ))
}

/// What Envoy Gateway's xDS port is: TLS, and only for clients that its own authority signed.
struct Front {
    port: u16,
    _accepting: AbortOnDropHandle<()>,
}

impl Front {
    async fn of(plane: std::net::SocketAddr, certificates: &Certificates) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(certificates)?), provider.clone())
                .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&certificates.server.certificate)?],
                PrivateKeyDer::from_pem_file(&certificates.server.key)?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let accept = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(stream).await?;
                    copy_bidirectional(&mut client, &mut TcpStream::connect(plane).await?).await
                });
            }
        };
        Ok(Self { port, _accepting: AbortOnDropHandle::new(tokio::spawn(accept)) })
    }
}
