//! Rules that a control plane sends (`CONFIG_TYPE=GRPC_XDS_SOTW`): state of the world over one ADS stream.
//!
//! Resources become what a rules file would say, and from there on the code is that of files. Knows nothing of who matches
//! rules, and nothing of health or metrics but what it tells.
//!
//! **Invariants:** a snapshot is taken whole or not at all, and refused with everything that is wrong with it; the rules in
//! force outlive every failure of the control plane; nothing here holds a thread of the runtime for longer than a message.

mod answers;
mod backoff;
mod cache;
mod client;
mod connect;
mod convert;
mod session;
mod snapshot;
mod stats;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub use self::{
    backoff::{Jitter, Schedule},
    cache::FILE as CACHE_FILE,
    connect::{Address, Keepalive, Server, Tls},
    session::Node,
    snapshot::TYPE_URL,
    stats::{Stats, Update},
};
use self::{
    cache::{Cache, Found, Kept},
    client::Client,
    snapshot::Loader,
};
use super::{
    LoadOptions,
    reload::{LoadFailure, Reloaded},
};

/// gRPC's bound on a message, in bytes.
pub const DEFAULT_MAX_MESSAGE: usize = 4 << 20;

/// How long the end waits for the last snapshot to be on disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a control plane is asked.
#[derive(Clone, Debug)]
pub struct Options {
    pub server: Server,
    pub node: Node,
    /// Sent with the stream.
    pub headers: Headers,
    /// The largest answer, in bytes.
    pub max_message: usize,
    pub backoff: Schedule,
    /// Where the last good snapshot is kept, if anywhere.
    pub cache_directory: Option<PathBuf>,
}

/// Names and values; the values may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What is told.
#[derive(Debug)]
pub enum Event {
    /// A snapshot was taken, or refused.
    Rules(Result<Reloaded, LoadFailure>),
    /// Why there is nothing from the control plane, until the next [`Event::Heard`]; told when a connection is made, too.
    Trouble(String),
    /// The control plane has answered.
    Heard,
}

/// Who is told, on the runtime or on a thread for blocking work; must not wait.
pub type Listener = Arc<dyn Fn(Event) + Send + Sync>;

/// The tasks that follow a control plane. They end with this.
#[derive(Debug)]
pub struct Handle {
    stop: CancellationToken,
    again: Arc<Notify>,
    looked: watch::Receiver<bool>,
    client: JoinHandle<()>,
    keeper: Option<JoinHandle<()>>,
    pub stats: Arc<Stats>,
}

/// Takes what was kept on disk, if there is any, and follows the control plane from then on.
///
/// `options` of the load name no previous rules: those are the ones loaded here before.
pub async fn follow(options: Options, load: LoadOptions<'static>, listener: Listener) -> Handle {
    let cache =
        options.cache_directory.clone().map(|directory| Arc::new(Cache::new(directory, &options.node.id)));
    let mut loader = Loader::new(load);
    let mut kept = None;
    if let Some(cache) = cache.clone() {
        let listener = Arc::clone(&listener);
        let take = move || {
            let kept = take_kept(&cache, &mut loader, &*listener);
            (loader, kept)
        };
        (loader, kept) = tokio::task::spawn_blocking(take).await.unwrap_or_else(|_| {
            tracing::warn!("reading the snapshot that was kept panicked: this is a bug");
            (Loader::new(load), None)
        });
    }
    let (keep, to_keep) = watch::channel(None);
    let keeper = cache.map(|cache| tokio::spawn(keep_on_disk(cache, to_keep)));
    let (stop, again, stats) = (CancellationToken::new(), Arc::new(Notify::new()), Arc::<Stats>::default());
    let (looked_at, looked) = watch::channel(kept.is_some());
    let client = Client::new(options, loader, kept.as_ref(), listener, Arc::clone(&stats), keep, looked_at);
    let client = tokio::spawn(client.run(stop.clone(), Arc::clone(&again)));
    Handle { stop, again, looked, client, keeper, stats }
}

impl Handle {
    /// Waits until there are rules, or it is known that there are none for now; at most `within`.
    pub async fn looked(&self, within: Duration) {
        let mut looked = self.looked.clone();
        let _ = timeout(within, looked.wait_for(|looked| *looked)).await;
    }

    /// Connects anew, so that everything is sent again and files of certificates are read again.
    pub fn again(&self) {
        self.again.notify_one();
    }

    /// Ends the tasks and waits for them.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.client).await;
        if let Some(keeper) = &mut self.keeper
            && timeout(PATIENCE, keeper).await.is_err()
        {
            tracing::warn!("the last snapshot could not be written in time");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Reads what was kept and puts it in force. Blocks.
fn take_kept(cache: &Cache, loader: &mut Loader, tell: &dyn Fn(Event)) -> Option<Kept> {
    let file = cache.file();
    let Found { kept, age } = match cache.read() {
        Ok(Some(found)) => found,
        Ok(None) => return None,
        Err(why) => {
            tracing::warn!("the snapshot in {} is not used: it {why}", file.display());
            return None;
        }
    };
    match loader.load(&kept.resources) {
        Ok(loaded) => {
            tracing::warn!(
                "until the control plane answers, rules are those of the snapshot in {}: version '{}', {} s old",
                file.display(),
                kept.version,
                age.as_secs(),
            );
            tell(Event::Rules(Ok(loaded)));
            Some(kept)
        }
        Err(failure) => {
            tracing::warn!("the snapshot in {} is not used: its rules are refused", file.display());
            failure.lines().for_each(|line| tracing::warn!("{line}"));
            None
        }
    }
}

/// Writes each snapshot to disk, off the runtime; if they come faster than that, the latest of them.
async fn keep_on_disk(cache: Arc<Cache>, mut latest: watch::Receiver<Option<Arc<Kept>>>) {
    while latest.changed().await.is_ok() {
        let Some(kept) = latest.borrow_and_update().clone() else { continue };
        let (cache_here, file) = (Arc::clone(&cache), cache.file());
        match tokio::task::spawn_blocking(move || cache_here.write(&kept)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("the snapshot could not be kept in {}: {error}", file.display()),
            Err(_) => tracing::warn!("writing the snapshot panicked: this is a bug"),
        }
    }
}

#[cfg(test)]
mod tests;
