//! Statistics as lines for statsd and DogStatsD: what has changed since it was last sent. Pure; sends nothing.
//!
//! **Invariant:** what was not sent is not forgotten: it goes out with a later flush, in the same line as what came since.

use std::{collections::HashMap, fmt::Write as _};

use super::{
    collect::{Collected, Value},
    dogstatsd::Mogrifiers,
    name,
};
use crate::telemetry::timing::Bucket;

/// How lines are written, and what every one of them carries.
#[derive(Debug)]
pub(super) enum Dialect {
    /// Tags stand behind the name: `name.__key=value`.
    Statsd { suffix: String },
    /// Tags stand behind the line: `|#key:value`.
    DogStatsd { tags: Vec<(String, String)>, mogrifiers: Mogrifiers },
}

/// Keys and values as tags: cleaned, sorted, those without a key or a value left out.
pub(super) fn tags(extra: &[(String, String)]) -> Vec<(String, String)> {
    let mut tags: Vec<_> = extra
        .iter()
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .map(|(key, value)| (name::clean_tag(key), name::clean_tag(value)))
        .collect();
    tags.sort();
    tags
}

impl Dialect {
    pub fn statsd(extra: &[(String, String)]) -> Self {
        let suffix = tags(extra).iter().map(|(key, value)| format!(".__{key}={value}")).collect();
        Self::Statsd { suffix }
    }

    pub fn dogstatsd(extra: &[(String, String)], mogrifiers: Mogrifiers) -> Self {
        Self::DogStatsd { tags: tags(extra), mogrifiers }
    }

    /// What stands before the colon, and what stands at the end of the line.
    fn ends(&self, hidden: &str) -> (String, String) {
        let plain = name::plain(hidden);
        match self {
            Self::Statsd { suffix } => (format!("{plain}{suffix}"), String::new()),
            Self::DogStatsd { tags, mogrifiers } => {
                let (name, more) = mogrifiers.apply(&plain);
                let all: Vec<_> =
                    tags.iter().chain(&more).map(|(key, value)| format!("{key}:{value}")).collect();
                (name, if all.is_empty() { String::new() } else { format!("|#{}", all.join(",")) })
            }
        }
    }
}

/// A part of a statistic that is sent by itself: a counter, or one bucket of a timer.
type Part = (Box<str>, usize);

/// Something that goes out whole or not at all, and what is known to be sent once it has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// With its newline.
    pub text: String,
    part: Part,
    now: Bucket,
}

/// What was sent of each statistic so far.
#[derive(Debug)]
pub(super) struct Unsent {
    dialect: Dialect,
    sent: HashMap<Part, Bucket>,
}

impl Unsent {
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, sent: HashMap::new() }
    }

    /// The lines that say what has changed. What is gone is forgotten.
    pub fn lines(&mut self, all: &Collected) -> Vec<Line> {
        self.sent.retain(|(name, _), _| all.contains_key(&**name));
        let mut lines = Vec::new();
        for (name, value) in all {
            match value {
                Value::Counter(n) => {
                    let now = Bucket { n: *n, nanos: 0 };
                    lines.extend(self.line(name, 0, now, |delta| format!("{}|c", delta.n)));
                }
                Value::Gauge(n) => {
                    let part = (name.as_str().into(), 0);
                    lines.push(self.write(name, &format!("{n}|g"), part, Bucket::default()));
                }
                Value::Timer(timed) => {
                    for (i, now) in timed.buckets().iter().enumerate() {
                        lines.extend(self.line(name, i, *now, times));
                    }
                }
            }
        }
        lines
    }

    /// A line is out.
    pub fn was_sent(&mut self, line: Line) {
        self.sent.insert(line.part, line.now);
    }

    fn line(
        &mut self,
        name: &str,
        index: usize,
        now: Bucket,
        write: impl FnOnce(Bucket) -> String,
    ) -> Option<Line> {
        if now == Bucket::default() {
            return None;
        }
        let part = (name.into(), index);
        let sent = self.sent.get(&part).copied().unwrap_or_default();
        if now.n < sent.n {
            // It began anew, such as a rule that was away for a moment.
            self.sent.insert(part, now);
            return None;
        }
        let delta = Bucket { n: now.n - sent.n, nanos: now.nanos.saturating_sub(sent.nanos) };
        (delta.n > 0).then(|| self.write(name, &write(delta), part, now))
    }

    fn write(&self, name: &str, value: &str, part: Part, now: Bucket) -> Line {
        let (name, end) = self.dialect.ends(name);
        Line { text: format!("{name}:{value}{end}\n"), part, now }
    }
}

/// Durations of one bucket: their mean in milliseconds, and how many of them it stands for, as a sample rate. Receivers take
/// it for so many durations, so that counts and sums are right.
fn times(Bucket { n, nanos }: Bucket) -> String {
    /// Digits of the rate: of up to 10 million durations a receiver that rounds down gets every one.
    const WHOLE: u64 = 1_000_000_000_000_000;
    let mean = nanos.checked_div(n).unwrap_or(0);
    let mut text = format!("{}.{:06}|ms", mean / 1_000_000, mean % 1_000_000);
    if n > 1 {
        // Writing to a string does not fail.
        let _ = write!(text, "|@0.{:015}", (WHOLE / n).max(1));
    }
    text
}

#[cfg(test)]
mod tests;
