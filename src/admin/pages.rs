//! Pages that may be large: made away from the thread that answers health checks, one at a time, and so many in memory.
//!
//! **Invariant:** of all that are asked for at most [`PLACES`] are in memory: one that is being made or sent has a place, and
//! keeps it until its last byte is sent or it is dropped.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// A few scrapers and people at once. A page of `STATS_MAX_NAMES` long names has some 30 MB, and takes four times as much while
/// it is made.
pub(super) const PLACES: usize = 4;

/// How long to wait for a place: what others are about to finish is soon done, and a scraper waits for 10 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// The places of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Pages {
    places: Arc<Semaphore>,
    /// Held by who makes one: several at once would take the cores from calls.
    making: Arc<Mutex<()>>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PLACES)), making: Arc::default() }
    }
}

impl Pages {
    /// An answer of this content type. `make` runs on a thread that may block.
    ///
    /// Bound: waits at most 2 s for a place; then the answer is a 503 that says so.
    pub(super) async fn show(
        &self,
        kind: &'static str,
        make: impl FnOnce() -> Result<String, fmt::Error> + Send + 'static,
    ) -> Response {
        let Ok(Ok(place)) = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await else {
            return (StatusCode::SERVICE_UNAVAILABLE, full()).into_response();
        };
        let making = Arc::clone(&self.making);
        let made = tokio::task::spawn_blocking(move || {
            let _alone = making.lock();
            make().map(|text| Page { text, _place: place })
        });
        match made.await {
            Ok(Ok(page)) => {
                ([(header::CONTENT_TYPE, kind)], Body::from(Bytes::from_owner(page))).into_response()
            }
            Ok(Err(fmt::Error)) | Err(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written\n").into_response()
            }
        }
    }
}

/// A page and its place.
struct Page {
    text: String,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn full() -> String {
    format!(
        "{PLACES} pages are being made or read, as many as there may be at a time: ask again in some seconds; if it stays \
         so, look who asks for pages on this port and does not read them\n"
    )
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    async fn show(pages: &Pages) -> Response {
        pages.show("text/plain", || Ok("page".to_owned())).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_keeps_its_place_until_its_last_byte_is_gone() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for _ in 0..PLACES {
            unread.push(show(&pages).await);
        }
        let refused = show(&pages).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let why = to_bytes(refused.into_body(), 1 << 10).await.unwrap();
        assert!(String::from_utf8_lossy(&why).contains("ask again"), "{why:?}");
        let mut bytes = to_bytes(unread.pop().unwrap().into_body(), 1 << 10).await.unwrap();
        drop(bytes.split_to(3));
        assert_eq!(show(&pages).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(bytes);
        assert_eq!(show(&pages).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn pages_are_made_one_at_a_time() {
        let (pages, is_made) = (Pages::default(), Arc::new(Mutex::new(())));
        let make = || {
            let is_made = Arc::clone(&is_made);
            pages.show("text/plain", move || {
                let _alone = is_made.try_lock().ok_or(fmt::Error)?;
                (0..1_000).for_each(|_| std::thread::yield_now());
                Ok(String::new())
            })
        };
        for made in futures_util::future::join_all((0..PLACES).map(|_| make())).await {
            assert_eq!(made.status(), StatusCode::OK);
        }
    }

    #[tokio::test]
    async fn a_page_is_made_on_another_thread_and_a_bug_in_it_costs_no_place() {
        let pages = Pages::default();
        let here = std::thread::current().id();
        for _ in 0..=PLACES {
            let made = pages
                .show("text/plain", move || {
                    assert_ne!(std::thread::current().id(), here);
                    Ok(String::new())
                })
                .await;
            assert_eq!(made.status(), StatusCode::OK);
            let made = pages.show("text/plain", || panic!("a bug")).await;
            assert_eq!(made.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
