//! Follows files: waits until they may have changed and are quiet again, and has them looked at. Knows nothing of what is in
//! them.
//!
//! One thread for each thing followed, which reads and parses there, so that a file system that hangs holds nothing else.
//!
//! **Invariants:** a change that was made after the first load is seen; at rest nothing runs but a slow poll.

pub(crate) mod file;
pub(crate) mod points;
mod watcher;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use self::{points::Points, watcher::Watcher};

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

/// What is read from files.
pub(crate) trait Followed: Send + 'static {
    /// What comes of a load, good or bad.
    type Told;

    /// What it is, in a word or two, for logs.
    const WHAT: &'static str;

    /// Where a change would show.
    fn points(&self) -> Points;

    /// Reads and parses.
    fn load(&mut self) -> Self::Told;

    /// The same, unless it would come to what the last load came to.
    fn load_if_changed(&mut self) -> Option<Self::Told>;
}

/// Follows in a thread of its own: `on_event` is called there with each load that follows.
///
/// Errors: the thread could not be started.
pub(crate) fn follow<F: Followed>(
    followed: F,
    pace: Pace,
    on_event: impl FnMut(F::Told) + Send + 'static,
) -> io::Result<Handle> {
    let (wake, inbox) = sync_channel(INBOX);
    let (alive, ended) = sync_channel(0);
    let orders = Arc::<Orders>::default();
    let follower =
        Follower { followed, pace, orders: Arc::clone(&orders), outbox: wake.clone(), inbox, on_event };
    let main = move || {
        let _alive: SyncSender<()> = alive;
        follower.run();
    };
    let thread = thread::Builder::new().name(format!("{}-reload", F::WHAT)).spawn(main)?;
    Ok(Handle { what: F::WHAT, orders, wake, ended, thread: Some(thread) })
}

/// The thread that follows the files. It ends with this.
///
/// Nothing here waits for it longer than [`PATIENCE`]: it may hang in a file system that does not answer.
#[derive(Debug)]
pub struct Handle {
    what: &'static str,
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
            tracing::warn!(
                "a file of the {} cannot be read to its end; its reading is left behind",
                self.what
            );
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

struct Follower<F, E> {
    followed: F,
    pace: Pace,
    orders: Arc<Orders>,
    outbox: SyncSender<()>,
    inbox: Receiver<()>,
    on_event: E,
}

impl<F: Followed, E: FnMut(F::Told)> Follower<F, E> {
    fn run(mut self) {
        let mut watcher = Watcher::new(F::WHAT, self.outbox.clone());
        let mut asked = false;
        loop {
            // Watched first, read afterwards: a change is either seen by this reading or heard of.
            let points = self.followed.points();
            watcher.watch(&points);
            let outcome = if asked { Some(self.followed.load()) } else { self.followed.load_if_changed() };
            if let Some(outcome) = outcome {
                (self.on_event)(outcome);
            }
            // A directory that came while it was read is not watched yet.
            let poll = match (self.followed.points() == points, watcher.is_whole()) {
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
