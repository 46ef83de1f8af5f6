//! The conversation with the control plane: connects, asks, answers, and begins anew when that ends.
//!
//! **Invariants:** one answer for each response; what was told is not told again; at rest nothing runs but the keepalive.

use std::{
    error::Error as _,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::{Stream, StreamExt as _, TryFutureExt as _, stream};
use parking_lot::Mutex;
use prost_types::Any;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, interval_at, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    metadata::{AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue},
};

use super::{
    Event, Listener, Options, Stats, Update,
    backoff::{Backoff, Jitter, Schedule},
    cache::Kept,
    connect::innermost,
    session::Session,
    snapshot::{Fingerprint, Loader, TYPE_URL, fingerprint},
};
use crate::pb::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse,
    aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
};

/// Requests that may wait to be sent. A control plane that reads none of so many is not there.
const OUTBOX: usize = 8;

/// How often it is said that nothing has arrived yet.
const STILL_WAITING: Duration = Duration::from_secs(60);

/// When a snapshot that was refused is sent again as it is, the answer waits: control planes send it as soon as they have
/// one, for ever.
const REPEATS: Schedule = Schedule {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(30),
    factor: 2.0,
    jitter: Jitter::None,
};

pub(super) struct Client {
    options: Options,
    session: Session,
    loader: Arc<Mutex<Loader>>,
    listener: Listener,
    stats: Arc<Stats>,
    keep: Arc<watch::Sender<Option<Arc<Kept>>>>,
    /// Set once it is known whether there are rules.
    looked: watch::Sender<bool>,
    last: Option<Last>,
    backoff: Backoff,
    repeats: Backoff,
}

/// What was sent last, and what came of it.
struct Last {
    fingerprint: Fingerprint,
    /// Why it was refused, if it was.
    refused: Option<String>,
}

/// What is to be said, and when.
struct Answer {
    request: DiscoveryRequest,
    at: Instant,
}

impl Client {
    pub fn new(
        options: Options,
        loader: Loader,
        kept: Option<&Kept>,
        listener: Listener,
        stats: Arc<Stats>,
        keep: watch::Sender<Option<Arc<Kept>>>,
        looked: watch::Sender<bool>,
    ) -> Self {
        let mut session = Session::new(&options.node);
        if let Some(kept) = kept {
            session.accept(&kept.version);
        }
        let last = kept.map(|kept| Last { fingerprint: fingerprint(&kept.resources), refused: None });
        let (backoff, repeats) = (Backoff::new(options.backoff), Backoff::new(REPEATS));
        let loader = Arc::new(Mutex::new(loader));
        let keep = Arc::new(keep);
        Self { options, session, loader, listener, stats, keep, looked, last, backoff, repeats }
    }

