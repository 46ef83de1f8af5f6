//! Where the counters are and how to get in, as settings give it: addresses, passwords, TLS, times. Opens nothing.
//!
//! **Invariant:** no secret leaves a value of this module by `Debug` or `Display`, nor by an error's message.

mod address;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

pub use address::{Endpoint, Server, masked, unescaped};

use super::tls::TlsConfig;

/// Dialling and every single call are bounded by so much, whatever the request's budget. The reference's default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    Single(Server),
    /// One master, found by asking these sentinels.
    Sentinel {
        master: String,
        sentinels: Vec<Server>,
    },
    /// A Redis Cluster, found by asking these nodes.
    Cluster(Vec<Server>),
    /// Independent servers that share the keys.
    Ring(Vec<Server>),
}

/// The setting `REDIS_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyKind {
    Single,
    Sentinel,
    Cluster,
    Ring,
}

/// The setting `REDIS_SOCKET_TYPE`; it speaks of a single server's address only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    Tcp,
    Unix,
}

/// How counters are named and which clock numbers their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStyle {
    /// `…|60s@29408123`, by the server's clock.
    Tidegate,
    /// The reference's own names, by this process's clock; fixed windows only.
    Envoyproxy,
}

/// Which clock windows and refills follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The server's: replicas with skewed clocks share one truth.
    Server,
    /// The moment that the caller gives with each charge.
    Caller,
}

/// How the first connection is tried for. Later ones are tried for within a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup {
    pub initial_interval: Duration,
    pub max_interval: Duration,
    /// `None`: for ever.
    pub max_elapsed: Option<Duration>,
}

impl Default for Startup {
    /// The reference's.
    fn default() -> Self {
        Self {
            initial_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(30),
            max_elapsed: None,
        }
    }
}

/// A whole Redis store.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub topology: Topology,
    /// Goes before what an address says.
    pub auth: Option<Auth>,
    pub sentinel_auth: Option<Auth>,
    /// For all servers and sentinels; an address `rediss://` asks for TLS with the defaults where this is `None`.
    pub tls: Option<TlsConfig>,
    /// Bounds dialling and each call; see [`DEFAULT_TIMEOUT`].
    pub timeout: Duration,
    pub startup: Startup,
    pub keys: KeyStyle,
    pub time: TimeSource,
    /// Expiries are late by a random time below this, so that they never fall on one moment.
    pub expiry_jitter: Duration,
    /// What the names of all counters begin with; the store's own probe key begins with it too.
    pub key_prefix: Vec<u8>,
}

impl RedisConfig {
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            auth: None,
            sentinel_auth: None,
            tls: None,
            timeout: DEFAULT_TIMEOUT,
            startup: Startup::default(),
            keys: KeyStyle::Tidegate,
            time: TimeSource::Server,
            expiry_jitter: Duration::from_secs(300),
            key_prefix: Vec::new(),
        }
    }
}

/// Why a setting of the store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "{found:?} is no Redis address: expected host, host:port, [ipv6]:port, redis://…, rediss://… or a socket's path"
    )]
    Address { found: String },
    #[error("{found:?} is no port: expected a number from 1 to 65535")]
    Port { found: String },
    #[error("{found:?} is no database: expected a number")]
    Database { found: String },
    #[error("no address of a server: expected at least one")]
    NoServer,
    #[error(
        "{found:?} is not \"master,sentinel[,sentinel…]\": expected the master's name and at least one sentinel"
    )]
    Sentinels { found: String },
    #[error(
        "{found:?} is a path, and the socket type is tcp: expected an address, or REDIS_SOCKET_TYPE=unix"
    )]
    PathOnTcp { found: String },
    #[error("database {db} in {found:?}: expected none, {why}")]
    DatabaseHere { found: String, db: i64, why: &'static str },
    #[error("{file}: {why}")]
    Tls { file: &'static str, why: String },
}

impl Topology {
    /// Reads `REDIS_URL`.
    pub fn parse(kind: TopologyKind, socket: SocketType, url: &str) -> Result<Self, ConfigError> {
        match kind {
            TopologyKind::Single => Server::parse(url.trim(), socket).map(Self::Single),
            TopologyKind::Ring => servers(url).map(Self::Ring),
            TopologyKind::Cluster => {
                let seeds = servers(url)?;
                without_database(&seeds, "a cluster has one database")?;
                Ok(Self::Cluster(seeds))
            }
            TopologyKind::Sentinel => sentinels(url),
        }
    }

    /// Reads `REDIS_TYPE`, in any case.
    pub fn kind(name: &str) -> Option<TopologyKind> {
        let kinds = [
            ("single", TopologyKind::Single),
            ("sentinel", TopologyKind::Sentinel),
            ("cluster", TopologyKind::Cluster),
            ("ring", TopologyKind::Ring),
        ];
        kinds.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| kind)
    }
}

fn sentinels(url: &str) -> Result<Topology, ConfigError> {
    let refused = || ConfigError::Sentinels { found: address::masked(url) };
    let (master, rest) = url.split_once(',').ok_or_else(refused)?;
    let sentinels =
        servers(rest).map_err(|error| if error == ConfigError::NoServer { refused() } else { error })?;
    without_database(&sentinels, "sentinels have none")?;
    let master = master.trim();
    if master.is_empty() {
        return Err(refused());
    }
    Ok(Topology::Sentinel { master: master.to_owned(), sentinels })
}

/// A list with commas; empty elements are passed over, doubles are taken once.
fn servers(list: &str) -> Result<Vec<Server>, ConfigError> {
    let mut servers: Vec<Server> = Vec::new();
    for element in list.split(',').map(str::trim).filter(|element| !element.is_empty()) {
        let server = Server::parse(element, SocketType::Tcp)?;
        if !servers.iter().any(|known| known.endpoint == server.endpoint && known.db == server.db) {
            servers.push(server);
        }
    }
    if servers.is_empty() { Err(ConfigError::NoServer) } else { Ok(servers) }
}

fn without_database(servers: &[Server], why: &'static str) -> Result<(), ConfigError> {
    match servers.iter().find(|server| server.db != 0) {
        Some(server) => {
            Err(ConfigError::DatabaseHere { found: server.endpoint.to_string(), db: server.db, why })
        }
        None => Ok(()),
    }
}

/// A name and a password, or a password alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub user: Option<String>,
    pub password: Secret,
}

impl Auth {
    /// Reads `pass` or `user:pass`, split at the first colon; `None` if there is nothing in it.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            _ if text.is_empty() => None,
            Some((user, password)) => Some(Self::new(Some(user), password)),
            None => Some(Self::new(None, text)),
        }
    }

    /// An empty name is as none.
    pub fn new(user: Option<&str>, password: &str) -> Self {
        let user = user.filter(|user| !user.is_empty()).map(str::to_owned);
        Self { user, password: Secret(password.to_owned()) }
    }
}

/// Text that is not to be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}
