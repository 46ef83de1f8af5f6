//! The debug port: the rules in force, the metrics, the statistics and the hottest keys, for people and scrapers. Serves no secret
//! of ours; the keys hold what clients sent, unless `TOP_NAMES_KEYS` is off.

use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;

use super::{Admin, exposition, threads, top};

/// What `/` lists, by path.
const PAGES: &str = "\
/metrics: this process's metrics, for Prometheus
/rlconfig: the rules in force
/stats: the statistics under the reference's names; ?format=json for an object
/top: the keys that are asked for and refused most; ?n=rows, ?format=json
";

/// The same of what is there only if it was asked for.
const PROFILES: &str =
    "/debug/threads?seconds=5: how busy each thread is, and what memory the process takes\n";
const NO_PROFILES: &str = "/debug/threads: off; DEBUG_PROFILING=true turns it on\n";

pub fn router(admin: Admin) -> Router {
    let router = Router::new()
        .route("/rlconfig", get(rlconfig))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/top", get(top::handle));
    let (router, profiles) = if admin.profiling {
        (router.route("/debug/threads", get(threads::page)), PROFILES)
    } else {
        let off = async || (StatusCode::NOT_FOUND, NO_PROFILES);
        (router.route("/debug/threads", get(off)), NO_PROFILES)
    };
    let pages = format!("{profiles}{PAGES}");
    router.fallback(async move || pages).with_state(admin)
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

/// How statistics are shown.
#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    format: Format,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Text,
    Json,
}

async fn stats(State(admin): State<Admin>, Query(shown): Query<Shown>) -> Response {
    let made = tokio::task::spawn_blocking(move || match shown.format {
        Format::Text => admin.statistics().text().into_response(),
        Format::Json => {
            ([(header::CONTENT_TYPE, "application/json")], admin.statistics().json()).into_response()
        }
    });
    made.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
