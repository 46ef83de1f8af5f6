//! The debug port: the rules in force and the metrics, for people and scrapers. Serves no secret.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

use super::{Admin, exposition};

/// What `/` lists, by path.
const PAGES: &str = "/metrics: this process's metrics, for Prometheus\n/rlconfig: the rules in force\n";

pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/rlconfig", get(rlconfig))
        .route("/metrics", get(metrics))
        .fallback(async || PAGES)
        .with_state(admin)
}

/// One line for each rule that grants something; nothing while no rules were loaded.
async fn rlconfig(State(admin): State<Admin>) -> String {
    admin.limiter.shared().rules().map(|rules| rules.dump()).unwrap_or_default()
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    match exposition::text(admin) {
        Ok(text) => Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)),
        Err(std::fmt::Error) => {
            Err((StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n"))
        }
    }
}
