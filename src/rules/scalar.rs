//! What an unquoted word of YAML 1.1 means: a number, a boolean, nothing, or text. As the reference's reader resolves it,
//! which is not as YAML 1.2 does: `010` is 8, `on` is true, `08` is a float.
//!
//! **Invariant:** the text stays beside its meaning, because a descriptor's value is its text whatever it looks like.

/// The prefix of YAML's own tags; `!!int` is short for it and `int`.
const CORE: &str = "tag:yaml.org,2002:";

/// What a scalar means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    Float(f64),
    Text,
    /// `!!binary`, decoded.
    Bytes(Vec<u8>),
}

/// A scalar as written and what it means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scalar {
    pub text: Box<str>,
    pub meaning: Meaning,
    /// Not quoted and not a block scalar.
    pub plain: bool,
}

impl Scalar {
    /// The bytes that a text field takes from this: what is written, nothing for null, the bytes of a `!!binary`.
    pub fn bytes(&self) -> &[u8] {
        match &self.meaning {
            Meaning::Null => b"",
            Meaning::Bytes(bytes) => bytes,
            _ => self.text.as_bytes(),
        }
    }
}

/// Resolves a scalar. `tag` is the full tag, if it has one.
///
/// Fails when the tag does not fit the text, with what to say.
pub(crate) fn resolve(text: &str, plain: bool, tag: Option<&str>) -> Result<Meaning, String> {
    let Some(tag) = tag else {
        return Ok(if plain { untagged(text) } else { Meaning::Text });
    };
    let wrong = || {
        Err(format!("{} cannot be read as !!{}", super::problem::quoted(text), tag.trim_start_matches(CORE)))
    };
    match (tag.strip_prefix(CORE), untagged(text)) {
        (Some("binary"), _) => decode_base64(text).map_or_else(wrong, |bytes| Ok(Meaning::Bytes(bytes))),
        (Some("null"), Meaning::Null) => Ok(Meaning::Null),
        (Some("bool"), meaning @ Meaning::Bool(_)) => Ok(meaning),
        (Some("int"), meaning @ (Meaning::Int(_) | Meaning::Uint(_))) => Ok(meaning),
        (Some("float"), meaning @ Meaning::Float(_)) => Ok(meaning),
        #[expect(clippy::cast_precision_loss, reason = "the tag asks for a double")]
        (Some("float"), Meaning::Int(n)) => Ok(Meaning::Float(n as f64)),
        (Some("timestamp"), Meaning::Text) if looks_like_a_date(text) => Ok(Meaning::Text),
        (Some("null" | "bool" | "int" | "float" | "timestamp"), _) => wrong(),
        // `!!str`, and tags that mean nothing here.
        _ => Ok(Meaning::Text),
    }
}

fn untagged(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Meaning::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Meaning::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Meaning::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or(Meaning::Text),
    }
}

fn number(text: &str) -> Option<Meaning> {
    match text.as_bytes().first()? {
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        b'.' if underscores_stand_between_digits(text) => float(&text.replace('_', "")),
        _ => None,
    }
}

/// An integer in any of the four radixes, in the range of an `i64`, or of a `u64` if it has no sign.
fn integer(text: &str) -> Option<Meaning> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, unsigned.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, unsigned.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, unsigned.get(2..)?),
        [b'0', _, ..] => (8, unsigned.get(1..)?),
        _ => (10, unsigned),
    };
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    match i64::try_from(if negative { -magnitude } else { magnitude }) {
        Ok(n) => Some(Meaning::Int(n)),
        Err(_) if unsigned.len() == text.len() => u64::try_from(magnitude).ok().map(Meaning::Uint),
        Err(_) => None,
    }
}

/// A decimal number: `1`, `1.`, `.5` or `1.5`, with or without a sign and an exponent. One that no double holds is text.
fn float(text: &str) -> Option<Meaning> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) =
        unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let all_digits = |s: &str| s.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_is_right =
        all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let exponent_is_right = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    let value: f64 = if mantissa_is_right && exponent_is_right { text.parse().ok()? } else { return None };
    value.is_finite().then_some(Meaning::Float(value))
}

fn underscores_stand_between_digits(text: &str) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(i, byte)| {
        *byte != b'_'
            || (i.checked_sub(1).is_some_and(|before| digit(bytes.get(before))) && digit(bytes.get(i + 1)))
    })
}

fn looks_like_a_date(text: &str) -> bool {
    matches!(text.as_bytes(), [a, b, c, d, b'-', ..] if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()))
}

