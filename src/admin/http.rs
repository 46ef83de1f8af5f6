//! The HTTP port: `/healthcheck` and `/json`, by exact path and any method, as the reference has it.

use std::fmt::Write as _;

use axum::{
    Router,
    extract::{RawQuery, State},
    http::StatusCode,
    routing::any,
};

use super::{Admin, json, not_found};
use crate::{
    health::{Aspect, Mark},
    tls::Standing,
};

pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthcheck", any(healthcheck))
        .route("/json", any(json::handle).layer(axum::extract::DefaultBodyLimit::max(json::MAX_BODY)))
        .fallback(not_found)
        .with_state(admin)
}

/// 200 and `OK`, or 500 and why not. With `?verbose` a line for each thing that matters, and that in the end.
async fn healthcheck(State(admin): State<Admin>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let mut text = String::new();
    if query.is_some_and(|query| query.split('&').any(|field| matches!(field, "verbose" | "verbose=true"))) {
        let aspects =
            admin.health.aspects(&admin.limiter.store().troubles()).into_iter().chain(certificate(&admin));
        aspects.for_each(|aspect| _ = writeln!(text, "{aspect}"));
    }
    match admin.health.check() {
        Ok(()) => (StatusCode::OK, text + "OK"),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{why}\n")),
    }
}

/// How the certificate of the gRPC port stands: worth knowing, and never a reason to send traffic elsewhere.
fn certificate(admin: &Admin) -> Option<Aspect> {
    let tls = admin.tls.as_ref()?;
    let standing = tls.validity().map(|validity| {
        let now = admin.clock.now();
        let left = now.until(validity.not_after).as_secs();
        let left = format!("valid for {} days and {} hours", left / 86_400, left / 3_600 % 24);
        (validity.standing(now), left)
    });
    let aspect = |mark, text: String| Some(Aspect::new("certificate", mark, &text));
    if let Some(why) = tls.refusal() {
        return aspect(Mark::Warning, format!("its files were refused, those before stay in force: {why}"));
    }
    match standing {
        None => aspect(Mark::Well, "it does not say how long it is valid".to_owned()),
        Some((Standing::Fine, left)) => aspect(Mark::Well, left),
        Some((Standing::Near, left)) => aspect(Mark::Warning, format!("only {left}")),
        Some((Standing::Expired, _)) => aspect(Mark::Warning, "it has expired".to_owned()),
        Some((Standing::NotYet, _)) => aspect(Mark::Warning, "it is not valid yet".to_owned()),
    }
}
