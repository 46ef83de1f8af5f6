//! What `deploy/` says is true: every image, command, variable, port, probe and volume of its manifests means something to this
//! program, its rules load, a real Envoy takes its Envoy snippets, and the image runs.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "../support/configmap.rs"]
mod configmap;
#[path = "../support/container.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod container;
#[path = "../support/grpc.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod grpc;
#[path = "../support/http.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod http;
#[path = "../support/port.rs"]
mod port;
#[path = "../support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "../support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;
#[path = "../support/wire.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod wire;

mod documents;
mod envoy;
mod image;
mod kubernetes;
mod running;
