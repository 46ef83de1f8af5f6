//! The gRPC port over TLS, from outside: who is let in, who is not, and how certificates are replaced while it serves.

#![cfg(test)]

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use hyper_util::rt::TokioIo;
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tempfile::TempDir;
use tidegate::{
    follow::Handle,
    pb::{
        RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry,
        rate_limit_service_client::RateLimitServiceClient,
    },
    rls::{
        budget::Budgets,
        constant::LetsThrough,
        health::Health,
        listener::{Address, Listener},
        serve::{Drained, Options, Server},
    },
    tls::{Clients, Files, Reloader, Tls},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::Endpoint;

use self::authority::{Authority, Pair};

#[path = "support/authority.rs"]
mod authority;

/// Far beyond what any of these tests takes: only a hanging one meets it.
const LONG: Duration = Duration::from_secs(60);

/// What a server's certificate is for here.
const HERE: &[&str] = &["localhost", "127.0.0.1"];

/// A server and the files that it serves with.
struct Served {
    server: Server,
    tls: Tls,
    dir: TempDir,
    _reload: Handle,
}

impl Served {
    /// Shows `pair`; lets in whom `clients` has signed, with a name if there is one.
    async fn start(pair: &Pair, clients: Option<(&Authority, Option<&str>)>) -> Self {
        Self::start_on(&Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()), pair, clients).await
    }

    async fn start_on(address: &Address, pair: &Pair, clients: Option<(&Authority, Option<&str>)>) -> Self {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        put(&path("tls.crt"), &pair.certificate);
        put(&path("tls.key"), &pair.key);
        let clients = clients.map(|(authority, name)| {
            put(&path("ca.crt"), &authority.pem());
            let name = name.map(|name| ServerName::try_from(name.to_owned()).unwrap());
            Clients { authorities: path("ca.crt"), name }
        });
        let files = Files { certificate: path("tls.crt"), key: path("tls.key"), clients };
        let reloader = Reloader::load(files).unwrap();
        let (tls, reload) = (reloader.tls(), reloader.start().unwrap());
        let workers = NonZeroUsize::new(2).unwrap();
        let budgets = Budgets::at_most(LONG);
        let options = Options { budgets, tls: Some(tls.clone()), ..Options::with_workers(workers) };
        let listener = Listener::bind(address).unwrap();
        let server = Server::start(listener, options, &Health::new().await, |_| LetsThrough).unwrap();
        Self { server, tls, dir, _reload: reload }
    }

    fn port(&self) -> SocketAddr {
        let Address::Tcp(address) = *self.server.address() else { panic!("a port") };
        address
    }

    /// Connects and makes one call.
    async fn call(&self, client: &Client) -> Result<(), String> {
        let stream = TcpStream::connect(self.port()).await.map_err(|error| error.to_string())?;
        call(client.secure(stream).await?).await
    }

    /// Waits until so many handshakes were counted: good ones, and refused ones, whose client may know before we count them.
    async fn handshakes(&self, expected: (u64, u64)) {
        let counts = self.server.counts();
        let counted = async {
            while counts.handshakes() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let counted = timeout(LONG, counted).await;
        assert!(counted.is_ok(), "{:?} instead of {expected:?}", counts.handshakes());
    }

    /// Replaces files, and waits until they are in force.
    async fn replace(&self, files: &[(&str, &str)]) {
        let (taken, _) = self.tls.reloads();
        for (name, pem) in files {
            put(&self.dir.path().join(name), pem);
        }
        let in_force = async {
            while self.tls.reloads().0 == taken || self.tls.is_stale() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, in_force).await.expect("the files are taken");
    }
}

/// In one step, as every program that replaces certificates should.
fn put(path: &Path, pem: &str) {
    let new: PathBuf = path.with_extension("new");
    fs::write(&new, pem).unwrap();
    fs::rename(new, path).unwrap();
}

/// What a client trusts and shows.
struct Client(Arc<ClientConfig>);

impl Client {
    fn of(trusted: &Authority, pair: Option<&Pair>) -> Self {
        Self::speaking(trusted, pair, &[b"h2"])
    }

    fn speaking(trusted: &Authority, pair: Option<&Pair>, protocols: &[&[u8]]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Self(Arc::new(config))
    }

    /// The first that it says.
    fn hello(&self) -> Vec<u8> {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut bytes = Vec::new();
        ClientConnection::new(Arc::clone(&self.0), name).unwrap().write_tls(&mut bytes).unwrap();
        bytes
    }

    /// An address as the server's name: as Envoy may, it says no name (SNI).
    async fn secure<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Result<TlsStream<S>, String> {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connected = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream);
        timeout(LONG, connected).await.unwrap().map_err(|error| error.to_string())
    }
}

