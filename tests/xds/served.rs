//! A real `tidegate` process whose rules come from a control plane.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use ::http::Request;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    certificates::{Certificates, ServerName},
    control_plane::{ControlPlane, FAILED, any, domain, domains},
    followed::line,
    http::{self, Answer},
    port::Port,
    process::{LOOK_EVERY, Process},
    settings::settings,
    tls::{Front, Mounted},
};

struct Tidegate {
    process: Process,
    http: Port,
    debug: Port,
    _grpc: Port,
    _folder: TempDir,
}

impl Tidegate {
    fn start(plane: &ControlPlane, more: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let [grpc, http, debug] = [(); 3].map(|()| Port::reserve().unwrap());
        let url = plane.address().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .env_clear()
            .envs(settings(Path::new("/there/is/no/such/place"), [&grpc, &http, &debug]))
            .envs([
                ("LOG_LEVEL", "info"),
                ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
                ("CONFIG_GRPC_XDS_SERVER_URL", &url),
                ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "50ms"),
                ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "200ms"),
            ])
            .envs(more.iter().copied());
        let process = Process::spawn(&mut command, &folder.path().join("log")).unwrap();
        Self { process, http, debug, _grpc: grpc, _folder: folder }
    }

    /// Asks a page until it answers like this.
    async fn until(
        &mut self,
        port: fn(&Self) -> &Port,
        path: &str,
        what: &str,
        is_it: impl Fn(&Answer) -> bool,
    ) -> String {
        let deadline = Instant::now() + FAILED;
        let mut last = None;
        while Instant::now() < deadline && self.process.is_running() {
            let request = Request::get(path).body(http::Body::default()).unwrap();
            match http::send(port(self).address(), request).await {
                Ok(answer) if is_it(&answer) => return answer.body,
                answer => last = Some(answer.map(|answer| answer.body)),
            }
            sleep(LOOK_EVERY).await;
        }
        panic!("{path}: {what} was expected, found {last:?}; it said:\n{}", self.process.output())
    }

    async fn health(&mut self, status: u16, text: &str) -> String {
        let what = format!("{status} and {text:?}");
        self.until(
            |it| &it.http,
            "/healthcheck",
            &what,
            |answer| answer.status == status && answer.body.contains(text),
        )
        .await
    }

    async fn rules(&mut self, listing: &str) {
        self.until(|it| &it.debug, "/rlconfig", listing, |answer| answer.body == listing).await;
    }

    async fn metric(&mut self, line: &str) {
        self.until(|it| &it.debug, "/metrics", line, |answer| answer.body.lines().any(|found| found == line))
            .await;
    }

    /// The status of one request for the rule of a domain.
    async fn ask(&self, domain: &str) -> u16 {
        let body =
            format!(r#"{{"domain":"{domain}","descriptors":[{{"entries":[{{"key":"a","value":"v"}}]}}]}}"#);
        let request = Request::post("/json").body(http::Body::from(body)).unwrap();
        http::send(self.http.address(), request).await.unwrap().status
    }

    async fn stop(mut self) -> String {
        self.process.signal(Signal::TERM).unwrap();
        let status = self.process.exit(FAILED).await.unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", self.process.output());
        self.process.output()
    }
}

/// Cases 110 and 165.
#[tokio::test]
async fn not_ready_until_a_first_snapshot_and_says_why() {
    let plane = ControlPlane::start().await;
    plane.away().await;
    let mut tidegate = Tidegate::start(&plane, &[]);
    tidegate.health(500, "no rules were loaded yet: the control plane at 127.0.0.1").await;
    assert_eq!(tidegate.ask("shop").await, 503);
    tidegate.rules("").await;
    plane.resume().await;
    plane.seen_at_least(1).await;
    plane.send("1", vec![any(&domain("", 1))]);
    tidegate.health(500, "config file cannot have empty domain").await;
    tidegate.metric("tidegate_rules_stale 1").await;
    plane.send("2", domains([("shop", 1)]));
    tidegate.health(200, "OK").await;
    assert_eq!([tidegate.ask("shop").await, tidegate.ask("shop").await], [200, 429]);
    let log = tidegate.stop().await;
    assert!(log.contains("config file cannot have empty domain") && log.contains("are good again"), "{log}");
}

#[tokio::test]
async fn it_stops_while_it_waits() {
    let plane = ControlPlane::start().await;
    let mut tidegate = Tidegate::start(&plane, &[]);
    plane.seen_at_least(1).await;
    let silent = "connected, and it has sent nothing to node 'default': does it know this node?";
    let began = Instant::now();
    tidegate.health(500, silent).await;
    assert!(began.elapsed() < FAILED / 2, "not only after a minute");
    tidegate.stop().await;
}

