//! TLS to the control plane: who is trusted, who is shown, and that rotated files are used without a restart.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use tidegate::rules::xds::{Address, Options, Server, Tls};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    certificates::{Certificates, ServerName},
    control_plane::{ControlPlane, domains},
    followed::{Followed, line, options},
};

/// Speaks TLS in front of a control plane, and lets in only clients that the same authority signed.
pub struct Front {
    pub address: SocketAddr,
    certificates: Arc<Mutex<Arc<Certificates>>>,
    _acceptor: AbortOnDropHandle<()>,
}

impl Front {
    pub async fn of(target: SocketAddr, certificates: Arc<Certificates>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let certificates = Arc::new(Mutex::new(certificates));
        let here = Arc::clone(&certificates);
        let accept = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let config = server_config(&here.lock());
                tokio::spawn(async move {
                    let mut client = TlsAcceptor::from(config).accept(stream).await?;
                    let mut server = TcpStream::connect(target).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        };
        let acceptor = AbortOnDropHandle::new(tokio::spawn(accept));
        Self { address, certificates, _acceptor: acceptor }
    }

    fn address(&self, host: &str) -> Address {
        Address::Tcp { host: host.to_owned(), port: self.address.port() }
    }
}

fn server_config(certificates: &Certificates) -> Arc<ServerConfig> {
    let provider = Arc::new(default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificates.authority).unwrap()).unwrap();
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let chain = vec![CertificateDer::from_pem_file(&certificates.server.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&certificates.server.key).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Where a mounted secret would be.
pub struct Mounted(pub TempDir);

impl Mounted {
    pub fn of(certificates: &Certificates) -> Self {
        let mounted = Self(TempDir::new().unwrap());
        mounted.rotate(certificates);
        mounted
    }

    fn rotate(&self, certificates: &Certificates) {
        let copy = |from: &Path, name: &str| _ = fs::copy(from, self.0.path().join(name)).unwrap();
        copy(&certificates.authority, "ca.crt");
        copy(&certificates.client.certificate, "tls.crt");
        copy(&certificates.client.key, "tls.key");
    }

    fn tls(&self, server_name: Option<&str>) -> Tls {
        let path = |name: &str| self.0.path().join(name);
        Tls {
            authorities: Some(path("ca.crt")),
            client: Some((path("tls.crt"), path("tls.key"))),
            server_name: server_name.map(str::to_owned),
        }
    }
}

fn encrypted(address: Address, tls: Tls) -> Options {
    let Options { server, .. } = options(address.clone());
    Options { server: Server { tls: Some(tls), ..server }, ..options(address) }
}

#[tokio::test]
async fn both_sides_show_certificates_and_rotated_ones_are_used_at_the_next_connection() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let first = Certificates::of(ServerName::Right).unwrap();
    let front = Front::of(plane.address(), Arc::clone(&first)).await;
    let mounted = Mounted::of(&first);
    let mut followed = Followed::start(encrypted(front.address("localhost"), mounted.tls(None))).await;
    assert_eq!(followed.rules().await, line("one", 1));

    // Another authority, on both sides: the control plane first.
    let second = Certificates::of(ServerName::Right).unwrap();
    *front.certificates.lock() = Arc::clone(&second);
    plane.send("2", domains([("one", 2)]));
    assert_eq!(followed.rules().await, line("one", 2), "the connection that was there goes on");
    plane.end_streams();
    followed.trouble().await;
    while !followed.trouble().await.contains("cannot agree on TLS") {}
    mounted.rotate(&second);
    plane.send("3", domains([("one", 3)]));
    assert_eq!(followed.rules().await, line("one", 3));
}

#[tokio::test]
async fn the_certificate_must_name_the_host_or_what_is_set_instead() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let certificates = Certificates::of(ServerName::Wrong).unwrap();
    let front = Front::of(plane.address(), Arc::clone(&certificates)).await;
    let mounted = Mounted::of(&certificates);
    let mut refused = Followed::start(encrypted(front.address("localhost"), mounted.tls(None))).await;
    let why = refused.trouble().await;
    assert!(why.contains("cannot agree on TLS") && why.contains("not valid for name"), "{why}");
    assert!(plane.seen().is_empty());
    let named = mounted.tls(Some("another.example"));
    let mut followed = Followed::start(encrypted(front.address("127.0.0.1"), named)).await;
    assert_eq!(followed.rules().await, line("one", 1));
}

#[tokio::test]
async fn a_file_that_is_missing_for_a_while_is_told_of_and_waited_for() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let certificates = Certificates::of(ServerName::Right).unwrap();
    let front = Front::of(plane.address(), Arc::clone(&certificates)).await;
    let mounted = Mounted::of(&certificates);
    let key = mounted.0.path().join("tls.key");
    fs::write(&key, "half of a key").unwrap();
    let mut followed = Followed::start(encrypted(front.address("localhost"), mounted.tls(None))).await;
    let why = followed.trouble().await;
    assert!(why.contains("the client key") && why.contains("tls.key"), "{why}");
    fs::remove_file(&key).unwrap();
    while !followed.trouble().await.contains("cannot read") {}
    mounted.rotate(&certificates);
    assert_eq!(followed.rules().await, line("one", 1));
}
