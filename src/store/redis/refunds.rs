//! What is to be given back after an answer went out: a bounded queue for each worker, and the task that works it off.
//!
//! **Invariant:** never waits on the request path; what does not fit or does not arrive is counted.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{Inner, script::Together, shared::Shared};
use crate::{
    clock::UnixMicros,
    key::CounterKey,
    limit::{Algorithm, Cost, Limit},
    store::{Budget, Charge},
};

/// Refunds that may wait: a second's worth of refusals at a rate that one worker hardly reaches.
const QUEUE: usize = 4096;

/// Refunds that are sent together.
const BATCH: usize = 32;

/// A batch may take so long.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Refund {
    key: CounterKey,
    limit: Limit,
    cost: Cost,
    /// When it was charged, by the process's clock.
    charged_at: UnixMicros,
}

#[derive(Debug)]
pub(super) struct Refunds {
    queue: mpsc::Sender<Refund>,
    closing: CancellationToken,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Refunds {
    fn drop(&mut self) {
        self.worker.get_mut().as_ref().inspect(|worker| worker.abort());
    }
}

impl Refunds {
    pub fn start(inner: Arc<Inner>) -> Self {
        let (queue, refunds) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let worker = tokio::spawn(work(inner, refunds, closing.clone()));
        Self { queue, closing, worker: Mutex::new(Some(worker)) }
    }

    /// Takes no more from now on, and waits until what was queued is worked off; at most `within`.
    pub async fn close(&self, within: Duration) {
        self.closing.cancel();
        let worker = self.worker.lock().take();
        if let Some(mut worker) = worker
            && tokio::time::timeout(within, &mut worker).await.is_err()
        {
            worker.abort();
        }
    }

    /// Gives back what `charge` took at `charged_at`; a look or a refund took nothing.
    pub fn push(&self, shared: &Shared, charge: &Charge<'_>, charged_at: UnixMicros) {
        let Cost::Charge(hits) = charge.cost else { return };
        let refund =
            Refund { key: charge.key.clone(), limit: *charge.limit, cost: Cost::refund(hits), charged_at };
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.queue.try_send(refund) {
            shared.refunds_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn work(inner: Arc<Inner>, mut queue: mpsc::Receiver<Refund>, closing: CancellationToken) {
    let mut refunds = Vec::with_capacity(BATCH);
    loop {
        let n_taken = tokio::select! {
            biased;
            n_taken = queue.recv_many(&mut refunds, BATCH) => n_taken,
            () = closing.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        if n_taken == 0 {
            return;
        }
        let now = inner.shared.clock.now();
        let charges: Vec<Charge<'_>> = refunds
            .iter()
            .filter(|refund| still_counts(refund, now))
            .map(|refund| Charge {
                key: &refund.key,
                limit: &refund.limit,
                cost: refund.cost,
                max_wait: Duration::MAX,
            })
            .collect();
        let request = inner.request(&charges, &[], Together::No, now);
        let outcomes = inner.run(request, Budget::of(PATIENCE)).await;
        let n_sent = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        inner.shared.refunds_sent.fetch_add(n_sent as u64, Ordering::Relaxed);
        inner.shared.refunds_dropped.fetch_add((outcomes.len() - n_sent) as u64, Ordering::Relaxed);
        refunds.clear();
    }
}

/// A fixed window that is over took its hits with it.
fn still_counts(refund: &Refund, now: UnixMicros) -> bool {
    let window = |moment: UnixMicros| moment.get() / refund.limit.window.micros();
    refund.limit.algorithm != Algorithm::FixedWindow || window(refund.charged_at) == window(now)
}
