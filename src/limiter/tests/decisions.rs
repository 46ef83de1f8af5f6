//! What one limiter decides, rule by rule, in memory.

use std::num::NonZeroU32;

use bytes::Bytes;

use super::*;
use crate::limit::{Unit, Window};

const SECOND: Duration = Duration::from_secs(1);

fn limiter(rules: &str, modes: Modes) -> Limiter {
    in_memory(rules, Options { modes, ..Options::default() })
}

fn put(limiter: &Limiter, rules: &str) {
    let file = RuleFile { name: "limits.yaml".to_owned(), bytes: rules.as_bytes().to_vec() };
    let loaded = RuleSet::load(&[file], &LoadOptions::default()).expect("the rules of the test are good");
    limiter.shared.set_rules(Arc::new(loaded.rules));
}

/// Descriptors of one entry each, `key=value`, of cost 1.
fn request(descriptors: &[&str]) -> Request {
    let descriptor = |text: &&str| {
        let (key, value) = text.split_once('=').unwrap();
        Descriptor {
            entries: vec![Entry {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: Bytes::copy_from_slice(value.as_bytes()),
            }],
            cost: Cost::Charge(Hits::new(1)),
            hits_addend: None,
            override_limit: None,
        }
    };
    let descriptors = descriptors.iter().map(descriptor).collect();
    Request { domain: Bytes::from_static(b"d"), descriptors, hits_addend: 0 }
}

async fn ask(limiter: &Limiter, descriptors: &[&str]) -> Answer {
    limiter.decide(&request(descriptors), Budget::of(SECOND)).await.unwrap()
}

/// How long the answer was held, and what it is.
async fn held(limiter: &Limiter, descriptors: &[&str]) -> (Duration, Code) {
    let began = tokio::time::Instant::now();
    let answer = ask(limiter, descriptors).await;
    (began.elapsed(), answer.overall)
}

#[tokio::test]
async fn a_descriptor_sent_twice_counts_twice() {
    let limiter = limiter(
        "{domain: d, descriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 3}}]}",
        Modes::default(),
    );
    let remaining = |answer: &Answer| answer.statuses.iter().map(|s| s.remaining).collect::<Vec<_>>();
    assert_eq!(remaining(&ask(&limiter, &["a=1", "a=1"]).await), [2, 1]);
    let third = ask(&limiter, &["a=1", "a=1"]).await;
    assert_eq!((remaining(&third), third.overall), (vec![0, 0], Code::OverLimit));
}

#[tokio::test]
async fn replaced_rules_are_not_counted() {
    let limiter = limiter(
        "{domain: d, descriptors: [
           {key: base, rate_limit: {unit: hour, requests_per_unit: 1, name: base}},
           {key: more, rate_limit: {unlimited: true, replaces: [{name: base}]}},
           {key: x, rate_limit: {unit: hour, requests_per_unit: 1, name: x, replaces: [{name: y}]}},
           {key: y, rate_limit: {unit: hour, requests_per_unit: 1, name: y, replaces: [{name: x}]}}]}",
        Modes::default(),
    );
    for _ in 0..3 {
        let answer = ask(&limiter, &["base=1", "more=1"]).await;
        let limits: Vec<_> = answer.statuses.iter().map(|s| (s.limit.is_some(), s.remaining)).collect();
        assert_eq!((answer.overall, limits), (Code::Ok, vec![(false, 0), (false, u32::MAX)]));
    }
    assert_eq!(ask(&limiter, &["base=1"]).await.statuses[0].remaining, 0, "its first hit");
    for _ in 0..3 {
        assert_eq!(ask(&limiter, &["x=1", "y=1"]).await.overall, Code::Ok, "each replaces the other");
    }
}