    /// Runs until `stop`; begins anew at each `again`.
    pub async fn run(mut self, stop: CancellationToken, again: Arc<Notify>) {
        let follow = async {
            loop {
                let ended = tokio::select! {
                    why = self.attend() => Some(why),
                    () = again.notified() => None,
                };
                self.stats.lost();
                let Some(why) = ended else {
                    tracing::info!("connecting to the control plane anew, as asked");
                    continue;
                };
                let wait = self.backoff.wait();
                let server = &self.options.server.address;
                tracing::warn!("the control plane at {server}: {why}; the next attempt is in {wait:.1?}");
                self.trouble(why);
                tokio::select! {
                    () = sleep(wait) => {}
                    () = again.notified() => {}
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = stop.cancelled() => {}
        }
    }

    fn trouble(&self, why: String) {
        (self.listener)(Event::Trouble(format!(
            "the control plane at {}: {why}",
            self.options.server.address
        )));
        self.looked.send_replace(true);
    }

    /// One connection, from its beginning to its end: why it has ended.
    async fn attend(&mut self) -> String {
        let channel = match self.options.server.open().await {
            Ok(channel) => channel,
            Err(why) => return why,
        };
        self.stats.connected();
        tracing::info!("connected to the control plane at {}", self.options.server.address);
        let (outbox, mut inbox) = mpsc::channel(OUTBOX);
        let mut request = Request::new(stream::poll_fn(move |context| inbox.poll_recv(context)));
        if let Err(why) = self.add_headers(&mut request) {
            return why;
        }
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.options.max_message);
        // Some control planes send no headers before their first answer, so that is not waited for here.
        let opened = async move { client.stream_aggregated_resources(request).await.map(|r| r.into_inner()) };
        self.converse(pin!(opened.try_flatten_stream()), &outbox).await
    }

    async fn converse<S>(
        &mut self,
        mut responses: Pin<&mut S>,
        outbox: &mpsc::Sender<DiscoveryRequest>,
    ) -> String
    where
        S: Stream<Item = Result<DiscoveryResponse, Status>>,
    {
        let mut waiting = interval_at(Instant::now() + STILL_WAITING, STILL_WAITING);
        let mut is_heard = false;
        let mut next = Some(Answer { request: self.session.first(), at: Instant::now() });
        loop {
            let due = next.as_ref().map_or_else(Instant::now, |answer| answer.at);
            tokio::select! {
                biased;
                () = sleep_until(due), if next.is_some() => {
                    let request = next.take().map(|answer| answer.request);
                    if request.is_some_and(|request| outbox.try_send(request).is_err()) {
                        return "it does not read what it is answered".to_owned();
                    }
                }
                response = responses.next() => match response {
                    Some(Ok(response)) => {
                        is_heard = true;
                        next = self.answer(response).await.or(next);
                    }
                    Some(Err(status)) => return self.words(&status),
                    None => return "it has ended the stream".to_owned(),
                },
                _ = waiting.tick(), if !is_heard => self.still_waiting(),
            }
        }
    }

    fn still_waiting(&self) {
        let Options { server, node, .. } = &self.options;
        let why = format!("connected, and it sends nothing to node '{}': does it know this node?", node.id);
        tracing::warn!("the control plane at {}: {why}", server.address);
        self.trouble(why);
    }

    /// Takes a response or refuses it. Nothing is to be said of what was not asked for.
    async fn answer(&mut self, response: DiscoveryResponse) -> Option<Answer> {
        let DiscoveryResponse { version_info: version, resources, type_url, nonce } = response;
        if !type_url.is_empty() && type_url != TYPE_URL {
            tracing::warn!("the control plane sent {type_url:?}, which was not asked for");
            return None;
        }
        self.backoff.reset();
        (self.listener)(Event::Heard);
        let fingerprint = fingerprint(&resources);
        let repeated = self.last.as_ref().filter(|last| last.fingerprint == fingerprint);
        let (update, refused, after) = match repeated {
            Some(Last { refused: Some(why), .. }) => {
                (Update::Repeated, Some(why.clone()), self.repeats.wait())
            }
            Some(Last { refused: None, .. }) => (Update::Repeated, None, Duration::ZERO),
            None => {
                self.repeats.reset();
                tracing::info!(version, resources = resources.len(), "the control plane sent a snapshot");
                let refused = self.load(&version, resources).await;
                let update = if refused.is_some() { Update::Refused } else { Update::Accepted };
                self.last = Some(Last { fingerprint, refused: refused.clone() });
                (update, refused, Duration::ZERO)
            }
        };
        self.looked.send_replace(true);
        self.stats.updated(update);
        let request = match refused {
            Some(why) => self.session.nack(&nonce, &why),
            None => {
                self.session.accept(&version);
                self.stats.confirmed();
                self.session.ack(&nonce)
            }
        };
        Some(Answer { request, at: Instant::now() + after })
    }

    /// Builds rules and puts them in force, off the runtime. Why they were refused, if they were.
    async fn load(&self, version: &str, resources: Vec<Any>) -> Option<String> {
        let (loader, listener, keep) =
            (Arc::clone(&self.loader), Arc::clone(&self.listener), Arc::clone(&self.keep));
        let version = version.to_owned();
        let load = move || {
            // Held while it is told, so that sets are put in force in the order in which they were built.
            let mut loader = loader.lock();
            let outcome = loader.load(&resources);
            let refused = outcome.as_ref().err().map(ToString::to_string);
            if refused.is_none() && !keep.is_closed() {
                keep.send_replace(Some(Arc::new(Kept { version, resources })));
            }
            listener(Event::Rules(outcome));
            refused
        };
        tokio::task::spawn_blocking(load).await.unwrap_or_else(|_| {
            let why = "building its rules panicked: this is a bug of tidegate";
            tracing::error!("a snapshot is refused: {why}");
            Some(why.to_owned())
        })
    }

    fn add_headers<T>(&self, request: &mut Request<T>) -> Result<(), String> {
        for (name, value) in &self.options.headers.0 {
            let metadata = request.metadata_mut();
            if name.ends_with("-bin") {
                let key = BinaryMetadataKey::from_bytes(name.as_bytes());
                let key = key.map_err(|_| format!("the header {name:?} cannot be sent"))?;
                metadata.append_bin(key, BinaryMetadataValue::from_bytes(value.as_bytes()));
            } else {
                let key = AsciiMetadataKey::from_bytes(name.as_bytes());
                let value = AsciiMetadataValue::try_from(value.as_str());
                let (Ok(key), Ok(value)) = (key, value) else {
                    return Err(format!("the header {name:?} cannot be sent"));
                };
                metadata.append(key, value);
            }
        }
        Ok(())
    }

    fn words(&self, status: &Status) -> String {
        let said = match status.source() {
            Some(source) => format!("the connection is lost: {}", innermost(source)),
            None => format!("{} ({:?})", status.message(), status.code()),
        };
        if status.code() == Code::OutOfRange && said.contains("message length too large") {
            let max = self.options.max_message;
            return format!(
                "its answer is larger than {max} bytes: raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES ({said})"
            );
        }
        said
    }
}
