//! One fault from good times to good times, under callers that go on asking.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::faults::load::{EVERY, OK, Seen};
use crate::redis_store::Counter;

/// What a caller gives the store. Envoy's gives 15 ms; here other tests and servers run on the same cores.
pub const BUDGET: Duration = Duration::from_millis(100);
/// By how much a timer is late, and by how much more at the most when nobody comes round to it.
const TIMER: Duration = Duration::from_millis(5);
const BUSY: Duration = Duration::from_millis(100);
/// From the end of a fault until every answer is as before.
const RECOVERY: Duration = Duration::from_secs(2);
/// How long a fault lasts that does not end by itself: many budgets, and many tries to connect.
const LASTS: Duration = Duration::from_millis(600);
/// So many good answers in a row are good times.
const GOOD_TIMES: usize = 50;
/// Nothing here takes as long.
pub const AT_LAST: Duration = Duration::from_secs(10);

/// What callers saw of a fault.
pub struct Story {
    pub during: Seen,
    /// Connections, and whatever else the store has, are as before: what was answered then.
    pub after: Seen,
}

/// Lets `begin` happen under load, waits, lets `end` happen, and waits for good times. Prints the figures, and asserts what holds
/// for every fault: answers in time, and good times soon.
pub async fn suffer(
    name: &str,
    counter: &Counter<'_>,
    begin: impl AsyncFnOnce() -> anyhow::Result<()>,
    end: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Story> {
    good_times(counter).await?;
    let events = async {
        let set_out = Instant::now();
        good_times(counter).await?;
        let began = Instant::now();
        begin().await?;
        sleep(LASTS).await;
        end().await?;
        let ended = Instant::now();
        good_times(counter).await?;
        anyhow::Ok((set_out, began, ended, Instant::now()))
    };
    let (seen, events) = Seen::asking(async || counter.ask().await, events).await;
    let (set_out, began, ended, over) = events?;
    let (before, during, after) =
        (seen.between(set_out, began), seen.between(began, ended), seen.between(ended, over));
    let recovery = seen.recovery(ended);
    println!("{name}: {during}; well again after {:.0} ms", recovery.as_secs_f64() * 1e3);
    // Those who were on their way when it began may have been hit.
    let before = before.before(began);
    assert_eq!(before.n(OK), before.n_all(), "{name}, before it: {before}");
    let in_time = counter.budget + TIMER + during.lag.min(BUSY);
    assert!(during.p99() <= in_time, "{name}, answers within {in_time:?}: {during}");
    assert!(recovery <= RECOVERY, "{name}: good times only after {recovery:?}");
    Ok(Story { during, after })
}

/// The counter says what was answered, and no more than what was given up on beside it.
pub async fn nothing_stale(name: &str, counter: &Counter<'_>) -> anyhow::Result<()> {
    let used = nothing_twice(name, counter).await?;
    let least = *counter.may_have().start();
    assert!(used >= least, "{name}: counted {used} hits, and {least} were answered");
    Ok(())
}

/// As [`nothing_stale`], where the server lost some of what it had.
pub async fn nothing_twice(name: &str, counter: &Counter<'_>) -> anyhow::Result<u64> {
    let (used, may_have) = (counter.used().await?, counter.may_have());
    println!("{name}: counted {used} hits, of {may_have:?} that may be");
    assert!(used <= *may_have.end(), "{name}: counted {used} hits, of {may_have:?} that may be");
    Ok(used)
}

/// Asks until enough answers in a row are good.
async fn good_times(counter: &Counter<'_>) -> anyhow::Result<()> {
    let deadline = Instant::now() + AT_LAST;
    let mut n_good = 0;
    while n_good < GOOD_TIMES {
        let said = counter.ask().await;
        n_good = if said == OK { n_good + 1 } else { 0 };
        ensure!(Instant::now() < deadline, "{n_good} good answers in a row, the last was {said}");
        sleep(EVERY).await;
    }
    Ok(())
}
