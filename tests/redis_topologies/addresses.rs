//! Every way to a server and past its guards: sockets, databases, passwords, users, certificates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::limit::Algorithm;
use tidegate::store::redis::config::{Auth, SocketType, Topology, TopologyKind};
use tidegate::store::redis::tls::{HostName, TlsConfig};
use tidegate::store::redis::{RedisConfig, RedisStore};

use crate::faults::proxy::{Proxy, Weather};
use crate::redis::certificates::{Certificates, ServerName};
use crate::redis::cluster::Cluster;
use crate::redis::sentinel::{NAME, Watched};
use crate::redis::server::{Kind, Server, Setup};
use crate::redis_store::{Counter, at, list, open, per_year, start, trouble, trusting};

const BUDGET: Duration = Duration::from_secs(1);
/// Nothing here takes as long.
const AT_LAST: Duration = Duration::from_secs(20);

/// Opens a store and counts, plainly and by script, on a counter that no other test or call of this has.
async fn counts(config: RedisConfig) -> anyhow::Result<()> {
    static N_COUNTED: AtomicU64 = AtomicU64::new(0);
    let own = N_COUNTED.fetch_add(1, Ordering::Relaxed).to_string();
    let store = open(config).await?;
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket { burst: 10 }] {
        let counter = Counter::of(&store, &own, BUDGET, per_year(10, algorithm));
        for n in 1..=10 {
            assert_eq!(counter.ask().await, "OK", "{algorithm:?}");
            assert_eq!(counter.used().await?, n, "{algorithm:?}");
        }
        assert_eq!(counter.ask().await, "OVER_LIMIT", "{algorithm:?}");
    }
    Ok(())
}

/// Opens a store that does not come to its server, and looks why it says it does not.
async fn says(config: RedisConfig, wanted: &[&str]) -> anyhow::Result<()> {
    let store = start(config)?;
    let said = trouble(&store).await?;
    assert!(wanted.iter().all(|wanted| said.contains(wanted)), "{said:?} does not say {wanted:?}");
    Ok(())
}

fn single(server: &Server) -> anyhow::Result<RedisConfig> {
    at(TopologyKind::Single, &server.address().to_string())
}

