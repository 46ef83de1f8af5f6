//! The port that Prometheus reads the reference's statistics from.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

use super::not_found;
use crate::stats::{CONTENT_TYPE, Exposition, Statistics};

/// What the page is made of.
#[derive(Debug)]
pub struct Prometheus {
    pub statistics: Statistics,
    pub exposition: Exposition,
    pub path: String,
}

pub fn router(prometheus: Prometheus) -> Router {
    Router::new().fallback(page).with_state(Arc::new(prometheus))
}

/// The page under its path; a path is compared whole, whatever is in it.
async fn page(State(prometheus): State<Arc<Prometheus>>, uri: Uri) -> Response {
    if uri.path() != prometheus.path {
        return not_found().await.into_response();
    }
    // With many rules it takes a while, and health is answered on this thread.
    let made =
        tokio::task::spawn_blocking(move || prometheus.statistics.prometheus(&prometheus.exposition)).await;
    match made {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
