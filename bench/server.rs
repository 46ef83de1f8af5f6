//! A server of one's own to measure, and what the kernel says that it has used.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::client::{Client, Expect};
use crate::keys::{About, RULES, Shape, message};
use crate::port::Port;
use crate::settings::settings;

const START: Duration = Duration::from_secs(10);

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    BareTonic,
    BareEdge,
    /// Tidegate, which counts in its memory.
    Memory,
    /// Tidegate in front of a Redis of its own.
    Redis,
}

pub struct Server {
    process: Child,
    redis: Option<Redis>,
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
            Kind::Memory | Kind::Redis => {
                let mut command = Command::new(binary("tidegate")?);
                command.env_clear().envs(settings(folder.path(), ports.each_ref()));
                // Room above the keys that are counted, so that none is evicted.
                command.env("MEMORY_MAX_KEYS", "2000000");
                command
            }
        };
        let redis = if kind == Kind::Redis { Some(Redis::start(folder.path())?) } else { None };
        if let Some(redis) = &redis {
            command.env("BACKEND_TYPE", "redis").env("REDIS_SOCKET_TYPE", "tcp");
            command.env("REDIS_URL", redis.port.address().to_string());
        }
        let start = Instant::now();
        let process = command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let mut server = Self { process, redis, ports, ready_after: Duration::ZERO, _folder: folder };
        server.first_answer(start).await.with_context(|| format!("{command:?} does not answer"))?;
        server.ready_after = start.elapsed();
        Ok(server)
    }

    async fn first_answer(&mut self, start: Instant) -> anyhow::Result<()> {
        let frame = Bytes::from(message(Shape::One, About::Users, 0));
        loop {
            let answer = match Client::connect(self.address()).await {
                Ok(client) => client.call(frame.clone(), Expect::Ok).await,
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
        cpu(self.process.id())
    }

    /// The same of its Redis; nothing if it has none.
    pub fn cpu_of_redis(&self) -> anyhow::Result<Duration> {
        self.redis.as_ref().map_or(Ok(Duration::ZERO), |redis| cpu(redis.process.id()))
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> anyhow::Result<u64> {
        let status = proc(self.process.id(), "status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1024)
    }
}

/// A `redis-server`, by its own defaults but for what would be written to a disk.
struct Redis {
    process: Child,
    port: Port,
}

impl Redis {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let port = Port::reserve()?;
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.number().to_string(), "--save", "", "--dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server")?;
        Ok(Self { process, port })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn cpu(process: u32) -> anyhow::Result<Duration> {
    let stat = proc(process, "stat")?;
    // Behind the name, which may hold blanks, in brackets: utime and stime are the 12th and the 13th word.
    let (_, behind) = stat.rsplit_once(')').context("no name in stat")?;
    let words: Vec<&str> = behind.split_whitespace().skip(11).take(2).collect();
    let ticks = words.iter().map(|word| word.parse::<u64>()).sum::<Result<u64, _>>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn proc(process: u32, file: &str) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(format!("/proc/{process}/{file}"))?)
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