#[tokio::test]
async fn every_kind_of_server() -> anyhow::Result<()> {
    for kind in [Kind::Redis7, Kind::Redis62, Kind::Valkey9] {
        counts(single(&Server::start(kind).await?)?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_unix_socket() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let path = server.socket().to_string_lossy().into_owned();
    let topology = Topology::parse(TopologyKind::Single, SocketType::Unix, &path)?;
    counts(RedisConfig::new(topology)).await
}

#[tokio::test]
async fn a_url_with_user_password_and_database() -> anyhow::Result<()> {
    let setup = Setup::new(Kind::Redis7).password("sesame").line("user dora on >explorer ~* +@all");
    let server = setup.start().await?;
    let url = format!("redis://dora:explorer@{}/3", server.address());
    counts(at(TopologyKind::Single, &url)?).await?;
    assert!(server.info("db3").await?.starts_with("keys=2,"), "the counters are in another database");
    Ok(())
}

#[tokio::test]
async fn passwords() -> anyhow::Result<()> {
    let server = Setup::new(Kind::Redis7).password("sesame").start().await?;
    let with = |auth: &str| {
        let mut config = single(&server)?;
        config.auth = Auth::parse(auth);
        anyhow::Ok(config)
    };
    counts(with("sesame")?).await?;
    counts(with("default:sesame")?).await?;
    says(with("open")?, &["wrong password"]).await?;
    says(with("ali:sesame")?, &["wrong password"]).await?;
    says(with("")?, &["password"]).await
}

#[tokio::test]
async fn a_password_that_the_server_does_not_have() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let mut config = single(&server)?;
    config.auth = Auth::parse("sesame");
    says(config, &["password"]).await
}

#[tokio::test]
async fn a_port_where_nobody_listens() -> anyhow::Result<()> {
    let port = crate::port::Port::reserve()?;
    says(at(TopologyKind::Single, &port.address().to_string())?, &["refused"]).await
}

/// A server whose certificate is right or wrong, and the store's settings for it.
async fn certified(name: ServerName) -> anyhow::Result<(Server, RedisConfig)> {
    let files = Certificates::of(name)?;
    let server = Setup::new(Kind::Redis7).tls(&files).start().await?;
    let mut config = at(TopologyKind::Single, &server.tls_address()?.to_string())?;
    config.tls = Some(trusting(&files)?);
    Ok((server, config))
}

fn any_name(mut config: RedisConfig) -> RedisConfig {
    config.tls = config.tls.map(|tls| TlsConfig { host_name: HostName::Ignored, ..tls });
    config
}

#[tokio::test]
async fn certificates_that_are_right() -> anyhow::Result<()> {
    let (server, config) = certified(ServerName::Right).await?;
    counts(config.clone()).await?;
    let by_name = format!("rediss://localhost:{}", server.tls_address()?.port());
    let named = RedisConfig { topology: at(TopologyKind::Single, &by_name)?.topology, ..config.clone() };
    counts(named).await?;
    let (_server, config) = certified(ServerName::AddressOnly).await?;
    counts(config).await
}

#[tokio::test]
async fn certificates_that_are_wrong() -> anyhow::Result<()> {
    let (_server, config) = certified(ServerName::Wrong).await?;
    says(config.clone(), &["certificate", "not valid for name"]).await?;
    counts(any_name(config)).await?;

    let (_server, config) = certified(ServerName::Expired).await?;
    says(config.clone(), &["certificate", "expired"]).await?;
    says(any_name(config), &["certificate", "expired"]).await?;

    let (_server, mut config) = certified(ServerName::Right).await?;
    let stranger = std::fs::read(&Certificates::of(ServerName::Right)?.authority)?;
    config.tls = config.tls.map(|tls| TlsConfig { authorities: Some(stranger), ..tls });
    says(config.clone(), &["certificate"]).await?;
    says(any_name(config), &["certificate"]).await
}

#[tokio::test]
async fn a_client_certificate_that_is_missing() -> anyhow::Result<()> {
    let (_server, mut config) = certified(ServerName::Right).await?;
    config.tls = config.tls.map(|tls| TlsConfig { client: None, ..tls });
    says(config, &["certificate"]).await
}

#[tokio::test]
async fn tls_to_a_port_that_does_not_speak_it() -> anyhow::Result<()> {
    let (server, mut config) = certified(ServerName::Right).await?;
    config.topology = single(&server)?.topology;
    says(config, &["is TLS spoken on this port?"]).await
}

/// What the documentation says that a user needs is enough, and what is missing is named.
#[tokio::test]
async fn users_with_few_rights() -> anyhow::Result<()> {
    let setup = Setup::new(Kind::Redis7).line("user plain on >p ~* +incrby +expire +ping");
    let server = setup.start().await?;
    let mut config = single(&server)?;
    config.auth = Auth::parse("plain:p");
    let store = open(config).await?;
    let plain = Counter::new(&store, "plain", BUDGET);
    assert_eq!(plain.ask().await, "OK");
    let scripted =
        Counter::of(&store, "scripted", BUDGET, per_year(10, Algorithm::TokenBucket { burst: 10 }));
    assert_eq!(scripted.ask().await, "unavailable");
    Ok(())
}

/// A proxy in front that knows no scripts is told apart from a server that is down: plain charges work through it, and what
/// needs a script fails without a word to the proxy, which would take everybody's connection away.
#[tokio::test]
async fn a_proxy_that_knows_no_scripts() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let proxy = Proxy::to(server.address()).await?;
    proxy.set(Weather::NoScripts);
    let mut config = at(TopologyKind::Single, &proxy.address().to_string())?;
    config.startup.initial_interval = Duration::from_millis(10);
    let store = start(config)?;
    let said = trouble(&store).await?;
    assert!(said.contains("a proxy that knows no scripts"), "{said}");
    let plain = Counter::new(&store, "plain", BUDGET);
    plain.works(BUDGET).await?;
    let scripted =
        Counter::of(&store, "scripted", BUDGET, per_year(10, Algorithm::TokenBucket { burst: 10 }));
    for _ in 0..20 {
        assert_eq!(scripted.ask().await, "unavailable");
        assert_eq!(plain.ask().await, "OK");
    }
    Ok(())
}

