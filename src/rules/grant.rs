//! What a `rate_limit` grants: its fields checked against each other and made a [`Limit`].

use std::time::Duration;

use super::{
    Algorithms, Charging, Grant, Leasing, MAX_DELAY_WARNING, Posture,
    problem::{Path, Report, nearest, one_of, quoted},
    raw::{RawLimit, Spanned},
};
use crate::limit::{Algorithm, Limit, Unit, Window};

/// The largest limit that `sliding_log` keeps a log for: each hit in it is remembered on its own.
pub(crate) const MAX_SLIDING_LOG: u32 = 10_000;

/// The longest `max_delay`: no caller of this service waits longer for its answer.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60);

const ALGORITHMS: [&str; 5] =
    ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"];

impl Posture {
    pub const ALL: [Self; 4] = [Self::Error, Self::Allow, Self::Deny, Self::Local];

    /// The name in the rules file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        }
    }
}

/// The grant, or `None` if there was a problem (which is reported).
pub(crate) fn grant(raw: &RawLimit, path: &Path<'_>, report: &mut Report) -> Option<Grant> {
    check_replaces(raw, path, report);
    if raw.unlimited { unlimited(raw, path, report) } else { limited(raw, path, report).map(Grant::Limited) }
}

/// What `on_store_failure` says, if it is there.
pub(crate) fn posture(raw: &RawLimit, path: &Path<'_>, report: &mut Report) -> Option<Posture> {
    let said = raw.on_store_failure.as_ref()?;
    let posture = Posture::ALL.into_iter().find(|posture| posture.name() == said.value);
    if posture.is_none() {
        let found = format!("invalid on_store_failure {}", quoted(&said.value));
        report.problem(
            said.at,
            &path.key("on_store_failure"),
            found,
            choices(&said.value, &Posture::ALL.map(Posture::name)),
        );
    }
    posture
}

/// What `lease` says. Counters that have a moment for each hit cannot be leased.
pub(crate) fn leasing(raw: &RawLimit, path: &Path<'_>, report: &mut Report) -> Leasing {
    let Some(said) = &raw.lease else { return Leasing::Auto };
    let algorithm = raw.algorithm.as_ref().map_or("fixed_window", |algorithm| algorithm.value.as_str());
    if said.value == Leasing::On && matches!(algorithm, "sliding_log" | "leaky_bucket") {
        let advice = "each of its hits needs a moment of its own, which only the store can give: remove it, or set algorithm \
                      to fixed_window, sliding_window or token_bucket";
        report.problem(said.at, &path.key("lease"), format!("lease: on with {algorithm}"), advice);
    }
    said.value
}

/// What `charge` says of a domain.
pub(crate) fn charging(said: &Spanned<Vec<u8>>, path: &Path<'_>, report: &mut Report) -> Charging {
    if said.value == b"admitted" {
        return Charging::Admitted;
    }
    let found = format!("invalid charge {}", quoted(&String::from_utf8_lossy(&said.value)));
    report.problem(
        said.at,
        &path.key("charge"),
        found,
        "expected admitted; without it every request charges",
    );
    Charging::Always
}

/// Reports an algorithm that the store cannot count by.
pub(crate) fn check_algorithm(
    grant: Grant,
    algorithms: Algorithms,
    raw: &RawLimit,
    path: &Path<'_>,
    report: &mut Report,
) {
    let Grant::Limited(Limit { algorithm, .. }) = grant else { return };
    if algorithms == Algorithms::FixedWindow && algorithm != Algorithm::FixedWindow {
        let at = raw.algorithm.as_ref().map_or(raw.at, |field| field.at);
        let found = format!("{} with COUNTER_KEYS=envoyproxy", algorithm.name());
        report.problem(
            at,
            &path.key("algorithm"),
            found,
            "the reference's counters are fixed windows: write fixed_window, or set COUNTER_KEYS=tidegate",
        );
    }
}

