//! The refusal memo in front of a real Redis, on a clock that the test turns: what is asked, what is answered from memory, and
//! when that ends.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/node.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod node;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;

use std::time::Duration;

use futures_util::future::join_all;
use node::{N_WORKERS, Node};
use redis::server::{Kind, Server};
use tidegate::decision::Code;
use tidegate::limit::{Cost, Hits};
use tidegate::limiter::{DecideError, Options};
use tidegate::local::{self, memo};
use tidegate::rules::Charging;
use tidegate::store::StoreError;

const RULES: &str = "
domain: d
descriptors:
  - {key: fixed_window, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: sliding_window, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_window}}
  - {key: sliding_log, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_log}}
  - {key: token_bucket, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: leaky_bucket, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: leaky_bucket, max_delay: 0s}}
  - {key: wide, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: short, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
";

impl Node {
    async fn with_memo(server: &Server) -> Self {
        Self::start(server, RULES, with_memo()).await
    }

    async fn one(&self, worker: usize, key: &str) -> Code {
        self.ask(worker, &[key], ONE).await.unwrap().overall
    }

    fn n_remembered(&self) -> u64 {
        self.workers[0].shared().local().memo().map_or(0, memo::Memo::refusals)
    }
}

const ONE: Cost = Cost::Charge(Hits::new(1));

fn with_memo() -> Options {
    let memo = Some(memo::Options::default());
    Options { local: local::Options { memo, ..local::Options::default() }, ..Options::default() }
}

/// Commands that concern counters.
async fn n_commands(server: &Server) -> u64 {
    let mut sum = 0;
    for command in ["incrby", "expire", "get", "evalsha", "eval"] {
        sum += server.n_calls(command).await.unwrap();
    }
    sum
}

/// Three seconds at 1,000 calls a second on two workers, 100 times and more of what is admitted.
#[tokio::test]
async fn a_flood_of_refused_calls_reaches_redis_twice_a_second_at_most() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for _ in 0..6 {
        node.one(0, "fixed_window").await;
    }
    let before = n_commands(&server).await;
    for milli in 0..3_000 {
        node.at(milli);
        let worker = usize::try_from(milli % 2).unwrap();
        assert_eq!(node.one(worker, "fixed_window").await, Code::OverLimit);
    }
    let n_commands = n_commands(&server).await - before;
    assert!(n_commands <= 2 * 3, "{n_commands} commands");
    assert!(n_commands >= 2 * 2, "a limit that was raised elsewhere would go unseen");
}

/// What the store says to each call, and what the memo makes of it: the same, on every algorithm, also while time goes on.
#[tokio::test]
async fn answers_from_memory_are_those_of_the_store() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let with = Node::with_memo(&server).await;
    let without = Node::start(&server, RULES, Options::default()).await;
    for (n, key) in ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"]
        .into_iter()
        .enumerate()
    {
        let key = [key];
        for milli in (0..2_500).step_by(50) {
            with.at(milli);
            without.at(milli);
            let answer = with.ask(0, &key, ONE).await.unwrap();
            if answer.overall == Code::OverLimit {
                assert_eq!(answer, without.ask(1, &key, ONE).await.unwrap(), "{key:?} at {milli} ms");
            }
        }
        assert!(with.n_remembered() > 40 * (n as u64 + 1), "{key:?}: {}", with.n_remembered());
    }
}

#[tokio::test]
async fn a_window_that_ends_is_not_outlived() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for second in 0..4 {
        for milli in [300, 301, 302, 303, 304, 305, 306, 999] {
            node.at(second * 1_000 + milli);
            let expected = if milli < 305 { Code::Ok } else { Code::OverLimit };
            assert_eq!(node.one(0, "short").await, expected, "{second} s {milli} ms");
        }
    }
    assert_eq!(node.n_remembered(), 2 * 4);
}

#[tokio::test]
async fn a_refund_on_this_node_is_seen_at_once_by_all_its_workers() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for key in ["sliding_window", "token_bucket"] {
        for _ in 0..8 {
            node.one(0, key).await;
        }
        assert_eq!(node.one(1, key).await, Code::OverLimit);
        node.ask(0, &[key], Cost::Refund(Hits::new(2))).await.unwrap();
        for expected in [Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit] {
            node.clock.set(node.clock.now().after(Duration::from_millis(1)));
            assert_eq!(node.one(1, key).await, expected, "{key}");
        }
    }
}

#[tokio::test]
async fn what_another_node_gives_back_is_seen_within_a_second() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let [node, other] = [Node::with_memo(&server).await, Node::with_memo(&server).await];
    for _ in 0..8 {
        node.one(0, "sliding_window").await;
    }
    other.ask(0, &["sliding_window"], Cost::Refund(Hits::new(3))).await.unwrap();
    node.at(999);
    assert_eq!(node.one(0, "sliding_window").await, Code::OverLimit);
    node.at(1_000);
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(node.one(1, "sliding_window").await, expected);
    }
}

#[tokio::test]
async fn a_limit_that_is_raised_is_in_force_at_once() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for _ in 0..8 {
        node.one(0, "sliding_window").await;
    }
    node.workers[0]
        .shared()
        .set_rules(node::load(&RULES.replace("requests_per_unit: 5", "requests_per_unit: 6")));
    assert_eq!(node.one(1, "sliding_window").await, Code::Ok);
    assert_eq!(node.one(1, "sliding_window").await, Code::OverLimit);
}

