//! The conversation with the control plane: connects, asks, answers, and begins anew when that ends.
//!
//! **Invariants:** every response is answered, the latest for those before it where the answer is held back; what was told is not
//! told again; at rest nothing runs but the keepalive.

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
    time::{Instant, interval_at, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    metadata::{AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue},
};

use super::{
    Event, Listener, Options, Stats, Update,
    answers::{Answers, Haste},
    backoff::Backoff,
    cache::Kept,
    connect::innermost,
    session::Session,
    snapshot::{Fingerprint, Loader, TYPE_URL, fingerprint},
};
use crate::{
    pb::envoy::service::discovery::v3::{
        DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
    telemetry::trouble::Trouble,
};

/// Requests that may wait to be sent; an answer that finds no room is held back.
const OUTBOX: usize = 8;

/// How often it is said that nothing has arrived yet.
const STILL_WAITING: Duration = Duration::from_secs(60);

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
    answers: Answers,
    /// Responses that were not asked for.
    unasked: Trouble,
}

/// What was sent last, and what came of it.
struct Last {
    fingerprint: Fingerprint,
    /// Why it was refused, if it was.
    refused: Option<String>,
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
        let backoff = Backoff::new(options.backoff);
        let loader = Arc::new(Mutex::new(loader));
        let keep = Arc::new(keep);
        let (answers, unasked) = (Answers::default(), Trouble::default());
        Self { options, session, loader, listener, stats, keep, looked, last, backoff, answers, unasked }
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
                self.trouble(&why);
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

    fn trouble(&self, why: &str) {
        self.tell(why);
        self.looked.send_replace(true);
    }

    fn tell(&self, why: &str) {
        let server = &self.options.server.address;
        (self.listener)(Event::Trouble(format!("the control plane at {server}: {why}")));
    }

    /// One connection, from its beginning to its end: why it has ended.
    async fn attend(&mut self) -> String {
        let channel = match self.options.server.open().await {
            Ok(channel) => channel,
            Err(why) => return why,
        };
        self.stats.connected();
        tracing::info!("connected to the control plane at {}", self.options.server.address);
        self.tell(&self.silence());
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
        self.answers.begin(self.session.first());
        loop {
            tokio::select! {
                biased;
                () = self.answers.send(outbox) => {}
                response = responses.next() => match response {
                    Some(Ok(response)) => {
                        is_heard = true;
                        self.answer(response).await;
                    }
                    Some(Err(status)) => return self.words(&status),
                    None => return "it has ended the stream".to_owned(),
                },
                _ = waiting.tick(), if !is_heard => self.still_waiting(),
            }
        }
    }

    fn still_waiting(&self) {
        let why = self.silence();
        tracing::warn!("the control plane at {}: {why}", self.options.server.address);
        self.trouble(&why);
    }

    fn silence(&self) -> String {
        let node = &self.options.node.id;
        format!("connected, and it has sent nothing to node '{node}': does it know this node?")
    }

    /// Takes a response or refuses it. Nothing is to be said of what was not asked for.
    async fn answer(&mut self, response: DiscoveryResponse) {
        let DiscoveryResponse { version_info: version, resources, type_url, nonce } = response;
        if !type_url.is_empty() && type_url != TYPE_URL {
            self.unasked.report(&format!("the control plane sent {type_url:?}, which was not asked for"));
            return;
        }
        self.backoff.reset();
        (self.listener)(Event::Heard);
        let fingerprint = fingerprint(&resources);
        let repeated = self.last.as_ref().filter(|last| last.fingerprint == fingerprint);
        let (update, refused, haste) = match repeated {
            Some(Last { refused: Some(why), .. }) => (Update::Repeated, Some(why.clone()), Haste::None),
            Some(Last { refused: None, .. }) => (Update::Repeated, None, Haste::AtOnce),
            None => {
                tracing::info!(version, resources = resources.len(), "the control plane sent a snapshot");
                let refused = self.load(&version, resources).await;
                let update = if refused.is_some() { Update::Refused } else { Update::Accepted };
                self.last = Some(Last { fingerprint, refused: refused.clone() });
                (update, refused, Haste::AtOnce)
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
        self.answers.hold(request, haste);
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

#[cfg(test)]
mod tests;
