//! One server process: started, looked at, ordered about, paused, killed, started again on the same ports.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use super::certificates::Certificates;
use super::clock::ServerClock;
use super::resp::{Connection, Reply};
use super::wait::eventually;
use crate::port::Port;
use crate::process::Process;

/// A server answers its first PING within 20 ms on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis7,
    Redis62,
    Valkey9,
}

impl Kind {
    fn program(self) -> anyhow::Result<PathBuf> {
        let tool = match self {
            Self::Redis7 => return Ok("redis-server".into()),
            Self::Redis62 => "redis62",
            Self::Valkey9 => "valkey",
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(tool);
        ensure!(path.exists(), "{} is missing: run scripts/fetch {tool}", path.display());
        Ok(path)
    }
}

/// What a server is to be like, before it is started.
#[derive(Clone)]
pub struct Setup {
    kind: Kind,
    lines: Vec<String>,
    password: Option<String>,
    tls: Option<Arc<Certificates>>,
    cluster: bool,
    namespace: Option<(String, IpAddr)>,
    environment: Vec<String>,
}

impl Setup {
    pub fn new(kind: Kind) -> Self {
        let (lines, environment) = (Vec::new(), Vec::new());
        Self { kind, lines, password: None, tls: None, cluster: false, namespace: None, environment }
    }

    /// A line of `redis.conf`.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// The password of the user `default`, with which [`Server::call`] comes too.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// TLS on a port of its own; the plain port stays, for the test.
    #[must_use]
    pub fn tls(mut self, certificates: &Arc<Certificates>) -> Self {
        self.tls = Some(Arc::clone(certificates));
        self
    }

    #[must_use]
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// In the network namespace of this name, where its address is `address`.
    #[must_use]
    pub fn inside(mut self, namespace: &str, address: IpAddr) -> Self {
        self.namespace = Some((namespace.to_owned(), address));
        self
    }

    /// Goes by this clock.
    #[must_use]
    pub fn clock(mut self, clock: &ServerClock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    /// Takes ports and a folder; starts nothing.
    pub fn prepare(self) -> anyhow::Result<Server> {
        let folder = TempDir::new()?;
        let tls = if self.tls.is_some() { Some(Port::reserve()?) } else { None };
        let bus = if self.cluster { Some(Port::reserve()?) } else { None };
        Ok(Server { process: Mutex::default(), port: Port::reserve()?, tls, bus, folder, setup: self })
    }

    pub async fn start(self) -> anyhow::Result<Server> {
        let server = self.prepare()?;
        server.launch().await?;
        Ok(server)
    }
}

pub struct Server {
    /// None while it is not to run. Ordering a server about takes no more than looking at it.
    process: Mutex<Option<Process>>,
    port: Port,
    tls: Option<Port>,
    bus: Option<Port>,
    folder: TempDir,
    setup: Setup,
}

impl Server {
    pub async fn start(kind: Kind) -> anyhow::Result<Self> {
        Setup::new(kind).start().await
    }

    /// The plain port.
    pub fn address(&self) -> SocketAddr {
        let ip = self.setup.namespace.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), |(_, ip)| *ip);
        SocketAddr::new(ip, self.port.number())
    }

    /// The TLS port where there is one: what the server's own kind is told.
    pub fn best_address(&self) -> SocketAddr {
        self.tls_address().unwrap_or_else(|_| self.address())
    }

    pub fn password(&self) -> Option<&str> {
        self.setup.password.as_deref()
    }

