//! In one runtime whose clock stands still, and jumps to the next timer when there is nothing else to do.

use std::{num::NonZeroUsize, os::unix::net::UnixStream as StdStream, sync::Arc};

use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    runtime::{Builder, LocalOptions},
    task::{JoinHandle, spawn_local},
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::*;
use crate::{
    decision::Answer,
    descriptor::Request,
    limiter::DecideError,
    rls::{
        budget::Budgets,
        constant::LetsThrough,
        counts::Counts,
        frames::{ACK, DATA, Frame, GO_AWAY, PING, RST_STREAM, SETTINGS, Script},
        serve::MAX_IN_FLIGHT,
    },
    store::Budget,
    telemetry::lines::Lines,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Never answers.
struct Hangs;

impl Decide for Hangs {
    async fn decide(&self, _: &Request, _: Budget) -> Result<Answer, DecideError> {
        std::future::pending().await
    }
}

fn dispatch<D: Decide>(decider: D, counts: &Counts) -> Dispatch<D> {
    Dispatch {
        decider,
        budgets: Budgets::default(),
        max_in_flight: NonZeroUsize::get(MAX_IN_FLIGHT),
        counts: Arc::clone(&counts.workers()[0]),
        tracer: None,
        routes: Routes::default(),
        askers: Arc::default(),
        drain: CancellationToken::new(),
    }
}

struct Running {
    counts: Counts,
    handovers: mpsc::Sender<Handover>,
    worker: JoinHandle<usize>,
}

impl Running {
    fn start(decider: impl Decide, ages: Ages) -> Self {
        Self::start_on(decider, Terms { tls: None, ages, max_greeting: 10 })
    }

    fn start_on(decider: impl Decide, terms: Terms) -> Self {
        let counts = Counts::of(1);
        let dispatch = dispatch(decider, &counts);
        let (sender, handovers) = mpsc::channel(1);
        Self { counts, handovers: sender, worker: spawn_local(Worker::new(dispatch, terms).run(handovers)) }
    }

    async fn connect(&self) -> UnixStream {
        let (ours, theirs) = StdStream::pair().unwrap();
        let open = Open::of(&self.counts.workers()[0]);
        self.handovers.send(Handover::Connection(Accepted::Unix(theirs), open)).await.unwrap();
        ours.set_nonblocking(true).unwrap();
        UnixStream::from_std(ours).unwrap()
    }

    /// How many connections were cut.
    async fn drain(self, within: Duration) -> usize {
        self.handovers.send(Handover::Drain { deadline: Instant::now() + within }).await.unwrap();
        self.worker.await.unwrap()
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build_local(LocalOptions::default()).unwrap().block_on(test);
}

/// Reads, and answers PINGs, until the server has closed the connection; what came and how long it took.
async fn read_to_end(mut connection: UnixStream) -> (Vec<Frame>, Duration) {
    let (begin, mut frames) = (Instant::now(), Vec::new());
    while let Some(frame) = Frame::read(&mut connection).await {
        if frame.kind == PING && frame.flags == 0 {
            let pong = Script::default().frame(PING, ACK, 0, &frame.payload);
            let _ = connection.write_all(pong.bytes()).await;
        } else {
            frames.push(frame);
        }
    }
    (frames, begin.elapsed())
}

/// Until there is nothing else to do: only then does the clock jump.
async fn idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn has(frames: &[Frame], kind: u8) -> bool {
    frames.iter().any(|frame| frame.kind == kind)
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    run(async {
        let worker = Running::start(LetsThrough, Ages::default());
        let (frames, age) = read_to_end(worker.connect().await).await;
        assert!(frames.iter().all(|frame| frame.kind == SETTINGS), "{frames:?}");
        assert!(age <= GREETING_TIMEOUT + 2 * SWEEP_INTERVAL, "{age:?}");
    });
}

#[test]
fn a_handshake_that_is_not_finished_is_closed() {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let files = tls::Files {
        certificate: dir.path().join("tls.crt"),
        key: dir.path().join("tls.key"),
        clients: None,
    };
    std::fs::write(&files.certificate, pair.cert.pem()).unwrap();
    std::fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
    let tls = Some(tls::Reloader::load(files).unwrap().tls());
    run(async {
        let terms = Terms { tls, ages: Ages::default(), max_greeting: 10 };
        let worker = Running::start_on(LetsThrough, terms);
        let mut connection = worker.connect().await;
        connection.write_all(b"\x16\x03\x01\x02\x00").await.unwrap();
        let (frames, age) = read_to_end(connection).await;
        assert_eq!((frames, worker.counts.connections()), (vec![], 0));
        assert!(age <= GREETING_TIMEOUT + 2 * SWEEP_INTERVAL, "{age:?}");
    });
}

#[test]
fn a_connection_that_says_nothing_gives_way_when_enough_have_come_after_it() {
    run(async {
        let terms = Terms { tls: None, ages: Ages::default(), max_greeting: 2 };
        let worker = Running::start_on(LetsThrough, terms);
        let mut greeted = worker.connect().await;
        greeted.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        let silent = worker.connect().await;
        idle().await;
        let _later = [worker.connect().await, worker.connect().await];
        let (_, age) = read_to_end(silent).await;
        assert!(age < GREETING_TIMEOUT / 2, "{age:?}");
        assert_eq!(worker.counts.connections(), 3);
        greeted.write_all(Script::default().call(3).bytes()).await.unwrap();
        while Frame::read(&mut greeted).await.unwrap().stream != 3 {}
    });
}

/// Of a wrong name, a wrong authority and plaintext in one minute, only the first was told.
#[test]
fn one_reason_of_refused_handshakes_does_not_hide_another() {
    run(async {
        let lines = Lines::default();
        let _watching = lines.clone().watch();
        let counts = Counts::of(1);
        let terms = Terms { tls: None, ages: Ages::default(), max_greeting: 10 };
        let mut worker = Worker::new(dispatch(LetsThrough, &counts), terms);
        for error in [
            rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForName),
            rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer),
            rustls::Error::InvalidCertificate(rustls::CertificateError::InvalidPurpose),
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
            rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer),
        ] {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            worker.report(&Broken::Handshake { peer: None, source });
        }
        let told = lines.get();
        let count = |what: &str| told.iter().filter(|line| line.contains(what)).count();
        for what in
            ["GRPC_CLIENT_TLS_SAN", "GRPC_CLIENT_TLS_CACERT", "is not for clients", "does not speak TLS"]
        {
            assert_eq!(count(what), 1, "{what}: {told:#?}");
        }
    });
}

