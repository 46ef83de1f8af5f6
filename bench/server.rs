//! A server of one's own to measure, and what the kernel says that it has used.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::client::Client;
use crate::keys::{RULES, Shape, message};
use crate::port::Port;
use crate::settings::settings;

const START: Duration = Duration::from_secs(10);

/// What is measured.
#[derive(Clone, Copy)]
pub enum Kind {
    /// The unit: tonic as it comes, one runtime and listener a core, a constant answer.
    BareTonic,
    /// Tidegate's edge around a constant answer.
    BareEdge,
    Tidegate,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::BareTonic, Self::BareEdge, Self::Tidegate];

    /// In the words of the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::BareTonic => "bare tonic",
            Self::BareEdge => "bare edge",
            Self::Tidegate => "tidegate",
        }
    }
}

pub struct Server {
    process: Child,
    ports: [Port; 3],
    /// From the start of the process to its first answer.
    pub ready_after: Duration,
    _folder: TempDir,
}

impl Server {
    pub async fn start(kind: Kind) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let rules = folder.path().join("ratelimit/config");
        std::fs::create_dir_all(&rules)?;
        std::fs::write(rules.join("bench.yaml"), RULES)?;
        let ports = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        let [grpc, ..] = &ports;
        let bare = |example: &str| {
            let mut command = Command::new(binary(example)?);
            command.arg(grpc.address().to_string());
            anyhow::Ok(command)
        };
        let mut command = match kind {
            Kind::BareTonic => bare("examples/bare_tonic")?,
            Kind::BareEdge => bare("examples/bare")?,
            Kind::Tidegate => {
                let mut command = Command::new(binary("tidegate")?);
                command.env_clear().envs(settings(folder.path(), ports.each_ref()));
                // Room above the keys that are counted, so that none is evicted.
                command.env("MEMORY_MAX_KEYS", "2000000");
                command
            }
        };
        let start = Instant::now();
        let process = command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let mut server = Self { process, ports, ready_after: Duration::ZERO, _folder: folder };
        server.first_answer(start).await.with_context(|| format!("{command:?} does not answer"))?;
        server.ready_after = start.elapsed();
        Ok(server)
    }

    async fn first_answer(&mut self, start: Instant) -> anyhow::Result<()> {
        let frame = Bytes::from(message(Shape::One, 0));
        loop {
            let answer = match Client::connect(self.address()).await {
                Ok(client) => client.call(frame.clone()).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(error) => ensure!(start.elapsed() < START, error),
            }
            ensure!(self.process.try_wait()?.is_none(), "it has ended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.ports[0].address()
    }

    /// Time on the CPU so far, in user and in kernel mode.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = self.proc("stat")?;
        // Behind the name, which may hold blanks, in brackets: utime and stime are the 12th and the 13th word.
        let (_, behind) = stat.rsplit_once(')').context("no name in stat")?;
        let words: Vec<&str> = behind.split_whitespace().skip(11).take(2).collect();
        let ticks = words.iter().map(|word| word.parse::<u64>()).sum::<Result<u64, _>>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> anyhow::Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1024)
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id()))?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that was built along with this one.
fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let release = own.parent().and_then(|examples| examples.parent()).context("no folder of its own")?;
    Ok(release.join(name))
}
