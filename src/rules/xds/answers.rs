//! What is to be said to the control plane next, and when. Knows nothing of what it says.
//!
//! **Invariants:** one answer at most is held back, the latest; an answer that takes another's place goes no later than that.

use std::{future::pending, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::backoff::{Backoff, Jitter, Schedule};
use crate::pb::envoy::service::discovery::v3::DiscoveryRequest;

/// When a snapshot that was refused is sent again as it is, the answer waits: control planes send it as soon as they have
/// one, for ever.
const REPEATS: Schedule = Schedule {
    initial: Duration::from_secs(1),
    max: Duration::from_secs(30),
    factor: 2.0,
    jitter: Jitter::None,
};

/// Whether an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// It is news.
    AtOnce,
    /// It says what was said before.
    None,
}

#[derive(Debug)]
pub(super) struct Answers {
    held: Option<(DiscoveryRequest, Instant)>,
    pauses: Backoff,
}

impl Default for Answers {
    fn default() -> Self {
        Self { held: None, pauses: Backoff::new(REPEATS) }
    }
}

impl Answers {
    /// What is said first on a stream; what was to be said on the one before is void.
    pub fn begin(&mut self, first: DiscoveryRequest) {
        self.held = Some((first, Instant::now()));
    }

    /// Takes the place of what is held back: a control plane waits for the answer to its latest response.
    pub fn hold(&mut self, answer: DiscoveryRequest, haste: Haste) {
        let at = match (haste, &self.held) {
            (Haste::AtOnce, _) => {
                self.pauses.reset();
                Instant::now()
            }
            (Haste::None, Some((_, at))) => *at,
            (Haste::None, None) => Instant::now() + self.pauses.wait(),
        };
        self.held = Some((answer, at));
    }

    /// Says what is held back, once it is time and there is room; for ever if there is nothing to be said.
    ///
    /// Cancel safety: dropped, it has said nothing.
    pub async fn send(&mut self, outbox: &mpsc::Sender<DiscoveryRequest>) {
        let Some((_, at)) = &self.held else { return pending().await };
        if *at > Instant::now() {
            sleep_until(*at).await;
        }
        // Who takes nothing more has ended the stream, and how is what the stream tells.
        let Ok(room) = outbox.reserve().await else { return pending().await };
        if let Some((answer, _)) = self.held.take() {
            room.send(answer);
        }
    }
}
