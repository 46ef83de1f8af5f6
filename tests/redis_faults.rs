//! Everything that goes wrong with a Redis, and that callers get an answer in time all the same, that it heals by itself, and
//! that nothing is counted which nobody waited for. Each test prints the figures that `docs/failures.md` gives.

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
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;
#[path = "support/redis_store.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis_store;

#[path = "redis_faults/cluster.rs"]
mod cluster;
#[path = "redis_faults/network.rs"]
mod network;
#[path = "redis_faults/ring.rs"]
mod ring;
#[path = "redis_faults/sentinel.rs"]
mod sentinel;
#[path = "redis_faults/server.rs"]
mod server;
#[path = "redis_faults/story.rs"]
mod story;
