//! Whole decisions, in memory, on a clock that stands still; and with a Redis that is not there.

mod decisions;

use std::sync::Arc;

use super::*;
use crate::{
    clock::UnixMicros,
    descriptor::Entry,
    limit::Hits,
    rules::{LoadOptions, RuleFile},
    store::{
        pair::Pair,
        redis::{
            RedisConfig, RedisStore,
            config::{SocketType, Topology, TopologyKind},
        },
    },
};

const TWO_LIMITS: &str = "
domain: d
descriptors:
  - key: wide
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: narrow
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 0}
";

fn shared(rules: &str, options: Options) -> Arc<Shared> {
    let clock = Clock::manual(UnixMicros::from_secs(1_000_000));
    let memory = Arc::new(MemoryStore::new(100));
    let shared = Shared::new(clock, options, Arc::new(Metrics::default()), memory);
    let file = RuleFile { name: "limits.yaml".to_owned(), bytes: rules.as_bytes().to_vec() };
    shared.set_rules(Arc::new(RuleSet::load(&[file], &LoadOptions::default()).unwrap().rules));
    Arc::new(shared)
}

fn in_memory(rules: &str, options: Options) -> Limiter {
    let shared = shared(rules, options);
    let store = Store::Memory(Arc::clone(&shared.fallback));
    Limiter::new(shared, store)
}

/// A limiter whose Redis nobody has started.
async fn without_store(rules: &str, options: Options) -> Limiter {
    let path = "/nonexistent/tidegate-test.sock";
    let topology = Topology::parse(TopologyKind::Single, SocketType::Unix, path).unwrap();
    let redis = crate::store::redis::Shared::new(
        RedisConfig::new(topology),
        Clock::manual(UnixMicros::from_secs(1_000_000)),
    );
    let main = RedisStore::connect(redis.unwrap());
    let limiter = Limiter::new(shared(rules, options), Store::Redis(Pair { main, per_second: None }));
    limiter.ready().await;
    limiter
}

fn request(keys: &[&str]) -> Request {
    let descriptors = keys.iter().map(|key| Descriptor {
        entries: vec![Entry { key: key.to_string().into(), value: "x".into() }],
        cost: Cost::Charge(Hits::new(1)),
        hits_addend: None,
        override_limit: None,
    });
    Request { domain: "d".into(), descriptors: descriptors.collect(), hits_addend: 0 }
}

async fn ask(limiter: &Limiter, keys: &[&str]) -> Result<(Code, Vec<u32>), DecideError> {
    let answer = limiter.decide(&request(keys), Budget::of(Duration::from_secs(5))).await?;
    Ok((answer.overall, answer.statuses.iter().map(|status| status.remaining).collect()))
}

#[tokio::test]
async fn a_refused_request_charges_its_other_counters_unless_told_not_to() {
    for (rules, charging, left) in [
        (TWO_LIMITS.to_owned(), Charging::Always, 8),
        (TWO_LIMITS.to_owned(), Charging::Admitted, 9),
        (format!("charge: admitted{TWO_LIMITS}"), Charging::Always, 9),
    ] {
        let limiter = in_memory(&rules, Options { charging, ..Options::default() });
        assert_eq!(ask(&limiter, &["wide", "narrow"]).await, Ok((Code::Ok, vec![9, 0])));
        assert_eq!(ask(&limiter, &["wide", "narrow"]).await, Ok((Code::OverLimit, vec![left, 0])));
        assert_eq!(ask(&limiter, &["wide"]).await, Ok((Code::Ok, vec![left - 1])));
    }
}

#[tokio::test]
async fn what_is_not_enforced_spares_no_counter() {
    let limiter = in_memory(TWO_LIMITS, Options { charging: Charging::Admitted, ..Options::default() });
    assert_eq!(ask(&limiter, &["wide", "shadow"]).await, Ok((Code::Ok, vec![9, 0])));
    let modes = Modes { shadow: true, ..Modes::default() };
    let options = Options { charging: Charging::Admitted, modes, ..Options::default() };
    let limiter = in_memory(TWO_LIMITS, options);
    for left in [9, 8] {
        assert_eq!(ask(&limiter, &["wide", "narrow"]).await, Ok((Code::Ok, vec![left, 0])));
    }
}

