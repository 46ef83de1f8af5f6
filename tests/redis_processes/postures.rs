//! One process whose Redis goes away: what each rule's callers are told, how soon, and when it is over.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::faults::load::{OK, Seen};
use crate::faults::namespace::{Namespace, may_lay_cables};
use crate::redis::server::{Kind, Server, Setup};
use crate::redis_service::{Caller, Service, single};

/// A rule of each posture, and what its callers are told while the store is away. None is near its limit.
const POSTURES: [(&str, &str); 4] =
    [("error", "UNAVAILABLE"), ("allow", OK), ("deny", "OVER_LIMIT"), ("local", OK)];

/// What the process gives a call at the most; its callers have more patience, so that it is the process that is measured.
const BUDGET: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);
/// By how much a process, its callers and their timers are late together where other tests run on the same cores.
const BUSY: Duration = Duration::from_millis(150);
/// So few callers that a build for debugging answers them all.
const EVERY: Duration = Duration::from_millis(20);
/// How long a fault lasts.
const LASTS: Duration = Duration::from_secs(1);
/// From the end of a fault until every answer is as before.
const RECOVERY: Duration = Duration::from_secs(2);
/// So many good answers in a row are good times.
const GOOD_TIMES: usize = 20;
const AT_LAST: Duration = Duration::from_secs(20);

async fn service(redis: &Server) -> anyhow::Result<Service> {
    let rule = |(posture, _): &(&str, &str)| {
        format!(
            "  - key: {posture}\n    rate_limit: {{unit: year, requests_per_unit: 1000000, on_store_failure: {posture}}}\n"
        )
    };
    let rules = format!("domain: bad-day\ndescriptors:\n{}", POSTURES.iter().map(rule).collect::<String>());
    let mut settings = single(redis.address());
    settings.push(("REQUEST_BUDGET", format!("{}ms", BUDGET.as_millis())));
    Service::start(&rules, &settings).await
}

async fn ask(caller: &Caller, posture: &str) -> &'static str {
    caller.ask("bad-day", &[(posture, "x")], PATIENCE).await
}

async fn good_times(caller: &Caller) -> anyhow::Result<()> {
    let deadline = Instant::now() + AT_LAST;
    let mut n_good = 0;
    while n_good < GOOD_TIMES {
        // What `deny` is told in good times, nobody is told in bad ones.
        let said = ask(caller, "deny").await;
        n_good = if said == OK { n_good + 1 } else { 0 };
        ensure!(Instant::now() < deadline, "{n_good} good answers in a row, the last was {said}");
        sleep(EVERY).await;
    }
    Ok(())
}

/// The count of the rule whose callers know whether they were counted.
async fn counted(redis: &Server) -> anyhow::Result<usize> {
    let names = redis.call(&["KEYS", "bad-day|error=x|*"]).await?.list()?;
    match names.into_iter().next() {
        Some(name) => Ok(redis.call(&["GET", &name.text()?]).await?.text()?.parse()?),
        None => Ok(0),
    }
}

/// Lets it happen under callers of every rule, and asserts what holds for every fault. `forgets`: Redis comes back empty.
async fn suffer(
    name: &str,
    redis: &Server,
    begin: impl AsyncFnOnce() -> anyhow::Result<()>,
    end: impl AsyncFnOnce() -> anyhow::Result<()>,
    forgets: bool,
) -> anyhow::Result<()> {
    let service = service(redis).await?;
    let watcher = service.caller()?;
    good_times(&watcher).await?;
    let (over, _) = tokio::sync::watch::channel(false);
    let events = async {
        let before = Instant::now();
        good_times(&watcher).await?;
        let began = Instant::now();
        begin().await?;
        sleep(LASTS).await;
        end().await?;
        let ended = Instant::now();
        good_times(&watcher).await?;
        over.send_replace(true);
        anyhow::Ok((before, began, ended))
    };
    let callers = POSTURES.map(|(posture, _)| (posture, service.caller(), over.subscribe()));
    let asking = join_all(callers.into_iter().map(async |(posture, caller, mut over)| {
        let caller = caller?;
        let done = async { drop(over.wait_for(|over| *over).await) };
        anyhow::Ok(Seen::asking_every(EVERY, async || ask(&caller, posture).await, done).await.0)
    }));
    let (all, events) = futures_util::join!(asking, events);
    let (before, began, ended) = events?;
    for ((posture, told), seen) in POSTURES.iter().zip(all) {
        let seen = seen?;
        let during = seen.between(began, ended);
        let recovery = if *told == OK { Duration::ZERO } else { seen.recovery(ended) };
        println!("{name}, {posture}: {during}; well again after {:.0} ms", recovery.as_secs_f64() * 1e3);
        let good = seen.between(before, began).before(began);
        assert_eq!(good.n(OK), good.n_all(), "{name}, {posture}, before it: {good}");
        let strays = during.n_all() - during.n(told) - if *told == OK { 0 } else { during.n(OK) };
        assert_eq!(strays, 0, "{name}, {posture}: {during}");
        assert!(during.n(told) > during.n_all() / 2, "{name}, {posture}: {during}");
        let in_time = BUDGET + during.lag.min(BUSY) + BUSY;
        assert!(during.p99() <= in_time, "{name}, {posture}, answers within {in_time:?}: {during}");
        assert!(recovery <= RECOVERY, "{name}, {posture}: good times only after {recovery:?}");
        if *posture == "error" {
            let (sure, most) = if forgets {
                (seen.between(ended, Instant::now()).n(OK), seen.between(began, Instant::now()).n_all())
            } else {
                (seen.n(OK), seen.n_all())
            };
            let count = counted(redis).await?;
            println!("{name}: counted {count} hits; {sure} were told OK");
            assert!((sure..=most).contains(&count), "{name}: counted {count} hits, of {sure} to {most}");
        }
    }
    let count = counted(redis).await?;
    drop(service);
    assert_eq!(counted(redis).await?, count, "{name}: counted when nobody asked");
    Ok(())
}

#[tokio::test]
async fn redis_is_killed() -> anyhow::Result<()> {
    let redis = Server::start(Kind::Redis7).await?;
    suffer("killed", &redis, async || redis.kill().await, async || redis.launch().await, true).await
}

#[tokio::test]
async fn redis_is_paused() -> anyhow::Result<()> {
    let redis = Server::start(Kind::Redis7).await?;
    suffer("paused", &redis, async || redis.pause(), async || redis.resume(), false).await
}

#[tokio::test]
async fn packets_are_lost() -> anyhow::Result<()> {
    if !may_lay_cables() {
        println!("not shown: losing packets takes root");
        return Ok(());
    }
    let namespace = Namespace::create()?;
    let redis = Setup::new(Kind::Redis7).inside(namespace.name(), namespace.address()).start().await?;
    suffer("packets lost", &redis, async || namespace.lose_packets(), async || namespace.heal(), false).await
}
