//! `tidegate settings`: what is in force, and where it comes from.

use std::process::ExitCode;

use serde::Serialize;

use super::{
    flags::SettingFlags,
    output::{Output, Style},
};
use crate::settings::{Origin, Settings, markdown};

/// Shows every setting, its value and where that comes from; secrets are masked.
///
/// Takes the flags of `serve`, to show what they would change.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// Prints the reference of settings instead.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    #[command(flatten)]
    flags: SettingFlags,
}

const EXAMPLES: &str = "\
Examples:
  tidegate settings               which value is in force, and what set it
  tidegate settings --json | jq .settings.LOG_LEVEL
  tidegate settings --markdown    what every setting means";

#[derive(Serialize)]
struct Printed<'s> {
    settings: serde_json::Map<String, serde_json::Value>,
    rules: String,
    store: &'s str,
    statistics: &'static str,
    warnings: &'s [String],
}

pub(super) fn run(arguments: Arguments, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
    if arguments.markdown {
        out.text(&markdown())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::read(&arguments.flags.given())?;
    if arguments.json {
        json(&settings, out)?
    } else {
        text(&settings, out)?
    }
    Ok(ExitCode::SUCCESS)
}

fn json(settings: &Settings, out: &mut Output<'_>) -> anyhow::Result<()> {
    let one = |shown: &crate::settings::Shown| {
        (shown.row.name.to_owned(), serde_json::json!({"value": shown.value, "from": shown.origin.name()}))
    };
    out.json(&Printed {
        settings: settings.shown.iter().map(one).collect(),
        rules: rules(settings),
        store: &settings.store.why,
        statistics: settings.stats.sink.name(),
        warnings: &settings.warnings,
    })
}

fn text(settings: &Settings, out: &mut Output<'_>) -> anyhow::Result<()> {
    let rows: Vec<_> = settings
        .shown
        .iter()
        .map(|shown| {
            let style = if shown.origin == Origin::Default { Style::Weak } else { Style::Strong };
            [
                (style, shown.row.name.to_owned()),
                (Style::Plain, shown.value.clone()),
                (style, shown.origin.name().to_owned()),
            ]
        })
        .collect();
    out.table(["setting", "value", "from"], &rows)?;
    out.line(&[])?;
    out.line(&[(Style::Weak, "rules from "), (Style::Plain, &rules(settings))])?;
    out.line(&[(Style::Weak, store(settings)), (Style::Plain, &settings.store.why)])?;
    out.line(&[(Style::Weak, "statistics: "), (Style::Plain, settings.stats.sink.name())])?;
    for warning in &settings.warnings {
        out.line(&[(Style::Odd, "warning: "), (Style::Plain, warning)])?;
    }
    Ok(())
}

/// Where they come from.
fn rules(settings: &Settings) -> String {
    match &settings.control_plane {
        Some(options) => format!("the control plane at {}", options.server.address),
        None => settings.rules.to_string(),
    }
}

fn store(settings: &Settings) -> &'static str {
    if settings.store.redis().is_some() { "store: redis, because " } else { "store: memory, because " }
}
