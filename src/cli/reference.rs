//! The reference's own tools: who starts this program under one of their names gets what they give, for scripts and images
//! that call them. Thin: the questions are those of `ask` and `check`.

mod client;
mod config_check;
mod flags;
mod text;

use std::{ffi::OsString, io, process::ExitCode};

use self::flags::{Flags, Stop};
use super::{TROUBLE, output::Output};

/// A tool: what it takes, and what it does.
pub(super) struct Tool {
    name: &'static str,
    flags: Flags,
    run: fn(&flags::Given, &mut Output<'_>) -> anyhow::Result<ExitCode>,
}

static TOOLS: [Tool; 2] = [
    Tool { name: "ratelimit_client", flags: client::FLAGS, run: client::run },
    Tool { name: "ratelimit_config_check", flags: config_check::FLAGS, run: config_check::run },
];

impl Tool {
    /// The tool that a program of this name stands for.
    pub fn named(program: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == program)
    }

    /// `arguments`: without the program's name. As in the reference, wrong usage is told on standard error with what would be
    /// right, and the exit code is 2.
    pub fn run(&self, arguments: Vec<OsString>, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
        let stop = match self.flags.read(arguments) {
            Ok(given) => return (self.run)(&given, out),
            Err(stop) => stop,
        };
        let mut said = io::stderr().lock();
        let usage = self.flags.usage(self.name);
        Ok(match stop {
            Stop::Help => {
                io::Write::write_all(&mut said, usage.as_bytes())?;
                ExitCode::SUCCESS
            }
            Stop::Wrong(why) => {
                io::Write::write_all(&mut said, format!("{why}\n{usage}").as_bytes())?;
                ExitCode::from(TROUBLE)
            }
        })
    }
}
