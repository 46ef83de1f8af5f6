//! A `tidegate` process on ports and in a folder of its own, counting in memory unless it is told otherwise.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::http::Request;
use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::http;
use crate::port::Port;
use crate::process::{LOOK_EVERY, Process};
use crate::settings::settings;

/// Long enough for a busy machine; a start takes some tens of milliseconds.
const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(40);

pub struct Tidegate {
    process: Process,
    http: Port,
    debug: Port,
    _folder: TempDir,
}

impl Tidegate {
    /// Starts a server with these rules files and waits until it is ready.
    pub async fn start(grpc: &Arc<Port>, rules: &[&str]) -> anyhow::Result<Self> {
        Self::start_with(grpc, rules, &[]).await
    }

    /// As [`Tidegate::start`], with some settings more.
    pub async fn start_with(grpc: &Arc<Port>, rules: &[&str], more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let root = folder.path().join("runtime");
        let config = root.join("ratelimit/config");
        fs::create_dir_all(&config)?;
        for (i, text) in rules.iter().enumerate() {
            fs::write(config.join(format!("{i}.yaml")), text)?;
        }
        let (http, debug) = (Port::reserve()?, Port::reserve()?);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env_clear().envs(settings(&root, [grpc, &http, &debug])).envs(more.iter().copied());
        let process = Process::spawn(&mut command, &folder.path().join("log"))?;
        let mut server = Self { process, http, debug, _folder: folder };
        server.ready().await?;
        Ok(server)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        while self.process.is_running() && Instant::now() < deadline {
            let request = Request::get("/healthcheck").body(http::Body::default())?;
            if http::send(self.http.address(), request).await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        bail!("tidegate is not ready; it said:\n{}", self.process.output())
    }

    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        ensure!(self.process.signal(signal)?, "tidegate has ended; it said:\n{}", self.process.output());
        Ok(())
    }

    /// What it has logged so far.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// A page of the HTTP port.
    pub async fn get(&self, path: &str) -> anyhow::Result<http::Answer> {
        http::send(self.http.address(), Request::get(path).body(http::Body::default())?).await
    }

    /// The value of a series, by its name and labels as `/metrics` has them.
    pub async fn metric(&self, series: &str) -> anyhow::Result<f64> {
        let request = Request::get("/metrics").body(http::Body::default())?;
        let page = http::send(self.debug_address(), request).await?.body;
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = value.with_context(|| format!("no {series} in\n{page}"))?;
        Ok(value.parse()?)
    }

    /// Where its metrics are.
    pub fn debug_address(&self) -> SocketAddr {
        self.debug.address()
    }

    /// Ends it with SIGKILL: it does nothing any more.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::KILL).map(drop)
    }

    /// Ends it with SIGTERM and waits; it must end well.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        self.end().await
    }

    /// Waits for its end, which was asked for; it must be a good one.
    pub async fn end(mut self) -> anyhow::Result<()> {
        let status = self.process.exit(STOP).await?;
        let well = status.is_some_and(|status| status.success());
        ensure!(well, "tidegate ended with {status:?}; it said:\n{}", self.process.output());
        Ok(())
    }
}