#[tokio::test]
async fn a_limit_from_the_request_goes_before_the_rules_of_a_known_domain() {
    let limiter = limiter(
        "{domain: d, descriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 9}}]}",
        Modes::default(),
    );
    let window = Window::new(Unit::Minute, NonZeroU32::new(5).unwrap()).unwrap();
    let limit = Limit { requests_per_unit: 1, window, algorithm: Algorithm::FixedWindow };
    let mut asked = request(&["other=1"]);
    asked.descriptors[0].override_limit = Some(limit);
    let codes = async |asked: &Request| {
        let answer = limiter.decide(asked, Budget::of(SECOND)).await.unwrap();
        (answer.overall, answer.statuses[0].limit.as_ref().map(|current| current.limit))
    };
    assert_eq!(codes(&asked).await, (Code::Ok, Some(limit)));
    assert_eq!(codes(&asked).await, (Code::OverLimit, Some(limit)));
    asked.domain = Bytes::from_static(b"elsewhere");
    assert_eq!(codes(&asked).await, (Code::Ok, None));
}

#[tokio::test]
async fn counting_goes_on_under_a_changed_limit() {
    let rules = |n| {
        format!(
            "{{domain: d, descriptors: [{{key: a, rate_limit: {{unit: hour, requests_per_unit: {n}}}}}]}}"
        )
    };
    let limiter = limiter(&rules(2), Modes::default());
    for _ in 0..5 {
        ask(&limiter, &["a=1"]).await;
    }
    put(&limiter, &rules(10));
    let answer = ask(&limiter, &["a=1"]).await;
    assert_eq!((answer.overall, answer.statuses[0].remaining), (Code::Ok, 4), "five before this one");
    put(&limiter, &rules(3));
    assert_eq!(ask(&limiter, &["a=1"]).await.overall, Code::OverLimit);
}

const LEAKY: &str = "{domain: d, descriptors: [
    {key: slow, rate_limit: {unit: second, requests_per_unit: 10, algorithm: leaky_bucket, max_delay: 300ms}},
    {key: trial, shadow_mode: true,
     rate_limit: {unit: second, requests_per_unit: 10, algorithm: leaky_bucket, max_delay: 300ms}},
    {key: banned, rate_limit: {unit: hour, requests_per_unit: 0}}]}";

#[tokio::test(start_paused = true)]
async fn an_answer_is_held_until_its_slot() {
    let limiter = limiter(LEAKY, Modes::default());
    let slot = Duration::from_millis(100);
    for n in 0..4 {
        let (waited, code) = held(&limiter, &["slow=1"]).await;
        assert!(
            code == Code::Ok && waited >= slot * n && waited < slot * n + Duration::from_millis(5),
            "{waited:?}"
        );
    }
    assert_eq!(held(&limiter, &["slow=1"]).await, (Duration::ZERO, Code::OverLimit), "the queue is full");
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_cut_to_the_budget_and_refused_beyond() {
    let limiter = limiter(LEAKY, Modes::default());
    ask(&limiter, &["slow=1"]).await;
    let budget = Budget::of(Duration::from_millis(50));
    let refused = limiter.decide(&request(&["slow=1"]), budget).await.unwrap();
    assert_eq!(refused.overall, Code::OverLimit, "the next slot is 100 ms away");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_answers_at_once_and_gives_its_slot_back() {
    let limiter = limiter(LEAKY, Modes::default());
    for _ in 0..5 {
        assert_eq!(held(&limiter, &["slow=1", "banned=1"]).await, (Duration::ZERO, Code::OverLimit));
    }
    assert_eq!(held(&limiter, &["slow=1"]).await, (Duration::ZERO, Code::Ok), "nothing is in front of it");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_shadow_mode_holds_nobody() {
    let by_rule = limiter(LEAKY, Modes::default());
    let everywhere = limiter(LEAKY, Modes { shadow: true, ..Modes::default() });
    for _ in 0..6 {
        assert_eq!(held(&by_rule, &["trial=1"]).await, (Duration::ZERO, Code::Ok));
        assert_eq!(held(&everywhere, &["slow=1"]).await, (Duration::ZERO, Code::Ok));
    }
}
