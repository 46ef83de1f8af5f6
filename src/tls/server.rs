//! One set of files made into what handshakes are made with.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::ServerName, server::NoServerSessionStorage};

use super::{Validity, clients, pem};
use crate::follow::{file, points::Points};

/// The largest file, in bytes: a system's whole bundle of authorities has a fifth of it.
const MAX_FILE: u64 = 1 << 20;

/// Where the certificates lie, PEM, and who may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The port's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// `None`: whoever knows the port.
    pub clients: Option<Clients>,
}

/// Who may call: clients with a certificate of these authorities, and of this name if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    pub authorities: PathBuf,
    pub name: Option<ServerName<'static>>,
}

/// Why files cannot be used. The text names the setting and the file, never what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}={}: {why}", .path.display())]
pub struct TlsError {
    setting: &'static str,
    path: PathBuf,
    why: String,
}

impl TlsError {
    fn new(setting: &'static str, path: &Path, why: impl ToString) -> Self {
        Self { setting, path: path.to_owned(), why: why.to_string() }
    }
}

const CERTIFICATE: &str = "GRPC_SERVER_TLS_CERT";
const KEY: &str = "GRPC_SERVER_TLS_KEY";
const AUTHORITIES: &str = "GRPC_CLIENT_TLS_CACERT";

/// What is in the files. Not shown: there is a key among it.
#[derive(PartialEq, Eq)]
pub(super) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

/// What handshakes are made with, and how long that is good for.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) config: Arc<ServerConfig>,
    pub(super) validity: Option<Validity>,
}

impl Files {
    pub(super) fn points(&self) -> Points {
        let mut points = Points::default();
        let authorities = self.clients.as_ref().map(|clients| &clients.authorities);
        [&self.certificate, &self.key]
            .into_iter()
            .chain(authorities)
            .for_each(|path| points.add_target(path));
        points
    }

    pub(super) fn read(&self) -> Result<Contents, TlsError> {
        let authorities = self.clients.as_ref().map(|clients| read(AUTHORITIES, &clients.authorities));
        Ok(Contents {
            certificate: read(CERTIFICATE, &self.certificate)?,
            key: read(KEY, &self.key)?,
            authorities: authorities.transpose()?,
        })
    }

    /// Errors: what is in one of the files is no good, or certificate and key do not belong together.
    pub(super) fn build(&self, contents: &Contents) -> Result<Serving, TlsError> {
        let certificate_is = |why: String| TlsError::new(CERTIFICATE, &self.certificate, why);
        let chain = pem::certificates(&contents.certificate).map_err(certificate_is)?;
        let key = pem::key(&contents.key).map_err(|why| TlsError::new(KEY, &self.key, why))?;
        let validity = chain.first().and_then(Validity::of);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| certificate_is(error.to_string()))?;
        let builder = match (&self.clients, &contents.authorities) {
            (Some(Clients { authorities, name }), Some(pem)) => {
                let verifier = pem::authorities(pem)
                    .and_then(|roots| clients::verifier(roots, name.clone(), provider))
                    .map_err(|why| TlsError::new(AUTHORITIES, authorities, why))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            certificate_is(match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("it does not belong to the key in {}", self.key.display())
                }
                error => error.to_string(),
            })
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A session that is taken up again would not show its certificate again. Connections are few and stay for hours.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Serving { config: Arc::new(config), validity })
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = file::read(path, MAX_FILE).and_then(|bytes| {
        bytes.ok_or_else(|| format!("is larger than {} MiB, the most that it may have", MAX_FILE >> 20))
    });
    read.map_err(|why| TlsError::new(setting, path, why))
}