fn choices(word: &str, of: &[&'static str]) -> String {
    let expected = format!("expected {}", one_of(of));
    match nearest(word, of.iter().copied()) {
        Some(meant) => format!("{expected}; did you mean '{meant}'?"),
        None => expected,
    }
}

fn check_replaces(raw: &RawLimit, path: &Path<'_>, report: &mut Report) {
    let path = path.key("replaces");
    for (index, replaced) in raw.replaces.iter().enumerate() {
        if replaced.value.is_empty() {
            let advice = "write '- name: …' with the name of the limit to replace";
            report.problem(replaced.at, &path.item(index), "should not have an empty replaces entry", advice);
        } else if replaced.value == raw.name {
            let found = format!("replaces should not contain name of same descriptor: {}", quoted(&raw.name));
            report.problem(
                replaced.at,
                &path.item(index),
                found,
                "a limit cannot take its own place: remove it",
            );
        }
    }
}

/// An unlimited rule says nothing of how much; what is left of the reference's keys is ignored, as there.
fn unlimited(raw: &RawLimit, path: &Path<'_>, report: &mut Report) -> Option<Grant> {
    let mut grant = Some(Grant::Unlimited);
    if let Some(unit) = raw.unit.as_ref().filter(|unit| find_unit(&unit.value).is_some()) {
        let found =
            format!("should not specify rate limit unit when unlimited: found {}", quoted(&unit.value));
        report.problem(unit.at, &path.key("unit"), found, "remove either unit or unlimited");
        grant = None;
    }
    let ours = [
        ("unit_multiplier", raw.unit_multiplier.as_ref().map(|field| field.at)),
        ("algorithm", raw.algorithm.as_ref().map(|field| field.at)),
        ("burst", raw.burst.as_ref().map(|field| field.at)),
        ("max_delay", raw.max_delay.as_ref().map(|field| field.at)),
        ("on_store_failure", raw.on_store_failure.as_ref().map(|field| field.at)),
        ("lease", raw.lease.as_ref().map(|field| field.at)),
    ];
    for (name, at) in ours {
        if let Some(at) = at {
            let found = format!("should not specify {name} when unlimited");
            report.problem(at, &path.key(name), found, format!("remove either {name} or unlimited"));
            grant = None;
        }
    }
    grant
}

fn limited(raw: &RawLimit, path: &Path<'_>, report: &mut Report) -> Option<Limit> {
    if raw.requests_per_unit.is_none() && !raw.incomplete {
        let found = "no requests_per_unit, which means 0: every request is refused";
        report.warning(raw.at, path, found, "write the number, also if it is 0");
    }
    let requests_per_unit = raw.requests_per_unit.as_ref().map_or(0, |field| field.value);
    // Both are looked at, so that both are reported.
    let window = window(raw, path, report);
    let algorithm = algorithm(raw, requests_per_unit, window, path, report);
    Some(Limit { requests_per_unit, window: window?, algorithm: algorithm? })
}

/// The unit that this names, in any case; `unknown` is none.
fn find_unit(word: &str) -> Option<Unit> {
    Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(word))
}

fn window(raw: &RawLimit, path: &Path<'_>, report: &mut Report) -> Option<Window> {
    let word = raw.unit.as_ref().map_or("", |unit| unit.value.as_str());
    let Some(unit) = find_unit(word) else {
        if raw.unit.is_none() && raw.incomplete {
            return None;
        }
        let names = Unit::ALL.map(|unit| unit.name().to_ascii_lowercase());
        let expected = format!("expected {}", one_of(&names.each_ref().map(String::as_str)));
        let advice = match nearest(word.trim(), names.iter().map(String::as_str)) {
            Some(meant) => format!("{expected}; did you mean '{meant}'?"),
            None if raw.unit.is_none() => format!("write a unit; {expected}"),
            None => expected,
        };
        let (at, found) = (
            raw.unit.as_ref().map_or(raw.at, |unit| unit.at),
            format!("invalid rate limit unit {}", quoted(word)),
        );
        report.problem(at, &path.key("unit"), found, advice);
        return None;
    };
    let Some(multiplier) = &raw.unit_multiplier else { return Some(Window::of(unit)) };
    let window = multiplier.value.try_into().ok().and_then(|value| Window::new(unit, value));
    if window.is_none() {
        let most = Window::MAX_SECS / u64::from(unit.secs());
        let advice = format!(
            "expected 1 to {most} with unit {}: a window is at most 100 years",
            unit.name().to_ascii_lowercase()
        );
        report.problem(
            multiplier.at,
            &path.key("unit_multiplier"),
            format!("invalid unit_multiplier {}", multiplier.value),
            advice,
        );
    }
    window
}

fn algorithm(
    raw: &RawLimit,
    requests_per_unit: u32,
    window: Option<Window>,
    path: &Path<'_>,
    report: &mut Report,
) -> Option<Algorithm> {
    let name = raw.algorithm.as_ref().map_or("fixed_window", |algorithm| algorithm.value.as_str());
    let algorithm = match name {
        "fixed_window" => Some(Algorithm::FixedWindow),
        "sliding_window" => Some(Algorithm::SlidingWindow),
        "sliding_log" => sliding_log(raw, requests_per_unit, path, report),
        "token_bucket" => token_bucket(raw, requests_per_unit, path, report),
        "leaky_bucket" => leaky_bucket(raw, requests_per_unit, window, path, report),
        _ => {
            let at = raw.algorithm.as_ref().map_or(raw.at, |algorithm| algorithm.at);
            report.problem(
                at,
                &path.key("algorithm"),
                format!("unknown algorithm {}", quoted(name)),
                choices(name, &ALGORITHMS),
            );
            return None;
        }
    };
    let uses_burst = matches!(name, "token_bucket" | "leaky_bucket");
    let burst_fits = uses_burst
        || only_with("token_bucket or leaky_bucket", "burst", name, raw.burst.as_ref(), path, report);
    let delay_fits = name == "leaky_bucket"
        || only_with("leaky_bucket", "max_delay", name, raw.max_delay.as_ref(), path, report);
    algorithm.filter(|_| burst_fits && delay_fits)
}

