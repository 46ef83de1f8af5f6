//! What is sent, what becomes of it, and what is answered.

use std::time::Duration;

use prost::Message as _;
use prost_types::{Any, Struct, Value, value::Kind};
use tempfile::TempDir;
use tidegate::{
    pb::{
        envoy::service::discovery::v3::Resource,
        ratelimit::config::ratelimit::v3::{
            RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
        },
    },
    rules::{
        LoadOptions,
        xds::{CACHE_FILE, Headers, Node, TYPE_URL, Update},
    },
};
use tokio::time::Instant;

use crate::{
    control_plane::{ControlPlane, any, descriptor, domain, domains},
    followed::{Followed, Told, keeping, line, options},
};

#[tokio::test]
async fn snapshots_are_taken_whole_and_acknowledged() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1), ("two", 2)]));
    let mut followed = Followed::start(options(plane.server())).await;
    assert_eq!(followed.rules().await, line("one", 1) + &line("two", 2));
    plane.seen_at_least(2).await;
    plane.send("2", domains([("two", 20), ("three", 3)]));
    assert_eq!(followed.rules().await, line("three", 3) + &line("two", 20), "one is gone");
    plane.seen_at_least(3).await;
    plane.send("3", Vec::new());
    assert_eq!(followed.rules().await, "", "nothing is a snapshot too");
    let seen = plane.seen_at_least(4).await;
    let said: Vec<_> = seen.iter().map(|seen| seen.said()).collect();
    assert_eq!(said, [("", "", false), ("1", "0/1", false), ("2", "0/2", false), ("3", "0/3", false)]);
    for seen in &seen {
        assert_eq!(seen.request.node.as_ref().unwrap().id, "test-node");
        assert_eq!((seen.request.type_url.as_str(), seen.request.resource_names.len()), (TYPE_URL, 0));
    }
    followed.handle.stop().await;
}

/// Cases 162 and 166.
#[tokio::test]
async fn one_bad_resource_refuses_all_with_every_reason_and_the_old_rules_stay() {
    let plane = ControlPlane::start().await;
    plane.send("good", domains([("one", 1)]));
    let mut followed = Followed::start(options(plane.server())).await;
    assert_eq!(followed.rules().await, line("one", 1));
    plane.seen_at_least(2).await;

    let twice = RateLimitConfig {
        descriptors: vec![descriptor("a", RateLimitUnit::Hour, 1), descriptor("a", RateLimitUnit::Day, 1)],
        ..domain("twice", 1)
    };
    let units = RateLimitConfig {
        descriptors: vec![
            descriptor("u", RateLimitUnit::Unknown, 1),
            descriptor("v", RateLimitUnit::Unknown, 1),
        ],
        ..domain("units", 1)
    };
    let garbage = Any { type_url: TYPE_URL.to_owned(), value: vec![0xff; 9] };
    let other = Any { type_url: "type.googleapis.com/some.Other".to_owned(), value: Vec::new() };
    plane.send("bad", vec![any(&domain("one", 2)), any(&twice), any(&units), garbage, other]);
    let told = followed.refusal().await;
    let nack = plane.seen_one("a refusal", |seen| seen.is_refusal()).await;
    assert_eq!(nack.said(), ("good", "0/2", true));
    let reason = nack.request.error_detail.unwrap().message;
    assert_eq!(reason, told);
    for problem in [
        "resource 4 of 5: cannot be read as a RateLimitConfig",
        "resource 5 of 5: is of type \"type.googleapis.com/some.Other\"",
        "twice: duplicate descriptor composite key 'twice.a'",
        "units: invalid rate limit unit 'UNKNOWN'",
        "(at descriptors[0].rate_limit.unit, rule units.u)",
        "(at descriptors[1].rate_limit.unit, rule units.v)",
    ] {
        assert!(reason.contains(problem), "{problem:?} is missing in {reason}");
    }

    plane.send("better", domains([("one", 3)]));
    assert_eq!(followed.rules().await, line("one", 3));
    let ack = plane.seen_one("better", |seen| seen.said().0 == "better").await;
    assert_eq!(ack.said(), ("better", "0/3", false));
    let updates = Update::ALL.map(|update| followed.handle.stats.updates(update));
    assert_eq!(updates, [2, 1, 0]);
}

