//! Leases with whole processes in front of a real Redis: what it hears of a hot key, and what is admitted of it in all.

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
#[path = "support/node.rs"]
mod node;
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

#[path = "redis_leases/one_node.rs"]
mod one_node;
#[path = "redis_leases/processes.rs"]
mod processes;
