//! One server in a folder of its own, started with the files and settings of a scenario.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep};

use crate::grpc;
use crate::http;
use crate::port::Port;
use crate::process::{LOOK_EVERY, Process};
use crate::scenario::{Content, Scenario, Sink};
use crate::settings;
use crate::statistics::FLUSH_INTERVAL;

/// How long the HTTP and the debug port may take after the gRPC port. A debug port that stays closed is no failed start.
const HTTP_AFTER_GRPC: Duration = Duration::from_secs(5);
const DEBUG_AFTER_HTTP: Duration = Duration::from_secs(2);
/// How long the first connection for calls may take.
const GRPC_CONNECTS: Duration = Duration::from_secs(5);

pub struct Server {
    pub process: Process,
    pub client: grpc::Client,
    /// What the open health watches have said.
    pub watched: Arc<Mutex<Vec<serde_json::Value>>>,
    /// Connections that say nothing.
    pub idle: Vec<TcpStream>,
    pub grpc: Port,
    pub http: Port,
    pub debug: Port,
    pub prometheus: Port,
    socket: Option<PathBuf>,
    folder: Folder,
}

/// Where the others of a scenario listen.
#[derive(Clone, Copy)]
pub struct Ports {
    /// If there is one.
    pub redis: Option<u16>,
    pub statsd: u16,
}

impl Server {
    /// Starts the server; it may not be ready yet, or never be. `files_from` is relative to `beside`.
    pub fn start(scenario: &Scenario, beside: &Path, others: Ports) -> anyhow::Result<Self> {
        let folder = Folder::create()?;
        for (name, content) in &scenario.files {
            folder.write(name, content, false)?;
        }
        for path in &scenario.files_from {
            fs::copy(beside.join(path), folder.rules().join(path.file_name().unwrap_or_default()))?;
        }
        for (target, name) in &scenario.symlinks {
            folder.link(target, name)?;
        }
        let (grpc, http, debug) = (Port::reserve()?, Port::reserve()?, Port::reserve()?);
        let prometheus = Port::reserve()?;
        let settings = settings(scenario, &folder, [&grpc, &http, &debug, &prometheus], others);
        let socket = settings.get("GRPC_UDS").map(PathBuf::from);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env_clear().envs(&settings);
        Ok(Self {
            process: Process::spawn(&mut command, &folder.root.path().join("log"))?,
            client: match &socket {
                Some(path) => grpc::Client::unix(path.clone())?,
                None => grpc::Client::tcp(grpc.number())?,
            },
            watched: Arc::default(),
            idle: Vec::new(),
            grpc,
            http,
            debug,
            prometheus,
            socket,
            folder,
        })
    }

    /// Waits for the ports to open; false when they do not, or the process is gone.
    pub async fn ready(&mut self, within: Duration) -> bool {
        let grpc = match &self.socket {
            Some(path) => Opening::Socket(path.clone()),
            None => Opening::Port(self.grpc.address()),
        };
        let (http, debug) = (Opening::Port(self.http.address()), Opening::Port(self.debug.address()));
        if !self.opens(&grpc, within).await || !self.opens(&http, HTTP_AFTER_GRPC).await {
            return false;
        }
        self.opens(&debug, DEBUG_AFTER_HTTP).await;
        // Connects now: a conversation about one second has no time for it. Nobody counts a method that there is not.
        let _ = self.client.call("/no.such.Service/Method", Vec::new(), GRPC_CONNECTS).await;
        true
    }

    /// Waits until health says yes. The recorded server opens its ports then; this one opens them at once and says when.
    pub async fn serving(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline && self.process.is_running() {
            let request = ::http::Request::get("/healthcheck").body(Default::default());
            let Ok(request) = request else { return false };
            if http::send(self.http.address(), request).await.is_ok_and(|answer| answer.status == 200) {
                return true;
            }
            sleep(LOOK_EVERY).await;
        }
        false
    }

    async fn opens(&mut self, opening: &Opening, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline && self.process.is_running() {
            if opening.connect().await.is_ok() {
                return true;
            }
            sleep(LOOK_EVERY).await;
        }
        false
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }
}