#[test]
fn a_connection_that_says_nothing_holds_the_drain_for_a_moment_only() {
    run(async {
        let worker = Running::start(LetsThrough, Ages::default());
        let _silent = worker.connect().await;
        let begin = Instant::now();
        worker.drain(HOUR).await;
        assert!(begin.elapsed() <= DRAIN_GREETING_TIMEOUT + 2 * SWEEP_INTERVAL, "{:?}", begin.elapsed());
    });
}

#[test]
fn a_connection_is_ended_at_its_age() {
    run(async {
        let ages = Ages { most: Some(HOUR), grace: Some(HOUR) };
        let worker = Running::start(LetsThrough, ages);
        let mut connection = worker.connect().await;
        connection.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        let (frames, age) = read_to_end(connection).await;
        assert!(has(&frames, DATA) && has(&frames, GO_AWAY), "{frames:?}");
        assert!((HOUR / 10 * 9..HOUR / 10 * 11 + 2 * SWEEP_INTERVAL).contains(&age), "{age:?}");
    });
}

#[test]
fn a_call_that_outlives_the_age_has_the_grace() {
    run(async {
        let ages = Ages { most: Some(HOUR), grace: Some(2 * HOUR) };
        let worker = Running::start(Hangs, ages);
        let mut connection = worker.connect().await;
        connection.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        let (frames, age) = read_to_end(connection).await;
        assert!(has(&frames, GO_AWAY) && !has(&frames, DATA), "{frames:?}");
        assert!(age > HOUR / 10 * 29 && age < HOUR / 10 * 31 + 3 * SWEEP_INTERVAL, "{age:?}");
    });
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    run(async {
        let worker = Running::start(LetsThrough, Ages::default());
        let mut connection = worker.connect().await;
        connection.write_all(Script::greeting().bytes()).await.unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = Frame::read(&mut connection).await {
            frames.push(frame);
        }
        assert!(has(&frames, PING), "{frames:?}");
    });
}

