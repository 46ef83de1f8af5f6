//! Statistics of whole decisions: under which names, whatever callers send, and how many.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use regex::Regex;

use super::*;
use crate::{
    clock::{Clock, UnixMicros},
    descriptor::{Descriptor, Entry, Request},
    limit::{Cost, Hits, Limit},
    limiter::{Limiter, Options, Shared},
    rls::serve::Counts,
    rules::{LoadOptions, RuleFile, RuleSet},
    store::{Budget, Store, memory::MemoryStore},
    telemetry::metrics::Metrics,
};

const RULES: &str = "
domain: api.example.test
descriptors:
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: user
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 2}
";

const MAX: usize = 50;

/// A service in memory with these rules, which keeps 50 names apart.
pub(super) fn statistics(rules: &str) -> Statistics {
    let metrics = Arc::new(Metrics::with_names(Some(Names::at_most(MAX))));
    let memory = Arc::new(MemoryStore::new(100));
    let clock = Clock::manual(UnixMicros::from_secs(1_000_000));
    let shared = Shared::new(clock, Options::default(), Arc::clone(&metrics), Arc::clone(&memory));
    let file = RuleFile { name: "limits.yaml".to_owned(), bytes: rules.as_bytes().to_vec() };
    shared.set_rules(Arc::new(RuleSet::load(&[file], &LoadOptions::default()).unwrap().rules));
    let limiter = Arc::new(Limiter::new(Arc::new(shared), Store::Memory(memory)));
    Statistics { limiter, metrics, counts: Counts::default() }
}

async fn ask(statistics: &Statistics, domain: &[u8], key: &str, value: &[u8], limit: Option<Limit>) {
    let entry = Entry { key: Bytes::copy_from_slice(key.as_bytes()), value: Bytes::copy_from_slice(value) };
    let cost = Cost::Charge(Hits::new(1));
    let descriptor = Descriptor { entries: vec![entry], cost, hits_addend: None, override_limit: limit };
    let domain = Bytes::copy_from_slice(domain);
    let request = Request { domain, descriptors: vec![descriptor], hits_addend: 0 };
    statistics.limiter.decide(&request, Budget::of(Duration::from_secs(5))).await.unwrap();
}

fn own_limit(statistics: &Statistics) -> Limit {
    let rules = statistics.limiter.shared().rules().unwrap();
    let crate::rules::Grant::Limited(limit) = rules.rules().next().unwrap().grant else { panic!("a limit") };
    limit
}

/// What is not zero, by name.
fn non_zero(statistics: &Statistics) -> Vec<String> {
    let text = statistics.text();
    let of_rules = text.lines().filter_map(|line| line.strip_prefix("ratelimit.service.rate_limit."));
    of_rules.filter(|line| !line.ends_with(": 0")).map(str::to_owned).collect()
}

const DOMAIN: &[u8] = b"api.example.test";

#[tokio::test]
async fn decisions_are_counted_under_their_names() {
    let statistics = statistics(RULES);
    for _ in 0..3 {
        ask(&statistics, DOMAIN, "path", b"/a", None).await;
    }
    ask(&statistics, DOMAIN, "user", b"1.2.3.4", None).await;
    ask(&statistics, DOMAIN, "mine", b"", Some(own_limit(&statistics))).await;
    ask(&statistics, DOMAIN, "nothing", b"x", None).await;
    ask(&statistics, b"else:where", "path", b"/a", None).await;
    let expected = [
        "api.example.test.mine.total_hits: 1",
        "api.example.test.mine.within_limit: 1",
        "api.example.test.path.near_limit: 1",
        "api.example.test.path.over_limit: 1",
        "api.example.test.path.total_hits: 3",
        "api.example.test.path.within_limit: 2",
        "api.example.test.user_1_2_3_4.total_hits: 1",
        "api.example.test.user_1_2_3_4.within_limit: 1",
        "else_where.domain_not_found: 1",
    ];
    let mut seen = non_zero(&statistics);
    seen.sort();
    assert_eq!(seen, expected);
    let json: serde_json::Value = serde_json::from_str(&statistics.json()).unwrap();
    assert_eq!(json["ratelimit.service.rate_limit.api.example.test.path.total_hits"], 3);
    assert_eq!(json["ratelimit_server.Check.response_time.count"], 0);
}

