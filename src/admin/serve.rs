//! Serves HTTP/1.1 on one port, within bounds: what says nothing, says half, or does not listen holds nothing for ever.
//!
//! **Invariant:** a new connection finds room as long as one of the others is not being answered.

mod sending;

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode},
    response::IntoResponse as _,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, Id, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::sending::Sending;

/// How long to leave it after an error of `accept` (no more file descriptors), and until it is looked again whether there is room.
const PAUSE: Duration = Duration::from_millis(50);

/// What a request's head may have, and what is read ahead, in bytes.
const BUFFER: usize = 64 << 10;

/// What the connections of a port may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// So many at once, give or take one. Another takes the place of the one that has been there longest of those that are not
    /// being answered.
    pub connections: usize,
    /// For the head of a request, from the end of the one before.
    pub head: Duration,
    /// For the rest of it and the making of the answer.
    pub request: Duration,
    /// For its client to take the answer, from the first byte to the last.
    pub sending: Duration,
    /// Then the connection ends with the request that is under way, and after as long again as that may take in any case.
    pub age: Duration,
}

impl Bounds {
    /// Of a port where an answer takes at most `answer`.
    pub fn for_answers_in(answer: Duration) -> Self {
        Self {
            connections: 1024,
            head: Duration::from_secs(30),
            request: Duration::from_secs(10) + answer,
            sending: Duration::from_secs(30),
            age: Duration::from_secs(600),
        }
    }
}

/// Serves `router` until `stop`; requests under way are finished then, and their owner says how long that may take.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut clients = Clients::default();
    loop {
        let has_room = clients.known.len() < bounds.connections || clients.idle().is_some();
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = clients.tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                clients.known.remove(&id);
            }
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => {
                    if clients.known.len() >= bounds.connections {
                        clients.make_room();
                    }
                    clients.open(stream, router.clone(), bounds, stop.clone());
                }
                Err(_) => sleep(PAUSE).await,
            },
            () = sleep(PAUSE), if !has_room => {}
        }
    }
    drop(listener);
    while clients.tasks.join_next().await.is_some() {}
    Ok(())
}

#[derive(Default)]
struct Clients {
    tasks: JoinSet<()>,
    known: HashMap<Id, Client>,
}

struct Client {
    since: Instant,
    is_answered: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Clients {
    fn open(&mut self, stream: TcpStream, router: Router, bounds: Bounds, stop: CancellationToken) {
        let is_answered = Arc::new(AtomicBool::new(false));
        let task = self.tasks.spawn(connection(stream, router, bounds, Arc::clone(&is_answered), stop));
        self.known.insert(task.id(), Client { since: Instant::now(), is_answered, task });
    }

    /// The one that has been there longest of those that are not being answered.
    fn idle(&self) -> Option<Id> {
        let idle = self.known.iter().filter(|(_, client)| !client.is_answered.load(Relaxed));
        idle.min_by_key(|(_, client)| client.since).map(|(id, _)| *id)
    }

    fn make_room(&mut self) {
        if let Some(client) = self.idle().and_then(|id| self.known.remove(&id)) {
            client.task.abort();
        }
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    bounds: Bounds,
    is_answered: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    // Without it answers are late, not wrong.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let answered = Answered::by(Arc::clone(&is_answered));
        let answer = timeout(bounds.request, router.clone().oneshot(request.map(Body::new)));
        async move {
            let _answered = answered;
            let answer: Response<Body> = match answer.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(never)) => match never {},
                Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request did not come in time\n").into_response(),
            };
            Ok::<_, Infallible>(answer)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Sending::new(stream, bounds.sending)), service);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = async { tokio::select! { () = stop.cancelled() => {}, () = sleep(bounds.age) => {} } } => {
            serving.as_mut().graceful_shutdown();
            timeout(bounds.request, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection broke off");
    }
}

/// A request being answered, until this is dropped.
struct Answered(Arc<AtomicBool>);

impl Answered {
    fn by(flag: Arc<AtomicBool>) -> Self {
        flag.store(true, Relaxed);
        Self(flag)
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests;
