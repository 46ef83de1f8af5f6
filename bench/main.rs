//! Measures the server beside a bare one: CPU per call at saturation, latency and CPU at a fixed rate, start, memory.
//!
//! The unit is a gRPC server of the same stack that answers a constant, since absolute figures of a small shared machine
//! move by ten per cent and more: the servers take turns, and what counts is the ratio within a round.

#![allow(clippy::print_stdout, reason = "it prints what it does")]

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

use self::keys::{Draw, N_KEYS, Shape};
use self::open_loop::Load;
use self::report::{AtRate, Figures, Report, Saturated, Table};
use self::server::{Kind, Server};

/// Calls a second that are sent whatever the answers do: a sidecar's share of a busy service, and of a very busy one.
const RATES: [u32; 2] = [2_000, 8_000];

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
        if quick { (1, 20_000, 2, 50_000) } else { (5, 200_000, 10, N_KEYS) };
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
    let mut saturation = Vec::new();
    for shape in [Shape::One, Shape::Four] {
        saturation.push((shape.name(), saturate(shape, effort).await?));
    }
    let mut rates = Vec::new();
    for rate in RATES {
        rates.push((rate, at_rate(rate, effort).await?));
    }
    let mut starts = Vec::new();
    for _ in 0..effort.rounds {
        starts.push(Server::start(Kind::Tidegate).await?.ready_after.as_secs_f64() * 1e3);
    }
    let bytes_per_key = bytes_per_key(effort.n_keys).await?;
    Ok(Report {
        saturation,
        rates,
        draw: effort.draw,
        starts: Figures::of(&starts),
        bytes_per_key,
        n_keys: effort.n_keys,
    })
}

/// As many calls as h2load brings through, one server after the other, again and again.
async fn saturate(shape: Shape, effort: &Effort) -> anyhow::Result<Table<Saturated>> {
    let servers = start_all().await?;
    let mut table = Table::default();
    for _ in 0..effort.rounds {
        for (column, server) in servers.iter().enumerate() {
            let before = server.cpu()?;
            let rate = h2load::run(server.address(), &keys::message(shape, 0), effort.saturating_calls)?;
            let cpu = (server.cpu()? - before).as_secs_f64() * 1e6 / effort.saturating_calls as f64;
            table.add(column, Saturated { cpu, rate });
        }
        println!("saturation, {}: {:.1?}", shape.name(), table.last_round());
    }
    Ok(table)
}

/// A fixed rate, one server after the other, again and again.
async fn at_rate(rate: u32, effort: &Effort) -> anyhow::Result<Table<AtRate>> {
    let servers = start_all().await?;
    let mut table = Table::default();
    for round in 0..effort.rounds {
        for (column, server) in servers.iter().enumerate() {
            let keys = effort.draw.keys(round as u64);
            let load = Load { to: server.address(), rate, time: effort.time_at_rate, keys };
            let before = server.cpu()?;
            let outcome = load.send().await?;
            let cpu = server.cpu()? - before;
            ensure!(outcome.failed == 0, "{} of {} calls failed", outcome.failed, outcome.sent());
            table.add(column, outcome.summary(cpu));
        }
        println!("{rate}/s: {:.0?}", table.last_round());
    }
    Ok(table)
}

async fn start_all() -> anyhow::Result<Vec<Server>> {
    let mut servers = Vec::new();
    for kind in Kind::ALL {
        servers.push(Server::start(kind).await?);
    }
    Ok(servers)
}

/// What the resident memory grows by when so many keys are counted.
async fn bytes_per_key(n_keys: usize) -> anyhow::Result<f64> {
    let server = Server::start(Kind::Tidegate).await?;
    let failed = open_loop::each_once(server.address(), n_keys..n_keys + 1_000).await?;
    ensure!(failed == 0, "{failed} calls of the warm-up failed");
    let before = server.resident()?;
    let failed = open_loop::each_once(server.address(), 0..n_keys).await?;
    ensure!(failed == 0, "{failed} of {n_keys} calls failed");
    Ok((server.resident()? - before) as f64 / n_keys as f64)
}
