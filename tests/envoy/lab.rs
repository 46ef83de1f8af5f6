//! A real Envoy in front of one or more real servers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::http::Request;
use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::http::{self, Answer};
use crate::port::Port;
use crate::process::{LOOK_EVERY, Process};
use crate::tidegate::Tidegate;

const START: Duration = Duration::from_secs(30);

pub struct Envoy {
    admin: SocketAddr,
    listener: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl Envoy {
    /// Starts an Envoy with this configuration, its `@dir@` and the other marks replaced, and waits until it serves.
    pub async fn start(configuration: &str, marks: &[(&str, &str)]) -> anyhow::Result<Self> {
        let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/envoy");
        ensure!(binary.exists(), "no Envoy at {}: `scripts/fetch envoy` brings it", binary.display());
        let folder = TempDir::new()?;
        let (config, admin) = (folder.path().join("envoy.yaml"), folder.path().join("admin"));
        let text = configuration.replace("@dir@", &folder.path().to_string_lossy());
        std::fs::write(&config, marks.iter().fold(text, |text, (mark, meant)| text.replace(mark, meant)))?;
        let mut command = Command::new(binary);
        command
            .args(["--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"])
            .args(["--service-cluster", "lab-cluster", "--service-node", "lab-node"])
            .arg("--admin-address-path")
            .arg(&admin)
            .arg("--config-path")
            .arg(&config);
        let mut process = Process::spawn(&mut command, &folder.path().join("log"))?;
        let admin = Self::serving(&admin, &mut process)
            .await
            .with_context(|| format!("Envoy does not serve; it said:\n{}", process.output()))?;
        let listener = Self::listener(admin).await?;
        Ok(Self { admin, listener, process, _folder: folder })
    }

    /// Envoy writes the address of its admin port to a file, and says there when it is ready.
    async fn serving(file: &Path, process: &mut Process) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + START;
        loop {
            ensure!(process.is_running(), "it has ended");
            ensure!(Instant::now() < deadline, "it took too long");
            if let Some(address) =
                std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok())
                && get(address, "/ready").await.is_ok_and(|answer| answer.status == 200)
            {
                return Ok(address);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn listener(admin: SocketAddr) -> anyhow::Result<SocketAddr> {
        let answer: Value = serde_json::from_str(&get(admin, "/listeners?format=json").await?.body)?;
        let listeners = answer["listener_statuses"].as_array().context("no listeners")?;
        let found =
            listeners.iter().find(|listener| listener["name"] == "under_test").context("no listener")?;
        let address = &found["local_address"]["socket_address"];
        let port = address["port_value"].as_u64().context("no port")?;
        Ok(SocketAddr::from(([127, 0, 0, 1], u16::try_from(port)?)))
    }

    /// Where its clients connect.
    pub fn listener_address(&self) -> SocketAddr {
        self.listener
    }

    /// Sends one request and says, when there is no answer, what Envoy printed.
    pub async fn send(&self, request: Request<http::Body>) -> anyhow::Result<Answer> {
        http::send(self.listener, request)
            .await
            .with_context(|| format!("Envoy said:\n{}", self.process.output()))
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Request::get(path).body(http::Body::default())?).await
    }

    /// One of Envoy's own counters or gauges; a counter that has never counted does not exist, and is 0.
    pub async fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let answer =
            get(self.admin, &format!("/stats?format=json&filter=^{}$", name.replace('.', "\\."))).await?;
        let stats: Value = serde_json::from_str(&answer.body)?;
        let found = stats["stats"].as_array().with_context(|| format!("no stats in {stats}"))?;
        Ok(found.first().map_or(0, |stat| stat["value"].as_u64().unwrap_or(u64::MAX)))
    }

    /// Waits until a counter or gauge has at least this value.
    pub async fn until_stat(&self, name: &str, value: u64) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        loop {
            let now = self.stat(name).await?;
            if now >= value {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} is {now}, less than {value}");
            sleep(LOOK_EVERY).await;
        }
    }
}

async fn get(to: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    http::send(to, Request::get(path).body(http::Body::default())?).await
}

/// One Envoy, one server.
pub struct Lab {
    pub envoy: Envoy,
    pub tidegate: Tidegate,
    _grpc: Arc<Port>,
}

impl Lab {
    pub async fn start(configuration: &str, rules: &[&str]) -> anyhow::Result<Self> {
        let grpc = Arc::new(Port::reserve()?);
        let tidegate = Tidegate::start(&grpc, rules).await?;
        let envoy = Envoy::start(configuration, &[("@rls@", &grpc.number().to_string())]).await?;
        Ok(Self { envoy, tidegate, _grpc: grpc })
    }

    /// The lab of `http.yaml`.
    pub async fn http() -> anyhow::Result<Self> {
        let rules = [
            include_str!("http-rules.yaml"),
            include_str!("http-rules-cost.yaml"),
            include_str!("http-rules-stage1.yaml"),
        ];
        Self::start(include_str!("http.yaml"), &rules).await
    }
}
