//! Measures the server beside a bare one: CPU per call at saturation, latency and CPU at a fixed rate, start, memory.
//!
//! The unit is a gRPC server of the same stack that answers a constant, since absolute figures of a small shared machine
//! move by ten per cent and more: the servers take turns, and what counts is the ratio within a round.

#![allow(clippy::print_stdout, reason = "it prints what it does")]

mod case;
mod client;
mod h2load;
mod keys;
mod open_loop;
mod report;
mod server;

#[path = "../tests/support/port.rs"]
mod port;
#[path = "../tests/support/settings.rs"]
mod settings;

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;

use self::case::Case;
use self::keys::{Draw, N_KEYS, Shape};
use self::open_loop::Load;
use self::report::{AtRate, Figures, Report, Saturated, Table};
use self::server::{Kind, Server};

/// Calls a second that are sent whatever the answers do.
#[derive(Clone, Copy)]
pub enum Rate {
    /// A sidecar's share of a busy service, and of a very busy one.
    Fixed(u32),
    /// So many hundredths of what the same clients got through when they waited for answers.
    OfSaturation(u32),
}

/// In the words of the page.
impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(rate) => write!(f, "{rate}"),
            Self::OfSaturation(percent) => write!(f, "{percent} %"),
        }
    }
}

const RATES: [Rate; 3] = [Rate::Fixed(2_000), Rate::Fixed(8_000), Rate::OfSaturation(70)];

#[derive(Parser)]
#[command(about = "Measures tidegate beside a bare gRPC server and writes docs/performance.md")]
struct Arguments {
    /// One short round of each, and no file written.
    #[arg(long)]
    quick: bool,
    /// How the keys of the calls at a fixed rate are drawn.
    #[arg(long, value_enum, default_value = "zipf")]
    keys: Draw,
}

/// How much of everything.
struct Effort {
    rounds: usize,
    saturating_calls: u64,
    time_at_rate: Duration,
    n_keys: usize,
    draw: Draw,
}

fn main() -> anyhow::Result<()> {
    let Arguments { quick, keys: draw } = Arguments::parse();
    let (rounds, saturating_calls, seconds, n_keys) =
        if quick { (1, 20_000, 2, 50_000) } else { (5, 200_000, 6, N_KEYS) };
    let effort =
        Effort { rounds, saturating_calls, time_at_rate: Duration::from_secs(seconds), n_keys, draw };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(measure(&effort))?.markdown();
    println!("{report}");
    if !quick {
        std::fs::write("docs/performance.md", report).context("run it from the root of the project")?;
    }
    Ok(())
}

async fn measure(effort: &Effort) -> anyhow::Result<Report> {
    let mut same = Vec::new();
    for shape in [Shape::One, Shape::Four] {
        same.push((shape.name(), saturate(shape, effort).await?));
    }
    let [one, four] = [in_turn(Shape::One, effort).await?, in_turn(Shape::Four, effort).await?];
    let mut rates = Vec::new();
    for rate in RATES {
        rates.push((rate, at_rate(rate, &one, effort).await?));
    }
    let other = vec![(Shape::One.name(), one), (Shape::Four.name(), four)];
    let mut starts = Vec::new();
    for _ in 0..effort.rounds {
        starts.push(Server::start(Kind::Memory).await?.ready_after.as_secs_f64() * 1e3);
    }
    let bytes_per_key = bytes_per_key(effort.n_keys).await?;
    Ok(Report {
        same,
        other,
        rates,
        draw: effort.draw,
        starts: Figures::of(&starts),
        bytes_per_key,
        n_keys: effort.n_keys,
    })
}

/// As many calls as h2load brings through, all the same message, one server after the other, again and again.
async fn saturate(shape: Shape, effort: &Effort) -> anyhow::Result<Table<Saturated>> {
    let servers = start_all().await?;
    let mut table = Table::default();
    for _ in 0..effort.rounds {
        // One message is no cold key.
        for (case, server) in servers.iter().filter(|(case, _)| *case != Case::RedisCold) {
            let before = (server.cpu()?, server.cpu_of_redis()?);
            let message = case.message(shape, 0);
            let rate = h2load::run(server.address(), &message, effort.saturating_calls)?;
            table.add(*case, used(server, before, effort.saturating_calls, rate)?);
        }
        println!("saturation, {}: {:.1?}", shape.name(), table.last_round());
    }
    Ok(table)
}

