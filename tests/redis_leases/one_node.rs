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
";
const ONE: Cost = Cost::Charge(Hits::new(1));
/// A call each 200 microseconds: 5,000 a second.
const CALLS_PER_MILLI: u64 = 5;

fn with_leases() -> Options {
    let leases = Some(lease::Options { min_rate: 200, ttl: Duration::from_millis(200) });
    let memo = Some(memo::Options::default());
    Options { local: local::Options { memo, leases, ..local::Options::default() }, ..Options::default() }
}

fn totals(node: &Node) -> lease::Totals {
    node.workers[0].shared().local().leases().unwrap().totals()
}

/// Calls on both workers from one moment to another, in milliseconds; says how many were told OK. What remains never grows.
async fn load(node: &Node, key: &str, from: u64, to: u64) -> u64 {
    let (mut n_ok, mut remaining) = (0, u32::MAX);
    for millis in from..to {
        node.at(millis);
        for n in 0..CALLS_PER_MILLI {
            let answer = node.ask(usize::from(n % 2 == 0), &[key], ONE).await.unwrap();
            n_ok += u64::from(answer.overall == Code::Ok);
            let now = answer.statuses[0].remaining;
            assert!(now <= remaining, "{now} remain after {remaining}, at {millis} ms");
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

#[tokio::test]
async fn a_rule_is_never_leased_that_says_so() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::start(&server, RULES, with_leases()).await;
    let before = server.n_calls("incrby").await.unwrap();
    assert_eq!(load(&node, "never", 0, 300).await, 1_500);
    assert_eq!(totals(&node), lease::Totals::default());
    assert_eq!(server.n_calls("incrby").await.unwrap() - before, 1_500);
}

#[tokio::test]
async fn looks_and_refunds_see_what_is_held() {
    let server = Server::start(Kind::Redis7).await.unwrap();
    let node = Node::start(&server, RULES, with_leases()).await;
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
