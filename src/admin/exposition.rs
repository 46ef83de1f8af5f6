//! The metrics as Prometheus reads them. Each family is declared once, here, with the question that it answers.

mod local;
mod redis;
mod tls;
mod xds;

use std::{collections::BTreeMap, fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, prometheus_text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::Admin;
use crate::{
    limiter::Limiter,
    rls::serve::Counts,
    rules::{Counted, Posture, RuleCounters, Verdict, xds::Stats},
    store::Store,
    telemetry::metrics::{CallOutcome, Metrics, SpanOutcome},
    tls::Tls,
};

/// The label value under which limits that came with requests are counted together.
const OVERRIDE: &str = "(from the request)";

/// The whole page, in the text format 0.0.4.
pub(super) fn text(admin: Admin) -> Result<String, fmt::Error> {
    let Admin { limiter, metrics, control_plane, counts, tls, .. } = admin;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page { limiter, metrics, control_plane, counts, tls }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Page {
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    control_plane: Option<Arc<Stats>>,
    counts: Counts,
    tls: Option<Tls>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.calls(&mut encoder)?;
        self.rules(&mut encoder)?;
        if let Some(stats) = &self.control_plane {
            xds::encode(stats, &mut encoder)?;
        }
        self.store(&mut encoder)?;
        local::encode(&self.limiter, &mut encoder)?;
        self.statistics(&mut encoder)?;
        if let Some(tls) = &self.tls {
            tls::encode(tls, &self.counts, &mut encoder)?;
        }
        self.process(&mut encoder)
    }
}

impl Page {
    /// How many calls, how did they end, and how long did they take?
    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let decided = CallOutcome::ALL.map(|outcome| (outcome.name(), self.metrics.calls(outcome)));
        let undecided = [("invalid", self.counts.invalid()), ("shed", self.counts.shed())];
        let outcomes = decided.into_iter().chain(undecided).map(|(outcome, n)| ([("outcome", outcome)], n));
        counters(encoder, "tidegate_calls", "Requests for a decision, by how they ended.", outcomes)?;
        let latencies = self.metrics.latencies();
        encoder
            .encode_descriptor(
                "tidegate_decision_duration_seconds",
                "Time from a request's being read to its decision, the store's part included.",
                None,
                MetricType::Histogram,
            )?
            .encode_histogram::<NoLabelSet>(
                latencies.sum_seconds,
                latencies.count,
                &latencies.buckets,
                None,
            )?;
        let unknown = self.metrics.unknown_domains();
        counter(
            encoder,
            "tidegate_unknown_domain",
            "Descriptors asked in a domain that no rules are for.",
            unknown,
        )
    }

    /// Which limit fired, how often, and was it enforced?
    fn rules(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let rules = self.limiter.shared().rules();
        // Two rules of one name share their counters.
        let by_name: BTreeMap<&str, &RuleCounters> = rules
            .iter()
            .flat_map(|rules| rules.rules())
            .map(|rule| (&*rule.full_key, &*rule.counters))
            .chain([(OVERRIDE, &self.metrics.overrides)])
            .collect();
        let of_rules = || by_name.iter().map(|(rule, counters)| (*rule, *counters));
        let decisions = of_rules().flat_map(|(rule, counters)| {
            Verdict::ALL
                .map(|verdict| ([("rule", rule), ("verdict", verdict.name())], counters.decisions(verdict)))
        });
        counters(encoder, "tidegate_rule_decisions", "Decisions, by rule and verdict.", decisions)?;
        let hits = of_rules().flat_map(|(rule, counters)| hits(rule, counters));
        counters(
            encoder,
            "tidegate_rule_hits",
            "Hits, by rule and by where they fell: all, above the limit, near it, within it, above it in shadow mode, refused from memory.",
            hits,
        )?;
        let (ok, failed) = self.metrics.reloads();
        let reloads = [([("result", "ok")], ok), ([("result", "refused")], failed)];
        counters(encoder, "tidegate_rules_reloads", "Loads of the rules, by result.", reloads)?;
        let stale = self.metrics.last_reload_failed();
        gauge(
            encoder,
            "tidegate_rules_stale",
            "1 while the last rules were refused and older ones are in force.",
            stale,
        )?;
        let n_rules = rules.as_ref().map_or(0, |rules| rules.rules().count());
        gauge(encoder, "tidegate_rules", "Rules in force that grant something.", to_u64(n_rules))
    }

    /// What did the store not answer, how full is the memory, and what was forgotten?
    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let postures = Posture::ALL
            .map(|posture| ([("posture", posture.name())], self.metrics.postures_applied(posture)));
        counters(
            encoder,
            "tidegate_store_failure_postures",
            "Counters that could not be charged, by what their rule says then.",
            postures,
        )?;
        if let Store::Redis(pair) = self.limiter.store() {
            redis::encode(pair, encoder)?;
        }
        let memory = self.limiter.shared().fallback();
        gauge(encoder, "tidegate_memory_keys", "Counters in memory.", to_u64(memory.len()))?;
        gauge(
            encoder,
            "tidegate_memory_keys_limit",
            "The bound on them (MEMORY_MAX_KEYS).",
            to_u64(memory.max_keys()),
        )?;
        counter(
            encoder,
            "tidegate_memory_evictions",
            "Live counters that had to make room for new ones.",
            memory.evictions(),
        )?;
        counter(
            encoder,
            "tidegate_memory_evicted_hits",
            "Hits that these had counted: at most so many were let through above a limit.",
            memory.evicted_hits(),
        )
    }

    /// Do the statistics under the reference's names arrive, and are they whole?
    fn statistics(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(names) = self.metrics.names() {
            gauge(
                encoder,
                "tidegate_statistics_names",
                "Names that callers brought and that are counted apart.",
                to_u64(names.len()),
            )?;
            counter(
                encoder,
                "tidegate_statistics_folded",
                "Counts that went to _other because there were too many names (STATS_MAX_NAMES), or a name was too long.",
                names.folded(),
            )?;
        }
        let (sent, failed) = self.metrics.sending.flushes();
        let flushes = [([("result", "sent")], sent), ([("result", "failed")], failed)];
        counters(
            encoder,
            "tidegate_statistics_flushes",
            "Flushes to statsd or DogStatsD; what one that failed had to say goes with a later one.",
            flushes,
        )
    }

    /// What runs here, and how busy is it?
    fn process(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        gauge(encoder, "tidegate_calls_in_flight", "Calls being answered.", to_u64(self.counts.in_flight()))?;
        gauge(encoder, "tidegate_connections", "gRPC connections open.", to_u64(self.counts.connections()))?;
        let spans =
            SpanOutcome::ALL.map(|outcome| ([("outcome", outcome.name())], self.metrics.n_spans(outcome)));
        counters(encoder, "tidegate_spans", "Spans of traced calls, by what became of them.", spans)?;
        let build = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        gauges(encoder, "tidegate_build_info", "The version of this process.", build)
    }
}

fn hits<'r>(
    rule: &'r str,
    counters: &RuleCounters,
) -> impl Iterator<Item = ([(&'static str, &'r str); 2], u64)> {
    let kinds = Counted::NAMES.map(|name| if name == "total_hits" { "total" } else { name });
    kinds
        .into_iter()
        .zip(counters.hits().fields())
        .map(move |(kind, n)| ([("rule", rule), ("kind", kind)], n))
}

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, n) in series {
        ConstCounter::new(n).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, n) in series {
        ConstGauge::new(n).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn float_gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, n) in series {
        ConstGauge::new(n).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, n: u64) -> fmt::Result {
    ConstCounter::new(n).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, n: u64) -> fmt::Result {
    ConstGauge::new(n).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn gauge_of(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, n: f64) -> fmt::Result {
    ConstGauge::new(n).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn to_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
