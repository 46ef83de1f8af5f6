//! The tools themselves: each server starts, is what it was asked to be, and goes away.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};

use crate::faults::namespace::{Namespace, may_lay_cables};
use crate::faults::proxy::{Proxy, Weather};
use crate::faults::wire::segments;
use crate::redis::certificates::{Certificates, ServerName};
use crate::redis::clock::ServerClock;
use crate::redis::cluster::Cluster;
use crate::redis::resp::{Connection, Reply};
use crate::redis::sentinel::Watched;
use crate::redis::server::{Kind, Server, Setup};
use crate::redis::wait::eventually;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn every_kind_of_server_starts_and_says_its_version() -> anyhow::Result<()> {
    for (kind, field, version) in [
        (Kind::Redis7, "redis_version", "7."),
        (Kind::Redis62, "redis_version", "6.2."),
        (Kind::Valkey9, "valkey_version", "9."),
    ] {
        let server = Server::start(kind).await?;
        let found = server.info(field).await?;
        assert!(found.starts_with(version), "{kind:?}: {found}");
        assert!(UnixStream::connect(server.socket()).await.is_ok());
    }
    Ok(())
}

#[tokio::test]
async fn a_server_ends_with_its_value() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let (address, mut open) = (server.address(), server.connect().await?);
    drop(server);
    assert!(open.call(&["PING"]).await.is_err());
    assert!(TcpStream::connect(address).await.is_err());
    Ok(())
}

#[test]
fn a_server_ends_with_a_test_that_panics() {
    let panicked = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::start(Kind::Redis7).await.unwrap();
            std::panic::panic_any(server.address());
        });
    });
    let address = *panicked.join().unwrap_err().downcast::<std::net::SocketAddr>().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn a_server_pauses_resumes_and_comes_back_empty_on_its_port() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    server.call(&["SET", "a", "1"]).await?.ok()?;
    server.pause()?;
    assert!(timeout(Duration::from_millis(50), server.call(&["GET", "a"])).await.is_err());
    server.resume()?;
    assert_eq!(server.call(&["GET", "a"]).await?, Reply::Text("1".to_owned()));
    assert_eq!(server.n_calls("set").await?, 1);
    server.restart_empty().await?;
    assert_eq!(server.call(&["GET", "a"]).await?, Reply::Nil);
    Ok(())
}

#[tokio::test]
async fn a_server_asks_for_its_password_and_shows_its_certificate() -> anyhow::Result<()> {
    let setup = Setup::new(Kind::Redis7).password("sesame").tls(&Certificates::of(ServerName::Right)?);
    let server = setup.line("user dora on >explorer ~* +ping").start().await?;
    let mut stranger = Connection::open(server.address()).await?;
    assert!(matches!(stranger.call(&["PING"]).await?, Reply::Error(said) if said.starts_with("NOAUTH")));
    stranger.call(&["AUTH", "dora", "explorer"]).await?.ok()?;
    assert!(matches!(stranger.call(&["GET", "a"]).await?, Reply::Error(said) if said.starts_with("NOPERM")));

    // TLS begins with a record of type 22 or, to one who does not speak it, an alert: 21.
    let mut plain = TcpStream::connect(server.tls_address()?).await?;
    plain.write_all(b"PING\r\n").await?;
    let mut first = [0];
    let n_read = plain.read(&mut first).await.unwrap_or_default();
    assert!(n_read == 0 || first[0] == 21, "a plain answer on the TLS port");
    Ok(())
}

#[tokio::test]
async fn a_server_goes_by_a_clock_that_is_turned_by_hand() -> anyhow::Result<()> {
    const NOON: u64 = 1_700_000_000_000_000;
    // Valkey adds to it what its monotonic clock says has passed within the command: some hundred microseconds.
    for kind in [Kind::Redis7, Kind::Redis62] {
        let clock = ServerClock::at(NOON)?;
        let server = Setup::new(kind).clock(&clock).start().await?;
        let time = ["EVAL", "local t = redis.call('TIME') return t[1] * 1000000 + t[2]", "0"];
        assert_eq!(server.call(&time).await?.number()?, NOON as i64);
        server.call(&["SET", "a", "1", "EX", "60"]).await?.ok()?;
        clock.set(NOON + 59_999_000)?;
        assert_eq!(server.call(&["PTTL", "a"]).await?, Reply::Number(1));
        clock.set(NOON + 60_001_123)?;
        assert_eq!(server.call(&["GET", "a"]).await?, Reply::Nil);
        assert_eq!(server.call(&time).await?.number()?, NOON as i64 + 60_001_123);
    }
    Ok(())
}

