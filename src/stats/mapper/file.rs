//! Mappings as they are written: `statsd_exporter`'s YAML. What it understands and means nothing here (`ttl`, quantiles) is
//! taken without a word, as it takes words that it does not know.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;

use super::{Action, DEFAULT_BOUNDS, Kind, Mapper, Mapping, Observer, Pattern, Target};

/// More mappings than that are a mistake, and each takes time at every scrape.
const MAX_MAPPINGS: usize = 1_000;

/// Why mappings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapperError {
    #[error("not YAML of the expected form: {0}")]
    Yaml(String),
    #[error("mapping {number}, match {pattern:?}: {problem}")]
    Mapping {
        /// From 1.
        number: usize,
        pattern: String,
        problem: String,
    },
    #[error("{0} mappings, expected at most {MAX_MAPPINGS}")]
    TooMany(usize),
}

#[derive(Deserialize)]
struct RawFile {
    #[serde(default)]
    defaults: RawDefaults,
    #[serde(default)]
    mappings: Vec<RawMapping>,
}

#[derive(Default, Deserialize)]
struct RawDefaults {
    match_type: Option<MatchType>,
    observer_type: Option<ObserverType>,
    /// The older name of `observer_type`.
    timer_type: Option<ObserverType>,
    buckets: Option<Vec<f64>>,
    histogram_options: Option<RawBuckets>,
}

#[derive(Deserialize)]
struct RawMapping {
    #[serde(rename = "match")]
    pattern: String,
    match_type: Option<MatchType>,
    match_metric_type: Option<MetricType>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    action: Option<ActionType>,
    help: Option<String>,
    observer_type: Option<ObserverType>,
    timer_type: Option<ObserverType>,
    buckets: Option<Vec<f64>>,
    histogram_options: Option<RawBuckets>,
    scale: Option<f64>,
}

#[derive(Deserialize)]
struct RawBuckets {
    buckets: Option<Vec<f64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MatchType {
    Glob,
    Regex,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MetricType {
    Counter,
    Gauge,
    #[serde(alias = "timer")]
    Observer,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionType {
    Map,
    Drop,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ObserverType {
    Histogram,
    Summary,
}

pub(super) fn read(yaml: &str) -> Result<Mapper, MapperError> {
    let raw: Option<RawFile> =
        yaml_serde::from_str(yaml).map_err(|error| MapperError::Yaml(error.to_string()))?;
    let raw = raw.unwrap_or(RawFile { defaults: RawDefaults::default(), mappings: Vec::new() });
    if raw.mappings.len() > MAX_MAPPINGS {
        return Err(MapperError::TooMany(raw.mappings.len()));
    }
    let defaults = raw.defaults;
    let (mut globs, mut expressions) = (Vec::new(), Vec::new());
    for (i, raw) in raw.mappings.into_iter().enumerate() {
        let pattern = raw.pattern.clone();
        let mapping = mapping(raw, &defaults).map_err(|problem| MapperError::Mapping {
            number: i + 1,
            pattern,
            problem,
        })?;
        match mapping.pattern {
            Pattern::Glob(_) => globs.push(mapping),
            Pattern::Expression(_) => expressions.push(mapping),
        }
    }
    let unmapped = observer(None, None, &defaults).map_err(|problem| MapperError::Mapping {
        number: 0,
        pattern: "defaults".to_owned(),
        problem,
    })?;
    Ok(Mapper { globs, expressions, unmapped })
}

fn mapping(raw: RawMapping, defaults: &RawDefaults) -> Result<Mapping, String> {
    if raw.pattern.is_empty() {
        return Err("it matches nothing".to_owned());
    }
    let pattern = match raw.match_type.or(defaults.match_type).unwrap_or(MatchType::Glob) {
        MatchType::Glob => Pattern::Glob(raw.pattern.split('.').map(str::to_owned).collect()),
        MatchType::Regex => Pattern::Expression(Regex::new(&raw.pattern).map_err(|error| error.to_string())?),
    };
    let kind = raw.match_metric_type.map(|kind| match kind {
        MetricType::Counter => Kind::Counter,
        MetricType::Gauge => Kind::Gauge,
        MetricType::Observer => Kind::Observer,
    });
    if matches!(raw.action, Some(ActionType::Drop)) {
        return Ok(Mapping { pattern, kind, action: Action::Drop });
    }
    if raw.name.is_empty() {
        return Err("expected a name, or action: drop".to_owned());
    }
    if let Some(label) = raw.labels.keys().find(|label| !is_label(label)) {
        return Err(format!(
            "label {label:?}: expected letters, digits and underscores, no digit first, and none of Prometheus' own"
        ));
    }
    if let Some(scale) = raw.scale.filter(|scale| !scale.is_finite() || *scale <= 0.0) {
        return Err(format!("scale {scale}: expected a number above 0"));
    }
    let bounds = raw.histogram_options.and_then(|options| options.buckets).or(raw.buckets);
    let observer = observer(raw.observer_type.or(raw.timer_type), bounds, defaults)?;
    let labels = raw.labels.into_iter().collect();
    let target = Target { name: raw.name, labels, help: raw.help, scale: raw.scale, observer };
    Ok(Mapping { pattern, kind, action: Action::Map(target) })
}

/// What a timer is shown as: a summary where nothing is said, as in `statsd_exporter`.
fn observer(
    kind: Option<ObserverType>,
    bounds: Option<Vec<f64>>,
    defaults: &RawDefaults,
) -> Result<Observer, String> {
    match kind.or(defaults.observer_type).or(defaults.timer_type) {
        Some(ObserverType::Histogram) => {
            let of_all = defaults.histogram_options.as_ref().and_then(|options| options.buckets.clone());
            let bounds = bounds.or(of_all).or_else(|| defaults.buckets.clone());
            let bounds = bounds.filter(|bounds| !bounds.is_empty()).unwrap_or(DEFAULT_BOUNDS.to_vec());
            if bounds.iter().any(|bound| !bound.is_finite())
                || !bounds.is_sorted_by(|lower, higher| lower < higher)
            {
                return Err(format!("buckets {bounds:?}: expected ascending numbers"));
            }
            Ok(Observer::Histogram(bounds))
        }
        Some(ObserverType::Summary) | None => Ok(Observer::Summary),
    }
}

/// A label's name, and none that Prometheus keeps for itself.
fn is_label(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(fits)
        && !name.starts_with("__")
        && !["le", "quantile"].contains(&name)
}
