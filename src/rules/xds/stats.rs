//! What is known of the way to the control plane, for metrics.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// How a snapshot was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    Accepted,
    Refused,
    /// It was sent before, and answered alike.
    Repeated,
}

impl Update {
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Refused, Self::Repeated];

    /// The label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Repeated => "repeated",
        }
    }
}

#[derive(Debug, Default)]
pub struct Stats {
    connected: AtomicBool,
    updates: [AtomicU64; Update::ALL.len()],
    failures: AtomicU64,
    /// When the control plane last sent what is in force.
    confirmed: Mutex<Option<Instant>>,
}

impl Stats {
    pub(super) fn connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    /// A connection ended or could not be made.
    pub(super) fn lost(&self) {
        self.connected.store(false, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn updated(&self, update: Update) {
        if let Some(cell) = self.updates.get(update as usize) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn confirmed(&self) {
        *self.confirmed.lock() = Some(Instant::now());
    }

    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub fn updates(&self, update: Update) -> u64 {
        self.updates.get(update as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Connections that ended or could not be made.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Since the control plane last sent what is in force; `None` if this process has had nothing from it.
    pub fn age(&self) -> Option<Duration> {
        self.confirmed.lock().map(|moment| moment.elapsed())
    }
}
