//! A process from its start to its end, told by signals as an operator or a Kubernetes would.

#![cfg(test)]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use self::authority::{Authority, Pair};
use self::grpc::Client;
use self::port::Port;
use self::process::LOOK_EVERY;
use self::tidegate::Tidegate;

#[path = "support/authority.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod authority;
#[path = "support/grpc.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod grpc;
#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod http;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
mod process;
#[path = "support/settings.rs"]
mod settings;
#[path = "support/tidegate.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod tidegate;

/// Far beyond what any of these tests takes: only a hanging one meets it.
const LONG: Duration = Duration::from_secs(60);

const HOT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Domain `d`, one descriptor `k=v`.
const REQUEST: &[u8] = b"\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";

const RULES: &str = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 9}}]\n";

/// Waits until what is asked for is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(LONG, look).await.expect("it does not come to that");
}

#[tokio::test]
async fn before_the_stop_it_is_unwell_and_serves_for_as_long_as_was_asked() {
    let port = Arc::new(Port::reserve().unwrap());
    let mut server = Tidegate::start_with(&port, &[RULES], &[("PRE_STOP_DELAY", "1h")]).await.unwrap();
    server.signal(Signal::TERM).unwrap();
    until(async || server.get("/healthcheck").await.unwrap().status == 500).await;
    let verbose = server.get("/healthcheck?verbose").await.unwrap();
    assert!(verbose.body.contains("[-] process: shutting down"), "{}", verbose.body);
    // On a connection that was made only now.
    let answer = Client::tcp(port.number()).unwrap().call(HOT, REQUEST.to_vec(), LONG).await;
    answer.unwrap();
    server.signal(Signal::TERM).unwrap();
    timeout(LONG, server.end()).await.unwrap().unwrap();
}

#[tokio::test]
async fn who_opens_a_port_that_another_process_serves_is_told() {
    let port = Arc::new(Port::reserve().unwrap());
    let first = Tidegate::start(&port, &[RULES]).await.unwrap();
    let second = Tidegate::start(&port, &[RULES]).await.unwrap();
    let warning = format!("another process listens on {} (gRPC) too", port.address());
    assert!(second.output().contains(&warning), "{}", second.output());
    assert!(!first.output().contains("another process"), "{}", first.output());
}

#[tokio::test]
async fn a_page_that_is_under_way_does_not_hold_the_end() {
    let port = Arc::new(Port::reserve().unwrap());
    let settings = [("DRAIN_TIMEOUT", "1h"), ("DEBUG_PROFILING", "true")];
    let mut server = Tidegate::start_with(&port, &[RULES], &settings).await.unwrap();
    let mut page = TcpStream::connect(server.debug_address()).await.unwrap();
    page.write_all(b"GET /debug/threads?seconds=60 HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    // It looks at connections in their order: once this one is answered, the page has begun.
    server.metric("tidegate_rules").await.unwrap();
    server.signal(Signal::TERM).unwrap();
    until(async || server.output().contains("HTTP requests were cut off")).await;
    server.end().await.unwrap();
}

#[tokio::test]
async fn at_debug_the_log_says_who_asked_and_by_which_rule_it_was_decided() {
    let port = Arc::new(Port::reserve().unwrap());
    let server = Tidegate::start_with(&port, &[RULES], &[("LOG_LEVEL", "debug")]).await.unwrap();
    Client::tcp(port.number()).unwrap().call(HOT, REQUEST.to_vec(), LONG).await.unwrap();
    let line = r#"msg="decided" domain=d answer=Ok decided="k=v: d.k 9/hour: Ok, 8 left""#;
    until(async || server.output().contains(line)).await;
}

async fn start_with_tls(port: &Arc<Port>, dir: &TempDir, pair: &Pair) -> Tidegate {
    let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    fs::write(&certificate, &pair.certificate).unwrap();
    fs::write(&key, &pair.key).unwrap();
    let settings = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", certificate.to_str().unwrap()),
        ("GRPC_SERVER_TLS_KEY", key.to_str().unwrap()),
    ];
    Tidegate::start_with(port, &[RULES], &settings).await.unwrap()
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_told_and_ends_nothing() {
    let (port, dir) = (Arc::new(Port::reserve().unwrap()), TempDir::new().unwrap());
    let mut params = authority::params("a server of old", &["localhost"]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    let pair = Authority::new("ca").unwrap().sign(params, ExtendedKeyUsagePurpose::ServerAuth).unwrap();
    let server = start_with_tls(&port, &dir, &pair).await;
    until(async || server.output().contains("the certificate in GRPC_SERVER_TLS_CERT has expired")).await;
    let verbose = server.get("/healthcheck?verbose").await.unwrap();
    assert!(
        verbose.status == 200 && verbose.body.contains("[!] certificate: it has expired"),
        "{}",
        verbose.body
    );
    let expiry = server.metric("tidegate_tls_certificate_expiry_timestamp_seconds").await.unwrap();
    assert!((expiry - 978_307_200.0).abs() < 0.5, "{expiry}");
    assert!(!server.output().contains("PRIVATE"), "{}", server.output());
}

#[tokio::test]
async fn a_certificate_that_is_refused_is_told_with_the_reason_and_ends_nothing() {
    let (port, dir) = (Arc::new(Port::reserve().unwrap()), TempDir::new().unwrap());
    let pair = Authority::new("ca").unwrap().server(&["localhost"]).unwrap();
    let server = start_with_tls(&port, &dir, &pair).await;
    let certificate = dir.path().join("tls.crt");
    fs::write(&certificate, "nothing").unwrap();
    let line = format!(
        "[!] certificate: its files were refused, those before stay in force: GRPC_SERVER_TLS_CERT={}: no certificate in PEM form is in it\n",
        certificate.display()
    );
    until(async || {
        let verbose = server.get("/healthcheck?verbose").await.unwrap();
        verbose.status == 200 && verbose.body.contains(&line)
    })
    .await;
}

#[tokio::test]
async fn sighup_reads_rules_and_certificates_again() {
    let (port, dir) = (Arc::new(Port::reserve().unwrap()), TempDir::new().unwrap());
    let pair = Authority::new("ca").unwrap().server(&["localhost"]).unwrap();
    let mut server = start_with_tls(&port, &dir, &pair).await;
    async fn loads(server: &Tidegate, what: &str) -> f64 {
        server.metric(&format!("tidegate_{what}_reloads_total{{result=\"ok\"}}")).await.unwrap()
    }
    let before = [loads(&server, "rules").await, loads(&server, "tls").await];
    server.signal(Signal::HUP).unwrap();
    until(async || loads(&server, "rules").await > before[0] && loads(&server, "tls").await > before[1])
        .await;
    let verbose = server.get("/healthcheck?verbose").await.unwrap();
    assert!(verbose.body.contains("[+] certificate: valid for "), "{}", verbose.body);
    server.stop().await.unwrap();
}