    pub fn tls_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.tls.as_ref().context("this server has no TLS")?.address())
    }

    /// Where the other nodes of a cluster reach it.
    pub fn bus(&self) -> anyhow::Result<u16> {
        Ok(self.bus.as_ref().context("this server is no node of a cluster")?.number())
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Adds a line of `redis.conf`, from the next launch on.
    pub fn add_line(&mut self, line: impl Into<String>) {
        self.setup.lines.push(line.into());
    }

    /// Starts the process and waits until it answers.
    pub async fn launch(&self) -> anyhow::Result<()> {
        self.spawn()?;
        let ready = eventually(READY_WITHIN, async || self.answers().await).await;
        ready.with_context(|| format!("the server does not answer; it printed:\n{}", self.log()))
    }

    /// Starts the process; it may not answer yet.
    pub fn spawn(&self) -> anyhow::Result<()> {
        let file = self.folder.path().join("redis.conf");
        fs::write(&file, self.configuration())?;
        let mut command = dying_with_us(self.setup.namespace.as_ref().map(|(name, _)| name.as_str()));
        command.args(&self.setup.environment).arg(self.setup.kind.program()?).arg(file);
        if self.is_sentinel() {
            command.arg("--sentinel");
        }
        *self.process.lock() = Some(Process::spawn(&mut command, &self.folder.path().join("log"))?);
        Ok(())
    }

    fn configuration(&self) -> String {
        let folder = self.folder.path().display();
        let mut lines = vec![
            format!("bind {}", self.address().ip()),
            format!("port {}", self.port.number()),
            format!("dir {folder}"),
            "protected-mode no".to_owned(),
        ];
        if !self.is_sentinel() {
            lines.push(format!("unixsocket {folder}/redis.sock"));
            // A replica's first copy is not to wait for company.
            lines.extend(
                ["save \"\"", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1"].map(str::to_owned),
            );
        }
        if let Some(password) = &self.setup.password {
            lines.extend([format!("requirepass {password}"), format!("masterauth {password}")]);
        }
        if let (Some(port), Some(files)) = (&self.tls, &self.setup.tls) {
            lines.extend([
                format!("tls-port {}", port.number()),
                format!("tls-ca-cert-file {}", files.authority.display()),
                format!("tls-cert-file {}", files.server.certificate.display()),
                format!("tls-key-file {}", files.server.key.display()),
                "tls-replication yes".to_owned(),
            ]);
            if self.setup.cluster {
                lines.push("tls-cluster yes".to_owned());
            }
        }
        if let Some(bus) = &self.bus {
            lines.extend(["cluster-enabled yes".to_owned(), format!("cluster-port {}", bus.number())]);
        }
        lines.extend(self.setup.lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn is_sentinel(&self) -> bool {
        self.setup.lines.iter().any(|line| line.starts_with("sentinel "))
    }

    async fn answers(&self) -> anyhow::Result<()> {
        let reply = self.call(&["PING"]).await?;
        ensure!(reply == Reply::Text("PONG".to_owned()), "{reply:?}");
        Ok(())
    }

    /// A connection to the plain port, past the password.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let mut connection = Connection::open(self.address()).await?;
        if let Some(password) = &self.setup.password {
            connection.call(&["AUTH", password]).await?.ok()?;
        }
        Ok(connection)
    }

    /// One command on a connection of its own.
    pub async fn call<A: AsRef<str>>(&self, command: &[A]) -> anyhow::Result<Reply> {
        self.connect().await?.call(command).await
    }

    /// A field of `INFO`, which has one name in one section.
    pub async fn info(&self, field: &str) -> anyhow::Result<String> {
        let info = self.call(&["INFO", "everything"]).await?.text()?;
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(line.with_context(|| format!("INFO has no {field}"))?.to_owned())
    }

    /// How often the server ran a command, refused calls not counted.
    pub async fn n_calls(&self, command: &str) -> anyhow::Result<u64> {
        let info = self.call(&["INFO", "commandstats"]).await?.text()?;
        let start = format!("cmdstat_{command}:calls=");
        let Some(rest) = info.lines().find_map(|line| line.strip_prefix(&start)) else { return Ok(0) };
        Ok(rest.split(',').next().unwrap_or_default().parse()?)
    }

    /// Ends it at once, as a crash would.
    pub async fn kill(&self) -> anyhow::Result<()> {
        let process = self.process.lock().take();
        let mut process = process.context("the server is not running")?;
        process.signal(Signal::KILL)?;
        process.exit(READY_WITHIN).await?.context("a killed process ends")?;
        Ok(())
    }

    /// Stops it where it is: connections stay open, and are even accepted by the kernel, but nobody answers.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let mut process = self.process.lock();
        let process = process.as_mut().context("the server is not running")?;
        ensure!(process.signal(signal)?, "the server is gone: {}", process.output());
        Ok(())
    }

    /// Kills it and starts it again, empty, on the same ports. A node of a cluster knows its cluster still.
    pub async fn restart_empty(&self) -> anyhow::Result<()> {
        self.kill().await?;
        self.launch().await
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// The start of a command line whose process is killed by the kernel when the thread that starts it ends, however that comes;
/// where there is no `setpriv`, nothing but the destructor of [`Process`] ends it.
fn dying_with_us(namespace: Option<&str>) -> Command {
    let mut words = Vec::new();
    if Path::new("/usr/bin/setpriv").exists() {
        words.extend(["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]);
    }
    if let Some(namespace) = namespace {
        words.extend(["ip", "netns", "exec", namespace]);
    }
    words.push("env");
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or("env"));
    command.args(words);
    command
}
