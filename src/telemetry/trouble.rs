//! Says what goes wrong again and again, without filling the log.

use std::time::Duration;

use tokio::time::Instant;

/// Warns of what goes on, once a minute.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    reported: Option<Instant>,
    n_suppressed: u64,
}

impl Trouble {
    const EVERY: Duration = Duration::from_secs(60);

    pub(crate) fn report(&mut self, what: &str) {
        let now = Instant::now();
        if self.reported.is_some_and(|last| now.saturating_duration_since(last) < Self::EVERY) {
            self.n_suppressed += 1;
            return;
        }
        tracing::warn!(suppressed = self.n_suppressed, "{what}");
        *self = Self { reported: Some(now), n_suppressed: 0 };
    }
}
