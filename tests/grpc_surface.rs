//! The gRPC port from outside: a real client, a free port, deciders made for the test.

#![cfg(test)]

use std::{
    net::Ipv4Addr,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use futures_util::{StreamExt, future::join_all, stream};
use hyper_util::rt::TokioIo;
use smallvec::{SmallVec, smallvec};
use tempfile::TempDir;
use tidegate::{
    decision::{Answer, Code, Status},
    descriptor::Request,
    limiter::DecideError,
    pb::{
        RateLimitDescriptor, RateLimitRequest, RateLimitResponse, rate_limit_descriptor::Entry,
        rate_limit_service_client::RateLimitServiceClient,
    },
    rls::{
        Decide,
        budget::{Budgets, REQUEST_BUDGET, UNNAMED_BUDGET},
        constant::LetsThrough,
        health::Health,
        listener::{Address, Listener},
        serve::{Drained, Options, Server},
    },
    store::{Budget, StoreError},
};
use tokio::{net::UnixStream, sync::Semaphore, time::timeout};
use tonic::{
    Code as GrpcCode,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Far beyond what any of these tests takes: only a hanging one meets it.
const LONG: Duration = Duration::from_secs(60);

const HOT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn any_port() -> Address {
    Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

fn options(n_workers: usize) -> Options {
    Options::with_workers(NonZeroUsize::new(n_workers).unwrap())
}

async fn start<D: Decide + Sync + Send>(decider: D) -> (Server, Health) {
    start_with(options(2), decider).await
}

async fn start_with<D: Decide + Sync + Send>(options: Options, decider: D) -> (Server, Health) {
    let (health, decider) = (Health::new().await, Arc::new(decider));
    let listener = Listener::bind(&any_port()).unwrap();
    let server = Server::start(listener, options, &health, move |_| Arc::clone(&decider)).unwrap();
    (server, health)
}

async fn connect(server: &Server) -> Channel {
    Endpoint::new(format!("http://{}", server.address())).unwrap().connect().await.unwrap()
}

async fn client(server: &Server) -> RateLimitServiceClient<Channel> {
    RateLimitServiceClient::new(connect(server).await)
}

fn request(value: &'static [u8]) -> RateLimitRequest {
    let entry = Entry { key: Bytes::from_static(b"k"), value: Bytes::from_static(value) };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: Bytes::from_static(b"d"), descriptors: vec![descriptor], hits_addend: 0 }
}

fn answer(n_statuses: usize, headers: SmallVec<[(Arc<str>, u64); 4]>) -> Answer {
    let status = Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None };
    Answer { overall: Code::Ok, statuses: smallvec![status; n_statuses], headers, dynamic_metadata: None }
}

/// Remembers what it was asked.
#[derive(Clone, Default)]
struct Remembers(Arc<Mutex<Vec<Request>>>);

impl Decide for Remembers {
    async fn decide(&self, request: &Request, _budget: Budget) -> Result<Answer, DecideError> {
        self.0.lock().unwrap().push(request.clone());
        Ok(answer(request.descriptors.len(), smallvec![]))
    }
}

/// Lets a call in, says so, and keeps it until it is let out.
#[derive(Clone)]
struct Gate {
    is_in: Arc<Semaphore>,
    may_out: Arc<Semaphore>,
}

impl Gate {
    fn closed() -> Self {
        Self { is_in: Arc::new(Semaphore::new(0)), may_out: Arc::new(Semaphore::new(0)) }
    }

    async fn wait_for(&self, n: u32) {
        timeout(LONG, self.is_in.acquire_many(n)).await.unwrap().unwrap().forget();
    }

    fn open(&self, n: usize) {
        self.may_out.add_permits(n);
    }
}

impl Decide for Gate {
    async fn decide(&self, request: &Request, _budget: Budget) -> Result<Answer, DecideError> {
        self.is_in.add_permits(1);
        self.may_out.acquire().await.unwrap().forget();
        Ok(answer(request.descriptors.len(), smallvec![]))
    }
}

/// Passes messages on as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        dst.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(src.copy_to_bytes(src.remaining())))
    }
}

