//! TLS towards the servers: what is trusted, who we are, and whether the name is looked at.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::config::ConfigError;
use crate::tls::pem;

/// Whether the server's certificate must name the host that was dialled. The chain is verified in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostName {
    #[default]
    Verified,
    Ignored,
}

/// What is known of TLS before a connection is made: certificates as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The only authorities trusted; the system's where there is none.
    pub authorities: Option<Vec<u8>>,
    /// Certificate chain and key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    pub host_name: HostName,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { authorities, client, host_name } = self;
        f.debug_struct("TlsConfig")
            .field("authorities", &authorities.is_some())
            .field("client", &client.is_some())
            .field("host_name", host_name)
            .finish()
    }
}

impl TlsConfig {
    /// Reads the certificates, and the system's if none are given.
    pub(crate) fn build(&self) -> Result<Arc<ClientConfig>, ConfigError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(self.roots()?), provider.clone())
            .build()
            .map_err(|error| refused("the certificate authorities", error))?;
        let verifier: Arc<dyn ServerCertVerifier> = match self.host_name {
            HostName::Verified => verifier,
            HostName::Ignored => Arc::new(AnyName(verifier)),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused("TLS", error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = pem::certificates(chain).map_err(|why| refused("the client certificate", why))?;
                let key = pem::key(key).map_err(|why| refused("the client key", why))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| refused("the client certificate", error))?
            }
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, ConfigError> {
        if let Some(pem) = &self.authorities {
            return pem::authorities(pem).map_err(|why| refused("the certificate authorities", why));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(refused("the system's certificate authorities", "none was found"));
        }
        Ok(roots)
    }
}

fn refused(file: &'static str, why: impl fmt::Display) -> ConfigError {
    ConfigError::Tls { file, why: why.to_string() }
}

/// Verifies everything but the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The chain is verified before the name, so a complaint about the name says that the chain is good.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
