//! One core's share of the connections, on a thread and a runtime of its own.
//!
//! **Invariant:** what a connection brings is read, decided and answered on the worker's thread; a connection ends by itself,
//! at its age, or at the deadline of the drain.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    pin::pin,
    rc::Rc,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use super::{
    Decide,
    connection::{self, Broken, Stop},
    counts::Open,
    dispatch::Dispatch,
    io::{Accepted, Handshakes, Heard, Opened},
};
use crate::{
    telemetry::trouble::Trouble,
    tls::{self, Tls},
};

/// How long a new connection may take to shake hands, if TLS is spoken, and to say what every HTTP/2 client says first.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one may still take once the drain has begun; what a caller has already sent is here long before.
const DRAIN_GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection without a call may still be open after the drain has begun. A peer that is there has said within that what
/// it had sent before it knew; one that says nothing holds nobody up.
const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often ages are looked at: they are minutes and hours.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What the acceptor hands to a worker.
#[derive(Debug)]
pub(super) enum Handover {
    Connection(Accepted, Open),
    /// The last: end all connections, by the deadline at the latest.
    Drain {
        deadline: Instant,
    },
}

/// How old connections may get. `None`: as old as they like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ages {
    /// Then the client is told to open another one. Within ±10 %, so that those opened together do not end together.
    pub most: Option<Duration>,
    /// After that, until calls that are still running are cut.
    pub grace: Option<Duration>,
}

/// What a worker's connections may be.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// `None`: in the clear.
    pub(super) tls: Option<Tls>,
    pub(super) ages: Ages,
    /// A connection that has not greeted when so many have come after it gives way: who says nothing keeps nobody out.
    pub(super) max_greeting: usize,
}

pub(super) struct Worker<D> {
    dispatch: Rc<Dispatch<D>>,
    handshakes: Option<Handshakes>,
    terms: Terms,
    jitter: RandomState,
    tasks: JoinSet<Result<(), Broken>>,
    connections: HashMap<Id, Connection>,
    /// The last that came, oldest first; at most `max_greeting`.
    newest: VecDeque<Id>,
    /// One for each reason, so that none hides another.
    refusals: HashMap<tls::Reason, Trouble>,
}

struct Connection {
    heard: Rc<Heard>,
    stop: Rc<Stop>,
    task: AbortHandle,
    state: State,
}

impl Connection {
    /// Whether there are calls under way; of those that were asked to end.
    fn has_calls(&self) -> bool {
        self.heard.greeting() && self.stop.idle_since().is_none()
    }
}

#[derive(Clone, Copy)]
enum State {
    Greeting { until: Instant },
    Open { until: Option<Instant> },
    Ending { until: Option<Instant> },
}

impl<D: Decide> Worker<D> {
    pub(super) fn new(dispatch: Dispatch<D>, terms: Terms) -> Self {
        Self {
            dispatch: Rc::new(dispatch),
            handshakes: terms.tls.clone().map(Handshakes::by),
            terms,
            jitter: RandomState::new(),
            tasks: JoinSet::new(),
            connections: HashMap::new(),
            newest: VecDeque::new(),
            refusals: HashMap::new(),
        }
    }

    /// Serves what is handed over until the drain, or until the acceptor is gone. How many connections were cut with calls under way.
    pub(super) async fn run(mut self, mut handovers: mpsc::Receiver<Handover>) -> usize {
        let mut sweep = interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = loop {
            tokio::select! {
                handover = handovers.recv() => match handover {
                    Some(Handover::Connection(accepted, open)) => self.open(accepted, open),
                    Some(Handover::Drain { deadline }) => break deadline,
                    None => break Instant::now(),
                },
                Some(ended) = self.tasks.join_next_with_id() => self.close(ended),
                now = sweep.tick(), if !self.connections.is_empty() => self.sweep(now),
            }
        };
        let dispatch = Rc::clone(&self.dispatch);
        let n_cut = self.drain(deadline, sweep).await;
        dispatch.decider.close().await;
        n_cut
    }