async fn call_raw(channel: Channel, path: &'static str, message: &[u8]) -> Result<Bytes, tonic::Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let request = tonic::Request::new(Bytes::copy_from_slice(message));
    grpc.unary(request, path.parse().unwrap(), Raw).await.map(tonic::Response::into_inner)
}

/// Envoy hands on what a client wrote into `tracestate`, and lets a call through that is not answered.
#[tokio::test]
async fn a_call_is_answered_however_long_a_header_is_that_envoy_hands_on() {
    let (server, _health) = start(LetsThrough).await;
    let mut client = client(&server).await;
    for length in [60 << 10, 200 << 10, 8 << 20] {
        let mut call = tonic::Request::new(request(b"v"));
        call.metadata_mut().insert("tracestate", format!("a={}", "v".repeat(length)).parse().unwrap());
        let answer = client.should_rate_limit(call).await;
        assert!(answer.is_ok(), "{length} bytes: {}", answer.unwrap_err());
    }
}

#[tokio::test]
async fn a_call_is_read_decided_and_answered() {
    let decider = Remembers::default();
    let (server, _) = start(decider.clone()).await;
    let mut sent = request(b"v");
    sent.descriptors.push(sent.descriptors[0].clone());
    let response = client(&server).await.should_rate_limit(sent).await.unwrap().into_inner();
    assert_eq!(response.overall_code, 1);
    assert_eq!(response.statuses.len(), 2);
    assert_eq!(response.statuses[0].code, 1);
    let asked = decider.0.lock().unwrap().pop().unwrap();
    assert_eq!((&*asked.domain, asked.descriptors.len()), (&b"d"[..], 2));
    assert_eq!((server.counts().calls(), server.counts().connections()), (1, 1));
    assert_eq!(server.drain(LONG).await, Drained { n_cut: 0 });
}

#[tokio::test]
async fn what_is_not_utf_8_is_decided_like_anything_else() {
    let decider = Remembers::default();
    let (server, _) = start(decider.clone()).await;
    let message = b"\x0a\x03d\xff!\x12\x0d\x0a\x0b\x0a\x03k\xc3\x28\x12\x04caf\xe9";
    call_raw(connect(&server).await, HOT, message).await.unwrap();
    let asked = decider.0.lock().unwrap().pop().unwrap();
    let entry = &asked.descriptors[0].entries[0];
    assert_eq!(
        (&*asked.domain, &*entry.key, &*entry.value),
        (&b"d\xff!"[..], &b"k\xc3\x28"[..], &b"caf\xe9"[..])
    );
}

#[tokio::test]
async fn what_there_is_not_is_unimplemented() {
    let (server, _) = start(LetsThrough).await;
    let channel = connect(&server).await;
    for path in [
        "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        "/pb.lyft.ratelimit.RateLimitService/ShouldRateLimit",
        "/envoy.service.ratelimit.v3.RateLimitService/Nothing",
    ] {
        let error = call_raw(channel.clone(), path, b"").await.unwrap_err();
        assert_eq!(error.code(), GrpcCode::Unimplemented, "{path}");
        let text = error.message();
        assert!(
            text.starts_with(&format!("unknown method {path}; there are ")) && text.contains(HOT),
            "{text}"
        );
    }
    assert_eq!(server.counts().calls(), 0);
}

