//! Certificates that follow their files: the newest good ones are in force, for every handshake that begins after they came.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;

use super::{
    Files, TlsError, Validity,
    server::{Contents, Serving},
};
use crate::follow::{Followed, Handle, Pace, follow, points::Points};

/// What handshakes are made with now. Cheap to clone; every clone sees the newest.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    serving: ArcSwap<Serving>,
    taken: AtomicU64,
    refused: AtomicU64,
    /// Why the files as they are now were refused.
    refusal: ArcSwapOption<TlsError>,
}

impl Tls {
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.serving.load().config)
    }

    /// Of the certificate that is shown; `None` if it does not say.
    pub fn validity(&self) -> Option<Validity> {
        self.0.serving.load().validity
    }

    /// Loads after the first that were taken and that were refused so far.
    pub fn reloads(&self) -> (u64, u64) {
        (self.0.taken.load(Relaxed), self.0.refused.load(Relaxed))
    }

    /// Whether the files as they are now were refused, and older ones are in force.
    pub fn is_stale(&self) -> bool {
        self.0.refusal.load().is_some()
    }

    /// Why they were refused.
    pub fn refusal(&self) -> Option<Arc<TlsError>> {
        self.0.refusal.load_full()
    }

    fn take(&self, outcome: Result<Serving, TlsError>) {
        match outcome {
            Ok(serving) => {
                self.0.serving.store(Arc::new(serving));
                self.0.taken.fetch_add(1, Relaxed);
                if self.0.refusal.swap(None).is_some() {
                    tracing::warn!("the certificates' files are good again");
                }
                tracing::info!("certificates loaded anew");
            }
            Err(error) => {
                self.0.refused.fetch_add(1, Relaxed);
                tracing::error!("certificates refused; those before stay in force: {error}");
                self.0.refusal.store(Some(Arc::new(error)));
            }
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("validity", &self.validity()).finish_non_exhaustive()
    }
}

/// Files that were loaded once; turned into a [`Handle`] they go on being so.
pub struct Reloader {
    pub(super) state: State,
    tls: Tls,
    pace: Pace,
}

impl Reloader {
    /// Loads now, in this thread.
    ///
    /// Errors: the files cannot be used, and there is nothing before them that could be.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        let contents = files.read()?;
        let serving = files.build(&contents)?;
        let shared = Shared {
            serving: ArcSwap::from_pointee(serving),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refusal: ArcSwapOption::empty(),
        };
        let state = State { files, last: Ok(contents) };
        Ok(Self { state, tls: Tls(Arc::new(shared)), pace: Pace::default() })
    }

    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Goes on in a thread of its own.
    ///
    /// Errors: the thread could not be started.
    pub fn start(self) -> io::Result<Handle> {
        let tls = self.tls;
        follow(self.state, self.pace, move |outcome| tls.take(outcome))
    }
}

pub(super) struct State {
    files: Files,
    /// What was read last, good or bad.
    last: Result<Contents, TlsError>,
}

impl State {
    fn build(&self) -> Result<Serving, TlsError> {
        self.files.build(self.last.as_ref().map_err(Clone::clone)?)
    }
}

impl Followed for State {
    type Told = Result<Serving, TlsError>;

    const WHAT: &'static str = "certificates";

    fn points(&self) -> Points {
        self.files.points()
    }

    fn load(&mut self) -> Self::Told {
        self.last = self.files.read();
        self.build()
    }

    fn load_if_changed(&mut self) -> Option<Self::Told> {
        let read = self.files.read();
        if read == self.last {
            return None;
        }
        self.last = read;
        Some(self.build())
    }
}
