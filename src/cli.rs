//! The command line: what an operator types, and what the program answers there. One file for each command.
//!
//! **Invariant:** exit codes are 0 (fine), 1 (the answer is no: rules with mistakes, over the limit, a server that could not go
//! on) and 2 (the question could not be asked: wrong usage, no server there).

mod ask;
mod check;
mod flags;
mod output;
mod reference;
mod serve;
mod settings;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, IsTerminal as _, Write},
    path::Path,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use self::{
    output::{Look, Output, Style},
    reference::Tool,
};
use crate::settings::{Given, REFERENCE_PROGRAM, colour_is_welcome};

/// The answer is no.
const NO: u8 = 1;
/// The question could not be asked.
const TROUBLE: u8 = 2;

/// A rate-limit service for Envoy.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Without a command it serves, with the rules in ./config if that directory is
there. Options of `serve` may follow directly.

Examples:
  tidegate --rules rules/               serve these rules: gRPC on 8081, HTTP on 8080
  tidegate check rules/                 find every mistake in them first
  tidegate ask --domain shop user=42    ask the server what Envoy would ask
  tidegate settings                     what is set, and by what";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Check(check::Arguments),
    Ask(ask::Arguments),
    Settings(settings::Arguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let mut given: Vec<_> = std::env::args_os().collect();
    if let Some(tool) = Tool::named(&program(&given)) {
        return reported(|out| tool.run(given.split_off(1), out));
    }
    match Cli::try_parse_from(arguments(given)) {
        Ok(Cli { command }) => reported(|out| command.unwrap_or_default().run(out)),
        Err(error) => {
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(TROUBLE))
        }
    }
}

/// Runs a command on standard output, and says on standard error what kept it from its end.
fn reported(run: impl FnOnce(&mut Output<'_>) -> anyhow::Result<ExitCode>) -> ExitCode {
    let colour = colour_is_welcome(&Given::process(BTreeMap::new()));
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let look = Look::of(stdout.is_terminal(), colour);
    let done = run(&mut Output::new(&mut stdout.lock(), look));
    done.unwrap_or_else(|error| {
        // Whoever reads the output has had enough: nothing is wrong.
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        let word = Look::of(stderr.is_terminal(), colour).paint(Style::Bad, "error");
        let _ = writeln!(stderr.lock(), "{word}: {error:#}");
        ExitCode::from(if error.is::<Trouble>() { TROUBLE } else { NO })
    })
}

impl Default for Command {
    fn default() -> Self {
        Self::Serve(serve::Arguments::default())
    }
}

impl Command {
    fn run(self, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve(arguments) => serve::run(arguments),
            Self::Check(arguments) => check::run(&arguments, out),
            Self::Ask(arguments) => ask::run(&arguments, out),
            Self::Settings(arguments) => settings::run(arguments, out),
        }
    }
}

/// What kept a question from being asked: the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Trouble(String);

/// The arguments to be parsed. Options without a command are those of `serve`; started as the reference, all arguments are
/// ignored, as the reference ignores them.
fn arguments(given: Vec<OsString>) -> Vec<OsString> {
    let is_reference = program(&given) == REFERENCE_PROGRAM;
    let mut given = given.into_iter();
    let program = given.next().unwrap_or_else(|| "tidegate".into());
    if is_reference {
        return vec![program];
    }
    let mut rest: Vec<_> = given.collect();
    let first = rest.first().and_then(|first| first.to_str()).unwrap_or_default();
    if first.starts_with("--") && !["--help", "--version"].contains(&first) {
        rest.insert(0, "serve".into());
    }
    rest.insert(0, program);
    rest
}

/// The name that the process was started under, without its directory.
fn program(given: &[OsString]) -> String {
    let name = given.first().and_then(|first| Path::new(first).file_name());
    name.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &str) -> Vec<String> {
        let words = line.split(' ').map(OsString::from).collect();
        arguments(words).into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_without_a_command_are_those_of_serve() {
        assert_eq!(parsed("tidegate --rules x"), ["tidegate", "serve", "--rules", "x"]);
        for line in
            ["tidegate", "tidegate --help", "tidegate -h", "tidegate --version", "tidegate check --json"]
        {
            assert_eq!(parsed(line).join(" "), line);
        }
    }

    #[test]
    fn started_as_the_reference_arguments_are_ignored() {
        assert_eq!(parsed("/bin/ratelimit --whatever you like"), ["/bin/ratelimit"]);
    }
}