/// As many calls as clients bring through that wait for answers, each with keys of its own where the case has such, one server
/// after the other, again and again.
async fn in_turn(shape: Shape, effort: &Effort) -> anyhow::Result<Table<Saturated>> {
    let servers = start_all().await?;
    let mut table = Table::default();
    let n_calls = usize::try_from(effort.saturating_calls / 4)?;
    // A flooder's first calls are let through.
    for (case, server) in servers.iter().filter(|(case, _)| *case == Case::RedisRefused) {
        open_loop::each_once(server.address(), *case, shape, 0..100).await?;
    }
    for round in 0..effort.rounds {
        for (case, server) in &servers {
            // Never the key of the first answer, nor of another round.
            let keys = 1 + round * n_calls..1 + (round + 1) * n_calls;
            let before = (server.cpu()?, server.cpu_of_redis()?);
            let began = std::time::Instant::now();
            let failed = open_loop::each_once(server.address(), *case, shape, keys).await?;
            ensure!(failed == 0, "{}: {failed} of {n_calls} calls failed", case.name());
            let rate = n_calls as f64 / began.elapsed().as_secs_f64();
            table.add(*case, used(server, before, n_calls as u64, rate)?);
        }
        println!("in turn, {}: {:.1?}", shape.name(), table.last_round());
    }
    Ok(table)
}

fn used(
    server: &Server,
    (before, redis_before): (Duration, Duration),
    n_calls: u64,
    rate: f64,
) -> anyhow::Result<Saturated> {
    let a_call = |span: Duration| span.as_secs_f64() * 1e6 / n_calls as f64;
    let (cpu, redis) = (a_call(server.cpu()? - before), a_call(server.cpu_of_redis()? - redis_before));
    Ok(Saturated { cpu, redis, rate })
}

/// A fixed rate, one server after the other, again and again.
async fn at_rate(rate: Rate, in_turn: &Table<Saturated>, effort: &Effort) -> anyhow::Result<Table<AtRate>> {
    let servers = start_all().await?;
    let mut table = Table::default();
    for (case, server) in servers.iter().filter(|(case, _)| *case == Case::RedisRefused) {
        open_loop::each_once(server.address(), *case, Shape::One, 0..100).await?;
    }
    for round in 0..effort.rounds {
        for (case, server) in &servers {
            let per_second = match rate {
                Rate::Fixed(rate) => rate,
                Rate::OfSaturation(percent) => {
                    (in_turn.median(*case, |round| round.rate) * f64::from(percent) / 100.0) as u32
                }
            };
            let keys = case.keys(effort.draw, round as u64);
            let load =
                Load { to: server.address(), case: *case, rate: per_second, time: effort.time_at_rate, keys };
            let before = (server.cpu()?, server.cpu_of_redis()?);
            let outcome = load.send().await?;
            let cpu = server.cpu()? - before.0;
            let redis = server.cpu_of_redis()? - before.1;
            table.add(*case, outcome.summary(per_second, cpu, redis));
        }
        println!("{rate}: {:.0?}", table.last_round());
    }
    Ok(table)
}

/// One server for each case.
async fn start_all() -> anyhow::Result<Vec<(Case, Server)>> {
    let mut servers = Vec::new();
    for case in Case::ALL {
        servers.push((case, Server::start(case.kind()).await?));
    }
    Ok(servers)
}

/// What the resident memory grows by when so many keys are counted.
async fn bytes_per_key(n_keys: usize) -> anyhow::Result<f64> {
    let server = Server::start(Kind::Memory).await?;
    let failed =
        open_loop::each_once(server.address(), Case::Memory, Shape::One, n_keys..n_keys + 1_000).await?;
    ensure!(failed == 0, "{failed} calls of the warm-up failed");
    let before = server.resident()?;
    let failed = open_loop::each_once(server.address(), Case::Memory, Shape::One, 0..n_keys).await?;
    ensure!(failed == 0, "{failed} of {n_keys} calls failed");
    Ok((server.resident()? - before) as f64 / n_keys as f64)
}
