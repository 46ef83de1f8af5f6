//! The metrics of what this node knows by itself: how much is refused from memory, and how hot the hottest key is.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{counter, counters, gauge, gauge_of, to_u64};
use crate::{limiter::Limiter, local::lease::Leases};

/// How much did Redis not hear of, and does one key make most of the traffic? A fixed number of series: none names a key.
pub(super) fn encode(limiter: &Limiter, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let shared = limiter.shared();
    if let Some(memo) = shared.local().memo() {
        counter(
            encoder,
            "tidegate_memo_refusals",
            "Charges that were refused from memory, without asking the store.",
            memo.refusals(),
        )?;
        counter(
            encoder,
            "tidegate_memo_evictions",
            "Remembered refusals that had to make room for others.",
            memo.evictions(),
        )?;
        gauge(
            encoder,
            "tidegate_memo_bytes",
            "Memory for remembered refusals; it never changes.",
            to_u64(memo.bytes()),
        )?;
    }
    if let Some(leases) = shared.local().leases() {
        encode_leases(leases, encoder)?;
    }
    let top = shared.local().top(1, shared.clock().now());
    let hottest = top.hottest.first();
    gauge_of(
        encoder,
        "tidegate_hottest_key_calls_per_second",
        "Calls for the key that is asked for most, an average over the last seconds.",
        hottest.map_or(0.0, |row| row.rate),
    )?;
    gauge_of(
        encoder,
        "tidegate_hottest_key_share_ratio",
        "Its share of all counted descriptors.",
        hottest.map_or(0.0, |row| row.share),
    )?;
    gauge_of(
        encoder,
        "tidegate_most_refused_key_refusals_per_second",
        "Refusals of the key that is refused most.",
        top.most_refused.first().map_or(0.0, |row| row.rate),
    )
}

/// How much is spent without asking the store, and what would be lost with this process?
fn encode_leases(leases: &Leases, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    gauge(encoder, "tidegate_leases", "Keys that are leased.", to_u64(leases.len()))?;
    gauge(
        encoder,
        "tidegate_lease_stranded_hits",
        "Hits that are leased and not spent: what the other processes could not admit if this one died now.",
        leases.held(),
    )?;
    let totals = leases.totals();
    let results = [
        ("granted", totals.granted),
        ("spent", totals.spent),
        ("returned", totals.returned),
        ("dropped", totals.dropped),
    ];
    counters(
        encoder,
        "tidegate_lease_hits",
        "Hits that were leased, spent without asking, given back, or lost because their window ended or the store was away.",
        results.map(|(result, n)| ([("result", result)], n)),
    )
}
