//! Mappings as they are written: `statsd_exporter`'s YAML. What it understands and means nothing here (`ttl`, quantiles) is
//! taken without a word; words that it does not know are passed over as there, and told.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use yaml_serde::Value;

use super::{Action, DEFAULT_BOUNDS, Kind, Mapper, Mapping, Observer, Pattern, Target};
use crate::rules::nearest;

/// More mappings than that are a mistake, and each takes time at every scrape.
const MAX_MAPPINGS: usize = 1_000;

/// Mistakes that are told one by one; the rest is a number.
const MAX_TOLD: usize = 20;

/// Keys of a mapping, in `statsd_exporter`.
const KEYS: &[&str] = &[
    "match",
    "match_type",
    "match_metric_type",
    "name",
    "labels",
    "action",
    "help",
    "observer_type",
    "timer_type",
    "buckets",
    "quantiles",
    "histogram_options",
    "summary_options",
    "scale",
    "ttl",
    "honor_labels",
];

/// Why mappings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapperError {
    #[error("not YAML of the expected form: {0}")]
    Yaml(String),
    /// Each with its place; never empty.
    #[error("{}", told(.0))]
    Mistakes(Vec<String>),
    #[error("{0} mappings, expected at most {MAX_MAPPINGS}")]
    TooMany(usize),
}

fn told(mistakes: &[String]) -> String {
    let (told, rest) = mistakes.split_at(mistakes.len().min(MAX_TOLD));
    let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
    format!("{}{more}", told.join("; "))
}

#[derive(Deserialize)]
struct RawFile {
    #[serde(default)]
    defaults: RawDefaults,
    #[serde(default)]
    mappings: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct RawDefaults {
    #[serde(default, deserialize_with = "word")]
    match_type: Option<MatchType>,
    #[serde(default, deserialize_with = "word")]
    observer_type: Option<ObserverType>,
    /// The older name of `observer_type`.
    #[serde(default, deserialize_with = "word")]
    timer_type: Option<ObserverType>,
    buckets: Option<Vec<f64>>,
    histogram_options: Option<RawBuckets>,
}

#[derive(Deserialize)]
struct RawMapping {
    #[serde(rename = "match", default)]
    pattern: String,
    #[serde(default, deserialize_with = "word")]
    match_type: Option<MatchType>,
    match_metric_type: Option<MetricType>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "word")]
    action: Option<ActionType>,
    help: Option<String>,
    #[serde(default, deserialize_with = "word")]
    observer_type: Option<ObserverType>,
    #[serde(default, deserialize_with = "word")]
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

/// One of a few words; an empty one is as if it were not there.
fn word<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    match Option::<Value>::deserialize(from)? {
        None => Ok(None),
        Some(value) if value.as_str() == Some("") => Ok(None),
        Some(value) => yaml_serde::from_value(value).map(Some).map_err(D::Error::custom),
    }
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
    let (mut mistakes, mut passed_over) = (Vec::new(), Vec::new());
    for (i, raw) in raw.mappings.into_iter().enumerate() {
        let place = place(i + 1, &raw);
        let unknown = unknown(&raw);
        let read = yaml_serde::from_value(raw).map_err(|error| error.to_string());
        match read.and_then(|raw| mapping(raw, &defaults)) {
            Ok(mapping) => {
                passed_over.extend(unknown.map(|unknown| format!("{place}: {unknown}")));
                let of_its_kind = match mapping.pattern {
                    Pattern::Glob(_) => &mut globs,
                    Pattern::Expression(_) => &mut expressions,
                };
                of_its_kind.push(mapping);
            }
            Err(mistake) => {
                let unknown = unknown.map(|unknown| format!(" ({unknown})")).unwrap_or_default();
                mistakes.push(format!("{place}: {mistake}{unknown}"));
            }
        }
    }
    let unmapped = observer(None, None, &defaults).map_err(|mistake| format!("defaults: {mistake}"));
    match unmapped {
        Ok(unmapped) if mistakes.is_empty() => Ok(Mapper { globs, expressions, unmapped, passed_over }),
        unmapped => {
            mistakes.extend(unmapped.err());
            Err(MapperError::Mistakes(mistakes))
        }
    }
}

/// The mapping as a person finds it.
fn place(number: usize, raw: &Value) -> String {
    match raw.get("match").and_then(Value::as_str) {
        Some(pattern) => format!("mapping {number}, match {pattern:?}"),
        None => format!("mapping {number}"),
    }
}

/// Keys that mean nothing, to be told.
fn unknown(raw: &Value) -> Option<String> {
    let keys = raw.as_mapping()?.keys().map(|key| key.as_str().unwrap_or("that is no text"));
    let unknown: Vec<_> = keys
        .filter(|key| !KEYS.contains(key))
        .map(|key| match nearest(key, KEYS.iter().copied()) {
            Some(meant) => format!("{key:?}, did you mean {meant:?}?"),
            None => format!("{key:?}"),
        })
        .collect();
    (!unknown.is_empty()).then(|| format!("unknown key {}", unknown.join(", ")))
}

fn mapping(raw: RawMapping, defaults: &RawDefaults) -> Result<Mapping, String> {
    if raw.pattern.is_empty() {
        return Err("expected what it is to match".to_owned());
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
