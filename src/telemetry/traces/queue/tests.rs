use std::{future::pending, sync::Mutex};

use opentelemetry::{
    InstrumentationScope,
    trace::{SpanContext, SpanId, SpanKind, Status},
};
use opentelemetry_sdk::error::OTelSdkResult;
use tokio::sync::Notify;

use super::*;

/// A collector: how many spans each batch has had, and what it does with them.
#[derive(Debug, Default)]
struct Collector {
    batches: Mutex<Vec<usize>>,
    does: Mutex<Does>,
    has_one: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
enum Does {
    #[default]
    Takes,
    Fails,
    Hangs,
}

#[derive(Clone, Debug)]
struct Exporter(Arc<Collector>);

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.batches.lock().unwrap().push(batch.len());
        self.0.has_one.notify_one();
        let does = *self.0.does.lock().unwrap();
        match does {
            Does::Takes => Ok(()),
            Does::Fails => Err(OTelSdkError::InternalFailure("nobody is there".to_owned())),
            Does::Hangs => pending().await,
        }
    }
}

impl Collector {
    fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }
}

const OPTIONS: Options =
    Options { size: 4, batch: 3, delay: Duration::from_secs(5), timeout: Duration::from_secs(30) };

struct Setup {
    collector: Arc<Collector>,
    metrics: Arc<Metrics>,
    queue: Queue,
    sending: Sending,
}

fn setup() -> Setup {
    let (collector, metrics) = (Arc::new(Collector::default()), Arc::new(Metrics::default()));
    let (queue, sending) = start(Exporter(Arc::clone(&collector)), OPTIONS, "there", Arc::clone(&metrics));
    Setup { collector, metrics, queue, sending }
}

impl Setup {
    fn push(&self, n: usize) {
        (0..n).for_each(|_| self.queue.push(span()));
    }

    /// Spans sent and dropped.
    fn counted(&self) -> (u64, u64) {
        (self.metrics.n_spans(SpanOutcome::Sent), self.metrics.n_spans(SpanOutcome::Dropped))
    }
}

fn span() -> SpanData {
    let epoch = std::time::UNIX_EPOCH;
    SpanData {
        span_context: SpanContext::empty_context(),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Server,
        name: "".into(),
        start_time: epoch,
        end_time: epoch,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_goes_at_once_and_the_rest_after_the_delay() {
    let setup = setup();
    let began = Instant::now();
    setup.push(4);
    setup.collector.has_one.notified().await;
    assert_eq!((setup.collector.batches(), began.elapsed()), (vec![3], Duration::ZERO));
    setup.collector.has_one.notified().await;
    assert_eq!(setup.collector.batches(), [3, 1]);
    assert!(began.elapsed() >= OPTIONS.delay, "{:?}", began.elapsed());
    tokio::task::yield_now().await;
    assert_eq!(setup.counted(), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_dropped_and_counted_and_nobody_waits() {
    let setup = setup();
    setup.collector.does(Does::Hangs);
    setup.push(3);
    setup.collector.has_one.notified().await;
    setup.push(10);
    assert_eq!(setup.counted(), (0, 6), "four wait, three are on their way");
}

#[tokio::test(start_paused = true)]
async fn the_end_sends_what_waits() {
    let setup = setup();
    setup.push(4);
    let (collector, metrics) = (Arc::clone(&setup.collector), Arc::clone(&setup.metrics));
    let began = Instant::now();
    setup.sending.flush().await;
    assert_eq!(collector.batches(), [3, 1]);
    assert_eq!((metrics.n_spans(SpanOutcome::Sent), began.elapsed()), (4, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_end_is_bounded() {
    let setup = setup();
    setup.collector.does(Does::Hangs);
    setup.push(4);
    let metrics = Arc::clone(&setup.metrics);
    let began = Instant::now();
    setup.sending.flush().await;
    assert!(began.elapsed() < FLUSH + Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(metrics.n_spans(SpanOutcome::Dropped), 4);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_is_told_of_once_and_once_when_it_is_back() {
    let lines = Lines::default();
    let _guard = lines.clone().watch();
    let setup = setup();
    setup.collector.does(Does::Fails);
    for _ in 0..3 {
        setup.push(3);
        setup.collector.has_one.notified().await;
        tokio::task::yield_now().await;
    }
    assert_eq!((lines.get().len(), setup.counted()), (1, (0, 9)), "{:?}", lines.get());
    assert!(lines.get()[0].contains("cannot send traces to there"), "{:?}", lines.get());
    setup.collector.does(Does::Takes);
    for _ in 0..2 {
        setup.push(3);
        setup.collector.has_one.notified().await;
        tokio::task::yield_now().await;
    }
    assert_eq!((lines.get().len(), setup.counted()), (2, (6, 9)), "{:?}", lines.get());
    assert!(lines.get()[1].contains("sent to there again"), "{:?}", lines.get());
}

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn watch(self) -> tracing::subscriber::DefaultGuard {
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || self.clone()).with_ansi(false).finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn get(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
