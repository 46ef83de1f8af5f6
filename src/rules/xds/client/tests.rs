//! Conversations on a clock that jumps from timer to timer.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;
use crate::{
    rules::{
        LoadOptions,
        xds::{Jitter, tests::nowhere},
    },
    telemetry::lines::Lines,
};

const SECOND: Duration = Duration::from_secs(1);

/// Far more than is said in any of these.
const ROOM: usize = 64;

struct Talk {
    to: UnboundedSender<Result<DiscoveryResponse, Status>>,
    said: mpsc::Receiver<DiscoveryRequest>,
    stats: Arc<Stats>,
    began: Instant,
    n_sent: usize,
}

impl Talk {
    /// Begins one whose client has room for so many answers that nobody has taken.
    fn begin(room: usize) -> Self {
        let stats = Arc::<Stats>::default();
        let (keep, looked) = (watch::Sender::default(), watch::Sender::default());
        let loader = Loader::new(LoadOptions::default());
        let listener: Listener = Arc::new(|_| {});
        let mut client =
            Client::new(nowhere(Jitter::None), loader, None, listener, Arc::clone(&stats), keep, looked);
        let ((to, mut responses), (outbox, said)) = (unbounded_channel(), mpsc::channel(room));
        tokio::spawn(async move {
            let responses = stream::poll_fn(move |context| responses.poll_recv(context));
            client.converse(pin!(responses), &outbox).await
        });
        Self { to, said, stats, began: Instant::now(), n_sent: 0 }
    }

    /// Sends rules that are refused; the nonce is its number, from 1.
    fn send_bad(&mut self) {
        let garbage = Any { type_url: TYPE_URL.to_owned(), value: vec![0xff; 9] };
        self.send(TYPE_URL, vec![garbage]);
    }

    fn send(&mut self, type_url: &str, resources: Vec<Any>) {
        self.n_sent += 1;
        let response = DiscoveryResponse {
            version_info: "bad".to_owned(),
            resources,
            type_url: type_url.to_owned(),
            nonce: self.n_sent.to_string(),
        };
        self.to.send(Ok(response)).unwrap();
    }

    /// The next answer: when, in seconds since the beginning, rounded, to what, and whether it is a refusal.
    async fn next(&mut self) -> (u64, String, bool) {
        let request = self.said.recv().await.unwrap();
        let after = (self.began.elapsed() + SECOND / 2).as_secs();
        (after, request.response_nonce, request.error_detail.is_some())
    }

    /// Waits until so many responses were looked at.
    async fn was_told(&self, n_responses: u64) {
        let updates = || [Update::Refused, Update::Repeated].map(|update| self.stats.updates(update));
        while updates().iter().sum::<u64>() < n_responses {
            tokio::task::yield_now().await;
        }
    }
}

/// Each repeat began the pause anew, and doubled it: the second refusal never came.
#[tokio::test(start_paused = true)]
async fn a_refused_snapshot_that_is_sent_faster_than_it_is_answered_is_answered_all_the_same() {
    let mut talk = Talk::begin(ROOM);
    assert_eq!(talk.next().await, (0, String::new(), false));
    let mut refusals = Vec::new();
    for _ in 0..25 {
        talk.send_bad();
        let until = Instant::now() + 7 * SECOND / 10;
        while let Ok(refusal) = tokio::time::timeout_at(until, talk.next()).await {
            assert_eq!(refusal.1, talk.n_sent.to_string(), "it is the latest that is answered");
            assert!(refusal.2);
            refusals.push(refusal.0);
        }
    }
    // At once, then a pause of 1, 2, 4 and 8 s from the first repeat after each.
    assert_eq!(refusals, [0, 2, 4, 8, 16]);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_refused_snapshots_is_answered_at_once_and_then_after_the_first_pause() {
    let mut talk = Talk::begin(ROOM);
    talk.next().await;
    (0..300).for_each(|_| talk.send_bad());
    let (after, nonce, is_refusal) = talk.next().await;
    assert!(after == 0 && is_refusal, "{after} s");
    if nonce != "300" {
        assert_eq!(talk.next().await, (1, "300".to_owned(), true));
    }
    assert!(tokio::time::timeout(60 * SECOND, talk.next()).await.is_err(), "all were answered");
}

#[tokio::test(start_paused = true)]
async fn who_reads_no_answers_is_answered_the_latest_once_it_does() {
    let mut talk = Talk::begin(1);
    let bad = |n: u8| vec![Any { type_url: TYPE_URL.to_owned(), value: vec![0xff; usize::from(n)] }];
    (1..=50).for_each(|n| talk.send(TYPE_URL, bad(n)));
    talk.was_told(50).await;
    assert_eq!(talk.next().await, (0, String::new(), false));
    assert_eq!(talk.next().await, (0, "50".to_owned(), true));
}

/// Each was a line in the log.
#[tokio::test(start_paused = true)]
async fn responses_of_another_type_are_told_of_once_a_minute() {
    let lines = Lines::default();
    let _watching = lines.clone().watch();
    let mut talk = Talk::begin(ROOM);
    for n_lines in 1..=2 {
        (0..300).for_each(|_| talk.send("some.Other", Vec::new()));
        let nothing_to_say =
            tokio::time::timeout(70 * SECOND, async { while talk.next().await.1.is_empty() {} });
        assert!(nothing_to_say.await.is_err());
        let told: Vec<_> = lines.get().into_iter().filter(|line| line.contains("some.Other")).collect();
        assert_eq!(told.len(), n_lines, "{told:#?}");
        assert!(n_lines == 1 || told[1].contains("suppressed=299"), "{told:#?}");
    }
}
