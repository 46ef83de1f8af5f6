//! The reference's configuration environment: all 114 variables, each with its default, a value that fits and one that does
//! not. One test per variable, so that a failure names it.
//!
//! A variable that the table of settings does not know fails, as does one whose default is not what `rows.rs` says.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

mod rows;

use std::{collections::BTreeSet, ffi::OsString, os::unix::ffi::OsStringExt as _, process::Command};

use libtest_mimic::{Arguments, Failed, Trial};
use rows::{Bad, ROWS, Row};
use tidegate::settings::{Given, Settings, SettingsError, TABLE};

/// How many variables the reference reads.
const N_VARIABLES: usize = 114;

fn main() {
    let mut trials: Vec<_> =
        ROWS.iter().map(|row| Trial::test(row.name, || checked(|| row.check()))).collect();
    trials.push(Trial::test("every_variable_has_a_row", || checked(every_variable_has_a_row)));
    trials.push(Trial::test("the_program_shows_every_default", || checked(the_program_shows_every_default)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn checked(check: impl FnOnce()) -> Result<(), Failed> {
    check();
    Ok(())
}

fn every_variable_has_a_row() {
    let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!((names.len(), ROWS.len()), (N_VARIABLES, N_VARIABLES), "{names:?}");
}

fn the_program_shows_every_default() {
    let shown = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(std::env::temp_dir())
        .env_clear()
        .args(["settings", "--json"])
        .output()
        .unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    for row in ROWS {
        let setting = &shown["settings"][row.name];
        assert_eq!(setting["value"], row.default, "{}", row.name);
        assert_eq!(setting["from"], "default", "{}", row.name);
    }
}

impl Row {
    fn check(&self) {
        assert!(TABLE.iter().any(|row| row.name == self.name), "{} is no setting", self.name);
        self.has_its_default();
        let (value, shown) = self.good;
        self.takes(value, shown);
        match self.bad {
            Bad::Refused(value, expected) => self.refuses(value.into(), expected),
            Bad::NotText => self.refuses(OsString::from_vec(b"\xff".to_vec()), "text in UTF-8"),
            Bad::Warned(value, shown, words) => {
                let warnings = self.takes(value, shown);
                assert!(
                    warnings.iter().any(|warning| warning.contains(self.name) && warning.contains(words)),
                    "{}={value}: {words:?} is missing: {warnings:?}",
                    self.name
                );
            }
        }
    }

    fn has_its_default(&self) {
        let settings = Settings::read(&Given::of([])).unwrap();
        assert_eq!(self.shown(&settings), (self.default, "default"), "{}", self.name);
    }

    /// Returns the warnings.
    fn takes(&self, value: &str, shown: &str) -> Vec<String> {
        let settings = self.read(value.into()).unwrap_or_else(|error| panic!("{error}"));
        let origin = if shown == self.default && is_link(value) { "default" } else { "flag" };
        assert_eq!(self.shown(&settings), (shown, origin), "{}={value}", self.name);
        settings.warnings
    }

    fn refuses(&self, value: OsString, expected: &str) {
        let error = self.read(value).expect_err(self.name);
        let about = error.problems.iter().find(|problem| problem.name == self.name);
        let told = about.unwrap_or_else(|| panic!("{}: {error}", self.name)).to_string();
        assert!(told.contains(expected), "{expected:?} is missing: {told}");
    }

    /// Reads this value with what it needs beside it. The environment's service links aside, a flag and a variable are one.
    fn read(&self, value: OsString) -> Result<Settings, SettingsError> {
        let given = match value.to_str().filter(|value| is_link(value)) {
            Some(link) => Given::of([(self.name, link)]),
            None => Given::of([]).with_flag(self.name, value),
        };
        let beside = self.beside.iter();
        Settings::read(&beside.fold(given, |given, (name, value)| given.with_flag(name, *value)))
    }

    fn shown<'s>(&self, settings: &'s Settings) -> (&'s str, &'static str) {
        let shown = settings.shown.iter().find(|shown| shown.row.name == self.name);
        let shown = shown.unwrap_or_else(|| panic!("{} is not shown", self.name));
        (shown.value.as_str(), shown.origin.name())
    }
}

/// What Kubernetes sets for a Service.
fn is_link(value: &str) -> bool {
    value.starts_with("tcp://")
}