#[tokio::test]
async fn a_broken_or_oversized_message_is_refused_and_the_next_one_answered() {
    let (server, _) = start(LetsThrough).await;
    let channel = connect(&server).await;
    let code = |message| {
        let channel = channel.clone();
        async move { call_raw(channel, HOT, message).await.map(drop).map_err(|error| error.code()) }
    };
    let huge = vec![0; (4 << 20) + 1];
    assert_eq!(code(b"\x0a\x04wire\x12\x07\xff\xff\xff\xff\xff").await, Err(GrpcCode::Internal));
    assert_eq!(code(&huge).await, Err(GrpcCode::ResourceExhausted));
    assert_eq!(code(b"\x0a\x04wire\x12\x08\x0a\x06\x0a\x01a\x12\x01x\xa0\x06\x2a").await, Ok(()));
}

#[tokio::test]
async fn a_message_of_a_million_empty_descriptors_or_entries_is_refused() {
    let (server, _) = start(LetsThrough).await;
    let channel = connect(&server).await;
    let descriptors = [&b"\x0a\x01d"[..], &b"\x12\x00".repeat(1_000_000)].concat();
    // One descriptor of 2,000,000 bytes.
    let entries = [&b"\x0a\x01d\x12\x80\x89\x7a"[..], &b"\x0a\x00".repeat(1_000_000)].concat();
    for (message, what) in [(descriptors, "too many descriptors"), (entries, "too many entries")] {
        let error = call_raw(channel.clone(), HOT, &message).await.unwrap_err();
        assert_eq!(error.code(), GrpcCode::InvalidArgument);
        assert!(error.message().starts_with(what), "{}", error.message());
    }
    assert_eq!(server.counts().invalid(), 2);
}

#[tokio::test]
async fn what_a_request_may_not_say_is_an_invalid_argument() {
    let (server, _) = start(LetsThrough).await;
    let mut client = client(&server).await;
    let error = client.should_rate_limit(RateLimitRequest::default()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (GrpcCode::InvalidArgument, "rate limit domain must not be empty")
    );
    assert_eq!(server.counts().invalid(), 1);
}

#[tokio::test]
async fn an_outage_is_unavailable_and_says_what_is_missing() {
    struct Fails(DecideError);
    impl Decide for Fails {
        async fn decide(&self, _: &Request, _: Budget) -> Result<Answer, DecideError> {
            Err(self.0)
        }
    }
    for (cause, text) in [
        (DecideError::NoRules, "no rate limit configuration loaded"),
        (DecideError::Store(StoreError::Unavailable), "the store cannot be reached"),
    ] {
        let (server, _) = start(Fails(cause)).await;
        let error = client(&server).await.should_rate_limit(request(b"v")).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (GrpcCode::Unavailable, text));
    }
}

