//! Whole processes: what they admit together, and what one leaves behind that ends or dies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::redis::server::{Kind, Server};
use crate::redis_service::{Caller, Service, single};
use ::tidegate::clock::Clock;
use anyhow::{Context, ensure};
use futures_util::future::{join_all, try_join_all};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(5);

/// Calls that were told OK, and those that were refused, by the second in which they were made and the one in which they were
/// answered: of Redis' clock, which is this machine's.
#[derive(Default)]
struct Told {
    ok: BTreeMap<(u64, u64), u64>,
    refused: u64,
    /// How long after the begin of a second the first call was refused that was made in it, in microseconds.
    first_refusal: BTreeMap<u64, u64>,
    /// Neither: the process was gone.
    failed: u64,
}

impl Told {
    fn n_ok(&self) -> u64 {
        self.ok.values().sum()
    }

    /// Admitted in these seconds: at least, and at most. A call is charged after it is made and before it is answered, so
    /// only calls across an edge of the whole span can belong to either side.
    fn within(&self, seconds: &Range<u64>) -> (u64, u64) {
        let sum = |is_in: &dyn Fn(u64, u64) -> bool| {
            self.ok.iter().filter(|((made, answered), _)| is_in(*made, *answered)).map(|(_, n)| n).sum()
        };
        let least = sum(&|made, answered| seconds.start <= made && answered < seconds.end);
        let most = sum(&|made, answered| made < seconds.end && seconds.start <= answered);
        (least, most)
    }

    /// Holds each span of these windows to the limit. Where more was asked for than could be had, and long enough for what
    /// other processes had leased to be given back, to all of it. Returns the number of such windows.
    fn hold_to(&self, limit: u64, seconds: Range<u64>) -> u64 {
        let is_full = |second| self.first_refusal.get(&second).is_some_and(|micros| *micros < 500_000);
        for second in seconds.clone() {
            let (least, most) = self.within(&(second..second + 1));
            let first_refusal = self.first_refusal.get(&second);
            println!("{second}: {least} to {most} of {limit}, the first refusal after {first_refusal:?} us");
        }
        for first in seconds.clone() {
            for end in first + 1..=seconds.end {
                let (least, most) = self.within(&(first..end));
                let limit = limit * (end - first);
                assert!(least <= limit, "{least} were admitted in {first}..{end}, of {limit}");
                if (first..end).all(is_full) {
                    assert!(most >= limit, "only {most} were admitted in {first}..{end}, of {limit}");
                }
            }
        }
        u64::try_from(seconds.filter(|second| is_full(*second)).count()).unwrap()
    }

