//! Says in words why a handshake failed, as far as an operator can do something about it.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// What kind of mistake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    NoCertificate,
    OtherAuthority,
    OtherName,
    Expired,
    NotForClients,
    BadCertificate,
    OursNotTaken,
    NoTls,
    NoHttp2,
    Other,
}

/// Why a client was turned away, or turned away from us; `None` when it was just gone, as those that only look whether the
/// port is open.
pub(crate) fn refusal(error: &io::Error) -> Option<(Reason, String)> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let (reason, why) = match error {
        Error::NoCertificatesPresented => {
            (Reason::NoCertificate, "it showed no certificate, and GRPC_CLIENT_TLS_CACERT asks for one")
        }
        Error::InvalidCertificate(error) => return Some(certificate(error)),
        Error::InvalidMessage(_) => (Reason::NoTls, "it does not speak TLS"),
        Error::NoApplicationProtocol => (Reason::NoHttp2, "it does not speak HTTP/2 (h2)"),
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired),
        ) => {
            let why = format!("it does not take the certificate of GRPC_SERVER_TLS_CERT ({alert:?})");
            return Some((Reason::OursNotTaken, why));
        }
        other => return Some((Reason::Other, other.to_string())),
    };
    Some((reason, why.to_owned()))
}

fn certificate(error: &CertificateError) -> (Reason, String) {
    let (reason, why) = match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            (Reason::OtherAuthority, "its certificate is from no authority in GRPC_CLIENT_TLS_CACERT")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            (Reason::OtherName, "its certificate does not have the name in GRPC_CLIENT_TLS_SAN")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (Reason::Expired, "its certificate has expired")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            (Reason::NotForClients, "its certificate is not for clients (extended key usage)")
        }
        other => return (Reason::BadCertificate, format!("its certificate is not good: {other}")),
    };
    (reason, why.to_owned())
}