#[tokio::test]
async fn a_call_that_panics_takes_only_its_connection_along() {
    struct PanicsOn(&'static [u8]);
    impl Decide for PanicsOn {
        async fn decide(&self, request: &Request, _: Budget) -> Result<Answer, DecideError> {
            assert_ne!(&*request.descriptors[0].entries[0].value, self.0, "meant to");
            Ok(answer(1, smallvec![]))
        }
    }
    let (server, _) = start_with(options(1), PanicsOn(b"boo")).await;
    let mut other = client(&server).await;
    other.should_rate_limit(request(b"v")).await.unwrap();
    client(&server).await.should_rate_limit(request(b"boo")).await.unwrap_err();
    other.should_rate_limit(request(b"v")).await.unwrap();
    assert_eq!(server.counts().in_flight(), 0);
    assert_eq!(server.drain(LONG).await, Drained { n_cut: 0 });
}

/// Answers with what is left of the budget, in microseconds.
struct TellsBudget;

impl Decide for TellsBudget {
    async fn decide(&self, _: &Request, budget: Budget) -> Result<Answer, DecideError> {
        Ok(answer(1, smallvec![(Arc::from("left"), budget.left().as_micros() as u64)]))
    }
}

#[tokio::test]
async fn the_budget_follows_the_callers_deadline() {
    let left = |response: tonic::Response<RateLimitResponse>| {
        Duration::from_micros(response.into_inner().response_headers_to_add[0].value.parse().unwrap())
    };
    let (server, _) = start(TellsBudget).await;
    let mut client = client(&server).await;
    let mut ask = async |deadline: Option<Duration>| {
        let mut request = tonic::Request::new(request(b"v"));
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        left(client.should_rate_limit(request).await.unwrap())
    };
    let one_second = ask(Some(Duration::from_secs(1))).await;
    assert!(one_second <= Duration::from_millis(750) && one_second > UNNAMED_BUDGET, "{one_second:?}");
    let an_hour = ask(Some(Duration::from_secs(3600))).await;
    assert!(an_hour <= REQUEST_BUDGET && an_hour > Duration::from_millis(750), "{an_hour:?}");
    let none = ask(None).await;
    assert!(none <= UNNAMED_BUDGET, "{none:?}");
}

#[tokio::test]
async fn a_message_that_does_not_come_is_waited_for_until_the_deadline() {
    let (server, _) = start_with(
        Options { budgets: Budgets::at_most(Duration::from_millis(1)), ..options(1) },
        LetsThrough,
    )
    .await;
    let channel = connect(&server).await;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let never = tonic::Request::new(stream::pending::<Bytes>());
    let call = grpc.client_streaming(never, HOT.parse().unwrap(), Raw);
    let error = timeout(LONG, call).await.unwrap().unwrap_err();
    assert_eq!(error.code(), GrpcCode::DeadlineExceeded);
    assert_eq!(server.counts().in_flight(), 0);
}

#[tokio::test]
async fn calls_above_the_bound_are_shed() {
    let gate = Gate::closed();
    let max_in_flight = NonZeroUsize::new(2).unwrap();
    let (server, _) = start_with(Options { max_in_flight, ..options(1) }, gate.clone()).await;
    let client = client(&server).await;
    let call = || {
        let mut client = client.clone();
        tokio::spawn(async move { client.should_rate_limit(request(b"v")).await.map(drop) })
    };
    let within = [call(), call()];
    gate.wait_for(2).await;
    let error = call().await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.message()), (GrpcCode::Unavailable, "too many calls in flight"));
    assert_eq!((server.counts().shed(), server.counts().in_flight()), (1, 2));
    gate.open(3);
    for call in within {
        call.await.unwrap().unwrap();
    }
    call().await.unwrap().unwrap();
}

#[tokio::test]
async fn health_knows_two_names_and_pushes_changes() {
    let (server, health) = start(LetsThrough).await;
    let mut client = HealthClient::new(connect(&server).await);
    let ask = |name: &str| HealthCheckRequest { service: name.to_owned() };
    for (serving, status) in [(false, ServingStatus::NotServing), (true, ServingStatus::Serving)] {
        if serving {
            health.set_serving().await;
        }
        for name in ["", "ratelimit"] {
            assert_eq!(client.check(ask(name)).await.unwrap().into_inner().status(), status, "{name}");
        }
    }
    for name in ["rate-limit", "envoy.service.ratelimit.v3.RateLimitService"] {
        assert_eq!(client.check(ask(name)).await.unwrap_err().code(), GrpcCode::NotFound);
        let mut watch = client.watch(ask(name)).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
        let more = tokio::time::timeout(Duration::from_millis(20), watch.message()).await;
        assert!(more.is_err(), "the watch has ended: {more:?}");
    }
    let mut watch = client.watch(ask("ratelimit")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    health.set_not_serving().await;
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    let (server, _) = start(LetsThrough).await;
    let channel = connect(&server).await;
    macro_rules! services {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::{
                ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
            };
            let ask =
                |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
            let requests = stream::iter([
                ask(MessageRequest::ListServices(String::new())),
                ask(MessageRequest::FileContainingSymbol(
                    "envoy.service.ratelimit.v3.RateLimitRequest".to_owned(),
                )),
            ]);
            let mut client = ServerReflectionClient::new(channel.clone());
            let mut responses = client.server_reflection_info(requests).await.unwrap().into_inner();
            let listed = responses.message().await.unwrap().unwrap().message_response.unwrap();
            let MessageResponse::ListServicesResponse(list) = listed else { panic!("{listed:?}") };
            let found = responses.message().await.unwrap().unwrap().message_response.unwrap();
            assert!(matches!(found, MessageResponse::FileDescriptorResponse(_)), "{found:?}");
            list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
        }};
    }
    for services in [services!(v1), services!(v1alpha)] {
        for name in ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"] {
            assert!(services.iter().any(|service| service == name), "{name} in {services:?}");
        }
    }
}

