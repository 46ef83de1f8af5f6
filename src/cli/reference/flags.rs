//! Flags as Go's `flag` package reads them: `-x v`, `-x=v`, one dash or two, up to the first word that is none. Pure.

use std::{ffi::OsString, fmt::Write as _};

use crate::settings::boolean;

/// One flag.
pub(super) struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text {
        default: &'static str,
    },
    /// True when it stands alone. False by default.
    Switch,
    /// As often as one likes. The check says what is wrong with a value.
    List {
        check: fn(&str) -> Result<(), String>,
    },
}

/// All flags of a program, by name.
pub(super) struct Flags(pub &'static [Flag]);

/// Why the program does not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Help,
    Wrong(String),
}

/// What was given: each flag that was, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Given(Vec<(&'static str, String)>);

impl Given {
    /// The last value of a text or a switch, or its default.
    pub fn last(&self, flag: &Flag) -> &str {
        let default = match flag.kind {
            Kind::Text { default } => default,
            Kind::Switch => "false",
            Kind::List { .. } => "",
        };
        self.0.iter().rev().find(|(name, _)| *name == flag.name).map_or(default, |(_, value)| value)
    }

    pub fn is_on(&self, flag: &Flag) -> bool {
        self.last(flag) == "true"
    }

    /// All values of a list.
    pub fn all<'g>(&'g self, flag: &'g Flag) -> impl Iterator<Item = &'g str> {
        self.0.iter().filter(|(name, _)| *name == flag.name).map(|(_, value)| value.as_str())
    }
}

impl Flags {
    pub fn read(&self, arguments: Vec<OsString>) -> Result<Given, Stop> {
        let mut given = Given::default();
        let mut words = arguments.into_iter().map(|word| {
            word.into_string().map_err(|word| Stop::Wrong(format!("{} is not UTF-8", word.display())))
        });
        while let Some(word) = words.next().transpose()? {
            let Some(bare) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { break };
            if bare.is_empty() {
                break;
            }
            if bare.starts_with(['-', '=']) {
                return Err(Stop::Wrong(format!("bad flag syntax: {word}")));
            }
            let (name, value) =
                bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(value)));
            let Some(flag) = self.0.iter().find(|flag| flag.name == name) else {
                let is_help = matches!(name, "h" | "help");
                let unknown = || Stop::Wrong(format!("flag provided but not defined: -{name}"));
                return Err(if is_help { Stop::Help } else { unknown() });
            };
            let value = match (value, flag.kind) {
                (Some(value), _) => value.to_owned(),
                (None, Kind::Switch) => "true".to_owned(),
                (None, _) => words
                    .next()
                    .transpose()?
                    .ok_or_else(|| Stop::Wrong(format!("flag needs an argument: -{name}")))?,
            };
            given.0.push((flag.name, flag.checked(value)?));
        }
        Ok(given)
    }

    pub fn usage(&self, program: &str) -> String {
        let mut text = format!("Usage of {program}:\n");
        for Flag { name, kind, help } in self.0 {
            let (value, default) = match kind {
                Kind::Text { default: "" } => (" string", String::new()),
                Kind::Text { default } => (" string", format!(" (default {default:?})")),
                Kind::Switch => ("", String::new()),
                Kind::List { .. } => (" value", String::new()),
            };
            let _ = writeln!(text, "  -{name}{value}\n    \t{help}{default}");
        }
        text
    }
}

impl Flag {
    fn checked(&self, value: String) -> Result<String, Stop> {
        let wrong = |kind: &str, why: &str| {
            Err(Stop::Wrong(format!("invalid {kind} {value:?} for flag -{}: {why}", self.name)))
        };
        match self.kind {
            Kind::Text { .. } => {}
            Kind::Switch => match boolean(&value) {
                Some(on) => return Ok(on.to_string()),
                None => return wrong("boolean value", "parse error"),
            },
            Kind::List { check } => {
                if let Err(why) = check(&value) {
                    return wrong("value", &why);
                }
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Flag = Flag { name: "name", kind: Kind::Text { default: "me" }, help: "who" };
    const LOUD: Flag = Flag { name: "loud", kind: Kind::Switch, help: "how" };
    const ODD: Flag = Flag {
        name: "odd",
        kind: Kind::List { check: |text| if text.len() % 2 == 1 { Ok(()) } else { Err("even".to_owned()) } },
        help: "what",
    };
    const FLAGS: Flags = Flags(&[LOUD, NAME, ODD]);

    fn read(line: &str) -> Result<Given, Stop> {
        FLAGS.read(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn flags_have_one_dash_or_two_and_a_value_behind_or_after_an_equals_sign() {
        for line in ["-name you -loud", "--name=you --loud=T", "-loud=1 -name=me --name you -- -loud=0"] {
            let given = read(line).unwrap();
            assert_eq!((given.last(&NAME), given.is_on(&LOUD)), ("you", true), "{line}");
        }
        let given = read("-odd a -loud=f -odd=b=c rest -name=x").unwrap();
        assert_eq!(given.all(&ODD).collect::<Vec<_>>(), ["a", "b=c"]);
        assert_eq!((given.last(&NAME), given.is_on(&LOUD)), ("me", false), "a word ends the flags");
        assert_eq!(read("-name=").unwrap().last(&NAME), "");
    }

    #[test]
    fn what_is_wrong_is_told_as_go_does() {
        for (line, why) in [
            ("-nam=x", "flag provided but not defined: -nam"),
            ("-name", "flag needs an argument: -name"),
            ("---name", "bad flag syntax: ---name"),
            ("-=x", "bad flag syntax: -=x"),
            ("-loud=yes", "invalid boolean value \"yes\" for flag -loud: parse error"),
            ("-odd=aa", "invalid value \"aa\" for flag -odd: even"),
        ] {
            assert_eq!(read(line), Err(Stop::Wrong(why.to_owned())), "{line}");
        }
        assert_eq!((read("-h"), read("--help")), (Err(Stop::Help), Err(Stop::Help)));
        assert_eq!(
            FLAGS.usage("it"),
            "Usage of it:\n  -loud\n    \thow\n  -name string\n    \twho (default \"me\")\n  -odd value\n    \twhat\n"
        );
    }
}