#[test]
fn calls_above_the_bound_of_a_connection_are_refused_unprocessed() {
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    run(async {
        let worker = Running::start(Hangs, Ages::default());
        let mut connection = worker.connect().await;
        let script = (0..1025).fold(Script::greeting(), |script, n| script.call(2 * n + 1));
        connection.write_all(script.bytes()).await.unwrap();
        let refused = loop {
            let frame = Frame::read(&mut connection).await.unwrap();
            if frame.kind == RST_STREAM {
                break frame;
            }
        };
        assert_eq!((refused.stream, &*refused.payload), (2049, &REFUSED_STREAM[..]));
        assert_eq!(worker.counts.in_flight(), 1024);
    });
}

#[test]
fn a_call_that_is_taken_back_is_dropped() {
    run(async {
        let worker = Running::start(Hangs, Ages::default());
        let mut connection = worker.connect().await;
        connection.write_all(Script::greeting().call(1).call(3).bytes()).await.unwrap();
        idle().await;
        assert_eq!(worker.counts.in_flight(), 2);
        connection.write_all(Script::default().reset(1).bytes()).await.unwrap();
        idle().await;
        assert_eq!((worker.counts.in_flight(), worker.counts.connections()), (1, 1));
        drop(connection);
        idle().await;
        assert_eq!((worker.counts.in_flight(), worker.counts.connections()), (0, 0));
    });
}

/// It answers no PING, so the last GOAWAY is never sent. It held the whole drain, and counted as a call that was cut off.
#[test]
fn a_frozen_peer_without_a_call_holds_the_drain_for_a_moment_only() {
    run(async {
        let worker = Running::start(LetsThrough, Ages::default());
        let mut new = worker.connect().await;
        new.write_all(Script::greeting().bytes()).await.unwrap();
        let mut answered = worker.connect().await;
        answered.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        while Frame::read(&mut answered).await.unwrap().kind != DATA {}
        idle().await;
        let begin = Instant::now();
        assert_eq!(worker.drain(HOUR).await, 0);
        assert!(begin.elapsed() <= DRAIN_IDLE_TIMEOUT + 2 * SWEEP_INTERVAL, "{:?}", begin.elapsed());
    });
}

#[test]
fn a_frozen_peer_without_a_call_is_none_that_was_cut_off() {
    run(async {
        let worker = Running::start(Hangs, Ages::default());
        let (mut frozen, mut calling) = (worker.connect().await, worker.connect().await);
        frozen.write_all(Script::greeting().bytes()).await.unwrap();
        calling.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        idle().await;
        assert_eq!(worker.drain(DRAIN_IDLE_TIMEOUT / 10).await, 1);
    });
}

#[test]
fn the_drain_waits_for_calls_until_its_deadline() {
    run(async {
        let worker = Running::start(Hangs, Ages::default());
        let mut connection = worker.connect().await;
        connection.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        let reader = spawn_local(read_to_end(connection));
        idle().await;
        assert_eq!(worker.counts.in_flight(), 1);
        let (counts, begin) = (worker.counts.clone(), Instant::now());
        assert_eq!(worker.drain(HOUR).await, 1);
        assert_eq!(begin.elapsed(), HOUR);
        assert_eq!((counts.in_flight(), counts.connections()), (0, 0));
        assert!(has(&reader.await.unwrap().0, GO_AWAY));
    });
}

#[test]
fn ages_differ_by_at_most_a_tenth() {
    let ages: Vec<_> = (0..201).map(|random| jittered(HOUR, random)).collect();
    assert_eq!(ages.iter().min(), Some(&(HOUR / 10 * 9)));
    assert_eq!(ages.iter().max(), Some(&(HOUR / 10 * 11)));
    assert_eq!(jittered(HOUR, u64::MAX), jittered(HOUR, u64::MAX % 201));
}
