//! Whole processes in front of a Redis: several of them count as one, and each answers as its rules say while Redis is away.

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

#[path = "redis_processes/fleet.rs"]
mod fleet;
#[path = "redis_processes/health.rs"]
mod health;
#[path = "redis_processes/metrics.rs"]
mod metrics;
#[path = "redis_processes/postures.rs"]
mod postures;
