//! A flag for every setting, made from the table: `GRPC_PORT` is `--grpc-port`.

use std::{collections::BTreeMap, ffi::OsString, sync::LazyLock};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::settings::{Given, Row, TABLE};

/// The settings that `-h` shows; `--help` shows all.
const COMMON: [&str; 6] = ["RULES", "GRPC_PORT", "PORT", "BACKEND_TYPE", "LOG_LEVEL", "SHADOW_MODE"];

/// For each setting its flag and what stands for its value, kept because clap borrows them for ever.
static NAMES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    TABLE.iter().map(|row| (row.flag(), row.kind.to_ascii_uppercase().replace(' ', "_"))).collect()
});

/// Settings that were given as flags, by the name of their variable.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingFlags(BTreeMap<&'static str, OsString>);

impl SettingFlags {
    /// These flags and all else that the process was given.
    pub fn given(self) -> Given {
        Given::process(self.0)
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(TABLE.iter().zip(NAMES.iter()).map(|(row, (flag, value))| argument(row, flag, value)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |row: &'static Row| Some((row.name, matches.get_one::<OsString>(row.name)?.clone()));
        Ok(Self(TABLE.iter().filter_map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

fn argument(row: &'static Row, flag: &'static str, value: &'static str) -> Arg {
    let default = match (row.default)() {
        default if default.is_empty() => "empty".to_owned(),
        default => default,
    };
    let argument = Arg::new(row.name)
        .long(flag)
        .help(format!("{} [default: {default}]", row.help()))
        .help_heading(row.group)
        .hide_short_help(!COMMON.contains(&row.name))
        .value_parser(clap::value_parser!(OsString))
        .allow_negative_numbers(true);
    match row.kind {
        // A switch may stand alone; then its value, if there is one, needs the `=`.
        "boolean" => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("true|false"),
        "presence" => {
            argument.num_args(0..=1).require_equals(true).default_missing_value("1").value_name("any")
        }
        _ => argument.value_name(value),
    }
}
