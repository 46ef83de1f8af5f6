//! Where statistics go: at most one place.

use super::{
    error::Problem,
    table::{Read, Values},
};

/// Where statistics go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsSink {
    Off,
    Statsd,
    DogStatsd,
    Prometheus,
}

/// Chooses the sink. What was set beats a default, so one switch that is set to true is enough; two are a problem.
pub(super) fn choose(values: &Values, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) -> StatsSink {
    let switches: [(&'static str, &Read<bool>, StatsSink); 3] = [
        ("USE_STATSD", &values.use_statsd, StatsSink::Statsd),
        ("USE_DOG_STATSD", &values.use_dog_statsd, StatsSink::DogStatsd),
        ("USE_PROMETHEUS", &values.use_prometheus, StatsSink::Prometheus),
    ];
    if values.disable_stats.value {
        return StatsSink::Off;
    }
    let set: Vec<_> = switches.iter().filter(|(_, read, _)| read.is_set() && read.value).collect();
    match set.as_slice() {
        [] => switches.iter().find(|(_, read, _)| read.value).map_or(StatsSink::Off, |(_, _, sink)| *sink),
        [(name, _, sink)] => {
            warnings.push(format!(
                "{name}=true: this build has no statistics sinks yet, nothing is sent or shown"
            ));
            *sink
        }
        [(first, read, _), others @ ..] => {
            let names = set.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
            let off =
                others.iter().map(|(name, ..)| format!("{name}=false")).collect::<Vec<_>>().join(" and ");
            problems.push(Problem {
                name: first,
                origin: read.origin,
                found: Some("true".to_owned()),
                expected: format!("one of {names} to be true, not {}", set.len()),
                help: Some(format!("statistics go to one place: for {first} alone set {off}")),
            });
            StatsSink::Off
        }
    }
}
