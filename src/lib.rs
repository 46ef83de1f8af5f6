//! Tidegate: a rate-limit service for Envoy. `ARCHITECTURE.md` says how the parts fit; read `limiter` first.

pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod decision;
pub mod descriptor;
pub mod dial;
pub mod follow;
pub mod health;
pub mod key;
pub mod limit;
pub mod limiter;
pub mod local;
pub mod pb;
pub mod per_worker;
pub mod rls;
pub mod rules;
pub mod settings;
pub mod stats;
pub mod store;
pub mod telemetry;
pub mod tls;
