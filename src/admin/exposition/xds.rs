//! The metrics of the way to the control plane.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{counter, counters, float_gauges, gauge};
use crate::rules::xds::{Stats, Update};

/// Is the control plane there, what has it sent, and when?
pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let connected = u64::from(stats.is_connected());
    gauge(
        encoder,
        "tidegate_xds_connected",
        "1 while there is a connection to the control plane.",
        connected,
    )?;
    counter(
        encoder,
        "tidegate_xds_connection_failures",
        "Connections to the control plane that ended or could not be made.",
        stats.failures(),
    )?;
    let updates = Update::ALL.map(|update| ([("result", update.name())], stats.updates(update)));
    counters(encoder, "tidegate_xds_updates", "Snapshots that it sent, by how they were answered.", updates)?;
    let Some(age) = stats.age() else { return Ok(()) };
    float_gauges(
        encoder,
        "tidegate_xds_snapshot_age_seconds",
        "Since it last sent the snapshot that is in force.",
        [(NO_LABELS, age.as_secs_f64())],
    )
}

const NO_LABELS: [(&str, &str); 0] = [];
