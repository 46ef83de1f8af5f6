//! Waiting for something outside of this process to come true.

use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, sleep, timeout_at};

use crate::process::LOOK_EVERY;

/// Looks until `condition` holds; after `within`, why it did not hold the last time.
pub async fn eventually<T>(
    within: Duration,
    mut condition: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    let mut last = anyhow::anyhow!("the first look did not end");
    loop {
        match timeout_at(deadline, condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => return Err(last).with_context(|| format!("not within {within:?}")),
        }
        sleep(LOOK_EVERY).await;
    }
}
