//! Rules that follow their files: loads them, and again whenever they change.
//!
//! One thread of its own waits for the file system, reads and parses, and tells what came of it.
//!
//! **Invariants:** what is told differs from what was told before, unless a reload was asked for; a change that was made
//! after [`Reloader::load_once`] is told; at rest nothing runs but a slow poll.

mod points;
mod state;
mod watcher;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use self::{state::State, watcher::Watcher};
use super::{
    LoadOptions, Problems, RuleSet,
    source::{RulesSource, Unreadable},
};

/// How long the files must be quiet before they are read: an editor's or the kubelet's several steps are one change.
const QUIET: Duration = Duration::from_millis(100);

/// Files that are never quiet are read anyway after this long.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How often the files are looked at although nothing was heard: file systems such as NFS tell nothing.
const POLL: Duration = Duration::from_secs(30);

/// The same where the file system could not be watched.
const POLL_UNWATCHED: Duration = Duration::from_secs(5);

/// How many times the thread can be woken ahead. More say nothing new.
const INBOX: usize = 64;

/// How long the end waits for a load that is under way.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Rules that were loaded.
#[derive(Debug)]
pub struct Reloaded {
    pub rules: Arc<RuleSet>,
    /// A line each.
    pub warnings: Vec<String>,
    pub n_files: usize,
}

/// Why rules were not loaded; the rules before stay in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LoadFailure {
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
    /// What is wrong with what could be read.
    pub problems: Option<Problems>,
    /// What is odd about the files, and may explain the rest. A line each.
    pub warnings: Vec<String>,
}

impl LoadFailure {
    /// One line for each problem, and for what may explain it.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let problems = self
            .problems
            .iter()
            .flat_map(|problems| problems.to_string().lines().map(str::to_owned).collect::<Vec<_>>());
        self.unreadable.iter().map(ToString::to_string).chain(problems).chain(self.warnings.iter().cloned())
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.lines().enumerate() {
            write!(f, "{}{line}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub quiet: Duration,
    pub longest_wait: Duration,
    pub poll: Duration,
    pub poll_unwatched: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { quiet: QUIET, longest_wait: LONGEST_WAIT, poll: POLL, poll_unwatched: POLL_UNWATCHED }
    }
}

/// Loads rules from where they are; turned into a [`Handle`] it goes on doing so.
#[derive(Debug)]
pub struct Reloader {
    state: State,
    pace: Pace,
}

impl Reloader {
    /// `options` name no previous rules: those are the ones loaded here before.
    pub fn new(source: RulesSource, options: LoadOptions<'static>) -> Self {
        Self { state: State::new(source, options), pace: Pace::default() }
    }

    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Loads now, in this thread.
    pub fn load_once(&mut self) -> Result<Reloaded, LoadFailure> {
        self.state.load()
    }

    /// Goes on in a thread of its own: `on_event` is called there with each load that follows.
    ///
    /// Errors: the thread could not be started.
    pub fn start(
        self,
        on_event: impl FnMut(Result<Reloaded, LoadFailure>) + Send + 'static,
    ) -> io::Result<Handle> {
        let (wake, inbox) = sync_channel(INBOX);
        let (alive, ended) = sync_channel(0);
        let orders = Arc::<Orders>::default();
        let follower = Follower {
            state: self.state,
            pace: self.pace,
            orders: Arc::clone(&orders),
            outbox: wake.clone(),
            inbox,
            on_event,
        };
        let main = move || {
            let _alive: SyncSender<()> = alive;
            follower.run();
        };
        let thread = thread::Builder::new().name("rules-reload".to_owned()).spawn(main)?;
        Ok(Handle { orders, wake, ended, thread: Some(thread) })
    }
}

/// The thread that follows the files. It ends with this.
///
/// Nothing here waits for it longer than [`PATIENCE`]: it may hang in a file system that does not answer.
#[derive(Debug)]
pub struct Handle {
    orders: Arc<Orders>,
    wake: SyncSender<()>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the thread is to do, seen when it next looks.
#[derive(Debug, Default)]
struct Orders {
    reload: AtomicBool,
    stop: AtomicBool,
}

impl Handle {
    /// Loads soon, and tells what came of it even if nothing has changed. Never blocks.
    pub fn reload_now(&self) {
        self.order(&self.orders.reload);
    }

    /// Ends the thread and waits for it: about as long as one load takes, at most [`PATIENCE`].
    pub fn stop(mut self) {
        self.end();
    }

    fn order(&self, order: &AtomicBool) {
        order.store(true, Ordering::SeqCst);
        // A full inbox wakes the thread as well.
        let _ = self.wake.try_send(());
    }

    fn end(&mut self) {
        self.order(&self.orders.stop);
        let Some(thread) = self.thread.take() else { return };
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a file of the rules cannot be read to its end; its reading is left behind");
        } else {
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why the thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// The file system says that something has changed, or it is time to look.
    Changed,
    /// An operator wants a reload.
    Reload,
    Stop,
}

struct Follower<F> {
    state: State,
    pace: Pace,
    orders: Arc<Orders>,
    outbox: SyncSender<()>,
    inbox: Receiver<()>,
    on_event: F,
}

impl<F: FnMut(Result<Reloaded, LoadFailure>)> Follower<F> {
    fn run(mut self) {
        let mut watcher = Watcher::new(self.outbox.clone());
        let mut asked = false;
        loop {
            // Watched first, read afterwards: a change is either seen by this reading or heard of.
            let points = self.state.points();
            watcher.watch(&points);
            if let Some(outcome) = if asked { Some(self.state.load()) } else { self.state.load_if_changed() }
            {
                (self.on_event)(outcome);
            }
            // A directory that came while it was read is not watched yet.
            let poll = match (self.state.points() == points, watcher.is_whole()) {
                (false, _) => self.pace.quiet,
                (true, true) => self.pace.poll,
                (true, false) => self.pace.poll_unwatched,
            };
            match self.wait(poll) {
                Wake::Stop => return,
                Wake::Reload => asked = true,
                Wake::Changed => asked = false,
            }
        }
    }

    /// Waits for a reason to look at the files, and then for them to be quiet.
    fn wait(&self, poll: Duration) -> Wake {
        if let Some(order) = self.ordered() {
            return order;
        }
        let woken = self.inbox.recv_timeout(poll).is_ok();
        let last = Instant::now() + self.pace.longest_wait;
        loop {
            if let Some(order) = self.ordered() {
                return order;
            }
            let left = last.saturating_duration_since(Instant::now());
            if !woken || left.is_zero() || self.inbox.recv_timeout(self.pace.quiet.min(left)).is_err() {
                return self.ordered().unwrap_or(Wake::Changed);
            }
        }
    }

    fn ordered(&self) -> Option<Wake> {
        if self.orders.stop.load(Ordering::SeqCst) {
            Some(Wake::Stop)
        } else if self.orders.reload.swap(false, Ordering::SeqCst) {
            Some(Wake::Reload)
        } else {
            None
        }
    }
}
