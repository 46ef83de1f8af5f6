//! A real Envoy in front of this server, driven over HTTP: what a client of Envoy sees.
//!
//! `scripts/fetch envoy` brings the Envoy. Each test starts its own, and servers of its own.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

mod costs;
mod descriptors;
mod lab;
mod limits;
mod load;
mod restarts;
mod tcp;
mod tls;
mod traces;

#[path = "../support/authority.rs"]
mod authority;
#[path = "../tracing/collector.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod collector;
#[path = "../support/http.rs"]
mod http;
#[path = "../support/port.rs"]
mod port;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/settings.rs"]
mod settings;
#[path = "../support/tidegate.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod tidegate;
