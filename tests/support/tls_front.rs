//! TLS in front of a server that has none: takes it off, asks for a client's certificate, and hands the bytes on.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Certificates;

/// Listens from now on, on the runtime that it is started on. Its port on localhost.
pub async fn start(to: SocketAddr, files: &Certificates) -> anyhow::Result<u16> {
    let acceptor = TlsAcceptor::from(Arc::new(config(files)?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await?;
                let mut inside = TcpStream::connect(to).await?;
                copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    Ok(port)
}

fn config(files: &Certificates) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(chain(&files.authority)?);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            chain(&files.server.certificate)?,
            PrivateKeyDer::from_pem_file(&files.server.key)?,
        )?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn chain(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
}
