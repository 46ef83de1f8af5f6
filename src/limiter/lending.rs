//! Leases in front of the store: charges that they pay are not sent, and what a worker notices to be short is asked for behind
//! the requests' back, by a task of the worker's own, which also gives back what was not spent.
//!
//! Requests that are all-or-nothing are not paid out of leases: that none of a refused request's hits ever counts is what the
//! store's one step gives them, and a lease that was spent and put back in between would not be.
//!
//! **Invariant:** never waits on the request path. Nothing is given back twice: what may have been given back is not tried again.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{Due, Shared, front::Front};
use crate::{
    clock::{Tick, UnixMicros},
    limit::{Algorithm, Charged, Cost, Hits, Limit},
    local::{
        Knowledge, Known, RefusedHits,
        lease::{Ask, Grant, Leases, Return},
    },
    rules::Leasing,
    store::{Budget, Charge, Outcomes, Store, WindowNow, pair::Pair},
};

/// Questions of a worker that may wait: more keys than are leased as a rule. One that does not fit is asked a moment later.
const QUEUE: usize = 256;

/// Questions, or hits to give back, that are under way at once.
const BATCH: usize = 64;

/// What giving back may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// A worker's task that asks for leases and ends them.
#[derive(Debug)]
pub(super) struct Lender {
    asks: mpsc::Sender<Ask>,
    closing: CancellationToken,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.worker.get_mut().as_ref().inspect(|worker| worker.abort());
    }
}

impl Lender {
    /// Starts the task on this worker's runtime; `None` where nothing is leased.
    pub fn start(shared: &Arc<Shared>, store: &Arc<Store>) -> Option<Self> {
        let (Store::Redis(_), Some(_)) = (&**store, shared.local.leases()) else { return None };
        let (asks, queue) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let work = work(Arc::clone(shared), Arc::clone(store), queue, closing.clone());
        Some(Self { asks, closing, worker: Mutex::new(Some(tokio::spawn(work))) })
    }

    /// Asks for nothing any more and gives back all that this node holds; at most `within`.
    pub async fn close(&self, within: Duration) {
        self.closing.cancel();
        let worker = self.worker.lock().take();
        if let Some(mut worker) = worker
            && tokio::time::timeout(within, &mut worker).await.is_err()
        {
            worker.abort();
        }
    }

    /// Has the task ask for hits of this key.
    fn ask(&self, leases: &Leases, charge: &Charge<'_>, now: Tick) {
        let ask = Ask { key: charge.key.clone(), limit: *charge.limit };
        if let Err(refused) = self.asks.try_send(ask) {
            leases.not_granted(&refused.into_inner(), now);
        }
    }
}

/// Pays what leases can pay, and notes it in what is known.
pub(super) fn spend(front: Front<'_>, charges: &[Charge<'_>], known: &mut Knowledge) {
    let Some((lender, leases)) = in_front_of(front) else { return };
    if leases.is_empty() {
        return;
    }
    let now = front.limiter.shared.clock.tick();
    for (place, charge) in charges.iter().enumerate() {
        if !is_leasable(front.due.get(place), charge) || matches!(known.get(place), Some(Known::Refused(_))) {
            continue;
        }
        match charge.cost {
            Cost::Charge(hits) => {
                let Some((charged, is_low)) = leases.spend(charge.key, charge.limit, hits, now) else {
                    continue;
                };
                if known.len() <= place {
                    known.resize(place + 1, Known::Nothing);
                }
                if let Some(known) = known.get_mut(place) {
                    *known = Known::Leased(charged);
                }
                if is_low {
                    lender.ask(leases, charge, now);
                }
            }
            Cost::Refund(_) => leases.stop(charge.key, charge.limit, now),
            Cost::Peek => {}
        }
    }
}

/// Sees what the store said together with what is held here, and has leases begun for keys that are hot. `places`: of these
/// charges in the request, if they are not all of it.
pub(super) fn heard(
    front: Front<'_>,
    charges: &[Charge<'_>],
    places: Option<&[usize]>,
    outcomes: &mut Outcomes,
    refused: RefusedHits,
) {
    let Some((lender, leases)) = in_front_of(front) else { return };
    let clock = &front.limiter.shared.clock;
    for (nth, (charge, outcome)) in charges.iter().zip(outcomes).enumerate() {
        let place = places.map_or(Some(nth), |places| places.get(nth).copied());
        let due = place.and_then(|place| front.due.get(place));
        let (true, Ok(charged)) = (is_leasable(due, charge), outcome) else { continue };
        let is_charged = charged.admitted && matches!(charge.cost, Cost::Charge(_));
        let is_each_for_itself = refused == RefusedHits::Counted;
        let is_counted = is_each_for_itself && charge.limit.algorithm == Algorithm::FixedWindow;
        let now = (front.now, clock.tick());
        if let Some((seen, is_low)) = leases.heard(charge, *charged, is_counted, now) {
            *charged = seen;
            if is_low && is_each_for_itself {
                lender.ask(leases, charge, now.1);
            }
        } else if is_charged
            && is_each_for_itself
            && is_hot(front, charge)
            && leases.open(charge.key, charge.limit)
        {
            lender.ask(leases, charge, now.1);
        }
    }
}

fn in_front_of(front: Front<'_>) -> Option<(&Lender, &Leases)> {
    Some((front.limiter.lender.as_ref()?, front.limiter.shared.local.leases()?))
}

fn is_leasable(due: Option<&Due<'_>>, charge: &Charge<'_>) -> bool {
    let leasing = due.and_then(|due| due.rule).map_or(Leasing::Auto, |rule| rule.lease);
    match charge.limit.algorithm {
        Algorithm::FixedWindow => leasing != Leasing::Off,
        Algorithm::SlidingWindow | Algorithm::TokenBucket { .. } => leasing == Leasing::On,
        Algorithm::SlidingLog | Algorithm::LeakyBucket { .. } => false,
    }
}

fn is_hot(front: Front<'_>, charge: &Charge<'_>) -> bool {
    let sketch = front.limiter.sketch.as_deref();
    sketch.is_some_and(|sketch| front.limiter.shared.local.is_hot(charge.key.id(), sketch, front.now))
}

async fn work(
    shared: Arc<Shared>,
    store: Arc<Store>,
    mut queue: mpsc::Receiver<Ask>,
    closing: CancellationToken,
) {
    let (Store::Redis(pair), Some(leases)) = (&*store, shared.local.leases()) else { return };
    let mut asks = Vec::with_capacity(BATCH);
    let mut sweep = interval(leases.options().sweep_every());
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            n_taken = queue.recv_many(&mut asks, BATCH) => {
                if n_taken == 0 {
                    break;
                }
                let returns = join_all(asks.drain(..).map(|ask| grant(&shared, leases, pair, ask))).await;
                give_back(&shared, leases, pair, returns.into_iter().flatten().collect()).await;
            }
            _ = sweep.tick(), if !leases.is_empty() => {
                give_back(&shared, leases, pair, leases.sweep(shared.clock.tick())).await;
            }
            () = closing.cancelled(), if !queue.is_closed() => queue.close(),
        }
    }
    give_back(&shared, leases, pair, leases.close(shared.clock.tick())).await;
}