#[tokio::test]
async fn sentinels_with_passwords_and_tls() -> anyhow::Result<()> {
    let files = Certificates::of(ServerName::Right)?;
    for (server_password, sentinel_password, secure) in
        [(None, None, true), (Some("m"), None, false), (None, Some("s"), false), (Some("m"), Some("s"), true)]
    {
        let setup = |password: Option<&str>| {
            let mut setup = Setup::new(Kind::Redis7);
            if let Some(password) = password {
                setup = setup.password(password);
            }
            if secure { setup.tls(&files) } else { setup }
        };
        let watched = Watched::with(setup(server_password), setup(sentinel_password)).await?;
        let sentinels = list(watched.sentinels.iter().map(Server::best_address));
        let mut config = at(TopologyKind::Sentinel, &format!("{NAME},{sentinels}"))?;
        config.auth = server_password.and_then(Auth::parse);
        config.sentinel_auth = sentinel_password.and_then(Auth::parse);
        if secure {
            config.tls = Some(trusting(&files)?);
        }
        counts(config).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_next_sentinel_when_the_first_is_gone() -> anyhow::Result<()> {
    let watched = Watched::start(Kind::Redis7).await?;
    watched.sentinels[0].kill().await?;
    watched.sentinels[1].pause()?;
    let sentinels = list(watched.sentinels.iter().map(Server::address));
    counts(at(TopologyKind::Sentinel, &format!("{NAME},{sentinels}"))?).await
}

#[tokio::test]
async fn a_cluster_with_passwords_and_tls() -> anyhow::Result<()> {
    let files = Certificates::of(ServerName::Right)?;
    let setup = Setup::new(Kind::Redis7).password("sesame").tls(&files);
    let cluster = Cluster::of(Cluster::prepare(&setup)?).await?;
    let mut config = at(TopologyKind::Cluster, &cluster.nodes[0].tls_address()?.to_string())?;
    config.auth = Auth::parse("sesame");
    config.tls = Some(trusting(&files)?);
    counts(config).await
}

#[tokio::test]
async fn a_cluster_whose_first_seeds_do_not_answer() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    cluster.nodes[3].kill().await?;
    cluster.nodes[4].pause()?;
    let seeds = list([3, 4, 5].map(|n: usize| cluster.nodes[n].address()));
    counts(at(TopologyKind::Cluster, &seeds)?).await
}

/// MOVED is no answer that a single server gives: it is an error, not silence.
#[tokio::test]
async fn a_cluster_taken_for_a_single_server() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let store = open(single(&cluster.nodes[0])?).await;
    let Ok(store) = store else { return Ok(()) };
    let mut said = Vec::new();
    for n in 0..20 {
        said.push(Counter::new(&store, &format!("{n}"), BUDGET).ask().await);
    }
    assert!(said.contains(&"unavailable"), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn a_ring() -> anyhow::Result<()> {
    let servers = [Server::start(Kind::Redis7).await?, Server::start(Kind::Valkey9).await?];
    counts(at(TopologyKind::Ring, &list(servers.iter().map(Server::address)))?).await
}

/// A worker that waits for its next attempt is told that another one has reached the server.
#[tokio::test]
async fn one_worker_that_gets_through_calls_the_others() -> anyhow::Result<()> {
    const LONGER_THAN_THE_TEST: Duration = Duration::from_secs(3_600);
    let server = Setup::new(Kind::Redis7).prepare()?;
    let mut config = single(&server)?;
    config.startup.initial_interval = LONGER_THAN_THE_TEST;
    config.startup.max_interval = LONGER_THAN_THE_TEST;
    let early = start(config)?;
    let waits = trouble(&early).await?;
    assert!(waits.contains("cannot connect"), "{waits}");
    server.launch().await?;
    let late = RedisStore::connect(early.shared().clone());
    Counter::new(&late, "late", BUDGET).works(AT_LAST).await?;
    Counter::new(&early, "early", BUDGET).works(AT_LAST).await
}
