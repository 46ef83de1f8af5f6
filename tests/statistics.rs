//! Statistics as a whole process brings them to Prometheus, statsd and DogStatsD, and what happens to it when they cannot be
//! brought there.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod http;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/settings.rs"]
mod settings;

use std::fs;
use std::process::Command;
use std::time::Duration;

use ::http::Request;
use anyhow::{bail, ensure};
use port::Port;
use process::{LOOK_EVERY, Process};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::{Instant, sleep};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const RULES: &str = "
domain: default/eg/http
descriptors:
  - key: route
    value: one
    descriptors:
      - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1}}
";

/// What Envoy Gateway mounts, in short: two levels are shown, everything else is dropped.
const MAPPING: &str = r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.*.over_limit"
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
      key2: "$3"
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#;

const OVER_LIMIT: &str = r#"ratelimit_service_rate_limit_over_limit{domain="default/eg/http",key1="route_one",key2="remote_address"} 2"#;
const LOADED: &str = "ratelimit_service_config_load_success 1";

struct Service {
    process: Process,
    http: Port,
    _others: [Port; 2],
    _folder: TempDir,
}

impl Service {
    /// Starts a service; `{dir}` in a setting stands for its folder, where `files` lie.
    async fn start(files: &[(&str, &str)], more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let root = folder.path().join("runtime");
        fs::create_dir_all(root.join("ratelimit/config"))?;
        fs::write(root.join("ratelimit/config/rules.yaml"), RULES)?;
        for (name, text) in files {
            fs::write(folder.path().join(name), text)?;
        }
        let (grpc, http, debug) = (Port::reserve()?, Port::reserve()?, Port::reserve()?);
        let mut all = settings::settings(&root, [&grpc, &http, &debug]);
        all.remove("DISABLE_STATS");
        all.remove("USE_STATSD");
        let dir = folder.path().display().to_string();
        all.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.replace("{dir}", &dir))));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env_clear().envs(all);
        let process = Process::spawn(&mut command, &folder.path().join("log"))?;
        let mut service = Self { process, http, _others: [grpc, debug], _folder: folder };
        service.ready().await?;
        Ok(service)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.process.is_running() && Instant::now() < deadline {
            let request = Request::get("/healthcheck").body(http::Body::default())?;
            if http::send(self.http.address(), request).await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        bail!("not ready; it said:\n{}", self.process.output())
    }

    /// One call; whether it was let through.
    async fn is_let_through(&self) -> anyhow::Result<bool> {
        let body = r#"{"domain": "default/eg/http", "descriptors": [{"entries":
            [{"key": "route", "value": "one"}, {"key": "remote_address", "value": "10.0.0.1"}]}]}"#;
        let answer = http::send(self.http.address(), Request::post("/json").body(body.into())?).await?;
        ensure!([200, 429].contains(&answer.status), "{answer:?}");
        Ok(answer.status == 200)
    }

    /// Three calls of which two are refused.
    async fn three_calls(&self) -> anyhow::Result<()> {
        for expected in [true, false, false] {
            ensure!(self.is_let_through().await? == expected);
        }
        Ok(())
    }

    async fn logs(&self, words: &[&str]) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.process.output().lines().any(|line| words.iter().all(|word| line.contains(word))) {
            ensure!(Instant::now() < deadline, "no {words:?} in\n{}", self.process.output());
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Ends it, and gives what it has said.
    async fn stop(mut self) -> anyhow::Result<String> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.exit(PATIENCE).await?;
        let said = self.process.output();
        ensure!(status.is_some_and(|status| status.success()), "it said:\n{said}");
        Ok(said)
    }
}

/// The lines that Prometheus reads from a service with this file of mappings.
async fn exposed(files: &[(&str, &str)], mapping: &str) -> anyhow::Result<(Service, Vec<String>)> {
    let port = Port::reserve()?;
    let address = port.address().to_string();
    let more =
        [("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", &*address), ("PROMETHEUS_MAPPER_YAML", mapping)];
    let service = Service::start(files, &more).await?;
    service.three_calls().await?;
    let answer = http::send(port.address(), Request::get("/metrics").body(http::Body::default())?).await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok((service, answer.body.lines().map(str::to_owned).collect()))
}

fn holds(lines: &[String], line: &str) -> bool {
    lines.iter().any(|known| known == line)
}

#[tokio::test]
async fn a_file_of_mappings_stands_in_for_the_built_in_ones() -> anyhow::Result<()> {
    let (service, lines) = exposed(&[("conf.yaml", MAPPING)], "{dir}/conf.yaml").await?;
    assert!(holds(&lines, OVER_LIMIT), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("ratelimit_service_config_load")), "{lines:?}");
    service.stop().await?;
    Ok(())
}

