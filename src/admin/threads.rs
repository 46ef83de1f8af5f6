//! What the threads of this process do: how long each was on a processor, and how long it waited for one, as the kernel counts
//! it. Linux only; elsewhere there is nothing to say.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, time::Duration};

use axum::{extract::Query, http::StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

/// How long is looked at unless the request says so, and at most.
const SECONDS: f64 = 5.0;
pub(super) const MAX_SECONDS: u64 = 60;

#[derive(Debug, Deserialize)]
pub(super) struct Span {
    seconds: Option<f64>,
}

/// A line for each thread, the busiest first, then what the process takes.
pub(super) async fn page(Query(span): Query<Span>) -> Result<String, (StatusCode, String)> {
    let seconds = span.seconds.unwrap_or(SECONDS);
    let Some(span) = Duration::try_from_secs_f64(seconds).ok().filter(|span| span.as_secs() <= MAX_SECONDS)
    else {
        return Err((StatusCode::BAD_REQUEST, format!("seconds: expected 0 to {MAX_SECONDS}\n")));
    };
    let (before, began) = (threads(), Instant::now());
    sleep(span).await;
    let (after, elapsed) = (threads(), began.elapsed());
    Ok(text(&before, &after, elapsed))
}

/// Nanoseconds since the thread began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Times {
    name: String,
    running: u64,
    waiting: u64,
}

/// By the thread's number.
fn threads() -> BTreeMap<u64, Times> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| Some((task.file_name().to_str()?.parse().ok()?, times(&task.path())?))).collect()
}

/// `None` for a thread that has ended meanwhile.
fn times(task: &Path) -> Option<Times> {
    let read = |name: &str| fs::read_to_string(task.join(name)).ok();
    let (name, schedstat) = (read("comm")?, read("schedstat")?);
    let mut numbers = schedstat.split_whitespace().map_while(|number| number.parse().ok());
    Some(Times { name: name.trim().to_owned(), running: numbers.next()?, waiting: numbers.next()? })
}

fn text(before: &BTreeMap<u64, Times>, after: &BTreeMap<u64, Times>, elapsed: Duration) -> String {
    let share = |now: u64, then: u64| {
        Duration::from_nanos(now.saturating_sub(then)).as_secs_f64() / elapsed.as_secs_f64().max(1e-9) * 100.0
    };
    let mut lines: Vec<_> = after
        .iter()
        .map(|(id, now)| {
            let then = before.get(id).cloned().unwrap_or_default();
            (share(now.running, then.running), share(now.waiting, then.waiting), &*now.name)
        })
        .collect();
    lines.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(b.2)));
    let mut text = format!(
        "in {:.1} s, in percent of one processor\n{:<16} {:>10} {:>16}\n",
        elapsed.as_secs_f64(),
        "thread",
        "running",
        "waiting to run"
    );
    for (running, waiting, name) in lines {
        let _ = writeln!(text, "{name:<16} {running:>10.1} {waiting:>16.1}");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM")) {
        let _ = writeln!(text, "{}", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_comes_first() {
        let times = |name: &str, running, waiting| Times { name: name.to_owned(), running, waiting };
        let before = BTreeMap::from([(1, times("main", 0, 0)), (2, times("rls-0", 1_000_000_000, 0))]);
        let after = BTreeMap::from([
            (1, times("main", 10_000_000, 0)),
            (2, times("rls-0", 1_900_000_000, 20_000_000)),
            (3, times("new", 500_000_000, 0)),
        ]);
        let text = text(&before, &after, Duration::from_secs(1));
        let lines: Vec<_> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(
            lines[..3],
            [vec!["rls-0", "90.0", "2.0"], vec!["new", "50.0", "0.0"], vec!["main", "1.0", "0.0"]]
        );
    }
}
