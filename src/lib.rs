//! Tidegate: a rate-limit service for Envoy. `ARCHITECTURE.md` says how the parts fit; read `limiter` first.

pub mod clock;
pub mod descriptor;
pub mod key;
pub mod limit;
pub mod per_worker;
pub mod rules;
pub mod store;
