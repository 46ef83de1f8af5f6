//! `/top`: the keys that this process is asked for most, and refuses most, as a table for people or as JSON.
//!
//! **Invariant:** names nothing that the sketches do not keep; as many rows as they hold, at most.

use std::fmt;

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use super::{Admin, debug::TEXT};
use crate::{
    local::{Row, Top, sketch::HALF_LIFE},
    rules::{RuleCounters, RuleSet},
};

/// Rows of each table, if nobody says: a screen shows both.
const N_ROWS: usize = 15;

/// The name under which limits that came with requests are shown.
const OVERRIDE: &str = "(from the request)";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    format: Format,
    n: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Text,
    Json,
}

/// The page as JSON. Rates are calls a second, decayed averages; shares are from 0 to 1.
#[derive(Debug, Serialize)]
struct Page<'t> {
    half_life_seconds: f64,
    calls_per_second: f64,
    refusals_per_second: f64,
    hottest: Vec<PageRow<'t>>,
    /// A key that is not among all that are kept has at most so many.
    most_unlisted_calls_per_second: f64,
    most_refused: Vec<PageRow<'t>>,
    most_unlisted_refusals_per_second: f64,
}

#[derive(Debug, Serialize)]
struct PageRow<'t> {
    key: &'t str,
    rule: &'t str,
    /// Of calls, or of refusals; at most.
    per_second: f64,
    /// The true rate is at most so much lower.
    error_per_second: f64,
    share: f64,
    refused_share: f64,
}

pub(super) async fn handle(
    State(admin): State<Admin>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let Ok(Query(Asked { format, n })) = query else {
        let text = "expected format=text or format=json, and n=<rows>\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let kind = match format {
        Format::Text => TEXT,
        Format::Json => "application/json",
    };
    // With many rules it takes a while to find those of the keys.
    admin.pages.clone().show(kind, move || made(&admin, format, n.unwrap_or(N_ROWS))).await
}

fn made(admin: &Admin, format: Format, n_rows: usize) -> Result<String, fmt::Error> {
    let shared = admin.limiter.shared();
    let top = shared.local().top(n_rows, shared.clock().now());
    let rules = shared.rules();
    let page = page(&top, rules.as_deref());
    match format {
        Format::Text => Ok(text(&page)),
        Format::Json => serde_json::to_string_pretty(&page).map(|json| json + "\n").map_err(|_| fmt::Error),
    }
}

fn page<'t>(top: &'t Top, rules: Option<&'t RuleSet>) -> Page<'t> {
    let rows = |rows: &'t [Row]| {
        let row = |row: &'t Row| PageRow {
            key: if row.key.is_empty() { "(not named)" } else { &row.key },
            rule: row.rule.as_deref().map_or(OVERRIDE, |counters| name_of(counters, rules)),
            per_second: row.rate,
            error_per_second: row.error,
            share: row.share,
            refused_share: row.refused_share,
        };
        rows.iter().map(row).collect()
    };
    Page {
        half_life_seconds: HALF_LIFE.as_secs_f64(),
        calls_per_second: top.calls,
        refusals_per_second: top.refusals,
        hottest: rows(&top.hottest),
        most_unlisted_calls_per_second: top.most_unlisted,
        most_refused: rows(&top.most_refused),
        most_unlisted_refusals_per_second: top.most_unlisted_refusals,
    }
}

/// The rule that counts so, if it is in force still.
fn name_of<'r>(counters: &RuleCounters, rules: Option<&'r RuleSet>) -> &'r str {
    let mut all = rules.into_iter().flat_map(RuleSet::rules);
    all.find(|rule| std::ptr::eq(&raw const *rule.counters, &raw const *counters))
        .map_or("(no longer in force)", |rule| &rule.full_key)
}

fn text(page: &Page<'_>) -> String {
    let mut out = format!(
        "Averages over the last seconds (a call counts half after {} s). A rate may be too high by its error.\n\n",
        page.half_life_seconds
    );
    let tables = [
        ("calls/s", page.calls_per_second, &page.hottest, page.most_unlisted_calls_per_second),
        ("refused/s", page.refusals_per_second, &page.most_refused, page.most_unlisted_refusals_per_second),
    ];
    for (what, total, rows, unlisted) in tables {
        out += &format!("{total:.1} {what} in all; a key without a counter has at most {unlisted:.1}\n\n");
        out += &format!("{what:>10}  {:>8}  {:>6}  {:>8}  key  [rule]\n", "error", "share", "refused");
        for row in rows {
            let PageRow { per_second, error_per_second, .. } = row;
            let (share, refused) = (row.share * 100.0, row.refused_share * 100.0);
            out += &format!(
                "{per_second:>10.1}  {error_per_second:>8.1}  {share:>5.1}%  {refused:>7.1}%  {}  [{}]\n",
                row.key, row.rule
            );
        }
        out.push('\n');
    }
    out
}
