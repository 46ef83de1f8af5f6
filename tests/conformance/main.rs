//! The recorded conversations: what `envoyproxy/ratelimit` answered, held again with this server and compared.
//!
//! A scenario (`scenarios/*.yaml`) says which files and settings a server starts with and what it is then asked; the
//! recording of the same name holds the reference's answers. Each is one test. They mostly wait for reloads to settle,
//! as the recorded ones did, so all of them run at once.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

mod answer;
mod clock;
mod compare;
mod redis;
mod scenario;
mod server;
mod statistics;
mod steps;

#[path = "../support/grpc.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod grpc;
#[path = "../support/http.rs"]
mod http;
#[path = "../support/port.rs"]
mod port;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod servers;
#[path = "../support/settings.rs"]
mod settings;
#[path = "../support/wire.rs"]
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};

use self::redis::Redis;
use self::scenario::Scenario;
use self::server::{Ports, Server};
use self::statistics::Statsd;

/// How many scenarios there are.
const HELD: usize = 133;

const START: Duration = Duration::from_secs(60);

/// How long a server gets to be connected to a Redis that is there. One that is unhealthy for another reason stays so.
const CONNECTED: Duration = Duration::from_secs(3);

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(64);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let held = held(&folder)?;
    let n_held = held.len();
    let mut trials: Vec<Trial> = held
        .into_iter()
        .map(|path| {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let recording = folder.join("recordings").join(format!("{name}.json"));
            Trial::test(name, move || {
                hold(&path, &recording).map_err(|error| Failed::from(format!("{error:#}")))
            })
        })
        .collect();
    trials.push(Trial::test("none_is_left_out_by_mistake", move || {
        (n_held == HELD)
            .then_some(())
            .ok_or_else(|| format!("{n_held} scenarios are held, not {HELD}").into())
    }));
    libtest_mimic::run(&arguments, trials).exit()
}

/// The scenarios, in the order of their names.
fn held(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut held = Vec::new();
    for entry in folder.join("scenarios").read_dir()? {
        held.push(entry?.path());
    }
    held.sort();
    Ok(held)
}

/// Holds one conversation and compares it with its recording.
fn hold(path: &Path, recording: &Path) -> anyhow::Result<()> {
    let scenario: Scenario = serde_json::from_value(scenario::read(path)?)?;
    let kept = std::fs::read(recording).with_context(|| format!("no recording {}", recording.display()))?;
    let kept: Value = serde_json::from_slice(&kept)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A server that is to come up may take its time on a busy machine.
    let patience = if kept["up"] == true { START } else { Duration::from_secs_f64(scenario.start_wait) };
    let needs_redis = scenario::needs_redis(&scenario::read(path)?);
    let (answers, log) = runtime.block_on(converse(&scenario, path, needs_redis, patience))?;
    runtime.shutdown_background();
    let differences = compare::differences(&scenario, &kept, &answers);
    ensure!(
        differences.is_empty(),
        "{}\n\n{}\nthe server said:\n{log}",
        scenario.why,
        differences.join("\n")
    );
    Ok(())
}

/// What the server answered, in the form of a recording, and what it printed.
async fn converse(
    scenario: &Scenario,
    path: &Path,
    needs_redis: bool,
    patience: Duration,
) -> anyhow::Result<(Value, String)> {
    let mut redis = if needs_redis { Some(Redis::start(scenario).await?) } else { None };
    let statsd = Statsd::start().await?;
    let ports = Ports { redis: redis.as_ref().map(Redis::port), statsd: statsd.port() };
    let mut servers = Vec::new();
    for _ in 0..scenario.copies {
        servers.push(Server::start(scenario, path.parent().unwrap_or(path), ports)?);
    }
    let mut up = true;
    for server in &mut servers {
        up &= server.ready(patience).await;
        // The recorded server opened its ports once Redis had answered; this one opens them at once.
        if up && needs_redis && scenario.redis_at_start {
            server.serving(CONNECTED).await;
        }
    }
    clock::wait_for_room(scenario.needs).await;
    let mut answers = Vec::new();
    for (i, step) in scenario.steps.iter().enumerate() {
        let server = servers.get_mut(step.copy - 1).with_context(|| format!("step {i}: no such server"))?;
        answers.push(if up || step.even_if_down {
            steps::take(step, server, redis.as_mut(), &statsd).await.with_context(|| format!("step {i}"))?
        } else {
            json!("not up")
        });
    }
    let log = servers.iter().map(|server| server.process.output()).collect();
    Ok((json!({"up": up, "steps": answers}), log))
}
