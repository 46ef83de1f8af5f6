//! Connections to servers that are named by a URL, over TLS where it says https. Knows nothing of what is said on them.
//!
//! **Invariant:** with https there is TLS with a server whose certificate names the host, or no connection.

use std::{
    fmt, fs, io,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::{
    settings::TlsFiles,
    store::redis::tls::{HostName, TlsConfig},
};

/// What is spoken on top of TLS: its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Http1,
    Http2,
}

/// Opens connections. Cheap to clone.
#[derive(Clone)]
pub struct Dial {
    tls: Option<TlsConnector>,
    patience: Duration,
}

/// What cannot be used of the files about TLS, in words, with the path.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("tls", &self.tls.is_some()).field("patience", &self.patience).finish()
    }
}

impl Dial {
    /// For `to`; the files are read if it is https. `patience`: for one connection, its handshake included.
    pub fn to(to: &Uri, files: &TlsFiles, speaks: Speaks, patience: Duration) -> Result<Self, TlsError> {
        let tls = is_https(to).then(|| config(files, speaks)).transpose()?;
        Ok(Self { tls: tls.map(TlsConnector::from), patience })
    }

    async fn open(self, to: Uri) -> io::Result<TokioIo<Box<dyn Stream>>> {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let host = to.host().ok_or_else(|| refused("the URL names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = to.port_u16().unwrap_or(if is_https(&to) { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if !is_https(&to) {
            return Ok(TokioIo::new(Box::new(stream)));
        }
        let tls = self.tls.ok_or_else(|| refused("nothing is known of TLS"))?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| refused("the host is no name that a certificate can have"))?;
        Ok(TokioIo::new(Box::new(tls.connect(name, stream).await?)))
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (dial, patience) = (self.clone(), self.patience);
        Box::pin(async move {
            timeout(patience, dial.open(to)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

/// A connection of either kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Connection for Box<dyn Stream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&http::uri::Scheme::HTTPS)
}

fn config(files: &TlsFiles, speaks: Speaks) -> Result<Arc<ClientConfig>, TlsError> {
    let client = files.client.as_ref();
    let certificates = TlsConfig {
        authorities: files.authorities.as_deref().map(read).transpose()?,
        client: client.map(|(chain, key)| Ok::<_, TlsError>((read(chain)?, read(key)?))).transpose()?,
        host_name: HostName::Verified,
    };
    let config = certificates.build().map_err(|error| TlsError(error.to_string()))?;
    let mut config = ClientConfig::clone(&config);
    config.alpn_protocols = vec![
        match speaks {
            Speaks::Http1 => &b"http/1.1"[..],
            Speaks::Http2 => b"h2",
        }
        .to_vec(),
    ];
    Ok(Arc::new(config))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError(format!("cannot read {}: {error}", path.display())))
}