    fn add(&mut self, other: Self) {
        for (seconds, n) in other.ok {
            *self.ok.entry(seconds).or_default() += n;
        }
        for (second, micros) in other.first_refusal {
            self.first_refusal
                .entry(second)
                .and_modify(|first| *first = micros.min(*first))
                .or_insert(micros);
        }
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

/// One caller after the other asks, as fast as it is answered, until `done`, at most `n_calls` each.
async fn load(
    service: &Service,
    n_callers: usize,
    n_calls: usize,
    done: &AtomicBool,
) -> anyhow::Result<Told> {
    Ok(ask_all(callers(service, n_callers)?, n_calls, done).await)
}

fn callers(service: &Service, n: usize) -> anyhow::Result<Vec<Caller>> {
    (0..n).map(|_| service.caller()).collect()
}

async fn ask_all(callers: Vec<Caller>, n_calls: usize, done: &AtomicBool) -> Told {
    let clock = Clock::process();
    let asked = callers.iter().map(async |caller| {
        let mut told = Told::default();
        for _ in 0..n_calls {
            if done.load(Ordering::Relaxed) {
                break;
            }
            let made = clock.now();
            match caller.ask("hot", &[("tenant", "acme")], PATIENCE).await {
                "OK" => *told.ok.entry((made.secs(), clock.now().secs())).or_default() += 1,
                "OVER_LIMIT" => {
                    told.refused += 1;
                    told.first_refusal.entry(made.secs()).or_insert(made.get() % 1_000_000);
                }
                _ => {
                    told.failed += 1;
                    break;
                }
            }
        }
        told
    });
    let mut all = Told::default();
    join_all(asked).await.into_iter().for_each(|told| all.add(told));
    all
}

fn rules(unit: &str, limit: u64) -> String {
    format!(
        "domain: hot\ndescriptors:\n  - key: tenant\n    rate_limit: {{unit: {unit}, requests_per_unit: {limit}}}\n"
    )
}

async fn start(redis: &Server, rules: &str) -> anyhow::Result<Service> {
    // Whatever a busy machine makes of it, the key is hot.
    let mut settings = single(redis.address());
    settings.push(("LEASE_MIN_RATE", "20".to_owned()));
    Service::start(rules, &settings).await
}

/// The values of all counters.
async fn counted(redis: &Server) -> anyhow::Result<Vec<u64>> {
    let names = redis.call(&["KEYS", "hot|tenant=acme|*"]).await?.list()?;
    let mut values = Vec::new();
    for name in names {
        values.push(redis.call(&["GET", &name.text()?]).await?.text()?.parse()?);
    }
    Ok(values)
}

#[tokio::test]
async fn a_process_that_ends_gives_everything_back() -> anyhow::Result<()> {
    let redis = Server::start(Kind::Redis7).await?;
    let service = start(&redis, &rules("hour", 1_000_000)).await?;
    let told = load(&service, 8, 1_000, &AtomicBool::new(false)).await?;
    service.process.stop().await?;
    assert_eq!((told.n_ok(), told.refused), (8_000, 0));
    assert_eq!(counted(&redis).await?.iter().sum::<u64>(), 8_000);
    Ok(())
}

/// Low enough that a busy machine asks for more.
const LIMIT: u64 = 150;

/// Three processes, of which one has most of the load, for so long. Returns what was told, and the full seconds.
async fn fleet_for(fleet: &[Service], seconds: u64) -> anyhow::Result<(Told, Range<u64>)> {
    let done = AtomicBool::new(false);
    let clock = Clock::process();
    let first = clock.now().secs() + 1;
    let timer = async {
        sleep(Duration::from_secs(seconds + 1)).await;
        done.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let loads = [8, 3, 2]
        .into_iter()
        .zip(fleet)
        .map(|(n_callers, service)| load(service, n_callers, usize::MAX, &done));
    let (told, _) = futures_util::try_join!(try_join_all(loads), timer)?;
    let last = clock.now().secs();
    let mut all = Told::default();
    told.into_iter().for_each(|told| all.add(told));
    Ok((all, first..last))
}

/// In real time: windows end under load, ten of them.
#[tokio::test]
async fn three_processes_admit_exactly_the_limit_in_every_window() -> anyhow::Result<()> {
    let redis = Server::start(Kind::Redis7).await?;
    let fleet = try_join_all((0..3).map(|_| async { start(&redis, &rules("second", LIMIT)).await })).await?;
    let (told, seconds) = fleet_for(&fleet, 10).await?;
    ensure!(told.failed == 0, "{} calls failed", told.failed);
    ensure!(told.refused > LIMIT, "the limit was not in the way");
    let n_full = told.hold_to(LIMIT, seconds);
    println!("{n_full} windows in which more was asked for than could be had");
    for service in fleet {
        service.process.stop().await?;
    }
    Ok(())
}

/// In real time: a bucket that three processes lease until little is left of it, and then share hit by hit. Nothing was leased
/// when the span began, so nothing comes on top; what was held is back when the last of it is asked for.
#[tokio::test]
async fn three_processes_admit_what_a_leased_bucket_has() -> anyhow::Result<()> {
    const BURST: u64 = 3_000;
    const PER_SECOND: u64 = 100;
    let redis = Server::start(Kind::Redis7).await?;
    let rules = format!(
        "domain: hot\ndescriptors:\n  - key: tenant\n    rate_limit: {{unit: second, requests_per_unit: {PER_SECOND}, \
         algorithm: token_bucket, burst: {BURST}, lease: on}}\n"
    );
    let fleet = try_join_all((0..3).map(|_| async { start(&redis, &rules).await })).await?;
    let began = Instant::now();
    let (mut n_ok, mut n_refused) = (0, 0);
    // A thousand calls of each process at a time, until the bucket is dry.
    while n_refused == 0 {
        let never = AtomicBool::new(false);
        let told = try_join_all(fleet.iter().map(|service| load(service, 4, 250, &never))).await?;
        n_ok += told.iter().map(Told::n_ok).sum::<u64>();
        n_refused += told.iter().map(|told| told.refused).sum::<u64>();
        ensure!(told.iter().all(|told| told.failed == 0), "calls failed");
        ensure!(began.elapsed() < Duration::from_secs(60), "the bucket is never dry");
    }
    let refilled = u64::try_from(began.elapsed().as_millis())? * PER_SECOND / 1_000 + 1;
    let n_asked = redis.n_calls("psetex").await?;
    println!(
        "{n_ok} admitted of {BURST} and {refilled} at most, {n_refused} refused; Redis was asked {n_asked} times"
    );
    assert!(n_ok <= BURST + refilled, "{n_ok} admitted of {BURST} and {refilled} at most");
    assert!(n_ok >= BURST, "{n_ok} admitted of {BURST}");
    assert!(n_asked < n_ok / 2, "{n_asked} charges at the server for {n_ok} hits: nothing was leased");
    Ok(())
}

#[tokio::test]
async fn a_process_that_is_killed_takes_little_with_it() -> anyhow::Result<()> {
    const LIMIT: u64 = 8_000;
    const N_CALLERS: usize = 4;
    let redis = Server::start(Kind::Redis7).await?;
    let mut fleet =
        try_join_all((0..3).map(|_| async { start(&redis, &rules("hour", LIMIT)).await })).await?;
    let mut victim = fleet.pop().context("there are three")?;
    let never = AtomicBool::new(false);
    let asking = callers(&victim, N_CALLERS)?;
    let dying = async {
        sleep(Duration::from_secs(2)).await;
        victim.process.kill()
    };
    let (before, killed) = futures_util::join!(ask_all(asking, usize::MAX, &never), dying);
    killed?;
    ensure!(before.refused == 0, "the limit was in the way");
    let rest = try_join_all(fleet.iter().map(|service| load(service, 4, 2_000, &never))).await?;
    let n_ok = before.n_ok() + rest.iter().map(Told::n_ok).sum::<u64>();
    let n_refused: u64 = rest.iter().map(|told| told.refused).sum();
    let n_before = before.n_ok();
    println!("{n_before} before it was killed, {n_ok} in all of {LIMIT}: {} lost", LIMIT - n_ok.min(LIMIT));
    ensure!(n_refused > 0, "the limit was not in the way");
    assert!(n_ok <= LIMIT, "{n_ok} admitted");
    // What it held and had asked for, each at most a sixteenth of what was left, and the calls that were under way.
    assert!(n_ok + LIMIT / 8 + N_CALLERS as u64 >= LIMIT, "{n_ok} admitted of {LIMIT}");
    Ok(())
}

/// In real time: what a process took with it is back in the window after the one that it died in.
#[tokio::test]
async fn the_others_have_the_full_rate_in_the_window_after() -> anyhow::Result<()> {
    /// Low enough that two processes soon ask for more.
    const LIMIT: u64 = 100;
    let redis = Server::start(Kind::Redis7).await?;
    let mut fleet =
        try_join_all((0..3).map(|_| async { start(&redis, &rules("second", LIMIT)).await })).await?;
    let mut victim = fleet.pop().context("there are three")?;
    let done = AtomicBool::new(false);
    let clock = Clock::process();
    let first = clock.now().secs() + 1;
    let asking = callers(&victim, 8)?;
    let dying = async {
        sleep(Duration::from_millis(2_500)).await;
        victim.process.kill()?;
        let died_in = clock.now().secs();
        sleep(Duration::from_secs(4)).await;
        done.store(true, Ordering::Relaxed);
        anyhow::Ok(died_in)
    };
    let others = try_join_all(fleet.iter().map(|service| load(service, 6, usize::MAX, &done)));
    let before = async { Ok(ask_all(asking, usize::MAX, &done).await) };
    let (before, others, died_in) = futures_util::try_join!(before, others, dying)?;
    let last = clock.now().secs();
    let mut told = before;
    ensure!(told.failed > 0, "it was killed while nobody asked it");
    others.into_iter().for_each(|other| told.add(other));
    told.hold_to(LIMIT, first..died_in);
    let (least, _) = told.within(&(died_in..died_in + 1));
    assert!(least <= LIMIT, "{least} were admitted in the window that it died in");
    let n_full = told.hold_to(LIMIT, died_in + 1..last);
    ensure!(n_full > 0, "the limit was never in the way after it had died");
    for service in fleet {
        service.process.stop().await?;
    }
    Ok(())
}
