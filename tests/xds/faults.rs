//! Connections that end, and connections that do not say that they have.

use std::time::Duration;

use tidegate::rules::xds::{Address, Jitter, Keepalive, Options, Schedule, Server, Update};

use crate::{
    control_plane::{ControlPlane, domains},
    followed::{Followed, Told, line, options},
    proxy::{Proxy, Weather},
};

#[tokio::test]
async fn a_stream_that_is_ended_is_begun_anew_without_a_version_or_a_nonce() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let mut followed = Followed::start(options(plane.server())).await;
    followed.rules().await;
    plane.seen_at_least(2).await;
    plane.end_streams();
    assert!(followed.trouble().await.contains("it has ended the stream"));
    let seen = plane.seen_at_least(4).await;
    let said: Vec<_> = seen.iter().map(|seen| (seen.stream, seen.said())).collect();
    let again = [(1, ("", "", false)), (1, ("1", "1/1", false))];
    assert_eq!(said, [(0, ("", "", false)), (0, ("1", "0/1", false)), again[0], again[1]]);
    assert!(seen.iter().all(|seen| seen.request.node.is_some()));
    assert_eq!(followed.untaken(), [], "the same rules are no news");
    plane.send("2", domains([("one", 2)]));
    assert_eq!(followed.rules().await, line("one", 2));
}

/// A control plane that was restarted may count anew: the same number is another snapshot.
#[tokio::test]
async fn a_restarted_control_plane_is_believed() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let mut followed = Followed::start(options(plane.server())).await;
    followed.rules().await;
    plane.seen_at_least(2).await;
    plane.away().await;
    followed.trouble().await;
    while !followed.trouble().await.contains("cannot connect") {}
    assert!(!followed.handle.stats.is_connected());
    plane.send("1", domains([("one", 5)]));
    plane.resume().await;
    assert_eq!(followed.rules().await, line("one", 5));
    assert!(followed.handle.stats.is_connected() && followed.handle.stats.failures() >= 2);
    assert!(followed.handle.stats.age().is_some());
}

/// Were the pauses not reset, the third of them would take hours.
#[tokio::test]
async fn an_answer_starts_the_pauses_anew() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let backoff = Schedule {
        initial: Duration::from_millis(20),
        max: Duration::from_secs(86_400),
        factor: 1_000.0,
        jitter: Jitter::None,
    };
    let mut followed = Followed::start(Options { backoff, ..options(plane.server()) }).await;
    followed.rules().await;
    for stream in 0..5 {
        plane.seen_one("an acknowledgement", |seen| seen.stream == stream && seen.said().0 == "1").await;
        plane.end_streams();
    }
    plane.seen_one("the last stream", |seen| seen.stream == 5).await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_arrives_any_more_is_given_up() {
    let plane = ControlPlane::start().await;
    let proxy = Proxy::to(plane.address()).await.unwrap();
    plane.send("1", domains([("one", 1)]));
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: proxy.address().port() };
    let keepalive = Keepalive { interval: Duration::from_millis(200), timeout: Duration::from_millis(800) };
    let server = Server { address: address.clone(), tls: None, keepalive };
    let mut followed = Followed::start(Options { server, ..options(address) }).await;
    followed.rules().await;
    plane.seen_at_least(2).await;
    proxy.set(Weather::Silent);
    plane.send("2", domains([("one", 2)]));
    let why = followed.trouble().await;
    assert!(why.contains("the control plane at 127.0.0.1"), "{why}");
    proxy.set(Weather::Fair);
    assert_eq!(followed.rules().await, line("one", 2));
}

#[tokio::test]
async fn a_control_plane_that_is_not_there_yet_is_waited_for_without_blocking_anyone() {
    let plane = ControlPlane::start().await;
    plane.away().await;
    let mut followed = Followed::start(options(plane.server())).await;
    assert!(followed.trouble().await.contains("cannot connect"));
    followed.handle.looked(Duration::from_secs(3600)).await;
    plane.send("1", domains([("one", 1)]));
    plane.resume().await;
    assert_eq!(followed.rules().await, line("one", 1));
    followed.handle.stop().await;
}

#[tokio::test]
async fn who_asks_for_it_gets_everything_again() {
    let plane = ControlPlane::start().await;
    plane.send("1", domains([("one", 1)]));
    let mut followed = Followed::start(options(plane.server())).await;
    followed.rules().await;
    plane.seen_at_least(2).await;
    followed.handle.again();
    let seen = plane.seen_at_least(4).await;
    assert_eq!(seen[3].said(), ("1", "1/1", false));
    assert_eq!(followed.handle.stats.updates(Update::Repeated), 1);
    assert!(followed.untaken().iter().all(|told| !matches!(told, Told::Refused(_))));
}