/// Envoy Gateway names a file that is there only if somebody has made it.
#[tokio::test]
async fn without_the_file_the_built_in_mapping_is_used_with_a_warning() -> anyhow::Result<()> {
    let (service, lines) = exposed(&[], "{dir}/conf.yaml").await?;
    assert!(holds(&lines, OVER_LIMIT) && holds(&lines, LOADED), "{lines:?}");
    service.logs(&["warning", "PROMETHEUS_MAPPER_YAML", "conf.yaml", "built-in"]).await?;
    service.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_broken_file_is_an_error_and_the_built_in_mapping_is_used() -> anyhow::Result<()> {
    let broken = "mappings: [{match: a, name: b}, {match: c}]";
    let (service, lines) = exposed(&[("conf.yaml", broken)], "{dir}/conf.yaml").await?;
    assert!(holds(&lines, OVER_LIMIT) && holds(&lines, LOADED), "{lines:?}");
    service.logs(&["error", "conf.yaml", "mapping 2, match", "expected a name"]).await?;
    service.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_taken_port_for_prometheus_ends_nothing() -> anyhow::Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0").await?;
    let address = taken.local_addr()?.to_string();
    let more = [("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", &*address)];
    let service = Service::start(&[], &more).await?;
    service.logs(&["error", "no port for Prometheus"]).await?;
    service.three_calls().await?;
    service.stop().await?;
    Ok(())
}

#[tokio::test]
async fn no_call_waits_for_a_statsd_that_is_away_or_never_reads() -> anyhow::Result<()> {
    let (away, silent) = (Port::reserve()?, TcpListener::bind("127.0.0.1:0").await?);
    for (port, is_away) in [(away.number(), true), (silent.local_addr()?.port(), false)] {
        let port = port.to_string();
        let more = [
            ("USE_STATSD", "true"),
            ("STATSD_HOST", "127.0.0.1"),
            ("STATSD_PORT", &*port),
            ("STATS_FLUSH_INTERVAL", "1ms"),
        ];
        let service = Service::start(&[], &more).await?;
        service.three_calls().await?;
        for _ in 0..50 {
            assert!(!service.is_let_through().await?);
        }
        if is_away {
            service.logs(&["warning", "cannot send statistics to 127.0.0.1", "calls do not wait"]).await?;
        }
        service.stop().await?;
    }
    Ok(())
}

/// Nobody asked for it, so nobody is warned: a first start without any setting is quiet.
#[tokio::test]
async fn a_default_that_finds_no_statsd_says_nothing() -> anyhow::Result<()> {
    let away = Port::reserve()?;
    for (level, is_told) in [("warn", false), ("info", true)] {
        let more = [
            ("STATSD_PORT", &*away.number().to_string()),
            ("STATSD_HOST", "127.0.0.1"),
            ("LOG_LEVEL", level),
        ];
        let said = Service::start(&[], &more).await?.stop().await?;
        assert_eq!(said.contains("cannot send statistics"), is_told, "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn dogstatsd_gets_tags_of_what_the_mogrifiers_find() -> anyhow::Result<()> {
    let agent = UdpSocket::bind("127.0.0.1:0").await?;
    let port = agent.local_addr()?.port().to_string();
    let service = Service::start(
        &[],
        &[
            ("USE_DOG_STATSD", "true"),
            ("STATSD_HOST", "127.0.0.1"),
            ("STATSD_PORT", &port),
            ("EXTRA_TAGS", "zone:z1"),
            ("USE_DOG_STATSD_MOGRIFIERS", "RULE"),
            (
                "DOG_STATSD_MOGRIFIER_RULE_PATTERN",
                r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$",
            ),
            ("DOG_STATSD_MOGRIFIER_RULE_NAME", "ratelimit.$3"),
            ("DOG_STATSD_MOGRIFIER_RULE_TAGS", "domain:$1,rule:$2"),
        ],
    )
    .await?;
    service.three_calls().await?;
    // The last flush sends what the first, ten seconds after the start, would have.
    service.stop().await?;
    let mut lines = Vec::new();
    let wanted = "ratelimit.over_limit:2|c|#zone:z1,domain:default/eg/http,rule:route_one.remote_address";
    while !holds(&lines, wanted) {
        let mut buffer = [0; 65_536];
        let received = tokio::time::timeout(PATIENCE, agent.recv(&mut buffer)).await;
        let Ok(received) = received else { bail!("no {wanted} in {lines:#?}") };
        let text = std::str::from_utf8(&buffer[..received?])?;
        lines.extend(text.lines().map(str::to_owned));
    }
    Ok(())
}
