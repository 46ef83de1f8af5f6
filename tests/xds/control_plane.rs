//! An ADS server: sends every stream the snapshot of the moment, and keeps what it is told.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use prost::Message as _;
use prost_types::Any;
use tidegate::{
    pb::{
        envoy::service::discovery::v3::{
            DiscoveryRequest, DiscoveryResponse,
            aggregated_discovery_service_server::{
                AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
            },
        },
        ratelimit::config::ratelimit::v3::{
            RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
        },
    },
    rules::xds::{Address, TYPE_URL},
};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::timeout,
};
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap, transport::server::TcpIncoming};

use crate::port::Port;

/// Far longer than any of this takes: reached only by a failure.
pub const FAILED: Duration = Duration::from_secs(60);

/// What is sent; a new one goes to every open stream.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub version: String,
    pub resources: Vec<Any>,
    pub type_url: String,
}

/// A request, and the stream that it came on, from 0.
#[derive(Clone, Debug)]
pub struct Seen {
    pub stream: usize,
    pub request: DiscoveryRequest,
    pub headers: MetadataMap,
}

impl Seen {
    pub fn is_refusal(&self) -> bool {
        self.request.error_detail.is_some()
    }

    /// Version, nonce, and whether something is refused.
    pub fn said(&self) -> (&str, &str, bool) {
        (&self.request.version_info, &self.request.response_nonce, self.is_refusal())
    }
}

pub struct ControlPlane {
    port: Port,
    state: Arc<State>,
    /// Where everything runs, so that ending it ends every connection.
    serving: Mutex<Option<Runtime>>,
}

struct State {
    snapshot: watch::Sender<Option<Snapshot>>,
    seen: watch::Sender<Vec<Seen>>,
    /// Streams of lower number are ended.
    ended: watch::Sender<usize>,
    n_streams: AtomicUsize,
    /// Sends again what was refused, at once: as control planes do.
    insists: bool,
}

impl ControlPlane {
    pub async fn start() -> Self {
        Self::of(false).await
    }

    pub async fn insistent() -> Self {
        Self::of(true).await
    }

    async fn of(insists: bool) -> Self {
        let state = Arc::new(State {
            snapshot: watch::Sender::new(None),
            seen: watch::Sender::default(),
            ended: watch::Sender::default(),
            n_streams: AtomicUsize::new(0),
            insists,
        });
        let plane = Self { port: Port::reserve().unwrap(), state, serving: Mutex::new(None) };
        plane.resume().await;
        plane
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// As a client is told it.
    pub fn server(&self) -> Address {
        Address::Tcp { host: "127.0.0.1".to_owned(), port: self.port.number() }
    }

    /// Cuts every connection and refuses new ones.
    pub async fn away(&self) {
        let serving = self.serving.lock().take();
        let end = || serving.map(|serving| serving.shutdown_timeout(FAILED));
        spawn_blocking(end).await.unwrap();
    }

    /// Is there again, on the same port.
    pub async fn resume(&self) {
        let (address, serving) = (self.address(), runtime());
        let listener = serving.spawn(TcpListener::bind(address)).await.unwrap().unwrap();
        let service = AggregatedDiscoveryServiceServer::new(Ads(Arc::clone(&self.state)))
            .max_encoding_message_size(usize::MAX);
        let server = tonic::transport::Server::builder().add_service(service);
        serving.spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        *self.serving.lock() = Some(serving);
    }

    pub fn send(&self, version: &str, resources: Vec<Any>) {
        self.send_as(version, resources, TYPE_URL);
    }

    pub fn send_as(&self, version: &str, resources: Vec<Any>, type_url: &str) {
        let (version, type_url) = (version.to_owned(), type_url.to_owned());
        self.state.snapshot.send_replace(Some(Snapshot { version, resources, type_url }));
    }

    /// Ends every open stream as if all were said.
    pub fn end_streams(&self) {
        self.state.ended.send_replace(self.state.n_streams.load(Ordering::SeqCst));
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.borrow().clone()
    }

    /// Waits until there are so many requests.
    pub async fn seen_at_least(&self, n: usize) -> Vec<Seen> {
        let mut seen = self.state.seen.subscribe();
        let all = timeout(FAILED, seen.wait_for(|seen| seen.len() >= n)).await;
        match all {
            Ok(all) => all.unwrap().clone(),
            Err(_) => panic!("{n} requests were expected: {:#?}", self.seen()),
        }
    }

    /// Waits for a request like this, the first of them.
    pub async fn seen_one(&self, what: &str, is_it: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.state.seen.subscribe();
        let found = timeout(FAILED, seen.wait_for(|seen| seen.iter().any(&is_it))).await;
        match found {
            Ok(seen) => seen.unwrap().iter().find(|seen| is_it(seen)).unwrap().clone(),
            Err(_) => panic!("{what} was expected: {:#?}", self.seen()),
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.lock().take() {
            serving.shutdown_background();
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

struct Ads(Arc<State>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream =
        Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (outbox, mut inbox) = mpsc::channel(16);
        tokio::spawn(converse(Arc::clone(&self.0), request, outbox));
        Ok(Response::new(Box::pin(stream::poll_fn(move |context| inbox.poll_recv(context)))))
    }
}

async fn converse(
    state: Arc<State>,
    request: Request<Streaming<DiscoveryRequest>>,
    outbox: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let number = state.n_streams.fetch_add(1, Ordering::SeqCst);
    let (headers, _, mut requests) = request.into_parts();
    let (mut snapshots, mut ended) = (state.snapshot.subscribe(), state.ended.subscribe());
    snapshots.mark_changed();
    let (mut n_sent, mut is_asked) = (0, false);
    loop {
        let is_due = tokio::select! {
            request = requests.message() => {
                let Ok(Some(request)) = request else { return };
                let is_refusal = request.error_detail.is_some();
                let seen = Seen { stream: number, request, headers: headers.clone() };
                state.seen.send_modify(|all| all.push(seen));
                is_asked = true;
                state.insists && is_refusal
            }
            changed = snapshots.changed(), if is_asked => changed.is_ok(),
            _ = ended.wait_for(|ended| *ended > number) => return,
        };
        let Some(Snapshot { version, resources, type_url }) =
            is_due.then(|| snapshots.borrow().clone()).flatten()
        else {
            continue;
        };
        n_sent += 1;
        let nonce = format!("{number}/{n_sent}");
        let response = DiscoveryResponse { version_info: version, resources, type_url, nonce };
        if outbox.send(Ok(response)).await.is_err() {
            return;
        }
    }
}

/// A resource as the wire has it.
pub fn any(config: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

/// A domain with one rule for the key `a`.
pub fn domain(name: &str, requests_per_unit: u32) -> RateLimitConfig {
    RateLimitConfig {
        name: name.to_owned(),
        domain: name.to_owned(),
        descriptors: vec![descriptor("a", RateLimitUnit::Hour, requests_per_unit)],
    }
}

pub fn descriptor(key: &str, unit: RateLimitUnit, requests_per_unit: u32) -> RateLimitDescriptor {
    let policy = RateLimitPolicy { unit: unit.into(), requests_per_unit, ..RateLimitPolicy::default() };
    RateLimitDescriptor { key: key.to_owned(), rate_limit: Some(policy), ..RateLimitDescriptor::default() }
}

/// Such domains, as resources.
pub fn domains<const N: usize>(domains: [(&str, u32); N]) -> Vec<Any> {
    domains.iter().map(|(name, requests_per_unit)| any(&domain(name, *requests_per_unit))).collect()
}