const HOSTILE: [&[u8]; 14] = [
    b"\n",
    b"x\ninjected:1|c",
    b"\r\n\0",
    b"\"} 1\nfake{a=\"b",
    b"\\",
    b"\\n\\",
    b"{}",
    b"a|#tag:1,b",
    b"\xff\xfe",
    "\u{2028}\u{85}\u{1f}".as_bytes(),
    b".__admin=1",
    b"...",
    b"# TYPE x counter",
    b" ",
];

#[tokio::test]
async fn whatever_callers_send_the_pages_can_be_read() {
    let statistics = statistics(RULES);
    let limit = own_limit(&statistics);
    for value in HOSTILE {
        ask(&statistics, DOMAIN, "user", value, None).await;
        ask(&statistics, DOMAIN, "own", value, Some(limit)).await;
        ask(&statistics, &[b"dom", value].concat(), "user", value, None).await;
    }
    assert_readable(&prometheus(&statistics));
    for line in sent(&statistics) {
        let (name, value) = line.trim_end_matches('\n').rsplit_once(':').unwrap();
        assert!(name.starts_with("ratelimit.") && !name.contains(['\n', '|', ':']), "{line:?}");
        assert!(!name.chars().any(char::is_control) && !name.contains(".__"), "{line:?}");
        assert!(value.strip_suffix("|c").is_some_and(|n| n.parse::<u64>().is_ok()), "{line:?}");
    }
}

#[tokio::test]
async fn however_many_values_callers_make_up_the_pages_stay_small() {
    let statistics = statistics(RULES);
    let limit = own_limit(&statistics);
    for n in 0..5_000 {
        ask(&statistics, DOMAIN, "own", n.to_string().as_bytes(), Some(limit)).await;
        ask(&statistics, format!("no{n}").as_bytes(), "user", b"x", None).await;
    }
    let page = prometheus(&statistics);
    let of_domain =
        page.lines().filter(|line| line.contains("_total_hits{domain=\"api.example.test\"")).count();
    assert_eq!(of_domain, MAX + 1, "so many names, and what is counted together");
    let other = "ratelimit_service_rate_limit_total_hits{domain=\"api.example.test\",key1=\"_other\"} 4950";
    assert!(page.lines().any(|line| line == other));
    assert!(page.len() < 200_000, "{} bytes", page.len());
    assert_readable(&page);
}

fn prometheus(statistics: &Statistics) -> String {
    statistics.prometheus(&Exposition { mapper: Mapper::built_in().unwrap(), tags: Vec::new() })
}

/// What goes to statsd.
fn sent(statistics: &Statistics) -> Vec<String> {
    let mut unsent = lines::Unsent::new(lines::Dialect::statsd(&[]));
    unsent.lines(&statistics.collect()).into_iter().map(|line| line.text).collect()
}

/// What a scraper takes: the grammar of a sample, in full.
static SAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    let label = r#"[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*""#;
    Regex::new(&format!(r"^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{{{label}(?:,{label})*\}})? [0-9.]+$")).unwrap()
});

/// A scraper reads every line; each family has one type, each series stands once.
fn assert_readable(page: &str) {
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    samples.iter().for_each(|line| assert!(SAMPLE.is_match(line), "{line}"));
    // This parser ends the labels at the first brace, also of one within a value.
    let (known, braces): (Vec<_>, Vec<_>) = page.lines().partition(|line| line.matches('}').count() < 2);
    let scrape = prometheus_parse::Scrape::parse(known.iter().map(|line| Ok((*line).to_owned()))).unwrap();
    assert_eq!(scrape.samples.len() + braces.len(), samples.len(), "{page}");
    let types: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(types.iter().collect::<HashSet<_>>().len(), types.len());
    let series: Vec<_> =
        samples.iter().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
    assert_eq!(series.iter().collect::<HashSet<_>>().len(), series.len());
    assert!(page.lines().all(|line| line.starts_with("# ") || line.starts_with("ratelimit_")), "{page}");
}
