//! Says in words why a handshake failed, as far as an operator can do something about it.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Why a client was turned away, or turned away from us; `None` when it was just gone, as those that only look whether the
/// port is open.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::NoCertificatesPresented => {
            "it showed no certificate, and GRPC_CLIENT_TLS_CACERT asks for one".to_owned()
        }
        Error::InvalidCertificate(error) => certificate(error),
        Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        Error::NoApplicationProtocol => "it does not speak HTTP/2 (h2)".to_owned(),
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired),
        ) => format!("it does not take the certificate of GRPC_SERVER_TLS_CERT ({alert:?})"),
        other => other.to_string(),
    })
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is from no authority in GRPC_CLIENT_TLS_CACERT".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate does not have the name in GRPC_CLIENT_TLS_SAN".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        other => format!("its certificate is not good: {other}"),
    }
}
