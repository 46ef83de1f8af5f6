//! The port that Prometheus reads the reference's statistics from.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::Uri,
    response::{IntoResponse, Response},
};

use super::{Pages, not_found};
use crate::stats::{CONTENT_TYPE, Exposition, Statistics};

/// What the page is made of.
#[derive(Debug)]
pub struct Prometheus {
    pub statistics: Statistics,
    pub exposition: Exposition,
    pub path: String,
    pub pages: Pages,
}

pub fn router(prometheus: Prometheus) -> Router {
    Router::new().fallback(page).with_state(Arc::new(prometheus))
}

/// The page under its path; a path is compared whole, whatever is in it.
async fn page(State(prometheus): State<Arc<Prometheus>>, uri: Uri) -> Response {
    if uri.path() != prometheus.path {
        return not_found().await.into_response();
    }
    let pages = prometheus.pages.clone();
    pages.show(CONTENT_TYPE, move || Ok(prometheus.statistics.prometheus(&prometheus.exposition))).await
}
