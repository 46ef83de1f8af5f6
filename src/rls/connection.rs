//! One connection from its first byte to its last: HTTP/2, its calls polled in its own task, and its orderly end.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::{
    Decide,
    dispatch::Dispatch,
    executor::Streams,
    io::{Handshakes, Heard, Opened},
};

/// Calls in flight on one connection: what Envoy allows itself (`max_concurrent_streams` of its clusters). With fewer, each of
/// its threads would open further connections instead.
const MAX_STREAMS: u32 = 1024;

/// Calls that a client may take back before we came to them. When we stall for longer than Envoy waits (20 ms), it takes back
/// all that it has in flight; closing the connection for it, as the library does above 20, would fail those after them, too.
const MAX_PENDING_RESETS: usize = MAX_STREAMS as usize;

/// Headers of a call, in bytes: Envoy sends some 500, and with tracing what a client wrote into `tracestate` or `baggage`, which is up
/// to 8 MiB where Envoy is told to take so much. A call that is refused for it would be one that Envoy lets through. The
/// reference's bound.
const MAX_HEADERS: u32 = 16 << 20;

/// What a call, and all calls of a connection, may send before we have read it, in bytes. A message that is larger than that
/// (few have more than 1 KiB) is read in pieces.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// After so long without a byte the peer is asked whether it is still there, and given up after the second span: a proxy whose
/// machine went away would hold its connection for ever.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Times that a connection reads, answers and writes before it lets the others have a turn.
const ROUNDS: usize = 8;

/// Asks a connection to end: no new calls, those in flight are answered.
#[derive(Debug, Default)]
pub(super) struct Stop {
    asked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    idle_since: Cell<Option<Instant>>,
}

impl Stop {
    pub(super) fn ask(&self) {
        self.asked.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Since when it has had no call under way, after it was asked; `None` while it has one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.idle_since.get()
    }

    fn note(&self, is_idle: bool) {
        self.idle_since.set(is_idle.then(|| self.idle_since.get().unwrap_or_else(Instant::now)));
    }

    /// Whether it was asked to. A task keeps its waker for life: the first one is enough.
    fn poll(&self, cx: &Context<'_>) -> bool {
        if !self.asked.get() && self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
        }
        self.asked.get()
    }
}

/// Why a connection did not come to an orderly end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the TLS handshake failed: {source}")]
    Handshake { peer: Option<SocketAddr>, source: io::Error },
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// Serves a connection until one of the sides ends it. With `handshakes`, hands are shaken first.
///
/// Cancel safety: dropped, it closes the connection and drops the calls in flight.
pub(super) async fn serve<D: Decide>(
    opened: Opened,
    handshakes: Option<Handshakes>,
    heard: Rc<Heard>,
    dispatch: Rc<Dispatch<D>>,
    stop: Rc<Stop>,
) -> Result<(), Broken> {
    let io = match handshakes {
        None => opened.in_the_clear(Rc::clone(&heard)),
        Some(handshakes) => {
            let peer = opened.peer();
            let secured = opened.secured(&handshakes, Rc::clone(&heard)).await;
            let io = secured.map_err(|source| Broken::Handshake { peer, source })?;
            dispatch.counts.handshake();
            io
        }
    };
    let mut streams = Streams::default();
    let asker = Rc::new(Arc::clone(&dispatch.askers).asker());
    let service = service_fn(move |request| {
        let (dispatch, asker, arrived) = (Rc::clone(&dispatch), Rc::clone(&asker), heard.last());
        async move { dispatch.answer(request, arrived, &asker).await }
    });
    let mut connection = pin!(
        http2::Builder::new(streams.spawner())
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_header_list_size(MAX_HEADERS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .serve_connection(TokioIo::new(io), service)
    );
    let mut is_ending = false;
    poll_fn(|cx| {
        if !is_ending && stop.poll(cx) {
            is_ending = true;
            connection.as_mut().graceful_shutdown();
        }
        for _ in 0..ROUNDS {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended.map_err(Broken::from));
            }
            if !streams.poll(cx) {
                if is_ending {
                    stop.note(streams.are_none());
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
