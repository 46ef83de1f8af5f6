//! Statistics as Prometheus reads them: the text format 0.0.4. Written here because the families of the reference are counters
//! whose names do not end in `_total`, in the `TYPE` line neither. Pure.
//!
//! **Invariant:** a page is one that a scraper takes, whatever is in the names: every family stands once, with one type, each of
//! its series once, and every value is escaped.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write as _,
};

use super::{
    collect::{Collected, Value},
    lines,
    mapper::{self, Kind, Mapped, Mapper, Observer},
};
use crate::telemetry::timing::Timed;

/// What is said of a family whose mapping says nothing.
const HELP: &str = "A statistic of the rate-limit service, under the reference's name.";

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Labels = BTreeMap<String, String>;

/// Series by family.
#[derive(Default)]
struct Families(BTreeMap<String, Family>);

struct Family {
    help: String,
    kind: &'static str,
    series: BTreeMap<Labels, Sample>,
}

enum Sample {
    Number(f64),
    Timed { sum: f64, count: u64, buckets: Vec<(f64, u64)> },
}

/// The whole page. `tags` are labels of every series, unless its mapping has labels of the same names.
pub(super) fn page(all: &Collected, mapper: &Mapper, tags: &[(String, String)]) -> String {
    let tags: Labels = lines::tags(tags).into_iter().map(|(key, value)| (label_name(&key), value)).collect();
    let mut families = Families::default();
    for (name, value) in all {
        let kind = match value {
            Value::Counter(_) => Kind::Counter,
            Value::Gauge(_) => Kind::Gauge,
            Value::Timer(_) => Kind::Observer,
        };
        if is_silent(name, value) {
            continue;
        }
        if let Some(mut mapped) = mapper.map(name, kind) {
            let own = std::mem::take(&mut mapped.labels);
            let labels = tags.clone().into_iter().chain(own).collect();
            families.add(mapped, labels, value);
        }
    }
    families.text()
}

/// A counter begins with its first hit, as in the reference; but that no load of the rules has failed is worth a zero.
fn is_silent(name: &str, value: &Value) -> bool {
    match value {
        Value::Counter(n) => *n == 0 && !name.starts_with("ratelimit.service.config_load_"),
        Value::Gauge(_) => false,
        Value::Timer(timed) => timed.count() == 0,
    }
}

impl Families {
    /// Adds a value to its series; several names may share one. A family has the type of its first.
    #[expect(clippy::cast_precision_loss, reason = "a sample is a float, for every program that reads it")]
    fn add(&mut self, mapped: Mapped<'_>, labels: Labels, value: &Value) {
        let (kind, sample) = match value {
            Value::Counter(n) => ("counter", Sample::Number(*n as f64 * mapped.scale)),
            Value::Gauge(n) => ("gauge", Sample::Number(*n as f64 * mapped.scale)),
            Value::Timer(timed) => {
                let kind = if matches!(mapped.observer, Observer::Summary) { "summary" } else { "histogram" };
                (kind, timed_sample(timed, mapped.scale, mapped.observer))
            }
        };
        let family = self.0.entry(mapped.family).or_insert_with(|| Family {
            help: mapped.help.unwrap_or(HELP).to_owned(),
            kind,
            series: BTreeMap::new(),
        });
        if family.kind != kind {
            return;
        }
        match family.series.entry(labels) {
            Entry::Vacant(free) => _ = free.insert(sample),
            Entry::Occupied(mut taken) => taken.get_mut().merge(sample),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "# HELP {name} {}\n# TYPE {name} {}\n",
                escaped(&family.help, false),
                family.kind
            );
            for (labels, sample) in &family.series {
                sample.write(name, labels, &mut text);
            }
        }
        text
    }
}

/// A timer's values are milliseconds, and `scale` makes of them what is shown.
fn timed_sample(timed: &Timed, scale: f64, observer: &Observer) -> Sample {
    let buckets = match observer {
        Observer::Histogram(bounds) => {
            bounds.iter().map(|bound| (*bound, timed.at_most(mapper::span_of(*bound, scale)))).collect()
        }
        Observer::Summary => Vec::new(),
    };
    Sample::Timed { sum: timed.sum().as_secs_f64() * (scale * 1_000.0), count: timed.count(), buckets }
}

impl Sample {
    fn merge(&mut self, more: Self) {
        match (self, more) {
            (Self::Number(sum), Self::Number(n)) => *sum += n,
            (
                Self::Timed { sum, count, buckets },
                Self::Timed { sum: more_sum, count: more_count, buckets: more },
            ) => {
                *sum += more_sum;
                *count += more_count;
                // The bounds are those of the first.
                buckets.iter_mut().zip(more).for_each(|((_, n), (_, more))| *n += more);
            }
            (Self::Number(_), Self::Timed { .. }) | (Self::Timed { .. }, Self::Number(_)) => {}
        }
    }

    fn write(&self, name: &str, labels: &Labels, text: &mut String) {
        let mut line = |suffix: &str, bound: Option<&str>, value: &dyn std::fmt::Display| {
            let bound = bound.map(|bound| ("le", bound));
            let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let all: Vec<String> = own
                .chain(bound)
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)))
                .collect();
            let labels = if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}{suffix}{labels} {value}");
        };
        match self {
            Self::Number(n) => line("", None, n),
            Self::Timed { sum, count, buckets } => {
                for (bound, n) in buckets {
                    line("_bucket", Some(&bound.to_string()), n);
                }
                if !buckets.is_empty() {
                    line("_bucket", Some("+Inf"), count);
                }
                line("_sum", None, sum);
                line("_count", None, count);
            }
        }
    }
}

/// A help text, or a label's value.
fn escaped(text: &str, is_value: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if is_value => escaped.push_str("\\\""),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A valid name of a label.
fn label_name(key: &str) -> String {
    let mut name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_reserved = name.starts_with("__") || ["le", "quantile"].contains(&name.as_str());
    if is_reserved || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "tag_");
    }
    name
}

#[cfg(test)]
mod tests;
