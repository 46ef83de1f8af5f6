//! From a statistic's name to a Prometheus family and labels, by mappings as `statsd_exporter` has them. Knows no values.
//!
//! A name is looked at part by part first, so that a dot within a domain, key or value stays where it is; then, if nothing
//! matched, as plain text, as `statsd_exporter` would see it.
//!
//! **Invariant:** what comes out is a valid family name and valid label names, whatever a mapping or a client says.

mod file;

use std::{collections::BTreeMap, time::Duration};

use regex::Regex;

pub use self::file::MapperError;
use super::{
    name::{self, INNER_DOT},
    template,
};

/// The mapping that the reference has built in, with its expressions mended: each level stands for itself, and a name's end
/// is its end.
const BUILT_IN: &str = include_str!("mapper/builtin.yaml");

/// What kind of value a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A timer.
    Observer,
}

/// How the durations of a timer are shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observer {
    /// The upper bounds of the buckets, ascending, without the infinite one.
    Histogram(Vec<f64>),
    /// Sum and count alone.
    Summary,
}

/// Where a value goes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mapped<'m> {
    pub family: String,
    pub labels: BTreeMap<String, String>,
    pub help: Option<&'m str>,
    pub scale: f64,
    pub observer: &'m Observer,
}

/// Mappings, in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Mapper {
    globs: Vec<Mapping>,
    expressions: Vec<Mapping>,
    /// For what no mapping matches.
    unmapped: Observer,
    passed_over: Vec<String>,
}

#[derive(Clone, Debug)]
struct Mapping {
    pattern: Pattern,
    kind: Option<Kind>,
    action: Action,
}

#[derive(Clone, Debug)]
enum Pattern {
    /// Words; `*` stands for any one.
    Glob(Vec<String>),
    Expression(Regex),
}

#[derive(Clone, Debug)]
enum Action {
    Drop,
    Map(Target),
}

#[derive(Clone, Debug)]
struct Target {
    /// May refer to what the pattern matched, as the values of labels may.
    name: String,
    labels: Vec<(String, String)>,
    help: Option<String>,
    scale: Option<f64>,
    observer: Observer,
}

impl Mapper {
    /// The reference's.
    ///
    /// Errors: none that a test has not seen.
    pub fn built_in() -> Result<Self, MapperError> {
        Self::read(BUILT_IN)
    }

    /// Mappings as a file of `statsd_exporter` writes them.
    ///
    /// Errors: all that is wrong, and where.
    pub fn read(yaml: &str) -> Result<Self, MapperError> {
        file::read(yaml)
    }

    /// Words of the file that mean nothing, each with its place.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// As the reference's setting of that name: response times are shown in milliseconds, under the name that says seconds.
    pub fn without_scales(mut self) -> Self {
        for mapping in self.globs.iter_mut().chain(&mut self.expressions) {
            if let Action::Map(target) = &mut mapping.action {
                target.scale = None;
            }
        }
        self
    }

    /// Where a value goes; `None` if nowhere. `hidden`: its name, the dots within parts hidden.
    pub(super) fn map(&self, hidden: &str, kind: Kind) -> Option<Mapped<'_>> {
        let found = self.find(hidden, kind).or_else(|| {
            let plain = hidden.contains(INNER_DOT).then(|| name::plain(hidden));
            plain.and_then(|plain| self.find(&plain, kind))
        });
        match found {
            Some(Found::Dropped) => None,
            Some(Found::Mapped(mapped)) => Some(mapped),
            None => Some(Mapped {
                family: family_name(&name::plain(hidden)),
                labels: BTreeMap::new(),
                help: None,
                scale: 1.0,
                observer: &self.unmapped,
            }),
        }
    }

    fn find(&self, name: &str, kind: Kind) -> Option<Found<'_>> {
        let words: Vec<&str> = name.split('.').collect();
        self.globs
            .iter()
            .chain(&self.expressions)
            .filter(|mapping| mapping.kind.is_none_or(|only| only == kind))
            .find_map(|mapping| mapping.apply(name, &words))
    }
}

enum Found<'m> {
    Dropped,
    Mapped(Mapped<'m>),
}

impl Mapping {
    fn apply(&self, name: &str, words: &[&str]) -> Option<Found<'_>> {
        match &self.pattern {
            Pattern::Glob(pattern) => {
                let fits = |(wanted, word): (&String, &&str)| wanted == "*" || wanted == *word;
                if pattern.len() != words.len() || !pattern.iter().zip(words).all(fits) {
                    return None;
                }
                let stars: Vec<&str> = pattern
                    .iter()
                    .zip(words)
                    .filter(|(wanted, _)| *wanted == "*")
                    .map(|(_, word)| *word)
                    .collect();
                Some(self.found(|text| template::with_stars(text, &stars)))
            }
            Pattern::Expression(expression) => {
                let groups = expression.captures(name)?;
                let end = groups.get(0).map_or(0, |all| all.end());
                // A part of over_limit, which has its own name, and would be counted twice.
                if name.get(end..) == Some("_with_local_cache") {
                    return None;
                }
                Some(self.found(|text| template::expanded(text, &groups)))
            }
        }
    }

    fn found(&self, fill: impl Fn(&str) -> String) -> Found<'_> {
        let Action::Map(target) = &self.action else { return Found::Dropped };
        let label = |(name, value): &(String, String)| (name.clone(), name::plain(&fill(value)).into_owned());
        Found::Mapped(Mapped {
            family: family_name(&name::plain(&fill(&target.name))),
            labels: target.labels.iter().map(label).collect(),
            help: target.help.as_deref(),
            scale: target.scale.unwrap_or(1.0),
            observer: &target.observer,
        })
    }
}

/// A valid name of a family: every other character is an underscore, and it does not begin with a digit.
fn family_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len() + 1);
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        name.push('_');
    }
    name.extend(
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' }),
    );
    name
}

/// The bounds that Prometheus' clients have by default, in seconds.
pub(super) const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How long a bound is, in the unit that a timer's values have after `scale` (they are milliseconds before).
pub(super) fn span_of(bound: f64, scale: f64) -> Duration {
    let seconds = bound / scale / 1_000.0;
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