/// Standard base64 with its padding; line breaks do not count. `None` if it is anything else.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let (groups, []) = symbols.as_chunks::<4>() else { return None };
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (i, group) in groups.iter().enumerate() {
        let n_padding = group.iter().rev().take_while(|symbol| **symbol == b'=').count();
        if n_padding > 2 || (n_padding > 0 && i + 1 < groups.len()) {
            return None;
        }
        let mut bits = 0_u32;
        for symbol in group.iter().take(4 - n_padding) {
            bits = bits << 6 | u32::from(base64_digit(*symbol)?);
        }
        let [_, decoded @ ..] = (bits << (6 * n_padding)).to_be_bytes();
        bytes.extend(decoded.iter().take(3 - n_padding));
    }
    Some(bytes)
}

fn base64_digit(symbol: u8) -> Option<u8> {
    match symbol {
        b'A'..=b'Z' => Some(symbol - b'A'),
        b'a'..=b'z' => Some(symbol - b'a' + 26),
        b'0'..=b'9' => Some(symbol - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning::*, *};

    #[test]
    fn plain_words_resolve_as_yaml_1_1_does() {
        let cases = [
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("NULL", Null),
            ("nULL", Text),
            ("y", Bool(true)),
            ("On", Bool(true)),
            ("YES", Bool(true)),
            ("True", Bool(true)),
            ("tRUE", Text),
            ("n", Bool(false)),
            ("off", Bool(false)),
            ("No", Bool(false)),
            ("FALSE", Bool(false)),
            ("nope", Text),
            ("0", Int(0)),
            ("10", Int(10)),
            ("010", Int(8)),
            ("0o17", Int(15)),
            ("0x1F", Int(31)),
            ("0b101", Int(5)),
            ("1_000", Int(1000)),
            ("1__0", Int(10)),
            ("-5", Int(-5)),
            ("+5", Int(5)),
            ("-0x10", Int(-16)),
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", Uint(1 << 63)),
            ("18446744073709551615", Uint(u64::MAX)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("+18446744073709551615", Float(18_446_744_073_709_551_615.0)),
            ("08001", Float(8001.0)),
            ("1.0", Float(1.0)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("-.5", Float(-0.5)),
            ("1e3", Float(1000.0)),
            ("1E-2", Float(0.01)),
            (".5_0", Float(0.5)),
            ("._5", Text),
            (".", Text),
            ("1e", Text),
            ("1e999", Text),
            ("0x", Text),
            ("0x+5", Text),
            ("0b12", Text),
            ("-", Text),
            ("+", Text),
            ("--1", Text),
            (".inf", Float(f64::INFINITY)),
            ("-.Inf", Float(f64::NEG_INFINITY)),
            ("inf", Text),
            ("1.2.3", Text),
            ("12:30", Text),
            ("2024-02-29", Text),
            ("10.0.0.1", Text),
            ("/api", Text),
            ("<<", Text),
            ("0x1p4", Text),
        ];
        for (text, meaning) in cases {
            assert_eq!(resolve(text, true, None), Ok(meaning), "{text}");
            assert_eq!(resolve(text, false, None), Ok(Text), "quoted {text}");
        }
        assert!(matches!(resolve(".NaN", true, None), Ok(Float(nan)) if nan.is_nan()));
    }

    #[test]
    fn a_tag_decides_or_refuses() {
        let tagged = |tag: &str, text: &str| resolve(text, false, Some(&format!("{CORE}{tag}")));
        assert_eq!(tagged("str", "12"), Ok(Text));
        assert_eq!(tagged("int", "12"), Ok(Int(12)));
        assert_eq!(tagged("float", "12"), Ok(Float(12.0)));
        assert_eq!(tagged("bool", "yes"), Ok(Bool(true)));
        assert_eq!(tagged("null", ""), Ok(Null));
        assert_eq!(tagged("timestamp", "2024-01-02"), Ok(Text));
        assert_eq!(tagged("binary", "aGVsbG8="), Ok(Bytes(b"hello".to_vec())));
        assert_eq!(tagged("binary", "//79\n/A=="), Ok(Bytes(vec![0xFF, 0xFE, 0xFD, 0xFC])));
        assert_eq!(tagged("set", "12"), Ok(Text));
        assert_eq!(resolve("12", true, Some("!mine")), Ok(Text));
        for (tag, text) in [
            ("int", "x"),
            ("int", "1.5"),
            ("float", "x"),
            ("bool", "1"),
            ("null", "x"),
            ("timestamp", "x"),
            ("binary", "a"),
            ("binary", "a==="),
            ("binary", "aGVs*G8="),
        ] {
            let said = tagged(tag, text).unwrap_err();
            assert!(said.contains(tag) && said.contains(text), "{said}");
        }
    }
}
