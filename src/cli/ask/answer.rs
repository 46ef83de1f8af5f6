//! What was answered, for people and for scripts.

use std::time::Duration;

use serde::Serialize;

use super::question::Asked;
use crate::{
    cli::output::{Cell, Output, Style},
    pb::{HeaderValue, RateLimitResponse, rate_limit_response as response},
    settings::show_duration,
};

/// How the calls so far were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub n_calls: u32,
    pub n_over: u32,
}

impl Tally {
    pub fn add(&mut self, answer: &RateLimitResponse) {
        self.n_calls += 1;
        self.n_over += u32::from(answer.overall_code() == response::Code::OverLimit);
    }
}

/// The last answer as a table, and how often which answer was given.
pub(super) fn print(
    asked: &[Asked],
    answer: &RateLimitResponse,
    tally: Tally,
    out: &mut Output<'_>,
) -> anyhow::Result<()> {
    let rows: Vec<[Cell; 5]> =
        asked.iter().zip(&answer.statuses).map(|(asked, status)| row(asked, status)).collect();
    out.table(["descriptor", "answer", "limit", "remaining", "resets in"], &rows)?;
    for HeaderValue { key, value, .. } in &answer.response_headers_to_add {
        out.line(&[
            (Style::Weak, "header "),
            (Style::Plain, key),
            (Style::Plain, ": "),
            (Style::Plain, value),
        ])?;
    }
    let Tally { n_calls, n_over } = tally;
    if n_calls > 1 {
        let split =
            format!("{n_calls} calls: {} OK, {n_over} OVER_LIMIT; the last one is shown", n_calls - n_over);
        out.line(&[(Style::Weak, &split)])?;
    }
    let overall = answer.overall_code();
    out.line(&[(style(overall), overall.as_str_name())])?;
    Ok(())
}

fn row(asked: &Asked, status: &response::DescriptorStatus) -> [Cell; 5] {
    let code = status.code();
    let limit = status.current_limit.as_ref();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        (Style::Strong, asked.typed.clone()),
        (style(code), code.as_str_name().to_owned()),
        (Style::Plain, or_none(limit.map(show_limit))),
        (Style::Plain, or_none(limit.map(|_| status.limit_remaining.to_string()))),
        (Style::Plain, or_none(reset(status).map(show_duration))),
    ]
}

fn style(code: response::Code) -> Style {
    match code {
        response::Code::Ok => Style::Good,
        response::Code::OverLimit => Style::Bad,
        response::Code::Unknown => Style::Odd,
    }
}

/// `5/minute`, `100/5 minutes`, and the name of the limit if it has one.
fn show_limit(limit: &response::RateLimit) -> String {
    let unit = limit.unit().as_str_name().to_ascii_lowercase();
    let window = match limit.unit_multiplier.unwrap_or(1) {
        1 => unit,
        n => format!("{n} {unit}s"),
    };
    let name = if limit.name.is_empty() { String::new() } else { format!(" ({})", limit.name) };
    format!("{}/{window}{name}", limit.requests_per_unit)
}

fn reset(status: &response::DescriptorStatus) -> Option<Duration> {
    status.duration_until_reset.and_then(|reset| Duration::try_from(reset).ok())
}

/// One answer as scripts see it; what is not known is absent.
#[derive(Serialize)]
pub(super) struct Printed<'a> {
    overall: &'static str,
    descriptors: Vec<PrintedStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<PrintedHeader<'a>>,
}

#[derive(Serialize)]
struct PrintedStatus<'a> {
    descriptor: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<PrintedLimit<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_seconds: Option<f64>,
}

#[derive(Serialize)]
struct PrintedLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    requests_per_unit: u32,
    unit: &'static str,
    unit_multiplier: u32,
}

#[derive(Serialize)]
struct PrintedHeader<'a> {
    name: &'a str,
    value: &'a str,
}

pub(super) fn printed<'a>(asked: &'a [Asked], answer: &'a RateLimitResponse) -> Printed<'a> {
    Printed {
        overall: answer.overall_code().as_str_name(),
        descriptors: asked
            .iter()
            .zip(&answer.statuses)
            .map(|(asked, status)| printed_status(asked, status))
            .collect(),
        headers: answer
            .response_headers_to_add
            .iter()
            .map(|header| PrintedHeader { name: &header.key, value: &header.value })
            .collect(),
    }
}

fn printed_status<'a>(asked: &'a Asked, status: &'a response::DescriptorStatus) -> PrintedStatus<'a> {
    let limit = status.current_limit.as_ref();
    PrintedStatus {
        descriptor: &asked.typed,
        code: status.code().as_str_name(),
        limit: limit.map(|limit| PrintedLimit {
            name: &limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit().as_str_name(),
            unit_multiplier: limit.unit_multiplier.unwrap_or(1),
        }),
        remaining: limit.map(|_| status.limit_remaining),
        reset_seconds: reset(status).map(|reset| reset.as_secs_f64()),
    }
}
