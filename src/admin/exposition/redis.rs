//! The metrics of the Redis stores, by store (`main`, `per_second`) and shard (a server's address, or a master's name).

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

use super::{counters, float_gauges, gauges};
use crate::store::{
    pair::Pair,
    redis::{
        Eviction, Shard, Shared,
        breaker::BreakerState,
        stats::{ErrorKind, LATENCY_BOUNDS},
    },
};

/// A shard and the store that it belongs to.
type Named = (&'static str, Arc<Shard>);

/// How is each server, how fast does it answer, and what went wrong?
pub(super) fn encode(pair: &Pair, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let stores: Vec<(&str, &Arc<Shared>)> = std::iter::once(("main", pair.main.shared()))
        .chain(pair.per_second.as_ref().map(|second| ("per_second", second.shared())))
        .collect();
    let shards: Vec<Named> = stores
        .iter()
        .flat_map(|(store, shared)| shared.shards().into_iter().map(move |shard| (*store, shard)))
        .collect();
    latency(&shards, encoder)?;
    errors(&shards, encoder)?;
    breakers(&shards, encoder)?;
    connections(&shards, encoder)?;
    servers(&shards, encoder)?;
    let refunds = stores.iter().flat_map(|(store, shared)| {
        let results = [("sent", shared.refunds_sent()), ("dropped", shared.refunds_dropped())];
        results.map(|(result, n)| ([("store", *store), ("result", result)], n))
    });
    counters(
        encoder,
        "tidegate_redis_refunds",
        "Charges of refused requests given back after the answer, or dropped: those count until their window ends.",
        refunds,
    )
}

fn labels(named: &Named) -> [(&'static str, &str); 2] {
    [("store", named.0), ("shard", named.1.name())]
}

fn latency(shards: &[Named], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut family = encoder.encode_descriptor(
        "tidegate_redis_call_duration_seconds",
        "Time from the write of what a request needs of a server to its last reply.",
        None,
        MetricType::Histogram,
    )?;
    let bounds = LATENCY_BOUNDS.map(|micros| Duration::from_micros(micros).as_secs_f64());
    for named in shards {
        let latency = &named.1.stats.latency;
        let counts = latency.buckets();
        let buckets: Vec<(f64, u64)> = bounds.into_iter().chain([f64::INFINITY]).zip(counts).collect();
        family.encode_family(&labels(named))?.encode_histogram::<NoLabelSet>(
            latency.sum().as_secs_f64(),
            counts.iter().sum(),
            &buckets,
            None,
        )?;
    }
    Ok(())
}

fn errors(shards: &[Named], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let errors = shards.iter().flat_map(|named| {
        let [store, shard] = labels(named);
        ErrorKind::ALL.map(|kind| ([store, shard, ("kind", kind.name())], named.1.stats.errors(kind)))
    });
    counters(encoder, "tidegate_redis_errors", "Charges that got no answer, by what went wrong.", errors)
}

fn breakers(shards: &[Named], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let states = shards.iter().flat_map(|named| {
        let [store, shard] = labels(named);
        let now = named.1.breaker.state();
        BreakerState::ALL.map(|state| ([store, shard, ("state", state.name())], u64::from(state == now)))
    });
    gauges(
        encoder,
        "tidegate_redis_breaker_state",
        "1 for the state that a server's breaker is in.",
        states,
    )?;
    let trips = shards.iter().map(|named| (labels(named), named.1.breaker.trips()));
    counters(encoder, "tidegate_redis_breaker_trips", "How often a server's breaker has opened.", trips)
}

fn connections(shards: &[Named], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let open = shards.iter().map(|named| (labels(named), named.1.stats.connections_open()));
    gauges(encoder, "tidegate_redis_connections", "Connections to a server that are usable.", open)?;
    let opened = shards.iter().map(|named| (labels(named), named.1.stats.connections_opened()));
    counters(encoder, "tidegate_redis_connections_opened", "Connections made to a server.", opened)?;
    let closed = shards.iter().map(|named| (labels(named), named.1.stats.connections_closed()));
    counters(encoder, "tidegate_redis_connections_closed", "Connections to a server that ended.", closed)
}

fn servers(shards: &[Named], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    #[expect(clippy::cast_precision_loss, reason = "a skew of 2^53 microseconds is 285 years")]
    let skews = shards.iter().map(|named| (labels(named), named.1.skew_micros() as f64 / 1e6));
    float_gauges(
        encoder,
        "tidegate_redis_clock_skew_seconds",
        "How far a server's clock is ahead of this process's; negative if behind.",
        skews,
    )?;
    let evicts = shards.iter().filter_map(|named| match named.1.eviction() {
        Eviction::Unknown => None,
        Eviction::Keeps => Some((labels(named), 0)),
        Eviction::DeletesLiveCounters => Some((labels(named), 1)),
    });
    gauges(
        encoder,
        "tidegate_redis_evicts_live_counters",
        "1 if a server deletes counters that still count when its memory is full; no series if that is unknown.",
        evicts,
    )
}