#[tokio::test]
async fn when_a_memory_ends_one_asks_for_all() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for _ in 0..6 {
        node.one(0, "fixed_window").await;
    }
    node.at(1_000);
    let before = server.n_calls("incrby").await.unwrap();
    let asked = join_all((0..200).map(|n| node.one(n % N_WORKERS, "fixed_window"))).await;
    assert!(asked.iter().all(|code| *code == Code::OverLimit));
    assert_eq!(server.n_calls("incrby").await.unwrap() - before, 1);
}

#[tokio::test]
async fn a_peek_or_a_smaller_cost_asks_the_store() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    let code = async |cost| node.ask(0, &["sliding_window"], cost).await.unwrap().overall;
    assert_eq!(code(Cost::Charge(Hits::new(3))).await, Code::Ok);
    assert_eq!(code(Cost::Charge(Hits::new(3))).await, Code::OverLimit);
    assert_eq!(code(Cost::Charge(Hits::new(4))).await, Code::OverLimit);
    assert_eq!(node.n_remembered(), 1);
    assert_eq!(code(Cost::Peek).await, Code::Ok);
    assert_eq!(code(Cost::Charge(Hits::new(2))).await, Code::Ok);
    assert_eq!(node.n_remembered(), 1);
}

/// As the reference's local cache does, but for a second only: then it is an outage again.
#[tokio::test]
async fn without_redis_what_is_remembered_is_refused_for_a_second_more() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for _ in 0..6 {
        node.one(0, "fixed_window").await;
    }
    server.kill().await.unwrap();
    node.at(999);
    assert_eq!(node.one(1, "fixed_window").await, Code::OverLimit);
    node.at(1_050);
    let error = node.ask(1, &["fixed_window"], ONE).await.unwrap_err();
    assert_eq!(error, DecideError::Store(StoreError::Unavailable));
}

#[tokio::test]
async fn a_request_that_is_known_to_be_refused_charges_nothing_where_it_is_to_charge_nothing() {
    for (charging, left) in [(Charging::Admitted, 999), (Charging::Always, 992)] {
        let server = Server::start(Kind::Redis7).await.unwrap();
        let node = Node::start(&server, RULES, Options { charging, ..with_memo() }).await;
        for _ in 0..6 {
            node.one(0, "fixed_window").await;
        }
        assert_eq!(node.ask(0, &["wide"], ONE).await.unwrap().statuses[0].remaining, 999);
        for _ in 0..7 {
            let answer = node.ask(1, &["wide", "fixed_window"], ONE).await.unwrap();
            assert_eq!(answer.overall, Code::OverLimit);
        }
        let remaining = node.ask(0, &["wide"], Cost::Peek).await.unwrap().statuses[0].remaining;
        assert_eq!(remaining, left, "{charging:?}");
        assert!(node.n_remembered() >= 7);
    }
}

/// Scenario 071 of the recorded conversations: a shadowed rule is remembered too, stays OK, and both of its counters grow.
#[tokio::test]
async fn a_shadowed_rule_is_remembered_and_refuses_nobody() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::start(&server, RULES, Options { charging: Charging::Admitted, ..with_memo() }).await;
    for n in 1..=5 {
        let answer = node.ask(0, &["shadow", "wide"], ONE).await.unwrap();
        assert_eq!(answer.overall, Code::Ok);
        assert_eq!(answer.statuses[1].remaining, 1_000 - n, "the other rule is charged each time");
    }
    let rules = node.workers[0].shared().rules().unwrap();
    let shadow = rules.rules().find(|rule| rule.shadow_mode).unwrap();
    let hits = shadow.counters.hits();
    let seen = [hits.total, hits.over_limit, hits.shadow_mode, hits.over_limit_with_local_cache];
    assert_eq!(seen, [5, 4, 4, 3]);
    assert_eq!(node.n_remembered(), 3);
}

/// The promise of the page: what is named there is what was asked for.
#[tokio::test]
async fn the_hottest_and_the_most_refused_keys_are_known() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    for milli in 0..4_000 {
        node.at(milli);
        node.one(0, "fixed_window").await;
        if milli % 2 == 0 {
            node.one(1, "wide").await;
        }
    }
    let top = node.workers[0].shared().local().top(5, node.clock.now());
    let names: Vec<&str> = top.hottest.iter().map(|row| &*row.key).collect();
    assert_eq!(names, ["d|fixed_window=x|3600s", "d|wide=x|3600s"]);
    assert!((top.hottest[0].share - 2.0 / 3.0).abs() < 0.02, "{top:?}");
    assert_eq!(top.most_refused[0].key, "d|fixed_window=x|3600s");
}

/// It counts what it refuses, so that nothing fits any more.
#[tokio::test]
async fn a_fixed_window_that_has_refused_is_full_for_every_cost() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::with_memo(&server).await;
    let code =
        async |cost| node.ask(0, &["fixed_window"], Cost::Charge(Hits::new(cost))).await.unwrap().overall;
    assert_eq!((code(4).await, code(3).await), (Code::Ok, Code::OverLimit));
    assert_eq!((code(1).await, node.n_remembered()), (Code::OverLimit, 1));
}

/// Where a refused request charges nothing, what still fits is let through.
#[tokio::test]
async fn a_fixed_window_that_has_spared_what_it_refused_has_room_for_less() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let options = Options { charging: Charging::Admitted, ..with_memo() };
    let node = Node::start(&server, RULES, options).await;
    let code =
        async |cost| node.ask(0, &["fixed_window"], Cost::Charge(Hits::new(cost))).await.unwrap().overall;
    assert_eq!((code(4).await, code(3).await, code(3).await), (Code::Ok, Code::OverLimit, Code::OverLimit));
    assert_eq!((code(1).await, node.n_remembered()), (Code::Ok, 1));
    assert_eq!((code(2).await, code(1).await), (Code::OverLimit, Code::OverLimit));
}
