//! What all workers share of one server: whether to ask it, how it did, what its clock shows, what is wrong with it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::{
    breaker::Breaker,
    clock::ShardClock,
    stats::{ErrorKind, Stats},
};

/// What the server does with counters when its memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Not seen yet, or not to be seen by this user.
    Unknown,
    /// It keeps them, or has no bound.
    Keeps,
    /// It deletes counters that still count: limits then admit more than they say.
    DeletesLiveCounters,
}

#[derive(Debug)]
pub struct Shard {
    name: String,
    pub breaker: Breaker,
    pub stats: Stats,
    pub(super) clock: ShardClock,
    /// Told when the breaker opens: each worker then looks whether its connection still answers.
    pub(super) suspect: Notify,
    /// Told when a worker has a connection: the others need not wait for their next attempt.
    pub(super) reached: Notify,
    trouble: Mutex<Option<String>>,
    warnings: Mutex<Vec<String>>,
    eviction: AtomicU8,
    ever_connected: AtomicBool,
    /// A server that closed the connection at what only a proxy does not know: it is not asked for that again.
    plain_only: AtomicBool,
}

impl Shard {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            breaker: Breaker::default(),
            stats: Stats::default(),
            clock: ShardClock::default(),
            suspect: Notify::new(),
            reached: Notify::new(),
            trouble: Mutex::new(None),
            warnings: Mutex::default(),
            eviction: AtomicU8::new(Eviction::Unknown as u8),
            ever_connected: AtomicBool::new(false),
            plain_only: AtomicBool::new(false),
        }
    }

    /// The address, without secrets, or the name of the master.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why there is no connection, as the last attempt found; `None` while there is one.
    pub fn trouble(&self) -> Option<String> {
        if self.is_connected() { None } else { self.trouble.lock().clone() }
    }

    /// Why it cannot be asked now, in words that follow its name; `None` while it can.
    pub fn unwell(&self) -> Option<String> {
        if !self.is_connected() {
            let why = self.trouble().unwrap_or_else(|| "connecting".to_owned());
            return Some(format!("is not connected ({why})"));
        }
        let is_tripped = self.breaker.is_tripped();
        is_tripped.then(|| "has failed too often in a row, and is tried by one call at a time".to_owned())
    }

    /// What an operator should know although it works: commands that are refused, counters that may be evicted.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    pub fn eviction(&self) -> Eviction {
        [Eviction::Keeps, Eviction::DeletesLiveCounters]
            .into_iter()
            .find(|known| *known as u8 == self.eviction.load(Ordering::Relaxed))
            .unwrap_or(Eviction::Unknown)
    }

    /// How far the server's clock is ahead of this process's, in microseconds; negative if behind.
    pub fn skew_micros(&self) -> i64 {
        self.clock.ahead()
    }

    pub fn is_connected(&self) -> bool {
        self.stats.connections_open() > 0
    }

    pub(super) fn was_ever_connected(&self) -> bool {
        self.ever_connected.load(Ordering::Relaxed)
    }

    pub(super) fn is_plain_only(&self) -> bool {
        self.plain_only.load(Ordering::Relaxed)
    }

    pub(super) fn set_plain_only(&self) {
        self.plain_only.store(true, Ordering::Relaxed);
    }

    /// A worker has a connection.
    pub(super) fn connected(&self) {
        self.stats.connection_opened();
        self.breaker.reconnected(tokio::time::Instant::now());
        self.reached.notify_waiters();
        if !self.ever_connected.swap(true, Ordering::Relaxed) || self.trouble.lock().take().is_some() {
            info!(shard = self.name, "connected");
        }
    }

    /// A worker lost its connection.
    pub(super) fn disconnected(&self, why: &str) {
        self.stats.connection_closed();
        self.complain(why);
    }

    /// Remembers why there is no connection; says so when it is news.
    pub(super) fn complain(&self, why: &str) {
        let mut trouble = self.trouble.lock();
        if trouble.as_deref() != Some(why) {
            warn!(shard = self.name, why, "not connected");
            *trouble = Some(why.to_owned());
        }
    }

    pub(super) fn set_warnings(&self, new: Vec<String>) {
        let mut warnings = self.warnings.lock();
        if *warnings != new {
            new.iter().for_each(|text| warn!(shard = self.name, "{text}"));
            *warnings = new;
        }
    }

    pub(super) fn set_eviction(&self, eviction: Eviction) {
        self.eviction.store(eviction as u8, Ordering::Relaxed);
    }

    /// The server answered, and could do what was asked.
    pub(super) fn answered(&self) {
        if self.breaker.success() {
            info!(shard = self.name, "answers again");
        }
    }

    /// The server failed in a way that a caller cannot cause.
    pub(super) fn failed(&self, kind: ErrorKind) {
        if self.breaker.failure(tokio::time::Instant::now()) {
            warn!(shard = self.name, why = kind.name(), "not asked for now: too many failures in a row");
            self.suspect.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::breaker::Permit, *};

    #[test]
    fn it_says_why_it_cannot_be_asked() {
        let shard = Shard::new("r:6379".to_owned());
        assert_eq!(shard.unwell().unwrap(), "is not connected (connecting)");
        shard.connected();
        assert_eq!(shard.unwell(), None);
        while !shard.breaker.is_tripped() {
            shard.failed(ErrorKind::Timeout);
        }
        assert_eq!(
            shard.unwell().unwrap(),
            "has failed too often in a row, and is tried by one call at a time"
        );
        shard.disconnected("it hung up");
        assert_eq!(shard.unwell().unwrap(), "is not connected (it hung up)");
        shard.connected();
        assert_eq!(shard.unwell(), None, "nobody has tried the new connection");
        assert_eq!(shard.breaker.permit(tokio::time::Instant::now()), Permit::Probe);
        shard.answered();
        assert_eq!(shard.unwell(), None);
    }
}
