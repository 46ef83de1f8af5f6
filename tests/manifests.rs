//! The manifests that products ship for the reference, with the image swapped and nothing else: exactly their environment,
//! their directories, their probes, and the swap of a ConfigMap.
//!
//! Replaced by the test are only the three ports, the place where `/data` and other volumes are mounted, and the addresses of
//! other Services.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/configmap.rs"]
mod configmap;
#[path = "support/container.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod container;
#[path = "xds/control_plane.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod control_plane;
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
#[path = "support/wire.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod wire;

#[path = "manifests/files.rs"]
mod files;
#[path = "manifests/gateway.rs"]
mod gateway;
#[path = "manifests/pod.rs"]
mod pod;