#[tokio::test]
async fn each_posture_has_its_answer_and_its_count() {
    let answers = [
        (Posture::Error, Err(DecideError::Store(StoreError::Unavailable))),
        (Posture::Allow, Ok((Code::Ok, vec![0]))),
        (Posture::Deny, Ok((Code::OverLimit, vec![0]))),
        (Posture::Local, Ok((Code::Ok, vec![9]))),
    ];
    for (posture, expected) in answers {
        let limiter = without_store(TWO_LIMITS, Options { posture, ..Options::default() }).await;
        assert_eq!(ask(&limiter, &["wide"]).await, expected, "{posture:?}");
        assert_eq!(limiter.shared.metrics.postures_applied(posture), 1);
        assert_eq!(ask(&limiter, &["shadow"]).await, Ok((Code::Ok, vec![0])), "shadow rules change nothing");
        assert_eq!(limiter.shared.metrics.postures_applied(posture), 1);
    }
}

#[tokio::test]
async fn a_rule_s_own_posture_goes_before_the_process_s() {
    let rules = "
domain: d
descriptors:
  - key: open
    rate_limit: {unit: hour, requests_per_unit: 1, on_store_failure: allow}
";
    let limiter = without_store(rules, Options { posture: Posture::Deny, ..Options::default() }).await;
    assert_eq!(ask(&limiter, &["open"]).await, Ok((Code::Ok, vec![0])));
}

#[tokio::test]
async fn counted_locally_a_node_enforces_its_share() {
    let replicas = NonZeroU32::new(4).unwrap();
    let options = Options { posture: Posture::Local, replicas, ..Options::default() };
    let limiter = without_store(TWO_LIMITS, options).await;
    for expected in
        [(Code::Ok, vec![2]), (Code::Ok, vec![1]), (Code::Ok, vec![0]), (Code::OverLimit, vec![0])]
    {
        assert_eq!(ask(&limiter, &["wide"]).await, Ok(expected));
    }
    assert_eq!(
        ask(&limiter, &["narrow"]).await,
        Ok((Code::Ok, vec![0])),
        "a share is never rounded to nothing"
    );
}

#[tokio::test]
async fn a_local_refusal_and_a_denial_spare_what_is_counted_locally() {
    let rules = "
domain: d
descriptors:
  - key: wide
    rate_limit: {unit: hour, requests_per_unit: 10, on_store_failure: local}
  - key: narrow
    rate_limit: {unit: hour, requests_per_unit: 1, on_store_failure: local}
  - key: shut
    rate_limit: {unit: hour, requests_per_unit: 1, on_store_failure: deny}
";
    let limiter = without_store(rules, Options { charging: Charging::Admitted, ..Options::default() }).await;
    assert_eq!(ask(&limiter, &["wide", "narrow"]).await, Ok((Code::Ok, vec![9, 0])));
    assert_eq!(ask(&limiter, &["wide", "narrow"]).await, Ok((Code::OverLimit, vec![9, 0])));
    assert_eq!(ask(&limiter, &["wide", "shut"]).await, Ok((Code::OverLimit, vec![9, 0])));
    assert_eq!(ask(&limiter, &["wide"]).await, Ok((Code::Ok, vec![8])));
}

/// A call is moved several times while it is set up: at 60,000 bytes, two fifths of its time went there.
#[test]
fn a_decision_under_way_is_small() {
    let limiter = in_memory(TWO_LIMITS, Options::default());
    let request = Request { domain: "d".into(), descriptors: vec![], hits_addend: 0 };
    let size = size_of_val(&limiter.decide(&request, Budget::of(Duration::from_secs(1))));
    assert!(size <= 4096, "{size} bytes");
}
