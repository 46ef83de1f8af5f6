//! A container as a manifest describes it: a program, its environment, its probes. Its ports are the test's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::http::Request;
use anyhow::{bail, ensure};
use prost::Message;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::grpc::Client;
use crate::http::{self, Answer};
use crate::port::Port;
use crate::process::{LOOK_EVERY, Process};
use crate::wire::{CODES, Descriptor, Entry, RateLimitRequest, RateLimitResponse};

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(60);
/// Of a caller; what answers at all answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Container {
    process: Process,
    pub grpc: Port,
    pub http: Port,
    pub debug: Port,
    _folder: TempDir,
}

impl Container {
    /// Starts a program with these variables and no others but the three ports.
    pub fn start(program: &Path, environment: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        Self::run(Command::new(program), environment)
    }

    /// As [`Container::start`], with a command that has its arguments.
    pub fn run(mut command: Command, environment: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let [grpc, http, debug] = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        command.env_clear().envs(environment).current_dir(folder.path());
        for (name, port) in [("GRPC_PORT", &grpc), ("PORT", &http), ("DEBUG_PORT", &debug)] {
            command.env(name, port.number().to_string());
        }
        let process = Process::spawn(&mut command, &folder.path().join("log"))?;
        Ok(Self { process, grpc, http, debug, _folder: folder })
    }

    /// What a probe of a path on the HTTP port is told.
    pub async fn probe(&self, path: &str) -> anyhow::Result<Answer> {
        http::send(self.http.address(), Request::get(path).body(http::Body::default())?).await
    }

    pub async fn debug(&self, path: &str) -> anyhow::Result<Answer> {
        http::send(self.debug.address(), Request::get(path).body(http::Body::default())?).await
    }

    /// Waits until the probe of this path passes, as the kubelet does.
    pub async fn ready(&mut self, path: &str) -> anyhow::Result<Answer> {
        let deadline = Instant::now() + START;
        while self.process.is_running() && Instant::now() < deadline {
            if let Ok(answer) = self.probe(path).await
                && answer.status == 200
            {
                return Ok(answer);
            }
            sleep(LOOK_EVERY).await;
        }
        bail!("{path} never passed; the program said:\n{}", self.process.output())
    }

    /// The overall code of one call with one descriptor.
    pub async fn ask(&self, domain: &str, entries: &[(&str, &str)]) -> anyhow::Result<&'static str> {
        Ok(code(&ask(&Client::tcp(self.grpc.number())?, domain, entries).await?))
    }

    /// The limit that one call with one descriptor is told, in requests per unit.
    pub async fn limit(&self, domain: &str, entries: &[(&str, &str)]) -> anyhow::Result<Option<u32>> {
        let answer = ask(&Client::tcp(self.grpc.number())?, domain, entries).await?;
        let limit = answer.statuses.first().and_then(|status| status.current_limit.as_ref());
        Ok(limit.map(|limit| limit.requests_per_unit))
    }

    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        ensure!(self.process.signal(signal)?, "it has ended: {}", self.process.output());
        Ok(())
    }

    /// Ends it as the kubelet does, and waits; it must end well.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.process.exit(STOP).await?;
        let well = status.is_some_and(|status| status.success());
        ensure!(well, "it ended with {status:?}; it said:\n{}", self.process.output());
        Ok(())
    }

    pub fn output(&self) -> String {
        self.process.output()
    }
}

/// One call with one descriptor.
pub async fn ask(
    client: &Client,
    domain: &str,
    entries: &[(&str, &str)],
) -> anyhow::Result<RateLimitResponse> {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    let descriptor = Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() };
    let request =
        RateLimitRequest { domain: domain.to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    Ok(RateLimitResponse::decode(client.call(path, request.encode_to_vec(), PATIENCE).await?)?)
}

pub fn code(answer: &RateLimitResponse) -> &'static str {
    let code = usize::try_from(answer.overall_code).ok();
    code.and_then(|code| CODES.get(code)).copied().unwrap_or("a code that there is not")
}
