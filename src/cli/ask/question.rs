//! What is asked: read from the command line, made into the message that Envoy sends.

use std::str::FromStr;

use bytes::Bytes;

use super::Arguments;
use crate::{
    limit::Unit,
    pb::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor},
};

/// A descriptor as it was typed, and the entries that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub typed: String,
    entries: Vec<(String, String)>,
}

impl FromStr for Asked {
    type Err = String;

    /// `key=value,key=value`; a backslash before `,` `=` or `\` takes its meaning away.
    fn from_str(typed: &str) -> Result<Self, String> {
        let (mut entries, mut key, mut piece) = (Vec::new(), None, String::new());
        let mut chars = typed.chars();
        loop {
            match chars.next() {
                Some('\\') => match chars.next() {
                    Some(c @ (',' | '=' | '\\')) => piece.push(c),
                    other => {
                        let found = other.map(String::from).unwrap_or_default();
                        return Err(format!("found `\\{found}`, expected one of `\\,` `\\=` `\\\\`"));
                    }
                },
                // Only the first one parts key and value.
                Some('=') if key.is_none() => key = Some(std::mem::take(&mut piece)),
                end @ (Some(',') | None) => {
                    entries.push(entry(key.take(), std::mem::take(&mut piece))?);
                    if end.is_none() {
                        return Ok(Self { typed: typed.to_owned(), entries });
                    }
                }
                Some(c) => piece.push(c),
            }
        }
    }
}

fn entry(key: Option<String>, rest: String) -> Result<(String, String), String> {
    match key {
        None => Err(format!("found `{rest}`, expected key=value (a comma in a value is written `\\,`)")),
        Some(key) if key.is_empty() => Err(format!("found `={rest}`, expected a key before the `=`")),
        Some(key) => Ok((key, rest)),
    }
}

/// A limit that the call brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Override {
    requests_per_unit: u32,
    multiplier: Option<u32>,
    unit: Unit,
}

impl FromStr for Override {
    type Err = String;

    /// `5/minute`, `100/5minutes`.
    fn from_str(text: &str) -> Result<Self, String> {
        parse_override(text).ok_or_else(|| {
            let units = Unit::ALL.map(|unit| unit.name().to_ascii_lowercase()).join(", ");
            format!("expected a number per unit, such as 5/minute or 100/5minutes, with one of {units}")
        })
    }
}

fn parse_override(text: &str) -> Option<Override> {
    let (number, window) = text.split_once('/')?;
    let letters = window.find(|c: char| !c.is_ascii_digit())?;
    let (multiplier, unit) = window.split_at(letters);
    let multiplier =
        if multiplier.is_empty() { None } else { Some(multiplier.parse().ok().filter(|n| *n > 0)?) };
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit.strip_suffix('S').unwrap_or(&unit);
    let unit = Unit::ALL.into_iter().find(|known| known.name() == unit)?;
    Some(Override { requests_per_unit: number.trim().parse().ok()?, multiplier, unit })
}

/// The message.
pub(super) fn request(arguments: &Arguments) -> RateLimitRequest {
    RateLimitRequest {
        domain: Bytes::from(arguments.domain.clone()),
        descriptors: arguments.descriptors.iter().map(|asked| descriptor(asked, arguments)).collect(),
        hits_addend: 0,
    }
}

fn descriptor(asked: &Asked, arguments: &Arguments) -> RateLimitDescriptor {
    let entry = |(key, value): &(String, String)| rate_limit_descriptor::Entry {
        key: Bytes::from(key.clone()),
        value: Bytes::from(value.clone()),
    };
    RateLimitDescriptor {
        entries: asked.entries.iter().map(entry).collect(),
        limit: arguments.limit.map(|limit| rate_limit_descriptor::RateLimitOverride {
            requests_per_unit: limit.requests_per_unit,
            unit: wire_unit(limit.unit),
            unit_multiplier: limit.multiplier,
        }),
        hits_addend: if arguments.peek { Some(0) } else { arguments.hits },
        is_negative_hits: arguments.refund,
    }
}

/// The number on the wire; the name of a week is missing from the enum there, its number is not.
fn wire_unit(unit: Unit) -> i32 {
    match unit {
        Unit::Second => 1,
        Unit::Minute => 2,
        Unit::Hour => 3,
        Unit::Day => 4,
        Unit::Month => 5,
        Unit::Year => 6,
        Unit::Week => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(typed: &str) -> Result<Vec<(String, String)>, String> {
        typed.parse().map(|asked: Asked| asked.entries)
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    }

    #[test]
    fn descriptors_are_pairs_with_escapes() {
        assert_eq!(entries("user=42,path=/login"), pairs([("user", "42"), ("path", "/login")]));
        assert_eq!(entries("a="), pairs([("a", "")]));
        assert_eq!(entries("q=a=b=c"), pairs([("q", "a=b=c")]));
        assert_eq!(entries(r"k\=e\,y\\=v\,w\=x\\"), pairs([(r"k=e,y\", r"v,w=x\")]));
        assert_eq!(entries("a= b ,ü=\n"), pairs([("a", " b "), ("ü", "\n")]));
    }

    #[test]
    fn what_is_no_pair_is_explained() {
        for (typed, found) in [
            ("", "found ``"),
            ("user", "found `user`"),
            ("a=b,", "found ``"),
            ("a=b,c", "found `c`"),
            ("=x", "found `=x`"),
        ] {
            let error = entries(typed).unwrap_err();
            assert!(error.starts_with(found) && error.contains("expected"), "{typed}: {error}");
        }
        assert!(entries(r"a=\n").unwrap_err().contains(r"found `\n`"));
        assert!(entries(r"a=\").unwrap_err().contains(r"found `\`"));
    }

    #[test]
    fn limits_are_numbers_per_unit() {
        let limit =
            |requests_per_unit, multiplier, unit| Ok(Override { requests_per_unit, multiplier, unit });
        assert_eq!("5/minute".parse(), limit(5, None, Unit::Minute));
        assert_eq!("0/Days".parse(), limit(0, None, Unit::Day));
        assert_eq!("100/5minutes".parse(), limit(100, Some(5), Unit::Minute));
        assert_eq!("100/5 minutes".parse(), limit(100, Some(5), Unit::Minute));
        for text in [
            "",
            "5",
            "5/",
            "/minute",
            "-1/minute",
            "5/fortnight",
            "5/0minutes",
            "4294967296/day",
            "5/minute/hour",
            "5/1",
        ] {
            let error = text.parse::<Override>().unwrap_err();
            assert!(error.contains("5/minute") && error.contains("year"), "{text}: {error}");
        }
    }
}