/// Where a server listens.
enum Opening {
    Port(SocketAddr),
    Socket(PathBuf),
}

impl Opening {
    async fn connect(&self) -> io::Result<()> {
        match self {
            Self::Port(address) => TcpStream::connect(address).await.map(drop),
            Self::Socket(path) => UnixStream::connect(path).await.map(drop),
        }
    }
}

/// The settings of every scenario, then its own.
fn settings(
    scenario: &Scenario,
    folder: &Folder,
    [grpc, http, debug, prometheus]: [&Port; 4],
    others: Ports,
) -> BTreeMap<String, String> {
    let root = folder.runtime_root();
    let mut settings = settings::settings(&root, [grpc, http, debug]);
    if let Some(sink) = scenario.stats {
        settings.remove("DISABLE_STATS");
        settings.insert("STATS_FLUSH_INTERVAL".into(), FLUSH_INTERVAL.into());
        let (name, (address, value)) = match sink {
            Sink::Statsd => ("USE_STATSD", ("STATSD_PORT", others.statsd.to_string())),
            Sink::Prometheus => ("USE_PROMETHEUS", ("PROMETHEUS_ADDR", prometheus.address().to_string())),
        };
        settings.insert(name.into(), "true".into());
        settings.insert(address.into(), value);
        settings.insert("STATSD_HOST".into(), "127.0.0.1".into());
    }
    if let Some(redis) = others.redis {
        settings.remove("BACKEND_TYPE");
        settings.insert("REDIS_SOCKET_TYPE".into(), "tcp".into());
        settings.insert("REDIS_URL".into(), format!("127.0.0.1:{redis}"));
        settings.insert("EXPIRATION_JITTER_MAX_SECONDS".into(), "0".into());
    }
    settings.insert("LOCAL_CACHE_SIZE_IN_BYTES".into(), "0".into());
    let [grpc, http, debug] = [grpc, http, debug].map(|port| port.number().to_string());
    let known = [
        ("{dir}", root.display().to_string()),
        ("{grpc}", grpc),
        ("{http}", http),
        ("{debug}", debug),
        ("{redis}", others.redis.unwrap_or_default().to_string()),
        ("{statsd}", others.statsd.to_string()),
    ];
    for (name, value) in &scenario.env {
        match value {
            Some(value) => {
                let value =
                    known.iter().fold(value.0.clone(), |text, (mark, meant)| text.replace(mark, meant));
                settings.insert(name.clone(), value);
            }
            None => {
                settings.remove(name);
            }
        }
    }
    settings
}

/// The files of one server. The log lies beside the folder that it watches, not in it.
pub struct Folder {
    root: TempDir,
}

impl Folder {
    fn create() -> io::Result<Self> {
        let folder = Self { root: TempDir::new()? };
        fs::create_dir_all(folder.rules())?;
        Ok(folder)
    }

    fn runtime_root(&self) -> PathBuf {
        self.root.path().join("runtime")
    }

    fn rules(&self) -> PathBuf {
        self.runtime_root().join("ratelimit/config")
    }

    /// Writes a file in place, or elsewhere and moves it in: one event.
    pub fn write(&self, name: impl AsRef<Path>, content: &Content, atomic: bool) -> io::Result<()> {
        let path = self.rules().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        if atomic {
            let incoming = self.runtime_root().join("incoming");
            fs::write(&incoming, &content.0)?;
            return fs::rename(incoming, path);
        }
        fs::write(path, &content.0)
    }

    /// Makes a link elsewhere and moves it over `name`.
    pub fn link(&self, target: &Path, name: &Path) -> io::Result<()> {
        let path = self.rules().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let incoming = self.runtime_root().join("incoming");
        symlink(target, &incoming)?;
        fs::rename(incoming, path)
    }

    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.rules().join(from), self.rules().join(to))
    }

    /// Removes a file, a link or a whole directory.
    pub fn remove(&self, name: &Path) -> io::Result<()> {
        let path = self.rules().join(name);
        if fs::symlink_metadata(&path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }
}
