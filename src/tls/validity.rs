//! From when to when a certificate is valid, and when to say that the end is near.

use std::time::Duration;

use rustls::{
    CertificateError, Error, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

use crate::clock::UnixMicros;

/// The end is near when less than this is left, or less than a fifth of the whole: who renews renews at two thirds (kubelet,
/// cert-manager), however short the certificate lives.
const NEAR: Duration = Duration::from_secs(7 * 86_400);
const NEAR_SHARE: u32 = 5;

/// How often it is said again.
const SAY_AGAIN: Duration = Duration::from_secs(86_400);

/// When a certificate is valid; both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: UnixMicros,
    pub not_after: UnixMicros,
}

/// How a certificate stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Fine,
    NotYet,
    Near,
    Expired,
}

impl Validity {
    /// `None` if the certificate does not say.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let moment = |time: UnixTime| UnixMicros::from_secs(time.as_secs());
        // The verifier looks at the validity first, and names the end that was overstepped.
        match (verdict(certificate, 0)?, verdict(certificate, u64::MAX)?) {
            (
                CertificateError::NotValidYetContext { not_before, .. },
                CertificateError::ExpiredContext { not_after, .. },
            ) => Some(Self { not_before: moment(not_before), not_after: moment(not_after) }),
            _ => None,
        }
    }

    pub fn standing(&self, now: UnixMicros) -> Standing {
        let near = NEAR.min(self.not_before.until(self.not_after) / NEAR_SHARE);
        if now < self.not_before {
            Standing::NotYet
        } else if now > self.not_after {
            Standing::Expired
        } else if now.until(self.not_after) < near {
            Standing::Near
        } else {
            Standing::Fine
        }
    }
}

/// What is wrong with a certificate at a moment, in seconds since the epoch, if nobody is trusted.
fn verdict(certificate: &CertificateDer<'_>, secs: u64) -> Option<CertificateError> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let (nobody, now) = (RootCertStore::empty(), UnixTime::since_unix_epoch(Duration::from_secs(secs)));
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], now, algorithms) {
        Err(Error::InvalidCertificate(error)) => Some(error),
        _ => None,
    }
}

/// Decides when to speak of a certificate's end: at once when something is wrong, and then once a day.
#[derive(Debug, Default)]
pub struct Reminder {
    said: Option<(Standing, UnixMicros)>,
}

impl Reminder {
    /// What there is to be said now.
    pub fn look(&mut self, validity: &Validity, now: UnixMicros) -> Option<Standing> {
        let standing = validity.standing(now);
        if standing == Standing::Fine {
            self.said = None;
            return None;
        }
        let is_news = self.said.is_none_or(|(last, at)| last != standing || at.until(now) >= SAY_AGAIN);
        is_news.then(|| {
            self.said = Some((standing, now));
            standing
        })
    }
}