#[tokio::test]
async fn a_forced_start_is_ready_without_rules() {
    let plane = ControlPlane::start().await;
    plane.away().await;
    let mut tidegate = Tidegate::start(&plane, &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")]);
    tidegate.health(200, "OK").await;
    tidegate.rules("").await;
    assert_eq!(tidegate.ask("shop").await, 503);
    plane.send("1", domains([("shop", 5)]));
    plane.resume().await;
    tidegate.rules(&line("shop", 5)).await;
}

#[tokio::test]
async fn updates_are_taken_or_refused_and_counted_and_counters_go_on() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("shop", 2)]));
    let mut tidegate = Tidegate::start(&plane, &[]);
    tidegate.health(200, "OK").await;
    tidegate.metric("tidegate_xds_connected 1").await;
    assert_eq!([tidegate.ask("shop").await, tidegate.ask("shop").await], [200, 200]);
    plane.send("2", vec![any(&domain("shop", 9)), any(&domain("shop", 9))]);
    tidegate.metric("tidegate_xds_updates_total{result=\"refused\"} 1").await;
    tidegate.metric("tidegate_rules_reloads_total{result=\"refused\"} 1").await;
    tidegate.rules(&line("shop", 2)).await;
    tidegate.health(200, "OK").await;
    assert_eq!(tidegate.ask("shop").await, 429);
    plane.send("3", domains([("shop", 4)]));
    tidegate.rules(&line("shop", 4)).await;
    tidegate.metric("tidegate_xds_updates_total{result=\"accepted\"} 2").await;
    tidegate.metric("tidegate_rules_stale 0").await;
    assert_eq!(
        [tidegate.ask("shop").await, tidegate.ask("shop").await],
        [200, 429],
        "hits so far still count"
    );
    plane.send("4", Vec::new());
    tidegate.rules("").await;
    let log = tidegate.stop().await;
    assert!(log.contains("the control plane has sent no rules"), "{log}");
}

#[tokio::test]
async fn sighup_has_everything_sent_again() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("shop", 2)]));
    let mut tidegate = Tidegate::start(&plane, &[("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1h")]);
    tidegate.health(200, "OK").await;
    plane.seen_at_least(2).await;
    tidegate.process.signal(Signal::HUP).unwrap();
    plane.seen_one("a second stream", |seen| seen.stream == 1).await;
    tidegate.stop().await;
}

#[tokio::test]
async fn a_restart_while_the_control_plane_is_away_still_limits() {
    let cache = TempDir::new().unwrap();
    let more = [("RULES_CACHE_DIR", cache.path().to_str().unwrap())];
    let plane = ControlPlane::start().await;
    plane.send("17", domains([("shop", 1)]));
    let mut tidegate = Tidegate::start(&plane, &more);
    tidegate.health(200, "OK").await;
    tidegate.stop().await;
    plane.away().await;

    let mut tidegate = Tidegate::start(&plane, &more);
    tidegate.health(200, "OK").await;
    assert_eq!([tidegate.ask("shop").await, tidegate.ask("shop").await], [200, 429]);
    plane.send("18", domains([("shop", 3)]));
    plane.resume().await;
    tidegate.rules(&line("shop", 3)).await;
    let log = tidegate.stop().await;
    assert!(log.contains("version '17'"), "{log}");
}

/// What Envoy Gateway sets about rules, with its files.
#[tokio::test]
async fn envoy_gateways_environment_is_served_over_mtls() {
    let plane = ControlPlane::start().await;
    let certificates = Certificates::of(ServerName::Right).unwrap();
    let front = Front::of(plane.address(), Arc::clone(&certificates)).await;
    let mounted = Mounted::of(&certificates);
    let path = |name: &str| mounted.0.path().join(name).to_str().unwrap().to_owned();
    let url = format!("localhost:{}", front.address.port());
    let more = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &url),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &path("tls.crt")),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &path("tls.key")),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &path("ca.crt")),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ];
    plane.send("1", domains([("default/eg/http", 3)]));
    let mut tidegate = Tidegate::start(&plane, &more);
    tidegate.rules(&line("default/eg/http", 3)).await;
    tidegate.health(200, "OK").await;
    let node = plane.seen_at_least(1).await.remove(0).request.node.unwrap();
    assert_eq!(node.id, "envoy-ratelimit");
}

#[tokio::test]
async fn bad_certificates_at_the_start_end_it_with_the_path() {
    let plane = ControlPlane::start().await;
    let more = [
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/there/is/no/ca.crt"),
    ];
    let mut tidegate = Tidegate::start(&plane, &more);
    let status = tidegate.process.exit(Duration::from_secs(60)).await.unwrap();
    let log = tidegate.process.output();
    assert!(status.is_some_and(|status| !status.success()), "{log}");
    assert!(log.contains("cannot read /there/is/no/ca.crt"), "{log}");
}
