//! The HTTP port: `/healthcheck` and `/json`, by exact path and any method, as the reference has it.

use axum::{Router, extract::State, http::StatusCode, routing::any};

use super::{Admin, json, not_found};

pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthcheck", any(healthcheck))
        .route("/json", any(json::handle).layer(axum::extract::DefaultBodyLimit::max(json::MAX_BODY)))
        .fallback(not_found)
        .with_state(admin)
}

/// 200 and `OK`, or 500 and why not.
async fn healthcheck(State(admin): State<Admin>) -> (StatusCode, String) {
    match admin.health.check() {
        Ok(()) => (StatusCode::OK, "OK".to_owned()),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}
