//! A master, its replica and three sentinels that watch them.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;

use super::resp::Reply;
use super::server::{Kind, Server, Setup};
use super::wait::eventually;

/// The name under which the sentinels know the master.
pub const NAME: &str = "tidegate";
const N_SENTINELS: usize = 3;
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

pub struct Watched {
    /// The first one is the master at the start.
    pub servers: Vec<Server>,
    pub sentinels: Vec<Server>,
}

impl Watched {
    pub async fn start(kind: Kind) -> anyhow::Result<Self> {
        Self::with(Setup::new(kind), Setup::new(kind)).await
    }

    /// `server` and `sentinel` may bring passwords and TLS; the sentinels then come to the servers with the same ones.
    pub async fn with(server: Setup, sentinel: Setup) -> anyhow::Result<Self> {
        let mut servers = vec![server.clone().prepare()?, server.prepare()?];
        let master = servers[0].best_address();
        servers[1].add_line(format!("replicaof {} {}", master.ip(), master.port()));
        let password = servers[0].password().map(str::to_owned);

        let mut sentinels = Vec::new();
        for _ in 0..N_SENTINELS {
            sentinels.push(sentinel.clone().prepare()?);
        }
        let addresses: Vec<_> = sentinels.iter().map(Server::best_address).collect();
        let replica = servers[1].best_address();
        for (me, one) in sentinels.iter_mut().enumerate() {
            one.add_line(format!("sentinel monitor {NAME} {} {} 2", master.ip(), master.port()));
            one.add_line(format!("sentinel down-after-milliseconds {NAME} 500"));
            one.add_line(format!("sentinel failover-timeout {NAME} 2000"));
            if let Some(password) = &password {
                one.add_line(format!("sentinel auth-pass {NAME} {password}"));
            }
            // Known from the start, as after a restart: finding each other takes them two seconds.
            one.add_line(format!("sentinel myid {}", id(me)));
            one.add_line(format!("sentinel known-replica {NAME} {} {}", replica.ip(), replica.port()));
            for (other, address) in addresses.iter().enumerate().filter(|(other, _)| *other != me) {
                one.add_line(format!(
                    "sentinel known-sentinel {NAME} {} {} {}",
                    address.ip(),
                    address.port(),
                    id(other)
                ));
            }
        }
        try_join_all(servers.iter().map(Server::launch)).await?;
        // A sentinel looks every ten seconds whether the replica is in step: it is to find that at its first look.
        eventually(SETTLES_WITHIN, async || {
            let link = servers[1].info("master_link_status").await?;
            ensure!(link == "up", "the replica's link is {link}");
            Ok(())
        })
        .await?;
        try_join_all(sentinels.iter().map(Server::launch)).await?;
        let watched = Self { servers, sentinels };
        eventually(SETTLES_WITHIN, async || watched.settled().await).await?;
        Ok(watched)
    }

    /// The replica copies the master, and every sentinel would start a failover and knows to whom.
    async fn settled(&self) -> anyhow::Result<()> {
        for sentinel in &self.sentinels {
            let quorum = sentinel.call(&["SENTINEL", "CKQUORUM", NAME]).await?.text()?;
            ensure!(quorum.starts_with("OK 3 "), "{quorum}");
            let replicas = sentinel.call(&["SENTINEL", "REPLICAS", NAME]).await?;
            let replica = replicas.list()?.pop().context("no replica is known")?.list()?;
            let field = |name: &str| {
                let at = replica.iter().position(|field| *field == Reply::Text(name.to_owned()));
                at.and_then(|at| replica.get(at + 1).cloned())
            };
            for (name, wanted) in [("flags", "slave"), ("master-link-status", "ok")] {
                ensure!(
                    field(name) == Some(Reply::Text(wanted.to_owned())),
                    "the replica's {name}: {:?}",
                    field(name)
                );
            }
        }
        Ok(())
    }

    /// The port of the master, in the opinion of the first sentinel that can be asked.
    pub async fn master_port(&self) -> anyhow::Result<u16> {
        let mut asked = Err(anyhow::anyhow!("there are no sentinels"));
        for sentinel in &self.sentinels {
            asked = sentinel.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).await;
            if asked.is_ok() {
                break;
            }
        }
        Ok(asked?.list()?.pop().context("an address has a port")?.number()?.try_into()?)
    }

    /// Which of the servers is the master by its own word.
    pub async fn master(&self) -> anyhow::Result<usize> {
        let port = self.master_port().await?;
        let at = self.servers.iter().position(|server| server.best_address().port() == port);
        let at = at.context("the sentinels name a server that is not here")?;
        ensure!(self.servers[at].info("role").await? == "master", "not promoted yet");
        Ok(at)
    }
}

fn id(n: usize) -> String {
    format!("{n:040x}")
}
