//! Every topology that the Redis store knows, and that the tools which start them do what they say.

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

#[path = "redis_topologies/addresses.rs"]
mod addresses;
#[path = "redis_topologies/counting.rs"]
mod counting;
#[path = "redis_topologies/lending.rs"]
mod lending;
#[path = "redis_topologies/together.rs"]
mod together;
#[path = "redis_topologies/tools.rs"]
mod tools;
#[path = "redis_topologies/wire.rs"]
mod wire;
