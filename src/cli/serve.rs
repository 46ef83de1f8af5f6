//! `tidegate serve`: reads the settings and hands over to the server.

use std::process::ExitCode;

use super::{NO, flags::SettingFlags};
use crate::{app, settings::Settings, telemetry::logs};

/// Answers Envoy: the command that runs when none is named.
///
/// Every setting is an environment variable and a flag; a flag beats the variable. `-h` shows a few of them, `--help` all.
/// Rules are read again when their files change, or at once on SIGHUP.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: SettingFlags,
}

const EXAMPLES: &str = "\
Examples:
  tidegate serve                                 rules from ./config
  tidegate serve --rules limits.yaml --grpc-port 9081
  tidegate serve --rules rules/ --shadow-mode    count, but enforce nothing
  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit tidegate serve";

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let settings = Settings::read(&arguments.flags.given())?;
    logs::init(settings.log_level, settings.log_format)?;
    if let Err(error) = app::run(&settings) {
        logs::fatal(&error);
        return Ok(ExitCode::from(NO));
    }
    Ok(ExitCode::SUCCESS)
}
