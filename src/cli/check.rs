//! `tidegate check`: every mistake in rules files, before a server meets them.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use serde::Serialize;

use super::{
    NO, Trouble,
    output::{Output, Style},
};
use crate::rules::{
    LoadOptions, Loaded, Problem, Problems, RuleSet,
    source::{Reading, RulesSource, Unreadable},
};
use crate::settings::{Given, rules_options};

/// Finds every mistake in rules files, as the server would on loading them.
///
/// All that is named is one set of rules, so a domain in two files is a mistake, as it is for the server. Of a directory the
/// files that end in .yaml, .yml or .json are read, in sub-directories too. Exit code: 0 if the rules are fine, 1 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Files and directories with rules.
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    /// Allows a domain in several files, as MERGE_DOMAIN_CONFIG=true does, which is looked at too.
    #[arg(long)]
    merge_domains: bool,
    /// Whose counters the server shares, as its COUNTER_KEYS, which is looked at too: with envoyproxy every limit has to
    /// be a fixed window.
    #[arg(long, value_name = "tidegate|envoyproxy")]
    counter_keys: Option<OsString>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tidegate check rules/
  tidegate check limits.yaml && kubectl apply -f config-map.yaml
  tidegate check --json rules/ | jq -r '.problems[].found'";

/// What was found, file by file.
struct Found {
    files: Vec<String>,
    unreadable: Vec<Unreadable>,
    problems: Option<Problems>,
    /// About files as such.
    remarks: Vec<String>,
    /// About what is in them.
    warnings: Vec<Problem>,
    /// Domains and rules, where there are no mistakes in what could be read.
    counts: Option<(usize, usize)>,
}

impl Found {
    fn is_fine(&self) -> bool {
        self.unreadable.is_empty() && self.problems.is_none()
    }

    fn n_problems(&self) -> usize {
        self.unreadable.len() + self.problems.as_ref().map_or(0, Problems::total)
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
    let options = rules_options(&arguments.given()).map_err(|error| Trouble(error.to_string()))?;
    let found = look(arguments, &options);
    if arguments.json {
        json(&found, out)?
    } else {
        text(&found, out)?
    }
    Ok(if found.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

impl Arguments {
    /// What the server would be given.
    fn given(&self) -> Given {
        let merge = self.merge_domains.then(|| ("MERGE_DOMAIN_CONFIG", "true".into()));
        let keys = self.counter_keys.clone().map(|keys| ("COUNTER_KEYS", keys));
        Given::process(merge.into_iter().chain(keys).collect())
    }
}

fn look(arguments: &Arguments, options: &LoadOptions<'_>) -> Found {
    let mut all = Reading::default();
    for path in &arguments.paths {
        let reading = RulesSource::Path(path.clone()).read();
        all.files.extend(reading.files);
        all.problems.extend(reading.problems);
        all.warnings.extend(reading.warnings);
    }
    all.files.sort_by(|a, b| a.name.cmp(&b.name));
    // A file that was named twice, or beside its directory, is one file.
    all.files.dedup_by(|b, a| a.name == b.name);
    let files = all.files.iter().map(|file| file.name.clone()).collect();
    let mut counts = None;
    let (problems, warnings) = match RuleSet::load(&all.files, options) {
        Ok(Loaded { rules, warnings }) => {
            counts = Some((rules.n_domains(), rules.rules().count()));
            (None, warnings)
        }
        Err(problems) => {
            let warnings = problems.warnings().to_vec();
            (Some(problems), warnings)
        }
    };
    Found { files, unreadable: all.problems, problems, remarks: all.warnings, warnings, counts }
}

fn text(found: &Found, out: &mut Output<'_>) -> anyhow::Result<()> {
    for unreadable in &found.unreadable {
        out.line(&[
            (Style::Strong, &unreadable.name),
            (Style::Plain, ": "),
            (Style::Bad, &unreadable.message),
        ])?;
    }
    let problems = found.problems.iter().flatten();
    for problem in problems {
        problem_line(problem, Style::Bad, "", out)?;
    }
    for remark in &found.remarks {
        out.line(&[(Style::Odd, "warning: "), (Style::Plain, remark)])?;
    }
    for warning in &found.warnings {
        problem_line(warning, Style::Plain, "warning: ", out)?;
    }
    let files = count(found.files.len(), "file");
    let n_warnings = found.remarks.len() + found.warnings.len();
    let (domains, rules) = found.counts.unwrap_or_default();
    let all = format!("{files}, {}, {}", count(domains, "domain"), count(rules, "rule"));
    let (style, verdict) = match (found.n_problems(), n_warnings) {
        (0, 0) => (Style::Good, format!("{all}: fine")),
        (0, warnings) => (Style::Good, format!("{all}: fine, with {}", count(warnings, "warning"))),
        (problems, n_warnings) => {
            let beside = match n_warnings {
                0 => String::new(),
                n => format!(" and {}", count(n, "warning")),
            };
            let problems = count(problems, "problem");
            (Style::Bad, format!("{files}: {problems}{beside}; a server would take none of it"))
        }
    };
    out.line(&[(style, &verdict)])?;
    Ok(())
}

/// `file:line:column: what was found: what to do (where)`, which editors and terminals can follow.
fn problem_line(problem: &Problem, style: Style, before: &str, out: &mut Output<'_>) -> anyhow::Result<()> {
    let text = problem.to_string();
    let place = format!("{}:{}:{}", problem.file, problem.line, problem.column);
    let rest = text.strip_prefix(place.as_str()).unwrap_or(&text);
    out.line(&[(Style::Odd, before), (Style::Strong, &place), (style, rest)])?;
    Ok(())
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[derive(Serialize)]
struct Printed<'f> {
    ok: bool,
    files: &'f [String],
    n_problems: usize,
    problems: Vec<PrintedProblem<'f>>,
    warnings: Vec<PrintedProblem<'f>>,
}

/// A problem as scripts see it; what is not known is absent.
#[derive(Serialize)]
struct PrintedProblem<'f> {
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'f str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'f str,
    #[serde(skip_serializing_if = "str::is_empty")]
    rule: &'f str,
    found: &'f str,
    #[serde(skip_serializing_if = "str::is_empty")]
    advice: &'f str,
}

impl<'f> PrintedProblem<'f> {
    fn of(problem: &'f Problem) -> Self {
        Self {
            file: &problem.file,
            line: Some(problem.line),
            column: Some(problem.column),
            path: &problem.path,
            rule: &problem.rule,
            found: &problem.found,
            advice: &problem.advice,
        }
    }

    fn of_file(file: &'f str, found: &'f str) -> Self {
        Self { file, line: None, column: None, path: "", rule: "", found, advice: "" }
    }
}

fn json(found: &Found, out: &mut Output<'_>) -> anyhow::Result<()> {
    let unreadable = found.unreadable.iter().map(|one| PrintedProblem::of_file(&one.name, &one.message));
    let remarks = found.remarks.iter().map(|remark| PrintedProblem::of_file("", remark));
    out.json(&Printed {
        ok: found.is_fine(),
        files: &found.files,
        n_problems: found.n_problems(),
        problems: unreadable.chain(found.problems.iter().flatten().map(PrintedProblem::of)).collect(),
        warnings: remarks.chain(found.warnings.iter().map(PrintedProblem::of)).collect(),
    })
}