/// One call on a connection of its own.
async fn call(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text += &format!(": {cause}");
            source = cause.source();
        }
        text
    };
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection only"));
        async move { stream }
    });
    let endpoint = Endpoint::from_static("http://here");
    let channel = endpoint.connect_with_connector(connector).await.map_err(|error| text(&error))?;
    let entry = Entry { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let mut request = tonic::Request::new(RateLimitRequest {
        domain: Bytes::from_static(b"d"),
        descriptors: vec![descriptor],
        hits_addend: 0,
    });
    // A client that shakes a hundred hands at once, in a program that is not optimised, is slow to say what it wants.
    request.set_timeout(LONG);
    let mut client = RateLimitServiceClient::new(channel);
    let answer =
        timeout(LONG, client.should_rate_limit(request)).await.unwrap().map_err(|error| text(&error))?;
    assert_eq!(answer.into_inner().statuses.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_answered() {
    let ca = Authority::new("ca").unwrap();
    let served = Served::start(&ca.server(HERE).unwrap(), None).await;
    served.call(&Client::of(&ca, None)).await.unwrap();
    let stream = TcpStream::connect(served.port()).await.unwrap();
    let stream = Client::speaking(&ca, None, &[b"http/1.1", b"h2"]).secure(stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    served.call(&Client::speaking(&ca, None, &[])).await.expect("old clients name no protocol");
    served.handshakes((3, 0)).await;
    drop(stream);
    assert_eq!(served.server.drain(LONG).await, Drained { n_cut: 0 });
}

fn expired(authority: &Authority) -> Pair {
    let mut params = authority::params("a client of old", &["client"]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    authority.sign(params, ExtendedKeyUsagePurpose::ClientAuth).unwrap()
}

#[tokio::test]
async fn only_clients_of_the_authority_are_let_in() {
    let (ca, other) = (Authority::new("ca").unwrap(), Authority::new("other").unwrap());
    let served = Served::start(&ca.server(HERE).unwrap(), Some((&ca, None))).await;
    let refused = [
        ("none", None),
        ("another's", Some(other.client(&["client"]).unwrap())),
        ("expired", Some(expired(&ca))),
        ("a server's", Some(ca.server(HERE).unwrap())),
    ];
    let n_refused = refused.len() as u64;
    for (what, pair) in refused {
        served.call(&Client::of(&ca, pair.as_ref())).await.expect_err(what);
    }
    served.call(&Client::of(&ca, Some(&ca.client(&["client"]).unwrap()))).await.unwrap();
    served.handshakes((1, n_refused)).await;
}

#[tokio::test]
async fn only_clients_of_the_name_are_let_in() {
    let ca = Authority::new("ca").unwrap();
    for (asked, right, wrong) in [
        ("envoy.example", &["x.example", "envoy.example"], &["x.example", "envoy.example.org"]),
        ("envoy.mesh.example", &["*.mesh.example", "10.0.0.1"], &["*.example", "10.0.0.1"]),
        ("10.0.0.1", &["x.example", "10.0.0.1"], &["x.example", "10.0.0.2"]),
    ] {
        let served = Served::start(&ca.server(HERE).unwrap(), Some((&ca, Some(asked)))).await;
        served.call(&Client::of(&ca, Some(&ca.client(right).unwrap()))).await.unwrap();
        served.call(&Client::of(&ca, Some(&ca.client(wrong).unwrap()))).await.unwrap_err();
        served.call(&Client::of(&ca, Some(&ca.client(&[]).unwrap()))).await.unwrap_err();
        served.handshakes((1, 2)).await;
    }
}

#[tokio::test]
async fn a_client_in_the_clear_is_turned_away_and_one_that_only_looks_is_no_trouble() {
    let ca = Authority::new("ca").unwrap();
    let served = Served::start(&ca.server(HERE).unwrap(), None).await;
    call(TcpStream::connect(served.port()).await.unwrap()).await.unwrap_err();
    drop(TcpStream::connect(served.port()).await.unwrap());
    served.call(&Client::speaking(&ca, None, &[b"http/1.1"])).await.unwrap_err();
    served.call(&Client::of(&ca, None)).await.unwrap();
    served.handshakes((1, 2)).await;
}

#[tokio::test]
async fn a_fleet_that_connects_at_once_is_served() {
    let ca = Authority::new("ca").unwrap();
    let served = Served::start(&ca.server(HERE).unwrap(), Some((&ca, None))).await;
    let client = Client::of(&ca, Some(&ca.client(&["c"]).unwrap()));
    for answer in join_all((0..100).map(|_| served.call(&client))).await {
        answer.unwrap();
    }
    served.handshakes((100, 0)).await;
}

#[tokio::test]
async fn clients_that_stall_in_the_handshake_keep_nobody_out() {
    let ca = Authority::new("ca").unwrap();
    let served = Served::start(&ca.server(HERE).unwrap(), None).await;
    let hello = Client::of(&ca, None).hello();
    let mut silent = Vec::new();
    for said in [&b""[..], &hello[..5], &hello[..]].repeat(30) {
        let mut stream = TcpStream::connect(served.port()).await.unwrap();
        stream.write_all(said).await.unwrap();
        silent.push(stream);
    }
    served.call(&Client::of(&ca, None)).await.unwrap();
    // The drain does not wait for them either.
    assert_eq!(served.server.drain(LONG).await, Drained { n_cut: 0 });
    for mut stream in silent {
        assert!(timeout(LONG, stream.read_to_end(&mut Vec::new())).await.is_ok());
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_the_old_ones_go_on() {
    let (old, new) = (Authority::new("old").unwrap(), Authority::new("new").unwrap());
    let served = Served::start(&old.server(HERE).unwrap(), None).await;
    let before = Client::of(&old, None).secure(TcpStream::connect(served.port()).await.unwrap()).await;
    let pair = new.server(HERE).unwrap();
    served.replace(&[("tls.crt", &pair.certificate), ("tls.key", &pair.key)]).await;
    served.call(&Client::of(&new, None)).await.unwrap();
    served.call(&Client::of(&old, None)).await.unwrap_err();
    call(before.unwrap()).await.unwrap();
}

#[tokio::test]
async fn clients_of_a_new_authority_are_let_in_and_those_of_the_old_one_no_more() {
    let (server, old, new) =
        (Authority::new("server").unwrap(), Authority::new("old").unwrap(), Authority::new("new").unwrap());
    let served = Served::start(&server.server(HERE).unwrap(), Some((&old, None))).await;
    let (of_old, of_new) = (old.client(&["c"]).unwrap(), new.client(&["c"]).unwrap());
    let (of_old, of_new) = (Client::of(&server, Some(&of_old)), Client::of(&server, Some(&of_new)));
    served.call(&of_old).await.unwrap();
    served.call(&of_new).await.unwrap_err();
    served.replace(&[("ca.crt", &(old.pem() + &new.pem()))]).await;
    served.call(&of_old).await.unwrap();
    served.call(&of_new).await.unwrap();
    served.replace(&[("ca.crt", &new.pem())]).await;
    // With a client that was let in before: no session is taken up again.
    served.call(&of_old).await.unwrap_err();
    served.call(&of_new).await.unwrap();
}

#[tokio::test]
async fn broken_files_keep_the_old_ones_in_force() {
    let ca = Authority::new("ca").unwrap();
    let served = Served::start(&ca.server(HERE).unwrap(), Some((&ca, None))).await;
    let client = ca.client(&["c"]).unwrap();
    for (i, (name, pem)) in
        [("tls.crt", "nothing"), ("tls.key", ""), ("ca.crt", "nothing")].iter().enumerate()
    {
        put(&served.dir.path().join(name), pem);
        let told = async {
            while served.tls.reloads().1 != i as u64 + 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, told).await.expect("the files are refused");
        assert!(served.tls.is_stale());
        served.call(&Client::of(&ca, Some(&client))).await.unwrap();
        served.call(&Client::of(&ca, None)).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_unix_socket_may_speak_tls_too() {
    let (ca, dir) = (Authority::new("ca").unwrap(), TempDir::new().unwrap());
    let path = dir.path().join("rl.sock");
    let served = Served::start_on(&Address::Unix(path.clone()), &ca.server(HERE).unwrap(), None).await;
    let stream = UnixStream::connect(&path).await.unwrap();
    call(Client::of(&ca, None).secure(stream).await.unwrap()).await.unwrap();
    served.handshakes((1, 0)).await;
}
