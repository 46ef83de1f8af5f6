//! Where statistics go: at most one place, and how they get there.

use std::path::PathBuf;

use regex::Regex;

use super::{
    Endpoint,
    compound::{HttpPath, ListenAddress, Pairs},
    error::Problem,
    given::Given,
    table::{Read, Values},
    value::Value as _,
    words::StatsdProtocol,
};
use crate::stats::{Mogrifier, Protocol, Target};

/// Where Prometheus looks for metrics, unless it is told otherwise.
pub(super) const PROMETHEUS_PORT: u16 = 9_090;
pub(super) const METRICS_PATH: &str = "/metrics";

/// What becomes of statistics.
#[derive(Clone, Debug)]
pub struct StatsSettings {
    /// How many names that callers bring are kept apart; `None`: none at all are counted (`DISABLE_STATS`).
    pub max_names: Option<usize>,
    pub sink: StatsSink,
}

/// Where statistics go.
#[derive(Clone, Debug)]
pub enum StatsSink {
    Off,
    /// Statsd or DogStatsD.
    Send(Target),
    Prometheus(PrometheusSettings),
}

impl StatsSink {
    /// As an operator calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Send(Target { dogstatsd: None, .. }) => "statsd",
            Self::Send(Target { dogstatsd: Some(_), .. }) => "DogStatsD",
            Self::Prometheus(_) => "Prometheus",
        }
    }
}

/// How Prometheus gets statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusSettings {
    pub listen: Endpoint,
    pub path: String,
    /// A file of mappings that stands in for the built-in ones.
    pub mapper: Option<PathBuf>,
    /// Response times are shown in milliseconds, as older versions of the reference did.
    pub in_millis: bool,
    /// Labels of every series.
    pub tags: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Off,
    Statsd,
    DogStatsd,
    Prometheus,
}

/// Chooses the sink and reads what it needs.
pub(super) fn choose(
    values: &Values,
    given: &Given,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> StatsSettings {
    let sink = match which(values, problems, warnings) {
        Choice::Off => StatsSink::Off,
        Choice::Statsd => {
            StatsSink::Send(target(values, values.use_statsd.is_set() && values.use_statsd.value))
        }
        Choice::DogStatsd => {
            let mogrifiers = mogrifiers(values, given, problems);
            let target = target(values, true);
            StatsSink::Send(Target { protocol: Protocol::Udp, dogstatsd: Some(mogrifiers), ..target })
        }
        Choice::Prometheus => StatsSink::Prometheus(prometheus(values)),
    };
    let max_names = usize::try_from(values.stats_max_names.value.get()).unwrap_or(usize::MAX);
    StatsSettings { max_names: (!values.disable_stats.value).then_some(max_names), sink }
}

/// A setting that sends statistics somewhere.
#[derive(Clone, Copy)]
pub(super) struct Switch<'v> {
    name: &'static str,
    read: &'v Read<bool>,
    pub(super) choice: Choice,
}

/// The switches that are on. What was set beats a default, so one that is set to true is enough; two are a problem.
pub(super) fn chosen(values: &Values) -> Vec<Switch<'_>> {
    if values.disable_stats.value {
        return Vec::new();
    }
    let on = [
        Switch { name: "USE_STATSD", read: &values.use_statsd, choice: Choice::Statsd },
        Switch { name: "USE_DOG_STATSD", read: &values.use_dog_statsd, choice: Choice::DogStatsd },
        Switch { name: "USE_PROMETHEUS", read: &values.use_prometheus, choice: Choice::Prometheus },
    ];
    let on = on.into_iter().filter(|switch| switch.read.value);
    let (set, by_default): (Vec<_>, Vec<_>) = on.partition(|switch| switch.read.is_set());
    if set.is_empty() { by_default } else { set }
}