/// Asks for as much as the key's rate makes of it.
async fn grant(shared: &Shared, leases: &Leases, pair: &Pair, ask: Ask) -> Option<Return> {
    let (now, asked) = (shared.clock.now(), shared.clock.tick());
    // The first is slow to see a change, the second knows nothing before the first grant.
    let long = shared.local.rate(ask.key.id(), now).hits_per_second;
    let latest = leases.rate(&ask, asked).unwrap_or(long);
    if !leases.options().is_hot(long.max(latest)) {
        leases.not_granted(&ask, asked);
        return None;
    }
    let wanted = match ask.limit.algorithm {
        Algorithm::FixedWindow => leases.options().wanted(latest),
        // What is more than may be lent is not lent in part.
        _ => leases.options().wanted(latest).min(leases.most_lent(&ask)?),
    };
    if wanted == Hits::ZERO {
        leases.not_granted(&ask, asked);
        return None;
    }
    let store = pair.of(&ask.limit);
    let window = store.window(&ask.key, &ask.limit, now);
    let charge =
        Charge { key: &ask.key, limit: &ask.limit, cost: Cost::charge(wanted), max_wait: Duration::MAX };
    let answer = store.lend(&charge, window.number, now, Budget::of(leases.options().ttl)).await;
    let back = shared.clock.tick();
    let Ok(charged) = answer else {
        leases.not_granted(&ask, back);
        return None;
    };
    let WindowNow { number, ends_after, uncertainty } = debited_in(&ask.limit, window, &charged);
    let grant = Grant {
        window: number,
        window_ends: asked.after(ends_after),
        window_ends_at: now.after(ends_after),
        spent_until: leases.options().spent_within(asked, back, ends_after, uncertainty),
        granted: charged.used_after.minus(charged.used_before),
        counted: charged.used_after,
    };
    leases.granted(&ask, grant, back)
}

/// The window that hits were debited in, as asked for or as the answer shows, and when that ends.
fn debited_in(limit: &Limit, asked: WindowNow, charged: &Charged) -> WindowNow {
    match limit.algorithm {
        Algorithm::TokenBucket { .. } => {
            WindowNow { number: 0, ends_after: Duration::MAX, uncertainty: Duration::ZERO }
        }
        // By the server's clock when it was debited, which was not before it was asked for; hits are forgotten a window later.
        Algorithm::SlidingWindow if charged.used_after > charged.used_before => {
            let length = Duration::from_micros(limit.window.micros());
            let ends_after = charged.reset_after.saturating_sub(length);
            // Both are of moments that are close together: what they differ by is nearly a number of windows.
            let later = |one: Duration, other: Duration| one.saturating_sub(other) > length / 2;
            let number = match () {
                () if later(ends_after, asked.ends_after) => asked.number + 1,
                () if later(asked.ends_after, ends_after) => asked.number.saturating_sub(1),
                () => asked.number,
            };
            WindowNow { number, ends_after, uncertainty: Duration::ZERO }
        }
        _ => asked,
    }
}

/// Gives back what its window still counts.
async fn give_back(shared: &Shared, leases: &Leases, pair: &Pair, returns: Vec<Return>) {
    let (past, due): (Vec<_>, Vec<_>) = returns.into_iter().partition(|one| one.leftover.is_past);
    past.iter().for_each(|one| leases.gave_back(one.leftover.held, false));
    let now = shared.clock.now();
    for batch in due.chunks(BATCH) {
        join_all(batch.iter().map(|one| give_back_one(leases, pair, one, now))).await;
    }
}

async fn give_back_one(leases: &Leases, pair: &Pair, one: &Return, now: UnixMicros) {
    let Return { key, limit, leftover } = one;
    let cost = Cost::refund(leftover.held.plus(leftover.owed));
    let charge = Charge { key, limit, cost, max_wait: Duration::MAX };
    let answer = pair.of(limit).return_to(&charge, leftover.window, now, Budget::of(PATIENCE)).await;
    leases.gave_back(leftover.held, answer.is_ok());
}