/// Whether a field that `name` makes nothing of is absent; reports it if not.
fn only_with<T>(
    right: &str,
    key: &str,
    name: &str,
    field: Option<&Spanned<T>>,
    path: &Path<'_>,
    report: &mut Report,
) -> bool {
    let Some(field) = field else { return true };
    let found = format!("{key} means nothing to {name}");
    report.problem(field.at, &path.key(key), found, format!("set algorithm to {right}, or remove {key}"));
    false
}

fn sliding_log(
    raw: &RawLimit,
    requests_per_unit: u32,
    path: &Path<'_>,
    report: &mut Report,
) -> Option<Algorithm> {
    if requests_per_unit <= MAX_SLIDING_LOG {
        return Some(Algorithm::SlidingLog);
    }
    let at = raw.requests_per_unit.as_ref().map_or(raw.at, |field| field.at);
    let found = format!("sliding_log with requests_per_unit {requests_per_unit}");
    let advice =
        format!("expected at most {MAX_SLIDING_LOG}, since it remembers every hit: use sliding_window");
    report.problem(at, &path.key("requests_per_unit"), found, advice);
    None
}

fn token_bucket(
    raw: &RawLimit,
    requests_per_unit: u32,
    path: &Path<'_>,
    report: &mut Report,
) -> Option<Algorithm> {
    match &raw.burst {
        Some(burst) if burst.value == 0 && requests_per_unit > 0 => {
            let advice = "expected at least 1: a bucket that holds nothing refuses everything";
            report.problem(burst.at, &path.key("burst"), "token_bucket with burst 0", advice);
            None
        }
        burst => Some(Algorithm::TokenBucket {
            burst: burst.as_ref().map_or(requests_per_unit, |burst| burst.value),
        }),
    }
}

fn leaky_bucket(
    raw: &RawLimit,
    requests_per_unit: u32,
    window: Option<Window>,
    path: &Path<'_>,
    report: &mut Report,
) -> Option<Algorithm> {
    let Some(said) = &raw.max_delay else {
        if raw.incomplete {
            return None;
        }
        let at = raw.algorithm.as_ref().map_or(raw.at, |algorithm| algorithm.at);
        let advice =
            "say how long an answer may be held, as in 'max_delay: 10ms'; '0s' refuses instead of holding";
        report.problem(at, path, "leaky_bucket without max_delay", advice);
        return None;
    };
    let path = path.key("max_delay");
    let max_delay = match parse_duration(&said.value) {
        Some(delay) if delay <= MAX_DELAY => delay,
        parsed => {
            let found = format!("invalid max_delay {}", quoted(&said.value));
            let advice = if parsed.is_some() {
                "expected at most 60s"
            } else {
                "expected a number and a unit, as in 10ms, 1.5s or 0s"
            };
            report.problem(said.at, &path, found, advice);
            return None;
        }
    };
    if max_delay > MAX_DELAY_WARNING {
        let found = format!("max_delay {} is longer than Envoy waits", said.value);
        let advice = format!(
            "Envoy's timeout is 20ms if its filter sets no other: keep to {MAX_DELAY_WARNING:?} or raise that"
        );
        report.warning(said.at, &path, found, advice);
    }
    let burst = raw
        .burst
        .as_ref()
        .map(|burst| burst.value)
        .or_else(|| Some(held_in(max_delay, requests_per_unit, window?)))?;
    Some(Algorithm::LeakyBucket { burst, max_delay })
}

/// How many hits may wait when none may wait longer than `delay`: rounded up, so that it is the delay that decides.
fn held_in(delay: Duration, requests_per_unit: u32, window: Window) -> u32 {
    let held =
        (delay.as_micros() * u128::from(requests_per_unit)).div_ceil(u128::from(window.micros()).max(1));
    u32::try_from(held).unwrap_or(u32::MAX)
}

/// A duration as Go writes it: decimal numbers, each with a unit, as in `10ms`, `1.5s` or `1m30s`; `0` needs none.
///
/// To the nanosecond, rounded down. `None` if it is anything else, negative or longer than 584 years.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) =
            after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let scale = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanos = nanos.checked_add(scaled(number, scale)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(Duration::from_nanos(nanos))
}

/// A decimal number times `scale`, rounded down.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut total = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(scale)? };
    let mut place = scale;
    for digit in fraction.bytes() {
        // Digits beyond the unit's precision add nothing.
        total = total.checked_add(u64::from(digit - b'0') * place / 10)?;
        place /= 10;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_writes_them() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("1m30s", 90_000_000_000),
            (".5ms", 500_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("7ns", 7),
            ("1h", 3_600_000_000_000),
            ("1.s", 1_000_000_000),
            ("1.9ns", 1),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "10", "ms", "-1s", "+1s", "1d", "1 s", "1..5s", ".s", "1s2", "99999999999h", "1.5"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_queue_holds_what_may_wait_so_long() {
        let second = Window::of(Unit::Second);
        assert_eq!(held_in(Duration::from_millis(10), 1_000, second), 10);
        assert_eq!(held_in(Duration::from_millis(10), 99, second), 1);
        assert_eq!(held_in(Duration::from_millis(10), 101, second), 2);
        assert_eq!(held_in(Duration::ZERO, 1_000, second), 0);
        assert_eq!(held_in(MAX_DELAY, u32::MAX, second), u32::MAX);
    }
}
