//! `ratelimit_config_check`: whether the files of a directory are rules that a server takes.

use std::{fs, io, path::Path, process::ExitCode};

use super::flags::{Flag, Flags, Given, Kind};
use crate::{
    cli::{
        NO,
        output::{Output, Style},
    },
    rules::{LoadOptions, RuleFile, RuleSet, source::RulesSource},
};

const CONFIG_DIR: Flag = Flag {
    name: "config_dir",
    kind: Kind::Text { default: "" },
    help: "path to the directory that holds the rate limit configs",
};
const MERGE: Flag = Flag {
    name: "merge_domain_configs",
    kind: Kind::Switch,
    help: "whether one domain may be in several files",
};

pub(super) const FLAGS: Flags = Flags(&[CONFIG_DIR, MERGE]);

pub(super) fn run(given: &Given, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
    let dir = Path::new(given.last(&CONFIG_DIR));
    say(out, "checking rate limit configs...")?;
    say(out, &format!("loading config directory: {}", dir.display()))?;
    let names = match names(dir) {
        Ok(names) => names,
        Err(error) => {
            return no(out, &format!("error opening directory {}: {error}", dir.display()));
        }
    };
    let mut files = Vec::new();
    for name in names {
        let path = dir.join(name);
        say(out, &format!("opening config file: {}", path.display()))?;
        match read(&path) {
            Ok(file) => files.push(file),
            Err(why) => return no(out, &format!("error opening file {why}")),
        }
    }
    let options = LoadOptions { merge_domains: given.is_on(&MERGE), ..LoadOptions::default() };
    match RuleSet::load(&files, &options) {
        Ok(loaded) => {
            loaded.warnings.iter().try_for_each(|warning| say(out, &format!("warning: {warning}")))?;
            say(out, "all rate limit configs ok")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            let problems = problems.to_string();
            problems
                .lines()
                .try_for_each(|problem| say(out, &format!("error loading rate limit configs: {problem}")))?;
            Ok(ExitCode::from(NO))
        }
    }
}

/// What is in the directory, in order. Not what a mounted ConfigMap keeps there for itself (`..data`): it is no file.
fn names(dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.retain(|name| !name.as_encoded_bytes().starts_with(b".."));
    names.sort();
    Ok(names)
}

/// One file, whatever its name; a directory is none.
fn read(path: &Path) -> Result<RuleFile, String> {
    if path.is_dir() {
        return Err(format!("{}: is a directory", path.display()));
    }
    let mut reading = RulesSource::Path(path.to_owned()).read();
    if let Some(unreadable) = reading.problems.pop() {
        return Err(unreadable.to_string());
    }
    reading.files.pop().ok_or_else(|| format!("{}: is no file", path.display()))
}

fn say(out: &mut Output<'_>, line: &str) -> io::Result<()> {
    out.line(&[(Style::Plain, line)])
}

fn no(out: &mut Output<'_>, why: &str) -> anyhow::Result<ExitCode> {
    say(out, why)?;
    Ok(ExitCode::from(NO))
}