#[tokio::test]
async fn a_drain_answers_every_call_in_flight() {
    let gate = Gate::closed();
    let (server, _) = start(gate.clone()).await;
    let clients = join_all((0..4).map(|_| client(&server))).await;
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let mut client = clients[n % 4].clone();
            tokio::spawn(async move { client.should_rate_limit(request(b"v")).await.map(drop) })
        })
        .collect();
    gate.wait_for(100).await;
    let address = server.address().clone();
    let drain = tokio::spawn(server.drain(LONG));
    // The port is closed while the calls are still running.
    let Address::Tcp(port) = address else { panic!("a port") };
    timeout(LONG, async { while tokio::net::TcpStream::connect(port).await.is_ok() {} }).await.unwrap();
    gate.open(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(drain.await.unwrap(), Drained { n_cut: 0 });
}

#[tokio::test]
async fn a_drain_cuts_at_its_deadline_what_does_not_end() {
    let gate = Gate::closed();
    let (server, _) = start(gate.clone()).await;
    let mut client = client(&server).await;
    let call = tokio::spawn(async move { client.should_rate_limit(request(b"v")).await.map(drop) });
    gate.wait_for(1).await;
    assert_eq!(server.drain(Duration::from_millis(1)).await, Drained { n_cut: 1 });
    call.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn an_open_watch_does_not_hold_the_drain_and_hears_of_it() {
    let (server, health) = start(LetsThrough).await;
    health.set_serving().await;
    let mut client = HealthClient::new(connect(&server).await);
    let request = HealthCheckRequest { service: "ratelimit".to_owned() };
    let mut watch = client.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    health.set_not_serving().await;
    let drained = timeout(LONG, server.drain(LONG * 60)).await.unwrap();
    assert_eq!(drained, Drained { n_cut: 0 });
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(watch.message().await.unwrap_err().code(), GrpcCode::Unavailable);
}

#[tokio::test]
async fn a_unix_socket_serves_over_a_file_that_a_crash_left() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("rl.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let health = Health::new().await;
    let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
    let server = Server::start(listener, options(1), &health, |_| LetsThrough).unwrap();
    let socket = path.clone();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://rl.sock");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    let response = RateLimitServiceClient::new(channel).should_rate_limit(request(b"v")).await.unwrap();
    assert_eq!(response.into_inner().statuses.len(), 1);
    server.drain(LONG).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn connections_are_spread_over_the_workers() {
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<Vec<usize>>>);
    struct Worker(usize, Counts);
    impl Decide for Worker {
        async fn decide(&self, _: &Request, _: Budget) -> Result<Answer, DecideError> {
            self.1.0.lock().unwrap().push(self.0);
            Ok(answer(1, smallvec![]))
        }
    }
    let (health, counts) = (Health::new().await, Counts::default());
    let listener = Listener::bind(&any_port()).unwrap();
    let seen = counts.clone();
    let server =
        Server::start(listener, options(3), &health, move |index| Worker(index, seen.clone())).unwrap();
    let clients = stream::iter(0..6).then(|_| client(&server)).collect::<Vec<_>>().await;
    for mut client in clients {
        client.should_rate_limit(request(b"v")).await.unwrap();
    }
    let mut workers = counts.0.lock().unwrap().clone();
    workers.sort_unstable();
    assert_eq!(workers, [0, 0, 1, 1, 2, 2]);
}
