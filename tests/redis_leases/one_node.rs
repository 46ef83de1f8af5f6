//! One node, in this process, on a clock that the test turns: what Redis hears, and what callers are told.

use std::time::Duration;

use ::tidegate::decision::Code;
use ::tidegate::limit::{Cost, Hits};
use ::tidegate::limiter::Options;
use ::tidegate::local::{self, lease, memo};
use tokio::time::sleep;

use crate::node::Node;
use crate::redis::server::{Kind, Server};

const RULES: &str = "
domain: d
descriptors:
  - {key: hot, rate_limit: {unit: hour, requests_per_unit: 1000000}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 1000000, lease: off}}
  - {key: narrow, rate_limit: {unit: hour, requests_per_unit: 2000}}
  - {key: sliding, rate_limit: {unit: hour, requests_per_unit: 1000000, algorithm: sliding_window, lease: on}}
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 3600000, algorithm: token_bucket, burst: 100000, lease: on}}
  - {key: sliding_unasked, rate_limit: {unit: hour, requests_per_unit: 1000000, algorithm: sliding_window}}
  - {key: each_second, rate_limit: {unit: second, requests_per_unit: 1000000}}
  - {key: small_bucket, rate_limit: {unit: hour, requests_per_unit: 3600, algorithm: token_bucket, burst: 2000, lease: on}}
";
const ONE: Cost = Cost::Charge(Hits::new(1));
/// A call each 200 microseconds: 5,000 a second.
const CALLS_PER_MILLI: u64 = 5;

fn with_leases() -> Options {
    with_leases_for(Duration::from_millis(200))
}

fn with_leases_for(ttl: Duration) -> Options {
    let leases = Some(lease::Options { min_rate: 200, ttl });
    let memo = Some(memo::Options::default());
    Options { local: local::Options { memo, leases, ..local::Options::default() }, ..Options::default() }
}

fn totals(node: &Node) -> lease::Totals {
    node.workers[0].shared().local().leases().unwrap().totals()
}

/// Calls on both workers from one moment to another, in milliseconds; says how many were told OK. What remains never grows.
async fn load(node: &Node, key: &str, from: u64, to: u64) -> u64 {
    load_refilled(node, key, from, to, 0).await
}

/// The same where what remains may grow by what is refilled between two looks at the store.
async fn load_refilled(node: &Node, key: &str, from: u64, to: u64, refilled: u32) -> u64 {
    let (mut n_ok, mut remaining) = (0, u32::MAX - refilled);
    for millis in from..to {
        node.at(millis);
        for n in 0..CALLS_PER_MILLI {
            let answer = node.ask(usize::from(n % 2 == 0), &[key], ONE).await.unwrap();
            n_ok += u64::from(answer.overall == Code::Ok);
            let now = answer.statuses[0].remaining;
            assert!(now <= remaining + refilled, "{now} remain after {remaining}, at {millis} ms");
            remaining = now;
        }
        // What was asked for is answered within the millisecond that this stands for.
        sleep(Duration::from_micros(500)).await;
    }
    n_ok
}

/// All commands that the server has executed, those of scripts included.
async fn n_commands(server: &Server) -> u64 {
    let stats = server.call(&["INFO", "commandstats"]).await.unwrap().text().unwrap();
    let calls = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter_map(calls).sum()
}

async fn counted(server: &Server, key: &str) -> u64 {
    let names = server.call(&["KEYS", &format!("d|{key}=x|*")]).await.unwrap().list().unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    let name = names.into_iter().next().unwrap().text().unwrap();
    server.call(&["GET", &name]).await.unwrap().text().unwrap().parse().unwrap()
}

#[tokio::test]
async fn redis_hears_of_one_call_in_fifty() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::start(&server, RULES, with_leases()).await;
    let mut n_ok = load(&node, "hot", 0, 1_000).await;
    let before = n_commands(&server).await;
    n_ok += load(&node, "hot", 1_000, 4_000).await;
    let n_commands = n_commands(&server).await - before;
    println!("15,000 calls, {n_commands} commands; {:?}", totals(&node));
    assert_eq!(n_ok, 20_000);
    assert!(n_commands <= 15_000 / 50, "{n_commands} commands for 15,000 calls");
    for worker in &node.workers {
        worker.close().await;
    }
    let lease::Totals { granted, spent, returned, dropped } = totals(&node);
    assert_eq!((granted, dropped), (spent + returned, 0));
    assert_eq!(counted(&server, "hot").await, 20_000, "nothing more stays counted");
}

