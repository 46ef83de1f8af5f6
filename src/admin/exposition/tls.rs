//! The metrics of TLS on the gRPC port; none where it is served in the clear.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{counters, gauge};
use crate::{rls::serve::Counts, tls::Tls};

/// Are clients let in, did the newest certificates get into force, and how long are they good for?
pub(super) fn encode(tls: &Tls, counts: &Counts, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (ok, refused) = counts.handshakes();
    let handshakes = [([("result", "ok")], ok), ([("result", "refused")], refused)];
    counters(encoder, "tidegate_tls_handshakes", "TLS handshakes on the gRPC port, by result.", handshakes)?;
    let (taken, refused) = tls.reloads();
    let reloads = [([("result", "ok")], taken), ([("result", "refused")], refused)];
    counters(
        encoder,
        "tidegate_tls_reloads",
        "Loads of the certificates' files after the first, by result.",
        reloads,
    )?;
    gauge(
        encoder,
        "tidegate_tls_stale",
        "1 while the certificates' files were refused and older ones are in force.",
        u64::from(tls.is_stale()),
    )?;
    if let Some(validity) = tls.validity() {
        gauge(
            encoder,
            "tidegate_tls_certificate_expiry_timestamp_seconds",
            "When the certificate that is shown expires, in seconds since 1970.",
            validity.not_after.secs(),
        )?;
    }
    Ok(())
}
