//! The debug port: the rules in force, the metrics, the statistics and the hottest keys, for people and scrapers. Serves no secret
//! of ours; the keys hold what clients sent, unless `TOP_NAMES_KEYS` is off.

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
    routing::get,
};
use serde::Deserialize;

use super::{Admin, exposition, threads, top};
use crate::stats::CONTENT_TYPE;

/// The content type of pages for people.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

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
async fn rlconfig(State(admin): State<Admin>) -> Response {
    let rules = move || Ok(admin.limiter.shared().rules().map(|rules| rules.dump()).unwrap_or_default());
    admin.pages.clone().show(TEXT, rules).await
}

async fn metrics(State(admin): State<Admin>) -> Response {
    admin.pages.clone().show(CONTENT_TYPE, || exposition::text(admin)).await
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
    let (pages, statistics) = (admin.pages.clone(), admin.statistics());
    match shown.format {
        Format::Text => pages.show(TEXT, move || Ok(statistics.text())).await,
        Format::Json => pages.show("application/json", move || Ok(statistics.json())).await,
    }
}