/// Control planes send a refused snapshot again as soon as they are told.
#[tokio::test]
async fn who_insists_on_a_bad_snapshot_is_answered_slowly_and_told_of_once() {
    let plane = ControlPlane::insistent().await;
    plane.send("bad", vec![any(&domain("", 1))]);
    let mut followed = Followed::start(options(plane.server())).await;
    assert!(followed.refusal().await.contains("config file cannot have empty domain"));
    plane.seen_at_least(2).await;
    let first = Instant::now();
    plane.seen_at_least(3).await;
    assert!(first.elapsed() > Duration::from_millis(800), "{:?}", first.elapsed());
    // A pause before the next refusal does not keep a correction waiting.
    plane.send("good", domains([("one", 1)]));
    assert_eq!(followed.next().await, Told::Rules(line("one", 1)));
    plane.seen_one("the correction", |seen| seen.said().0 == "good").await;
}

#[tokio::test]
async fn what_was_taken_is_not_taken_again_whatever_its_order_and_version() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1), ("two", 2)]));
    let mut followed = Followed::start(options(plane.server())).await;
    followed.rules().await;
    plane.seen_at_least(2).await;
    plane.send("2", domains([("two", 2), ("one", 1)]));
    plane.seen_one("version 2", |seen| seen.said() == ("2", "0/2", false)).await;
    assert_eq!(followed.untaken(), []);
    // After a refusal the old snapshot is news again.
    plane.send("3", vec![any(&domain("", 1))]);
    followed.refusal().await;
    plane.send("4", domains([("two", 2), ("one", 1)]));
    followed.rules().await;
}

/// Cases 5 and 167.
#[tokio::test]
async fn two_resources_of_one_domain_are_merged_only_if_that_is_asked_for() {
    let second = RateLimitConfig {
        name: "second".to_owned(),
        descriptors: vec![descriptor("b", RateLimitUnit::Hour, 2)],
        ..domain("shop", 1)
    };
    let plane = ControlPlane::start().await;
    plane.send(
        "1",
        vec![any(&second), any(&RateLimitConfig { name: "first".to_owned(), ..domain("shop", 1) })],
    );
    let mut followed = Followed::start(options(plane.server())).await;
    let why = followed.refusal().await;
    assert!(why.contains("second: duplicate domain 'shop'") && why.contains("it is in first too"), "{why}");
    let merge = LoadOptions { merge_domains: true, ..LoadOptions::default() };
    let mut followed = Followed::with(options(plane.server()), merge).await;
    assert_eq!(followed.rules().await.lines().count(), 2);
}

/// The whole message, as the reference's own test sends it.
#[tokio::test]
async fn every_field_arrives() {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let leaf = RateLimitDescriptor {
        value: "bar".to_owned(),
        shadow_mode: true,
        quota_mode: true,
        detailed_metric: true,
        metadata: Some(Struct { fields: [("team".to_owned(), text("core"))].into() }),
        rate_limit: Some(RateLimitPolicy {
            unit: RateLimitUnit::Week.into(),
            requests_per_unit: 7,
            unlimited: false,
            name: "weekly".to_owned(),
            replaces: vec![RateLimitReplace { name: "daily".to_owned() }],
        }),
        ..descriptor("sub", RateLimitUnit::Week, 7)
    };
    let free = RateLimitDescriptor {
        rate_limit: Some(RateLimitPolicy { unlimited: true, ..RateLimitPolicy::default() }),
        ..descriptor("free", RateLimitUnit::Unknown, 0)
    };
    let parent = RateLimitDescriptor {
        rate_limit: None,
        descriptors: vec![leaf, free],
        ..descriptor("top", RateLimitUnit::Hour, 0)
    };
    let plane = ControlPlane::start().await;
    plane.send("1", vec![any(&RateLimitConfig { descriptors: vec![parent], ..domain("d", 0) })]);
    let mut followed = Followed::start(options(plane.server())).await;
    assert_eq!(
        followed.rules().await,
        "d.top.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n\
         d.top.sub_bar: unit=WEEK requests_per_unit=7, shadow_mode: true, quota_mode: true\n"
    );
}

