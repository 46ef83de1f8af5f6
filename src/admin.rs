//! The HTTP sides of the process: `/healthcheck` and `/json` for callers and probes, and the debug port for people.
//!
//! **Invariant:** nothing here decides; `/json` goes through the same steps as gRPC. Neither it nor the health check waits for
//! a page.

mod debug;
mod exposition;
mod http;
mod json;
mod pages;
mod prometheus;
mod serve;
mod threads;
mod top;

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock, health::Health, limiter::Limiter, rls::serve::Counts, rules::xds, stats::Statistics,
    telemetry::metrics::Metrics, tls::Tls,
};

pub use debug::router as debug_router;
pub use http::router as http_router;
pub use pages::Pages;
pub use prometheus::{Prometheus, router as prometheus_router};
pub use serve::{Bounds, serve};

/// What the pages show and ask.
#[derive(Clone, Debug)]
pub struct Admin {
    pub limiter: Arc<Limiter>,
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// Of the way to the control plane, if rules come from one.
    pub control_plane: Option<Arc<xds::Stats>>,
    pub counts: Counts,
    /// How long a call of `/json` may take; it names no deadline of its own.
    pub budget: Duration,
    /// `None`: gRPC is served in the clear.
    pub tls: Option<Tls>,
    /// Whether the debug port shows what the threads do.
    pub profiling: bool,
    pub pages: Pages,
}

/// The longest that a page of the debug port takes.
pub const DEBUG_ANSWER: Duration = Duration::from_secs(threads::MAX_SECONDS);

impl Admin {
    /// What the statistics are made of.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            limiter: Arc::clone(&self.limiter),
            metrics: Arc::clone(&self.metrics),
            counts: self.counts.clone(),
        }
    }
}

/// The answer to every path that is not ours.
async fn not_found() -> (axum::http::StatusCode, &'static str) {
    (axum::http::StatusCode::NOT_FOUND, "404 page not found\n")
}

#[cfg(test)]
mod tests;
