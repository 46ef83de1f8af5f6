//! Statistics for people: a line for each, or one JSON object.

use super::{
    collect::{Collected, Value},
    name,
};

/// `name: value`, sorted by name. A timer is two lines: how many there were, and their sum in milliseconds.
pub(super) fn text(all: &Collected) -> String {
    numbers(all).map(|(name, n)| format!("{name}: {n}\n")).collect()
}

/// The same names and values as an object.
pub(super) fn json(all: &Collected) -> String {
    serde_json::Value::Object(numbers(all).map(|(name, n)| (name, n.into())).collect()).to_string()
}

fn numbers(all: &Collected) -> impl Iterator<Item = (String, u64)> {
    all.iter().flat_map(|(hidden, value)| {
        let name = name::plain(hidden).into_owned();
        let (first, second) = match value {
            Value::Counter(n) | Value::Gauge(n) => ((name, *n), None),
            Value::Timer(timed) => {
                let millis = u64::try_from(timed.sum().as_millis()).unwrap_or(u64::MAX);
                let sum = (format!("{name}.sum_ms"), millis);
                ((format!("{name}.count"), timed.count()), Some(sum))
            }
        };
        std::iter::once(first).chain(second)
    })
}