#[tokio::test]
async fn sentinels_promote_the_replica() -> anyhow::Result<()> {
    let began = Instant::now();
    let watched = Watched::start(Kind::Redis7).await?;
    println!("sentinels: ready after {:?}", began.elapsed());
    assert_eq!(watched.master().await?, 0);
    let began = Instant::now();
    watched.servers[0].kill().await?;
    eventually(SOON, async || match watched.master().await? {
        1 => Ok(()),
        other => anyhow::bail!("the master is {other}"),
    })
    .await?;
    println!("sentinels: failed over after {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_cluster_moves_slots_and_promotes_replicas() -> anyhow::Result<()> {
    let began = Instant::now();
    let cluster = Cluster::start().await?;
    println!("cluster: ready after {:?}", began.elapsed());

    let slot = cluster.slot("a").await?;
    let from = cluster.owner(slot, 0).await?;
    let to = (from + 1) % 3;
    cluster.nodes[from].call(&["SET", "a", "1"]).await?.ok()?;
    cluster.begin_move(slot, from, to).await?;
    assert_eq!(cluster.move_keys(slot, from, to).await?, 1);
    let asked = cluster.nodes[from].call(&["GET", "a"]).await?;
    assert!(matches!(asked, Reply::Error(said) if said.starts_with("ASK ")));
    cluster.end_move(slot, to).await?;
    let asked = cluster.nodes[from].call(&["GET", "a"]).await?;
    assert!(matches!(asked, Reply::Error(said) if said.starts_with("MOVED ")));
    assert_eq!(cluster.nodes[to].call(&["GET", "a"]).await?, Reply::Text("1".to_owned()));

    let began = Instant::now();
    cluster.fail_over(3).await?;
    println!("cluster: failed over by hand after {:?}", began.elapsed());
    let began = Instant::now();
    cluster.nodes[1].kill().await?;
    cluster.promoted(4).await?;
    println!("cluster: failed over by itself after {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn the_weather_in_a_proxy() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let proxy = Proxy::to(server.address()).await?;
    let mut open = Connection::open(proxy.address()).await?;
    open.call(&["INCR", "a"]).await?;

    proxy.set(Weather::Slow(Duration::from_millis(20)));
    let began = Instant::now();
    open.call(&["INCR", "a"]).await?;
    assert!(began.elapsed() >= Duration::from_millis(40));

    proxy.set(Weather::Silent);
    let mut silent = open;
    assert!(timeout(Duration::from_millis(50), silent.call(&["INCR", "a"])).await.is_err());
    assert_eq!(server.call(&["GET", "a"]).await?.number()?, 2);
    assert!(timeout(Duration::from_millis(50), TcpStream::connect(proxy.address())).await?.is_ok());
    proxy.set(Weather::Fair);
    eventually(SOON, async || {
        let n = server.call(&["GET", "a"]).await?.number()?;
        anyhow::ensure!(n == 3, "{n}");
        Ok(())
    })
    .await?;

    proxy.set(Weather::Refusing);
    eventually(SOON, async || {
        anyhow::ensure!(TcpStream::connect(proxy.address()).await.is_err());
        Ok(())
    })
    .await?;
    // What it finds first is the reply that it did not wait for.
    assert_eq!(silent.call(&["PING"]).await?, Reply::Number(3));
    assert!(silent.call(&["PING"]).await.is_err());
    proxy.set(Weather::Fair);
    eventually(SOON, async || {
        Connection::open(proxy.address()).await?.call(&["PING"]).await?.text().map(drop)
    })
    .await
}

#[tokio::test]
async fn the_kernel_counts_segments() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let mut connection = server.connect().await?;
    connection.call(&["PING"]).await?;
    let before = segments(server.address())?;
    let commands: Vec<&[&str]> = vec![&["INCR", "a"]; 8];
    connection.pipeline(&commands).await?;
    connection.call(&["INCR", "a"]).await?;
    let after = segments(server.address())?;
    assert_eq!(before.len(), 1, "{before:?}");
    let (client, before) = before.first_key_value().unwrap();
    assert_eq!((after[client].n_in - before.n_in, after[client].n_out - before.n_out), (2, 2));
    Ok(())
}

#[tokio::test]
async fn packets_are_lost_in_a_namespace() -> anyhow::Result<()> {
    if !may_lay_cables() {
        println!("not shown: losing packets takes root");
        return Ok(());
    }
    let namespace = Namespace::create()?;
    let server = Setup::new(Kind::Redis7).inside(namespace.name(), namespace.address()).start().await?;
    let mut open = server.connect().await?;
    namespace.lose_packets()?;
    assert!(timeout(Duration::from_millis(50), open.call(&["PING"])).await.is_err());
    assert!(timeout(Duration::from_millis(50), TcpStream::connect(server.address())).await.is_err());
    namespace.heal()?;
    eventually(SOON, async || server.call(&["PING"]).await?.text().map(drop)).await
}