/// An hour's hits, and a bucket that gets 1,000 a second.
#[tokio::test]
async fn a_sliding_window_and_a_token_bucket_are_leased_where_a_rule_says_so() {
    for (key, refilled) in [("sliding", 0), ("bucket", 150)] {
        let server = Server::start(Kind::Redis7).await.unwrap();
        let node = Node::start(&server, RULES, with_leases()).await;
        let mut n_ok = load_refilled(&node, key, 0, 1_000, refilled).await;
        let before = n_commands(&server).await;
        n_ok += load_refilled(&node, key, 1_000, 4_000, refilled).await;
        let n_commands = n_commands(&server).await - before;
        println!("{key}: 15,000 calls, {n_commands} commands; {:?}", totals(&node));
        assert_eq!(n_ok, 20_000);
        assert!(n_commands <= 15_000 / 50, "{n_commands} commands for 15,000 calls of {key}");
        for worker in &node.workers {
            worker.close().await;
        }
        let lease::Totals { granted, spent, returned, dropped } = totals(&node);
        assert_eq!((granted, dropped), (spent + returned, 0));
        let remaining = node.ask(0, &[key], Cost::Peek).await.unwrap().statuses[0].remaining;
        let expected = if key == "sliding" { 980_000..=980_000 } else { 83_999..=84_001 };
        assert!(expected.contains(&remaining), "{remaining} remain of {key}");
    }
}

#[tokio::test]
async fn a_bucket_that_runs_dry_is_counted_hit_by_hit() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::start(&server, RULES, with_leases()).await;
    let n_ok = load_refilled(&node, "small_bucket", 0, 1_000, 1).await;
    assert!((2_000..=2_001).contains(&n_ok), "{n_ok} of 2,000 and one that is refilled");
    assert!(totals(&node).spent > 1_000, "{:?}", totals(&node));
}

#[tokio::test]
async fn a_rule_is_not_leased_that_says_so_or_whose_window_moves() {
    for key in ["never", "sliding_unasked"] {
        let server = Server::start(Kind::Redis7).await.unwrap();
        let node = Node::start(&server, RULES, with_leases()).await;
        let n_charges =
            async || server.n_calls("incrby").await.unwrap() + server.n_calls("psetex").await.unwrap();
        let before = n_charges().await;
        assert_eq!(load(&node, key, 0, 300).await, 1_500);
        assert_eq!(totals(&node), lease::Totals::default());
        assert_eq!(n_charges().await - before, 1_500);
    }
}

#[tokio::test]
async fn each_of_two_servers_lends_what_it_counts() {
    let (main, second) =
        (Server::start(Kind::Redis7).await.unwrap(), Server::start(Kind::Redis7).await.unwrap());
    let node = Node::start_with(&main, Some(&second), RULES, with_leases()).await;
    assert_eq!(load(&node, "hot", 0, 400).await, 2_000);
    assert_eq!(load(&node, "each_second", 400, 800).await, 2_000);
    assert!(totals(&node).spent > 2_000, "{:?}", totals(&node));
    for worker in &node.workers {
        worker.close().await;
    }
    let lease::Totals { granted, spent, returned, dropped } = totals(&node);
    assert_eq!((granted, dropped), (spent + returned, 0));
    assert_eq!((counted(&main, "hot").await, counted(&second, "each_second").await), (2_000, 2_000));
    for (server, key) in [(&main, "each_second"), (&second, "hot")] {
        let names = server.call(&["KEYS", &format!("d|{key}=x|*")]).await.unwrap().list().unwrap();
        assert!(names.is_empty(), "{names:?} is counted by the other server");
    }
}

#[tokio::test]
async fn looks_and_refunds_see_what_is_held() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    // So long that nothing is given back while the refund is under way: its answer could not tell whether that was before.
    let node = Node::start(&server, RULES, with_leases_for(Duration::from_secs(80))).await;
    assert_eq!(load(&node, "hot", 0, 500).await, 2_500);
    let leases = node.workers[0].shared().local().leases().unwrap();
    assert!(leases.held() > 0);
    let remaining = async |cost| node.ask(0, &["hot"], cost).await.unwrap().statuses[0].remaining;
    assert_eq!(remaining(Cost::Peek).await, 1_000_000 - 2_500);
    assert_eq!(remaining(Cost::Refund(Hits::new(500))).await, 1_000_000 - 2_000);
    // What was held is not spent any more, and given back.
    for worker in &node.workers {
        worker.close().await;
    }
    assert_eq!(counted(&server, "hot").await, 2_000);
}

#[tokio::test]
async fn the_last_hit_is_admitted_and_no_more() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::start(&server, RULES, with_leases()).await;
    assert_eq!(load(&node, "narrow", 0, 1_000).await, 2_000);
    assert!(totals(&node).spent > 1_000, "{:?}", totals(&node));
}