    fn open(&mut self, accepted: Accepted, open: Open) {
        let (heard, stop) = (Heard::nothing_yet(), Rc::new(Stop::default()));
        let opened = match Opened::new(accepted, open) {
            Ok(opened) => opened,
            Err(error) => return tracing::debug!(%error, "a connection was gone before it was served"),
        };
        self.make_room();
        let (handshakes, dispatch) = (self.handshakes.clone(), Rc::clone(&self.dispatch));
        let serving = connection::serve(opened, handshakes, Rc::clone(&heard), dispatch, Rc::clone(&stop));
        let task = self.tasks.spawn_local(serving);
        self.newest.push_back(task.id());
        let state = State::Greeting { until: Instant::now() + GREETING_TIMEOUT };
        self.connections.insert(task.id(), Connection { heard, stop, task, state });
    }

    /// Closes the connection that still says nothing although so many have come after it.
    fn make_room(&mut self) {
        if self.newest.len() < self.terms.max_greeting {
            return;
        }
        if let Some(oldest) = self.newest.pop_front().and_then(|id| self.connections.get(&id))
            && !oldest.heard.greeting()
        {
            oldest.task.abort();
        }
    }

    fn close(&mut self, ended: Result<(Id, Result<(), Broken>), JoinError>) {
        let id = match ended {
            Ok((id, Ok(()))) => id,
            Ok((id, Err(broken))) => {
                self.report(&broken);
                id
            }
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a call panicked, and its connection was closed; this is a bug");
                }
                error.id()
            }
        };
        self.connections.remove(&id);
    }

    /// A client that was refused is somebody's mistake, and otherwise seen nowhere; one that went away is nobody's.
    fn report(&mut self, broken: &Broken) {
        if let Broken::Handshake { peer, source } = broken
            && let Some((reason, why)) = tls::refusal(source)
        {
            self.dispatch.counts.refused_handshake();
            let peer = peer.map_or("a client".to_owned(), |peer| peer.to_string());
            self.refusals.entry(reason).or_default().report(&format!("TLS with {peer}: {why}"));
        } else {
            tracing::debug!(error = broken as &dyn std::error::Error, "a connection broke off");
        }
    }

    /// Moves every connection on whose time has come.
    fn sweep(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            match connection.state {
                State::Greeting { .. } if connection.heard.greeting() => {
                    let age = self.terms.ages.most.map(|most| jittered(most, self.jitter.hash_one(now)));
                    connection.state = State::Open { until: age.and_then(|age| now.checked_add(age)) };
                }
                State::Open { until: Some(until) } if until <= now => {
                    connection.stop.ask();
                    let until = self.terms.ages.grace.and_then(|grace| now.checked_add(grace));
                    connection.state = State::Ending { until };
                }
                State::Greeting { until } | State::Ending { until: Some(until) } if until <= now => {
                    connection.task.abort();
                }
                State::Greeting { .. } | State::Open { .. } | State::Ending { .. } => {}
            }
        }
    }

    /// Closes what has had no call under way for a while, in the drain.
    fn close_idle(&self, now: Instant) {
        for Connection { stop, task, .. } in self.connections.values() {
            if stop
                .idle_since()
                .is_some_and(|since| now.saturating_duration_since(since) >= DRAIN_IDLE_TIMEOUT)
            {
                task.abort();
            }
        }
    }

    async fn drain(mut self, deadline: Instant, mut sweep: Interval) -> usize {
        for connection in self.connections.values_mut() {
            connection.stop.ask();
            if let State::Greeting { until } = &mut connection.state {
                *until = (*until).min(Instant::now() + DRAIN_GREETING_TIMEOUT);
            }
        }
        let mut timeout = pin!(sleep_until(deadline));
        loop {
            tokio::select! {
                biased;
                ended = self.tasks.join_next_with_id() => match ended {
                    Some(ended) => self.close(ended),
                    None => return 0,
                },
                () = &mut timeout => break,
                now = sweep.tick() => {
                    self.sweep(now);
                    self.close_idle(now);
                }
            }
        }
        let n_cut = self.connections.values().filter(|connection| connection.has_calls()).count();
        self.tasks.shutdown().await;
        n_cut
    }
}

/// `span` ± 10 %, by a random number.
fn jittered(span: Duration, random: u64) -> Duration {
    let per_mille = u32::try_from(random % 201).unwrap_or(100);
    span / 1000 * (900 + per_mille)
}

#[cfg(test)]
mod tests;