#[tokio::test]
async fn envelopes_are_opened_and_other_types_are_left_alone() {
    let plane = ControlPlane::start().await;
    plane.send_as("1", Vec::new(), "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    let mut followed = Followed::start(options(plane.server())).await;
    plane.seen_at_least(1).await;
    let [inner] = domains([("one", 1)]).try_into().unwrap();
    let envelope = Resource { name: "one".to_owned(), version: "1".to_owned(), resource: Some(inner) };
    let wrapped = Any {
        type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".to_owned(),
        value: envelope.encode_to_vec(),
    };
    plane.send("2", vec![wrapped]);
    assert_eq!(followed.rules().await, line("one", 1));
    let seen = plane.seen_one("version 2", |seen| seen.said().0 == "2").await;
    assert!(!seen.is_refusal() && plane.seen().len() == 2, "the other type was not answered");
}

#[tokio::test]
async fn headers_and_metadata_are_sent() {
    let plane = ControlPlane::start().await;
    let pairs = [("x-token", "Bearer abc"), ("x-raw-bin", "raw")];
    let headers = Headers(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let metadata = [("zone".to_owned(), "a".to_owned())].into();
    let node = Node { id: "envoy-ratelimit".to_owned(), metadata };
    let _followed =
        Followed::start(tidegate::rules::xds::Options { headers, node, ..options(plane.server()) }).await;
    let seen = plane.seen_at_least(1).await.remove(0);
    assert_eq!(seen.headers.get("x-token").unwrap(), "Bearer abc");
    assert_eq!(seen.headers.get_bin("x-raw-bin").unwrap().to_bytes().unwrap(), "raw".as_bytes());
    let node = seen.request.node.unwrap();
    assert_eq!((node.id.as_str(), node.metadata.unwrap().fields.len()), ("envoy-ratelimit", 1));
}

/// Case 160: 10,000 resources, above gRPC's own bound.
#[tokio::test]
async fn a_large_snapshot_needs_the_bound_raised_and_then_loads() {
    let tail = "x".repeat(400);
    let resources: Vec<_> = (0..10_000).map(|n| any(&domain(&format!("domain-{n:05}-{tail}"), n))).collect();
    let size: usize = resources.iter().map(|any| any.value.len()).sum();
    assert!(size > 6 << 20, "{size}");
    let plane = ControlPlane::start().await;
    plane.send("small", domains([("one", 1)]));
    let mut followed = Followed::start(options(plane.server())).await;
    followed.rules().await;
    plane.send("large", resources);
    let why = followed.trouble().await;
    assert!(why.contains("raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"), "{why}");
    let raised = tidegate::rules::xds::Options { max_message: 16 << 20, ..options(plane.server()) };
    let mut followed = Followed::start(raised).await;
    assert_eq!(followed.rules().await.lines().count(), 10_000);
}

#[tokio::test]
async fn the_last_good_snapshot_outlives_a_restart_without_a_control_plane() {
    let temp = TempDir::new().unwrap();
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let mut followed = Followed::start(keeping(plane.server(), temp.path())).await;
    followed.rules().await;
    plane.seen_at_least(2).await;
    plane.send("2", domains([("one", 2)]));
    followed.rules().await;
    plane.send("3", vec![any(&domain("", 1))]);
    followed.refusal().await;
    followed.handle.stop().await;
    plane.away().await;

    let mut followed = Followed::start(keeping(plane.server(), temp.path())).await;
    assert_eq!(followed.next().await, Told::Rules(line("one", 2)), "the last good one");
    assert!(followed.trouble().await.contains("cannot connect"));
    // The same from the control plane is no news; what is refused names the version that was kept.
    let before = plane.seen().len();
    plane.resume().await;
    plane.seen_at_least(before + 2).await;
    let nack = plane.seen().pop().unwrap();
    assert_eq!((nack.said().0, nack.is_refusal()), ("2", true));
    plane.send("4", domains([("one", 2)]));
    followed.refusal().await;
    assert_eq!(followed.rules().await, line("one", 2));
}

#[tokio::test]
async fn a_damaged_cache_is_no_more_than_no_cache() {
    let temp = TempDir::new().unwrap();
    std::fs::write(temp.path().join(CACHE_FILE), b"not a snapshot").unwrap();
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let mut followed = Followed::start(keeping(plane.server(), temp.path())).await;
    assert_eq!(followed.rules().await, line("one", 1));
    followed.handle.stop().await;
    plane.away().await;
    let mut followed = Followed::start(keeping(plane.server(), temp.path())).await;
    assert_eq!(followed.next().await, Told::Rules(line("one", 1)), "it was replaced");
}
