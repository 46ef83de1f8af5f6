//! The wall clock, where the conversations meet it: windows are aligned to it, so a conversation waits for a minute that
//! it fits into, and a time until the end of a window is compared as just that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use crate::wire::UNITS;

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the window of a running server is that of the wall clock")]
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Waits until the current minute has `seconds` left.
pub async fn wait_for_room(seconds: f64) {
    let left = 60.0 - now() % 60.0;
    if left < seconds {
        sleep(Duration::from_secs_f64(left + 0.05)).await;
    }
}

/// Waits for the next window of so many seconds to begin.
pub async fn align(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds - now() % seconds + 0.02)).await;
}

/// The seconds between a call's start and its answer.
#[derive(Clone, Copy)]
pub struct During {
    from: f64,
    until: f64,
}

impl During {
    pub fn since(from: f64) -> Self {
        Self { from, until: now() }
    }

    /// Whether `reset` seconds led to the end of the window of this unit, give or take one. Never of a second's.
    pub fn ends_window(self, reset: i64, unit: i32) -> bool {
        let Some(&(seconds @ 2.., _)) = usize::try_from(unit).ok().and_then(|unit| UNITS.get(unit)) else {
            return false;
        };
        let left = |now: f64| {
            let seconds = seconds as f64;
            seconds - now.floor() % seconds
        };
        reset > 0 && [self.from, self.until].into_iter().any(|now| (left(now) - reset as f64).abs() <= 1.0)
    }
}
