//! Booleans, numbers and durations as Go spells them, because operators' manifests were written for a Go program.
//! Pure; knows no setting.

use std::time::Duration;

/// `1 t T TRUE true True 0 f F FALSE false False`, nothing else.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// A whole number: decimal, `0x…`, `0o…` or a leading `0` (octal), `0b…`, with `_` between digits.
pub(super) fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = signed(text);
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)?),
        Some("0o") => (8, lower.get(2..)?),
        Some("0b") => (2, lower.get(2..)?),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    let after_prefix = digits.len() < lower.len();
    let digits = without_underscores(digits, after_prefix)?;
    let magnitude = i128::from_str_radix(&digits, radix).ok()?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// A number with a fraction; `_` between digits. Never infinite and never "not a number".
pub(super) fn float(text: &str) -> Option<f64> {
    let (_, unsigned) = signed(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let number: f64 = without_underscores(unsigned, false)?.parse().ok()?;
    number.is_finite().then_some(sign * number)
}

/// `1h30m`, `1.5s`, `250ms`, `0`: numbers, each with its unit; only a plain zero needs none. In
/// nanoseconds, which may be negative.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = signed(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, after) = unit(after)?;
        nanos = nanos.checked_add(part(whole, fraction, unit)?)?;
        rest = after;
    }
    let nanos = i64::try_from(nanos).ok()?;
    Some(if negative { -nanos } else { nanos })
}

/// A duration as an operator would write it: `24h`, `1m30s`, `250ms`, `1.5ms`, `0s`.
pub(crate) fn show_duration(span: Duration) -> String {
    if span.is_zero() {
        return "0s".to_owned();
    }
    let (seconds, nanos) = (span.as_secs(), span.subsec_nanos());
    if seconds == 0 {
        return match nanos {
            1_000_000.. => fraction(u64::from(nanos), 1_000_000, "ms"),
            1_000.. => fraction(u64::from(nanos), 1_000, "us"),
            _ => format!("{nanos}ns"),
        };
    }
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let mut text = String::new();
    for (n, unit) in [(hours, "h"), (minutes, "m")] {
        if n > 0 {
            text.push_str(&format!("{n}{unit}"));
        }
    }
    let rest = seconds % 60 * 1_000_000_000 + u64::from(nanos);
    if rest > 0 {
        text.push_str(&fraction(rest, 1_000_000_000, "s"));
    }
    text
}

fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Takes the `_` out, each of which must stand between two digits (or between a base prefix and a digit).
fn without_underscores(digits: &str, after_prefix: bool) -> Option<String> {
    let mut plain = String::with_capacity(digits.len());
    let mut digit_before = after_prefix;
    for c in digits.chars() {
        if c == '_' {
            if !digit_before {
                return None;
            }
        } else {
            plain.push(c);
        }
        digit_before = c.is_ascii_hexdigit();
    }
    (!digits.ends_with('_') && !digits.contains("_.") && plain.starts_with(|c: char| c != '+' && c != '-'))
        .then_some(plain)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Nanoseconds in the unit that `text` starts with, and what follows.
fn unit(text: &str) -> Option<(u64, &str)> {
    const UNITS: [(&str, u64); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    UNITS.iter().find_map(|(name, nanos)| text.strip_prefix(name).map(|after| (*nanos, after)))
}

fn part(whole: &str, fraction: &str, unit: u64) -> Option<u128> {
    let unit = u128::from(unit);
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let fraction = fraction.get(..fraction.len().min(15)).unwrap_or_default();
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    number(whole)?.checked_mul(unit)?.checked_add(number(fraction)? * unit / scale)
}

/// `n` in units of `scale`, with as many decimals as it needs.
fn fraction(n: u64, scale: u64, unit: &str) -> String {
    let width = usize::try_from(scale.ilog10()).unwrap_or(0);
    let decimals = format!("{:0width$}", n % scale);
    match decimals.trim_end_matches('0') {
        "" => format!("{}{unit}", n / scale),
        decimals => format!("{}.{decimals}{unit}", n / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_have_twelve_spellings() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "yes", "on", "tRUE", " true", "2"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }

    #[test]
    fn integers_take_base_prefixes_and_underscores() {
        for (text, number) in [
            ("0", 0),
            ("-0", 0),
            ("+8081", 8081),
            ("0x1F91", 8081),
            ("0X1f91", 8081),
            ("017621", 8081),
            ("0o17621", 8081),
            ("0b11", 3),
            ("8_081", 8081),
            ("0x_1F_91", 8081),
            ("0_17", 15),
            ("-5", -5),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        for text in [
            "",
            "-",
            "+",
            "_1",
            "1_",
            "1__0",
            "08",
            "0x",
            "0xg",
            "1.0",
            "1e3",
            " 1",
            "1 ",
            "--1",
            "+-1",
            "0x-1",
            "9223372036854775808",
            "tcp://10.0.0.1:8080",
        ] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_finite() {
        for (text, number) in [
            ("0.8", 0.8),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e-1", 0.1),
            ("-1", -1.0),
            ("+2", 2.0),
            ("1_0.5", 10.5),
        ] {
            assert_eq!(float(text), Some(number), "{text}");
        }
        for text in ["", ".", "nan", "NaN", "inf", "-Inf", "1e999", "0,8", "80%", "_1", "1_", "1_.5", "--1"] {
            assert_eq!(float(text), None, "{text}");
        }
    }

    #[test]
    fn durations_need_units() {
        for (text, nanos) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("3μs", 3_000),
            ("7ns", 7),
            ("0.0000000019s", 1),
            ("1m1m", 120_000_000_000),
        ] {
            assert_eq!(duration(text), Some(nanos), "{text}");
        }
        assert_eq!(duration("-1m"), Some(-60_000_000_000));
        for text in [
            "",
            "1",
            "10",
            "s",
            ".s",
            "1d",
            "1 s",
            "1S",
            "1h ",
            "3000000h",
            "99999999999999999999999999999999999999999h",
            "-",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for (nanos, shown) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5us"),
            (250_000_000, "250ms"),
            (1_000_000_000, "1s"),
            (1_500_000_000, "1.5s"),
            (90_000_000_000, "1m30s"),
            (3_600_000_000_000, "1h"),
            (86_400_000_000_000, "24h"),
            (3_601_000_000_000, "1h1s"),
        ] {
            assert_eq!(show_duration(Duration::from_nanos(nanos)), shown);
            assert_eq!(duration(shown), i64::try_from(nanos).ok());
        }
    }
}
