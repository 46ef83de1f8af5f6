//! Finished spans on their way to the collector: a bounded queue, batches, one task on the background runtime.
//!
//! **Invariant:** whoever puts a span in never waits; at most the queue and one batch are held, and what does not fit or
//! cannot be sent is dropped and counted. A collector that is away is told of once, and once when it is back.

use std::{pin::pin, sync::Arc, time::Duration};

use opentelemetry_sdk::{
    error::OTelSdkError,
    trace::{SpanData, SpanExporter},
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    settings::Queue as Options,
    telemetry::metrics::{Metrics, SpanOutcome},
};

/// What is still queued when the process ends may take so long to be sent: as long as in the reference.
const FLUSH: Duration = Duration::from_secs(5);

/// Where finished spans go.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    metrics: Arc<Metrics>,
}

impl Queue {
    pub fn push(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.metrics.spans(SpanOutcome::Dropped, 1);
        }
    }
}

/// The task that sends.
#[derive(Debug)]
pub struct Sending {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Sending {
    /// Sends what is queued, and ends. Bound: five seconds.
    pub async fn flush(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("the task that sends traces panicked; this is a bug");
        }
    }
}

pub(super) fn start<E: SpanExporter + 'static>(
    exporter: E,
    options: Options,
    endpoint: &str,
    metrics: Arc<Metrics>,
) -> (Queue, Sending) {
    let (spans, queued) = mpsc::channel(options.size);
    let stop = CancellationToken::new();
    let sender = Sender {
        exporter,
        options,
        queued,
        metrics: Arc::clone(&metrics),
        endpoint: endpoint.to_owned(),
        is_away: false,
    };
    let task = tokio::spawn(sender.run(stop.clone()));
    (Queue { spans, metrics }, Sending { stop, task })
}

struct Sender<E> {
    exporter: E,
    options: Options,
    queued: mpsc::Receiver<SpanData>,
    metrics: Arc<Metrics>,
    endpoint: String,
    is_away: bool,
}

impl<E: SpanExporter> Sender<E> {
    /// Until it is told to stop, and then until all is sent or [`FLUSH`] is over.
    async fn run(mut self, stop: CancellationToken) {
        let mut too_late = pin!({
            let stop = stop.clone();
            async move {
                stop.cancelled_owned().await;
                sleep(FLUSH).await;
            }
        });
        loop {
            let batch = self.gather(&stop).await;
            if batch.is_empty() {
                return;
            }
            let n = batch.len();
            tokio::select! {
                () = self.send(batch) => {}
                () = &mut too_late => {
                    let n = n + self.queued.len();
                    self.metrics.spans(SpanOutcome::Dropped, n);
                    tracing::warn!(spans = n, "the last spans could not be sent in time");
                    return;
                }
            }
        }
    }

    /// The next batch; empty when all is sent and nothing more is to come.
    async fn gather(&mut self, stop: &CancellationToken) -> Vec<SpanData> {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < self.options.batch {
            let next = async {
                match until {
                    None => self.queued.recv().await,
                    Some(until) => timeout_at(until, self.queued.recv()).await.ok().flatten(),
                }
            };
            let span = tokio::select! {
                biased;
                () = stop.cancelled() => self.queued.try_recv().ok(),
                span = next => span,
            };
            let Some(span) = span else { break };
            batch.push(span);
            until.get_or_insert_with(|| Instant::now() + self.options.delay);
        }
        batch
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let n = batch.len();
        let sent = timeout(self.options.timeout, self.exporter.export(batch)).await;
        match sent.unwrap_or(Err(OTelSdkError::Timeout(self.options.timeout))) {
            Ok(()) => {
                self.metrics.spans(SpanOutcome::Sent, n);
                if std::mem::take(&mut self.is_away) {
                    tracing::warn!("traces are sent to {} again", self.endpoint);
                }
            }
            Err(error) => {
                self.metrics.spans(SpanOutcome::Dropped, n);
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(
                        "cannot send traces to {}, they are dropped until it takes them again: {error}",
                        self.endpoint
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
