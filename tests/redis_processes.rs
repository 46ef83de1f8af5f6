//! Several Tidegate processes that share one Redis count as one.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/faults.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod faults;
#[path = "support/grpc.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod grpc;
#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod http;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;
#[path = "support/redis_service.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis_service;
#[path = "support/settings.rs"]
mod settings;
#[path = "support/tidegate.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod tidegate;
#[path = "support/wire.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod wire;

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use redis::server::{Kind, Server};
use redis_service::{Service, single};

const N_PROCESSES: usize = 3;
const N_CLIENTS: usize = 20;
const N_CALLS: usize = 200;
const LIMIT: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(5);

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

/// All clients make all their calls on one counter; says how many were told OK.
async fn n_ok(fleet: &[Service], key: &str) -> anyhow::Result<usize> {
    let callers: Vec<_> =
        fleet.iter().cycle().take(N_CLIENTS).map(Service::caller).collect::<Result<_, _>>()?;
    let n_ok = Cell::new(0);
    let n_ok = &n_ok;
    join_all(callers.iter().map(async |caller| {
        for _ in 0..N_CALLS {
            match caller.ask("fleet", &[(key, "all")], PATIENCE).await {
                "OK" => n_ok.set(n_ok.get() + 1),
                "OVER_LIMIT" => {}
                other => panic!("{key}: {other}"),
            }
        }
    }))
    .await;
    Ok(n_ok.get())
}

#[tokio::test]
async fn three_processes_admit_exactly_the_limit() -> anyhow::Result<()> {
    let server = Server::start(Kind::Redis7).await?;
    let fleet = fleet(&single(server.address())).await?;
    for (name, _, admitted) in ALGORITHMS {
        assert_eq!(n_ok(&fleet, name).await?, admitted, "{name}");
    }
    Ok(())
}
