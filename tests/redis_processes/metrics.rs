//! What the metrics of a process say of its Redis, in good times and in bad ones.

use std::time::Duration;

use anyhow::{Context, ensure};
use http::Request;
use prometheus_parse::{Sample, Scrape, Value};

use crate::http::{self as client, Body};
use crate::redis::server::{Kind, Setup};
use crate::redis::wait::eventually;
use crate::redis_service::{Service, single};

const RULES: &str = "
domain: seen
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 1000}
";
const PATIENCE: Duration = Duration::from_secs(5);
const AT_LAST: Duration = Duration::from_secs(20);

/// The metrics of a process, as a scraper reads them.
struct Metrics(Scrape);

impl Metrics {
    async fn of(service: &Service) -> anyhow::Result<Self> {
        let request = Request::get("/metrics").body(Body::default())?;
        let answer = client::send(service.process.debug_address(), request).await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(Self(Scrape::parse(answer.body.lines().map(|line| Ok(line.to_owned())))?))
    }

    /// The one series of this name with these labels. Of a histogram: how many there were.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
        let is_meant = |sample: &&Sample| {
            sample.metric == name
                && labels.iter().all(|(label, value)| sample.labels.get(label) == Some(*value))
        };
        let mut found = self.0.samples.iter().filter(is_meant);
        let sample = found.next().with_context(|| format!("no {name} {labels:?}"))?;
        ensure!(found.next().is_none(), "several {name} {labels:?}");
        Ok(match &sample.value {
            Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => *value,
            Value::Histogram(buckets) => buckets.last().map_or(0.0, |bucket| bucket.count),
            Value::Summary(_) => anyhow::bail!("{name} is a summary"),
        })
    }
}

#[tokio::test]
async fn metrics_say_how_redis_is() -> anyhow::Result<()> {
    // One policy that deletes counters which still count.
    let redis =
        Setup::new(Kind::Redis7).line("maxmemory 100mb").line("maxmemory-policy allkeys-lru").start().await?;
    let service = Service::start(RULES, &single(redis.address())).await?;
    let caller = service.caller()?;
    let at = redis.address().to_string();
    let shard = [("store", "main"), ("shard", at.as_str())];
    let of = |label, value| [("store", "main"), ("shard", at.as_str()), (label, value)];
    for _ in 0..3 {
        assert_eq!(caller.ask("seen", &[("user", "a")], PATIENCE).await, "OK");
    }

    let good = Metrics::of(&service).await?;
    assert_eq!(good.value("tidegate_redis_call_duration_seconds", &shard)?, 3.0);
    assert_eq!(good.value("tidegate_redis_breaker_state", &of("state", "closed"))?, 1.0);
    assert_eq!(good.value("tidegate_redis_breaker_trips_total", &shard)?, 0.0);
    assert_eq!(good.value("tidegate_redis_errors_total", &of("kind", "io"))?, 0.0);
    assert_eq!(good.value("tidegate_redis_evicts_live_counters", &shard)?, 1.0);
    assert!(good.value("tidegate_redis_clock_skew_seconds", &shard)?.abs() < 1.0);
    let connections = good.value("tidegate_redis_connections", &shard)?;
    assert!(connections >= 1.0);
    assert_eq!(good.value("tidegate_redis_refunds_total", &[("store", "main"), ("result", "dropped")])?, 0.0);
    assert_eq!(good.value("tidegate_store_failure_postures_total", &[("posture", "error")])?, 0.0);

    redis.kill().await?;
    let mut n_failed = 0.0;
    eventually(AT_LAST, async || {
        if caller.ask("seen", &[("user", "a")], PATIENCE).await == "UNAVAILABLE" {
            n_failed += 1.0;
        }
        let state =
            Metrics::of(&service).await?.value("tidegate_redis_breaker_state", &of("state", "open"))?;
        ensure!(state == 1.0, "the breaker is not open yet");
        Ok(())
    })
    .await?;
    let bad = Metrics::of(&service).await?;
    assert!(bad.value("tidegate_redis_breaker_trips_total", &shard)? >= 1.0);
    assert_eq!(bad.value("tidegate_redis_connections", &shard)?, 0.0);
    assert_eq!(bad.value("tidegate_redis_connections_closed_total", &shard)?, connections);
    assert_eq!(bad.value("tidegate_store_failure_postures_total", &[("posture", "error")])?, n_failed);
    let errors = ["io", "breaker_open", "timeout"]
        .map(|kind| bad.value("tidegate_redis_errors_total", &of("kind", kind)));
    let n_errors: f64 = errors.into_iter().sum::<anyhow::Result<f64>>()?;
    assert_eq!(n_errors, n_failed, "each charge that got no answer, by what went wrong");
    Ok(())
}
