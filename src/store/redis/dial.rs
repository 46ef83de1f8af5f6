//! One connection to one server: name → socket → TLS → password and database. Knows nothing of counters.
//!
//! **Invariant:** returns within [`Dialer::patience`], twice; what failed is said in words that hold no secret.

use std::{io, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value, aio::MultiplexedConnection};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::config::{Auth, Endpoint, Server};

/// Batches that may wait for the connection's task. Far more than a budget's worth.
const QUEUE: usize = 4096;

/// For a socket to open, and again for the greeting. So that a server which is back is found within two seconds, whatever
/// happened to the attempt before.
const PATIENCE: Duration = Duration::from_secs(1);

/// After so long without a sign of life from the peer the kernel gives the connection up.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// How connections are made.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    /// For all servers.
    pub auth: Option<Auth>,
    /// For all servers, whatever their address says.
    pub tls: Option<Arc<ClientConfig>>,
    /// For `rediss://`, if there is no `tls`.
    pub default_tls: Option<Arc<ClientConfig>>,
    pub timeout: Duration,
}

/// A connection, and the task that drives it: it ends when the connection does.
#[derive(Debug)]
pub(super) struct Dialled {
    pub connection: MultiplexedConnection,
    pub driver: Driver,
}

/// Ends the connection when dropped.
#[derive(Debug)]
pub(super) struct Driver(pub JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Dialer {
    pub fn patience(&self) -> Duration {
        PATIENCE.min(self.timeout)
    }

    fn tls_for(&self, server: &Server) -> Option<&Arc<ClientConfig>> {
        match (&server.endpoint, server.tls) {
            (Endpoint::Unix(_), _) => None,
            (Endpoint::Tcp { .. }, true) => self.tls.as_ref().or(self.default_tls.as_ref()),
            (Endpoint::Tcp { .. }, false) => self.tls.as_ref(),
        }
    }

    pub fn speaks_tls(&self, server: &Server) -> bool {
        self.tls_for(server).is_some()
    }

    pub async fn dial(&self, server: &Server) -> Result<Dialled, String> {
        match (&server.endpoint, self.tls_for(server)) {
            (Endpoint::Unix(path), _) => {
                let stream = self.in_time(UnixStream::connect(path), "open the socket").await?;
                self.greet(server, stream).await
            }
            (Endpoint::Tcp { host, port }, None) => {
                let stream = self.in_time(open(host, *port), "connect").await?;
                self.greet(server, stream).await
            }
            (Endpoint::Tcp { host, port }, Some(tls)) => {
                let stream = self.in_time(open(host, *port), "connect").await?;
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| format!("no name for a certificate: {error}"))?;
                let connector = TlsConnector::from(tls.clone());
                let stream = self
                    .in_time(connector.connect(name, stream), "agree on TLS")
                    .await
                    .map_err(|why| format!("{why} (is TLS spoken on this port?)"))?;
                self.greet(server, stream).await
            }
        }
    }

    async fn in_time<T>(&self, act: impl Future<Output = io::Result<T>>, what: &str) -> Result<T, String> {
        match timeout(self.patience(), act).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(format!("cannot {what}: {error}")),
            Err(_) => Err(format!("cannot {what} within {:?}", self.patience())),
        }
    }

    /// Password and database.
    async fn greet<S>(&self, server: &Server, stream: S) -> Result<Dialled, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Waiting is bounded by each request's own budget. AUTH and SELECT are sent here rather than by the crate, which
        // would drop what the server says.
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        let (mut connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| error.to_string())?;
        let driver = Driver(tokio::spawn(driver));
        let auth = self.auth.as_ref().or(server.auth.as_ref());
        match timeout(self.patience(), introduce(&mut connection, auth, server.db)).await {
            Ok(Ok(())) => Ok(Dialled { connection, driver }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!("the server is silent for {:?}", self.patience())),
        }
    }
}

async fn introduce(
    connection: &mut MultiplexedConnection,
    auth: Option<&Auth>,
    db: i64,
) -> Result<(), String> {
    if let Some(Auth { user, password }) = auth {
        let mut auth = redis::cmd("AUTH");
        auth.arg(user.as_deref()).arg(password.reveal());
        said(connection, &auth).await.map_err(|(code, text)| match code.as_str() {
            "WRONGPASS" => format!("wrong password, or no such user ({code} {text})"),
            _ if text.contains("without any password") => {
                "a password is configured here, and the server has none".to_owned()
            }
            _ => format!("cannot authenticate: {code} {text}"),
        })?;
    }
    if db != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(db);
        said(connection, &select)
            .await
            .map_err(|(code, text)| format!("cannot select database {db}: {code} {text}"))?;
    }
    Ok(())
}

/// Sends a command whose reply says nothing; an error as code and text.
async fn said(connection: &mut MultiplexedConnection, command: &redis::Cmd) -> Result<(), (String, String)> {
    match connection.send_packed_command(command).await {
        Ok(Value::ServerError(error)) => {
            Err((error.code().to_owned(), error.details().unwrap_or_default().to_owned()))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(("the connection broke".to_owned(), error.to_string())),
    }
}

async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new().with_time(DEAD_AFTER / 2).with_interval(DEAD_AFTER / 4),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_AFTER))?;
    Ok(stream)
}
