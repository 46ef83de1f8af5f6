//! One connection to the control plane: name → socket → TLS → HTTP/2. Knows nothing of what is said on it.
//!
//! **Invariants:** returns within [`PATIENCE`] for each step; certificates are read anew for each connection, so that rotated
//! ones are used without a restart.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::store::redis::tls::{HostName, TlsConfig};

/// For the socket to open, and again for TLS.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so long without a sign of life from the peer's kernel, ours gives the connection up.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// gRPC's port where none is named.
const DEFAULT_PORT: u16 = 443;

/// Where the control plane is and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: Address,
    /// `None`: in the clear.
    pub tls: Option<Tls>,
    pub keepalive: Keepalive,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The host is a name or an address without brackets.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

/// Files, PEM, and the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The only authorities trusted; the system's where there is none.
    pub authorities: Option<PathBuf>,
    /// Certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// What the server's certificate must name, if that is not the host.
    pub server_name: Option<String>,
}

/// A connection on which nothing arrives is asked after `interval` whether it is alive, and given up after `timeout` more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    pub interval: Duration,
    pub timeout: Duration,
}

impl Address {
    /// Reads gRPC's way of naming a server: `host`, `host:port` or `[ipv6]:port`, after `dns:///` or `passthrough:///` or
    /// nothing; or `unix:path`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            return (!path.is_empty()).then(|| Self::Unix(PathBuf::from(path)));
        }
        let schemes = ["dns:///", "passthrough:///", "dns:"];
        let text = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':')?)),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '%');
        let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok())?;
        (!host.is_empty() && port > 0 && host.chars().all(is_host))
            .then(|| Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Tls {
    /// Reads the files; touches the disk.
    ///
    /// Errors: in words, with the path.
    pub fn load(&self) -> Result<Arc<ClientConfig>, String> {
        let client = self.client.as_ref();
        let certificates = TlsConfig {
            authorities: self.authorities.as_deref().map(read).transpose()?,
            client: client.map(|(chain, key)| Ok::<_, String>((read(chain)?, read(key)?))).transpose()?,
            host_name: HostName::Verified,
        };
        let config = certificates.build().map_err(|error| format!("{error} ({self})"))?;
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

impl fmt::Display for Tls {
    /// The files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.iter().flat_map(|(chain, key)| [chain, key]);
        let files = self.authorities.iter().chain(client).map(|path| path.display().to_string());
        f.write_str(&files.collect::<Vec<_>>().join(", "))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

impl Server {
    /// Opens a connection.
    ///
    /// Errors: what failed, in words. Cancel safe.
    pub(super) async fn open(&self) -> Result<Channel, String> {
        match &self.address {
            Address::Unix(path) => {
                let stream = in_time(UnixStream::connect(path), "open the socket").await?;
                self.speak(stream, "localhost").await
            }
            Address::Tcp { host, port } => {
                let stream = in_time(open(host, *port), "connect").await?;
                let Some(tls) = self.tls.clone() else {
                    return self.speak(stream, &self.address.to_string()).await;
                };
                let name = tls.server_name.clone();
                let authority = name.clone().unwrap_or_else(|| self.address.to_string());
                let name = name.as_ref().unwrap_or(host).clone();
                let name = ServerName::try_from(name)
                    .map_err(|error| format!("no name that a certificate can have: {error}"))?;
                let config = tokio::task::spawn_blocking(move || tls.load())
                    .await
                    .map_err(|_| "reading the certificates panicked".to_owned())??;
                let stream =
                    in_time(TlsConnector::from(config).connect(name, stream), "agree on TLS").await?;
                self.speak(stream, &authority).await
            }
        }
    }

    /// HTTP/2 on a stream.
    async fn speak<S>(&self, stream: S, authority: &str) -> Result<Channel, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let origin: Uri =
            format!("{scheme}://{authority}").parse().map_err(|error| format!("{authority}: {error}"))?;
        // The stream is there already: this is a name for it.
        let endpoint = Endpoint::from_static("http://control-plane")
            .origin(origin)
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| error.to_string())?
            .http2_keep_alive_interval(self.keepalive.interval)
            .keep_alive_timeout(self.keepalive.timeout)
            .keep_alive_while_idle(true);
        let mut stream = Some(TokioIo::new(stream));
        let once = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
            async move { stream }
        });
        endpoint.connect_with_connector(once).await.map_err(|error| innermost(&error))
    }
}

async fn in_time<T>(act: impl Future<Output = io::Result<T>>, what: &str) -> Result<T, String> {
    match timeout(PATIENCE, act).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("cannot {what}: {error}")),
        Err(_) => Err(format!("cannot {what} within {PATIENCE:?}")),
    }
}

/// The kernel's own keepalive finds a peer that is gone; HTTP/2's is for a peer whose kernel still answers.
async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(DEAD_AFTER / 2).with_interval(DEAD_AFTER / 4);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_AFTER))?;
    Ok(stream)
}

/// What an error comes down to: those around it say only that something below failed.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_as_grpc_does() {
        let tcp = |host: &str, port| Some(Address::Tcp { host: host.to_owned(), port });
        for (text, address) in [
            ("envoy-gateway:18001", tcp("envoy-gateway", 18_001)),
            ("dns:///a.b.svc.cluster.local:1", tcp("a.b.svc.cluster.local", 1)),
            ("passthrough:///10.0.0.1:2", tcp("10.0.0.1", 2)),
            ("[::1]:3", tcp("::1", 3)),
            ("[::1]", tcp("::1", 443)),
            ("localhost", tcp("localhost", 443)),
            ("unix:/run/cp.sock", Some(Address::Unix("/run/cp.sock".into()))),
            ("unix:///run/cp.sock", Some(Address::Unix("/run/cp.sock".into()))),
        ] {
            assert_eq!(Address::parse(text), address, "{text}");
        }
        for text in
            ["", ":1", "a:", "a:0", "a:70000", "a:b:1", "http://a:1", "a/b:1", "a b:1", "[::1", "unix:"]
        {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}
