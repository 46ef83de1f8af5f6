//! The address of one server, in every form that people write it in.

use std::{fmt, path::PathBuf};

use super::{Auth, ConfigError, SocketType};

const DEFAULT_PORT: u16 = 6379;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A name or an address, without brackets.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One server as its address describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub endpoint: Endpoint,
    /// From the address itself; the setting goes before it.
    pub auth: Option<Auth>,
    pub db: i64,
    /// `rediss://`.
    pub tls: bool,
}

impl Server {
    /// Reads `host`, `host:port`, `[::1]:6379`, `redis://user:pass@host:port/db`, `rediss://…`, `unix:///path` or a path.
    /// `socket` says what is meant where it is in doubt.
    pub fn parse(text: &str, socket: SocketType) -> Result<Self, ConfigError> {
        if let Some(rest) = text.strip_prefix("redis://") {
            return Self::from_url(text, rest, false);
        }
        if let Some(rest) = text.strip_prefix("rediss://") {
            return Self::from_url(text, rest, true);
        }
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("redis+unix://")) {
            return Ok(Self::at(Endpoint::Unix(path.into())));
        }
        match socket {
            _ if text.is_empty() => Err(ConfigError::NoServer),
            SocketType::Unix => Ok(Self::at(Endpoint::Unix(text.into()))),
            SocketType::Tcp if text.starts_with('/') => Err(ConfigError::PathOnTcp { found: masked(text) }),
            SocketType::Tcp => host_and_port(text).map(Self::at),
        }
    }

    /// A server at this endpoint, as far as nothing else is said.
    pub fn at(endpoint: Endpoint) -> Self {
        Self { endpoint, auth: None, db: 0, tls: false }
    }

    fn from_url(whole: &str, rest: &str, tls: bool) -> Result<Self, ConfigError> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // The last `@`: a password may hold others.
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let named = query.split('&').find_map(|pair| pair.strip_prefix("db="));
        let db = match (path.trim_matches('/'), named) {
            ("", None) => 0,
            ("", Some(db)) | (db, _) => {
                db.parse().map_err(|_| ConfigError::Database { found: db.to_owned() })?
            }
        };
        let endpoint = host_and_port(authority).map_err(|error| match error {
            ConfigError::Address { .. } | ConfigError::NoServer => {
                ConfigError::Address { found: masked(whole) }
            }
            other => other,
        })?;
        Ok(Self { endpoint, auth: credentials.and_then(url_auth), db, tls })
    }
}

/// `user:pass`, `:pass` or `user`; percent-escapes are undone.
fn url_auth(text: &str) -> Option<Auth> {
    let (user, password) = text.split_once(':')?;
    Some(Auth::new(Some(&unescaped(user)), &unescaped(password)))
}

fn host_and_port(text: &str) -> Result<Endpoint, ConfigError> {
    let refused = || ConfigError::Address { found: masked(text) };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(refused)?;
        match (after, after.strip_prefix(':')) {
            ("", _) => (host, None),
            (_, Some(port)) => (host, Some(port)),
            (_, None) => return Err(refused()),
        }
    } else {
        match text.matches(':').count() {
            0 => (text, None),
            1 => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
            // An IPv6 address without brackets has no place for a port.
            _ => (text.parse::<std::net::Ipv6Addr>().map(|_| text).map_err(|_| refused())?, None),
        }
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return Err(refused());
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| ConfigError::Port { found: masked(port) })?,
    };
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

const MASK: &str = "*****";

/// The text without what may be a secret in each address: what stands before the last `@`, and the values of a query. An address
/// with a scheme ends where the next scheme begins: its password may hold commas.
pub fn masked(text: &str) -> String {
    let mut addresses: Vec<String> = Vec::new();
    for element in text.split(',') {
        match addresses.last_mut() {
            Some(open) if !element.contains("://") => *open = format!("{open},{element}"),
            _ => addresses.push(element.to_owned()),
        }
    }
    addresses.iter().map(|address| masked_one(address)).collect::<Vec<_>>().join(",")
}

fn masked_one(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), address),
    };
    let (before, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
    if query.is_some_and(|query| query.contains('@')) {
        // It could belong to the password or to the query.
        return format!("{scheme}{MASK}");
    }
    let before = before.rsplit_once('@').map_or(before.to_owned(), |(_, host)| format!("{MASK}@{host}"));
    let query = query.map(|query| query.split('&').map(masked_pair).collect::<Vec<_>>().join("&"));
    format!("{scheme}{before}{}", query.map(|query| format!("?{query}")).unwrap_or_default())
}

fn is_scheme(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn masked_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None if pair.is_empty() => String::new(),
        None => MASK.to_owned(),
    }
}

/// Undoes `%XX`; what is no escape stays.
pub fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = match escaped {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