fn which(values: &Values, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) -> Choice {
    let chosen = chosen(values);
    match chosen.as_slice() {
        [] => Choice::Off,
        [Switch { name, read, choice }] => {
            if read.is_set() && !values.use_statsd.is_set() {
                warnings.push(format!("{name}=true: statistics go there, and not to statsd as by default"));
            }
            *choice
        }
        [first, others @ ..] => {
            let names = chosen.iter().map(|switch| switch.name).collect::<Vec<_>>().join(", ");
            let off: Vec<_> = others.iter().map(|switch| format!("{}=false", switch.name)).collect();
            problems.push(Problem {
                name: first.name,
                origin: first.read.origin,
                found: Some("true".to_owned()),
                expected: format!("one of {names} to be true, not {}", chosen.len()),
                help: Some(format!(
                    "statistics go to one place: for {} alone set {}",
                    first.name,
                    off.join(" and ")
                )),
            });
            Choice::Off
        }
    }
}

fn target(values: &Values, is_wanted: bool) -> Target {
    let protocol = match values.statsd_protocol.value {
        StatsdProtocol::Tcp => Protocol::Tcp,
        StatsdProtocol::Udp => Protocol::Udp,
    };
    Target {
        host: values.statsd_host.value.reveal().to_owned(),
        port: values.statsd_port.value,
        protocol,
        dogstatsd: None,
        tags: values.extra_tags.value.0.clone(),
        interval: values.stats_flush_interval.value.get(),
        is_wanted,
    }
}

fn prometheus(values: &Values) -> PrometheusSettings {
    let address = values.prometheus_addr.value.0.clone();
    let ListenAddress { host, port } = address.unwrap_or(ListenAddress::any(PROMETHEUS_PORT));
    let host = if host.as_str().is_empty() { "::" } else { host.as_str() }.to_owned();
    PrometheusSettings {
        listen: Endpoint { host, port },
        path: values.prometheus_path.value.0.as_ref().map_or(METRICS_PATH, HttpPath::as_str).to_owned(),
        mapper: values.prometheus_mapper_yaml.value.non_empty().map(PathBuf::from),
        in_millis: values.prometheus_response_time_as_milliseconds.value,
        tags: values.extra_tags.value.0.clone(),
    }
}

/// The variables of each name in USE_DOG_STATSD_MOGRIFIERS.
fn mogrifiers(values: &Values, given: &Given, problems: &mut Vec<Problem>) -> Vec<Mogrifier> {
    let names = &values.use_dog_statsd_mogrifiers;
    let mut mogrifiers = Vec::new();
    for name in &names.value.0 {
        match mogrifier(name, given) {
            Ok(mogrifier) => mogrifiers.push(mogrifier),
            Err(expected) => problems.push(Problem {
                name: "USE_DOG_STATSD_MOGRIFIERS",
                origin: names.origin,
                found: Some(names.value.show()),
                expected,
                help: None,
            }),
        }
    }
    mogrifiers
}

/// Errors: what is expected of its variables.
fn mogrifier(name: &str, given: &Given) -> Result<Mogrifier, String> {
    let variable = |suffix: &str| format!("DOG_STATSD_MOGRIFIER_{name}_{suffix}");
    let value = |suffix: &str| {
        let found = given.value(&variable(suffix)).and_then(|(value, _)| value.to_str());
        found.filter(|value| !value.is_empty())
    };
    let needed = |suffix: &str| value(suffix).ok_or_else(|| format!("{} to be set", variable(suffix)));
    let pattern = needed("PATTERN")?;
    let pattern = Regex::new(pattern)
        .map_err(|error| format!("{} to be a regular expression: {error}", variable("PATTERN")))?;
    let tags = Pairs::parse(value("TAGS").unwrap_or_default())
        .filter(|tags| tags.0.iter().all(|(key, value)| !key.is_empty() && !value.is_empty()))
        .ok_or_else(|| format!("{} to be {}", variable("TAGS"), Pairs::expected()))?;
    Ok(Mogrifier { pattern, name: needed("NAME")?.to_owned(), tags: tags.0 })
}
