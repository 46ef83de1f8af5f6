//! The HTTP sides of the process: `/healthcheck` and `/json` for callers and probes, and the debug port for people.
//!
//! **Invariant:** nothing here decides; `/json` goes through the same steps as gRPC.

mod debug;
mod exposition;
mod http;
mod json;
mod prometheus;
mod top;

use std::{sync::Arc, time::Duration};

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    health::Health, limiter::Limiter, rls::serve::Counts, rules::xds, stats::Statistics,
    telemetry::metrics::Metrics,
};

pub use debug::router as debug_router;
pub use http::router as http_router;
pub use prometheus::{Prometheus, router as prometheus_router};

/// What the pages show and ask.
#[derive(Clone, Debug)]
pub struct Admin {
    pub limiter: Arc<Limiter>,
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
    /// Of the way to the control plane, if rules come from one.
    pub control_plane: Option<Arc<xds::Stats>>,
    pub counts: Counts,
    /// How long a call of `/json` may take; it names no deadline of its own.
    pub budget: Duration,
}

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

/// Serves `router` until `stop`; connections under way are finished.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// The answer to every path that is not ours.
async fn not_found() -> (axum::http::StatusCode, &'static str) {
    (axum::http::StatusCode::NOT_FOUND, "404 page not found\n")
}

#[cfg(test)]
mod tests;
