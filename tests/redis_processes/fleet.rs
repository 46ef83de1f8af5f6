//! Three processes on one Redis, or on one cluster, admit together what the limit says.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep};

use crate::redis::cluster::{Cluster, N_MASTERS};
use crate::redis::server::{Kind, Server};
use crate::redis::wait::eventually;
use crate::redis_service::{Service, several, single};

const N_PROCESSES: usize = 3;
const N_CLIENTS: usize = 20;
const N_CALLS: usize = 200;
const LIMIT: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(5);
/// Nothing here takes as long.
const AT_LAST: Duration = Duration::from_secs(30);
/// Before a call that failed is made again.
const A_MOMENT: Duration = Duration::from_millis(20);

/// Every algorithm with a limit of 1000 for a period in which no window ends and nothing refills while a test runs, and what
/// it admits of 4000 calls at once. A leaky bucket admits only what is due, the first.
const ALGORITHMS: [(&str, &str, usize); 5] = [
    ("fixed_window", "", LIMIT),
    ("sliding_window", "", LIMIT),
    ("sliding_log", "", LIMIT),
    ("token_bucket", "", LIMIT),
    ("leaky_bucket", ", max_delay: 0s", 1),
];

fn rules() -> String {
    let rule = |(name, more, _): &(&str, &str, usize)| {
        format!(
            "  - key: {name}\n    rate_limit: {{unit: year, requests_per_unit: {LIMIT}, algorithm: {name}{more}}}\n"
        )
    };
    format!("domain: fleet\ndescriptors:\n{}", ALGORITHMS.iter().map(rule).collect::<String>())
}

async fn fleet(redis: &[(&str, String)]) -> anyhow::Result<Vec<Service>> {
    let rules = rules();
    try_join_all((0..N_PROCESSES).map(|_| Service::start(&rules, redis))).await
}

/// What callers were told.
#[derive(Default)]
struct Told {
    n_ok: Cell<usize>,
    /// Calls that were answered by a posture, or not at all.
    n_failed: Cell<usize>,
}

impl Told {
    /// All clients make all their calls on one counter. One that fails is made again after a moment.
    async fn asking(&self, fleet: &[Service], key: &str) -> anyhow::Result<()> {
        let callers: Vec<_> =
            fleet.iter().cycle().take(N_CLIENTS).map(Service::caller).collect::<Result<_, _>>()?;
        let deadline = Instant::now() + AT_LAST;
        let asked = callers.iter().map(async |caller| {
            let mut n_left = N_CALLS;
            while n_left > 0 {
                match caller.ask("fleet", &[(key, "all")], PATIENCE).await {
                    "OK" => self.n_ok.set(self.n_ok.get() + 1),
                    "OVER_LIMIT" => {}
                    other => {
                        self.n_failed.set(self.n_failed.get() + 1);
                        ensure!(Instant::now() < deadline, "{key}: still {other}");
                        sleep(A_MOMENT).await;
                        continue;
                    }
                }
                n_left -= 1;
            }
            Ok(())
        });
        join_all(asked).await.into_iter().collect()
    }
}

#[tokio::test]
async fn three_processes_admit_exactly_the_limit() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let fleet = fleet(&single(server.address())).await?;
    for (name, _, admitted) in ALGORITHMS {
        let told = Told::default();
        told.asking(&fleet, name).await?;
        assert_eq!((told.n_ok.get(), told.n_failed.get()), (admitted, 0), "{name}");
    }
    Ok(())
}

/// The counter as one of these nodes has it, by its number in the list, and its value.
async fn counter(nodes: &[Server]) -> anyhow::Result<(usize, usize)> {
    for (n, node) in nodes.iter().enumerate() {
        let mut connection = node.connect().await?;
        // A replica of a cluster answers for itself only who asks for that.
        connection.call(&["READONLY"]).await?.ok()?;
        let names = connection.call(&["KEYS", "fleet|fixed_window=all|*"]).await?.list()?;
        if let Some(name) = names.into_iter().next() {
            let value = connection.call(&["GET", &name.text()?]).await?.text()?;
            return Ok((n, value.parse()?));
        }
    }
    anyhow::bail!("no node has the counter")
}

/// A master dies while everybody counts on it. What it had not passed on can be admitted again; nothing else.
#[tokio::test]
async fn a_failover_costs_what_was_not_replicated() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let (masters, replicas) = cluster.nodes.split_at(N_MASTERS);
    let fleet = fleet(&several("cluster", masters.iter().map(Server::address))).await?;
    let told = Told::default();
    let failover = async {
        eventually(AT_LAST, async || {
            ensure!(told.n_ok.get() >= LIMIT / 4, "{} were told OK", told.n_ok.get());
            Ok(())
        })
        .await?;
        let (owner, _) = counter(masters).await?;
        masters[owner].kill().await?;
        let replica = replicas.get(owner).context("each master has a replica")?;
        // Nobody counts from here until the replica is elected, which takes more than its node timeout of a second.
        eventually(AT_LAST, async || {
            let link = replica.info("master_link_status").await?;
            ensure!(link == "down", "the replica's link is {link}");
            Ok(())
        })
        .await?;
        let (_, kept) = counter(std::slice::from_ref(replica)).await?;
        let n_ok = told.n_ok.get();
        let role = replica.info("role").await?;
        ensure!(role == "slave", "elected before its counter was read: {role}");
        cluster.promoted(N_MASTERS + owner).await?;
        anyhow::Ok((n_ok, kept))
    };
    let (asked, failover) = futures_util::join!(told.asking(&fleet, "fixed_window"), failover);
    asked?;
    let (before, kept) = failover?;
    let (n_ok, n_failed) = (told.n_ok.get(), told.n_failed.get());
    let lost = before.saturating_sub(kept);
    println!(
        "{before} told OK by the old master, of which the new one knows {kept}: {lost} lost; {n_ok} OK of a limit of {LIMIT}, \
         {n_failed} calls failed"
    );
    assert!(n_failed > 0 && n_ok > before, "there was no failover in the middle: {before} of {n_ok}");
    assert!(n_ok <= LIMIT + lost, "{n_ok} OK, {lost} were lost");
    // What was counted and told nobody: a charge whose answer went with the master, or came too late.
    assert!(n_ok + n_failed >= LIMIT + lost, "{n_ok} OK, {n_failed} failed, {lost} were lost");
    Ok(())
}
