//! The pages, asked as a client would ask them, with a limiter on a clock that stands still.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, StatusCode, header},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{
    clock::{Clock, UnixMicros},
    health::RulesNeeded,
    limiter::{Options, Shared},
    rules::{LoadOptions, RuleFile, RuleSet},
    stats::{Exposition, Mapper, Names},
    store::{Store, memory::MemoryStore},
};

const RULES: &str = r#"
domain: "odd \"one\""
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2, name: per-user}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 0}
"#;

fn admin(rules: Option<&str>) -> Admin {
    let metrics = Arc::new(Metrics::with_names(Some(Names::default())));
    let health = Arc::new(Health::new(RulesNeeded::Loaded));
    let clock = Clock::manual(UnixMicros::from_secs(1_000_000));
    let memory = Arc::new(MemoryStore::new(100));
    let shared = Shared::new(clock.clone(), Options::default(), Arc::clone(&metrics), Arc::clone(&memory));
    let limiter = Arc::new(Limiter::new(Arc::new(shared), Store::Memory(memory)));
    if let Some(rules) = rules {
        let file = RuleFile { name: "limits.yaml".to_owned(), bytes: rules.as_bytes().to_vec() };
        let loaded = RuleSet::load(&[file], &LoadOptions::default()).unwrap();
        health.rules_loaded(loaded.rules.n_domains());
        limiter.shared().set_rules(Arc::new(loaded.rules));
    }
    Admin {
        limiter,
        health,
        metrics,
        clock,
        control_plane: None,
        counts: Counts::default(),
        budget: Duration::from_secs(1),
        tls: None,
        profiling: false,
        pages: Pages::default(),
    }
}

async fn ask(router: Router, method: Method, path: &str, body: &str) -> (StatusCode, String, String) {
    let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
    let (status, body) = (response.status(), to_bytes(response.into_body(), usize::MAX).await.unwrap());
    (status, kind.unwrap_or_default(), String::from_utf8(body.to_vec()).unwrap())
}

async fn json_call(admin: &Admin, body: &Value) -> (StatusCode, Value) {
    let (status, kind, body) =
        ask(http_router(admin.clone()), Method::POST, "/json", &body.to_string()).await;
    assert_eq!(kind, "application/json", "{body}");
    (status, serde_json::from_str(&body).unwrap())
}

fn descriptor(key: &str) -> Value {
    json!({"domain": "odd \"one\"", "descriptors": [{"entries": [{"key": key, "value": "7"}]}]})
}

#[tokio::test]
async fn the_health_check_says_why_not() {
    let admin = admin(None);
    let health = async || ask(http_router(admin.clone()), Method::GET, "/healthcheck", "").await;
    let (status, _, body) = health().await;
    assert_eq!((status, &*body), (StatusCode::INTERNAL_SERVER_ERROR, "no rules were loaded yet\n"));
    admin.health.rules_loaded(1);
    let (status, kind, body) = health().await;
    assert_eq!((status, &*kind, &*body), (StatusCode::OK, "text/plain; charset=utf-8", "OK"));
}

#[tokio::test]
async fn a_verbose_health_check_says_what_it_is_made_of() {
    let admin = admin(Some(RULES));
    let health = async |query: &str| {
        let path = format!("/healthcheck?{query}");
        ask(http_router(admin.clone()), Method::GET, &path, "").await
    };
    for plain in ["", "verbose=false", "verbosity"] {
        assert_eq!(health(plain).await.2, "OK", "{plain}");
    }
    let (status, _, body) = health("a=b&verbose").await;
    let lines = "[+] process: serving\n[+] store: in use\n[+] rules: in force, domains: 1\nOK";
    assert_eq!((status, &*body), (StatusCode::OK, lines));
    admin.health.store_lost("redis: away".to_owned());
    let (status, _, body) = health("verbose").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("\n[-] store: redis: away\n") && body.ends_with("\nredis: away\n"), "{body}");
}

#[tokio::test]
async fn what_the_threads_do_is_shown_only_if_that_was_asked_for() {
    let off = admin(None);
    let page = "/debug/threads?seconds=0.01";
    let (status, _, body) = ask(debug_router(off.clone()), Method::GET, page, "").await;
    assert!(status == StatusCode::NOT_FOUND && body.contains("DEBUG_PROFILING=true"), "{status} {body}");
    let router = debug_router(Admin { profiling: true, ..off });
    let (status, _, body) = ask(router.clone(), Method::GET, page, "").await;
    assert!(
        status == StatusCode::OK && body.contains("running") && body.contains("VmRSS"),
        "{status} {body}"
    );
    for seconds in ["61", "-1", "inf", "x"] {
        let path = format!("/debug/threads?seconds={seconds}");
        let status = ask(router.clone(), Method::GET, &path, "").await.0;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{seconds}");
    }
}

#[tokio::test]
async fn only_the_exact_paths_are_there() {
    let router = http_router(admin(Some(RULES)));
    for path in ["/", "/json/", "/healthcheck/", "/metrics", "/rlconfig"] {
        assert_eq!(ask(router.clone(), Method::GET, path, "").await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn json_is_decided_as_grpc_is() {
    let admin = admin(Some(RULES));
    let (status, answer) = json_call(&admin, &descriptor("user")).await;
    let status_of = |code, remaining: Option<u32>| {
        let mut status = json!({
            "code": code,
            "currentLimit": {"name": "per-user", "requestsPerUnit": 2, "unit": "HOUR"},
            "durationUntilReset": "800s",
        });
        if let Some(remaining) = remaining {
            status["limitRemaining"] = remaining.into();
        }
        status
    };
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer, json!({"overallCode": "OK", "statuses": [status_of("OK", Some(1))]}));
    let mut costly = descriptor("user");
    costly["hits_addend"] = json!(2);
    let (status, answer) = json_call(&admin, &costly).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer, json!({"overallCode": "OVER_LIMIT", "statuses": [status_of("OVER_LIMIT", None)]}));
}

#[tokio::test]
async fn a_json_mistake_is_named() {
    let with_rules = admin(Some(RULES));
    for (body, status, says) in [
        ("", StatusCode::BAD_REQUEST, "not a RateLimitRequest"),
        ("[]", StatusCode::BAD_REQUEST, "not a RateLimitRequest"),
        (r#"{"domain": "d", "surprise": 1}"#, StatusCode::BAD_REQUEST, "surprise"),
        (r#"{"domain": "d"} trailing"#, StatusCode::BAD_REQUEST, "trailing characters"),
        (r#"{"domain": "d"}"#, StatusCode::BAD_REQUEST, "descriptor list must not be empty"),
        (r#"{"descriptors": [{}]}"#, StatusCode::BAD_REQUEST, "domain must not be empty"),
    ] {
        let (got, _, text) = ask(http_router(with_rules.clone()), Method::POST, "/json", body).await;
        assert!(got == status && text.contains(says), "{body}: {got} {text}");
    }
    let (status, _, text) =
        ask(http_router(admin(None)), Method::POST, "/json", &descriptor("user").to_string()).await;
    assert_eq!((status, &*text), (StatusCode::SERVICE_UNAVAILABLE, "no rate limit configuration loaded\n"));
    let huge = "x".repeat(json::MAX_BODY + 1);
    let (status, ..) = ask(http_router(with_rules), Method::POST, "/json", &huge).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn the_debug_port_shows_the_rules_and_lists_its_pages() {
    let empty = admin(None);
    assert_eq!(
        ask(debug_router(empty), Method::GET, "/rlconfig", "").await,
        (StatusCode::OK, TEXT.to_owned(), String::new())
    );
    let router = debug_router(admin(Some(RULES)));
    let (_, _, rules) = ask(router.clone(), Method::GET, "/rlconfig", "").await;
    assert_eq!(
        rules,
        "odd \"one\".trial: unit=HOUR requests_per_unit=0, shadow_mode: true, quota_mode: false\n\
         odd \"one\".user: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false\n"
    );
    let (status, _, pages) = ask(router, Method::GET, "/anything", "").await;
    assert!(status == StatusCode::OK && pages.contains("/rlconfig: "), "{pages}");
}

const TEXT: &str = "text/plain; charset=utf-8";

/// What a scraper reads: each sample by its name and labels, sorted.
fn samples(page: &str) -> Vec<(String, prometheus_parse::Value)> {
    let lines = page.lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).unwrap();
    let named = scrape.samples.into_iter().map(|sample| {
        let mut labels: Vec<_> = sample.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        labels.sort();
        (format!("{}{{{}}}", sample.metric, labels.join(",")), sample.value)
    });
    named.collect()
}

#[tokio::test]
async fn rules_of_one_name_are_one_series() {
    let rules = "domain: d\ndescriptors:\n\
        - {key: a.b, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
        - {key: a, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 2}}]}\n";
    let (_, _, page) = ask(debug_router(admin(Some(rules))), Method::GET, "/metrics", "").await;
    let series: Vec<_> = page.lines().filter(|line| line.contains("rule=\"d.a.b\",verdict=\"ok\"")).collect();
    assert_eq!(series.len(), 1, "{series:?}");
}

#[tokio::test]
async fn the_debug_port_shows_the_statistics_as_text_and_as_json() {
    let admin = admin(Some(RULES));
    json_call(&admin, &descriptor("user")).await;
    let router = debug_router(admin);
    let (status, kind, text) = ask(router.clone(), Method::GET, "/stats", "").await;
    assert_eq!((status, &*kind), (StatusCode::OK, TEXT));
    let name = "ratelimit.service.rate_limit.odd \"one\".user.total_hits";
    assert!(text.lines().any(|line| line == format!("{name}: 1")), "{text}");
    assert!(text.lines().is_sorted(), "{text}");
    let (_, kind, body) = ask(router.clone(), Method::GET, "/stats?format=json", "").await;
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&*kind, &json[name], json.as_object().unwrap().len()),
        ("application/json", &json!(1), text.lines().count())
    );
    assert_eq!(ask(router, Method::GET, "/stats?format=xml", "").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn pages_that_nobody_reads_hold_up_pages_only() {
    let admin = admin(Some(RULES));
    let exposition = Exposition { mapper: Mapper::built_in().unwrap(), tags: Vec::new() };
    let path = "/metrics".to_owned();
    let pages = admin.pages.clone();
    let scraped = prometheus_router(Prometheus { statistics: admin.statistics(), exposition, path, pages });
    let debug = debug_router(admin.clone());
    let large = [
        (&debug, "/metrics"),
        (&debug, "/rlconfig"),
        (&debug, "/stats"),
        (&debug, "/stats?format=json"),
        (&debug, "/top"),
        (&debug, "/top?format=json"),
        (&scraped, "/metrics"),
    ];
    let mut unread = Vec::new();
    for (router, path) in large.iter().cycle().take(pages::PLACES) {
        let asked = Request::builder().uri(*path).body(Body::empty()).unwrap();
        unread.push((*router).clone().oneshot(asked).await.unwrap());
    }
    for (router, path) in large {
        let (status, _, why) = ask(router.clone(), Method::GET, path, "").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {why}");
    }
    let (status, _, _) = ask(http_router(admin.clone()), Method::GET, "/healthcheck?verbose", "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(json_call(&admin, &descriptor("user")).await.0, StatusCode::OK);
    drop(unread);
    assert_eq!(ask(debug, Method::GET, "/stats", "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn prometheus_finds_the_statistics_under_their_path_alone() {
    let admin = admin(Some(RULES));
    json_call(&admin, &descriptor("user")).await;
    let exposition = Exposition { mapper: Mapper::built_in().unwrap(), tags: Vec::new() };
    let path = "/{odd}/metrics".to_owned();
    let router = prometheus_router(Prometheus {
        statistics: admin.statistics(),
        exposition,
        path,
        pages: admin.pages,
    });
    let (status, kind, page) = ask(router.clone(), Method::GET, "/%7Bodd%7D/metrics", "").await;
    assert_eq!((status, page.len()), (StatusCode::NOT_FOUND, "404 page not found\n".len()), "{kind}");
    let (status, kind, page) = ask(router, Method::GET, "/{odd}/metrics", "").await;
    assert_eq!((status, &*kind), (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8"));
    let line = r#"ratelimit_service_rate_limit_total_hits{domain="odd \"one\"",key1="user"} 1"#;
    assert!(page.lines().any(|known| known == line), "{page}");
}

#[tokio::test]
async fn a_scraper_reads_the_metrics() {
    use prometheus_parse::Value::{Counter, Gauge, Histogram};
    let admin = admin(Some(RULES));
    for key in ["user", "user", "user", "trial"] {
        json_call(&admin, &descriptor(key)).await;
    }
    let mut elsewhere = descriptor("user");
    elsewhere["domain"] = json!("elsewhere");
    json_call(&admin, &elsewhere).await;
    let mut with_limit = descriptor("user");
    with_limit["descriptors"][0]["limit"] = json!({"requestsPerUnit": 0, "unit": "DAY"});
    json_call(&admin, &with_limit).await;
    admin.metrics.reloaded();

    let (_, kind, page) = ask(debug_router(admin), Method::GET, "/metrics", "").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let samples = samples(&page);
    let value = |name: &str| {
        let found = samples.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no {name} in\n{page}")).1
    };
    for (name, expected) in [
        (r#"tidegate_rule_decisions_total{rule=odd \"one\".user,verdict=ok}"#, 2.0),
        (r#"tidegate_rule_decisions_total{rule=odd \"one\".user,verdict=over_limit}"#, 1.0),
        (r#"tidegate_rule_decisions_total{rule=odd \"one\".trial,verdict=shadow}"#, 1.0),
        (r#"tidegate_rule_hits_total{kind=total,rule=odd \"one\".user}"#, 3.0),
        ("tidegate_rule_decisions_total{rule=(from the request),verdict=over_limit}", 1.0),
        ("tidegate_calls_total{outcome=ok}", 4.0),
        ("tidegate_calls_total{outcome=over_limit}", 2.0),
        ("tidegate_calls_total{outcome=invalid}", 0.0),
        ("tidegate_unknown_domain_total{}", 1.0),
        ("tidegate_rules_reloads_total{result=ok}", 1.0),
        ("tidegate_memory_evictions_total{}", 0.0),
    ] {
        assert!(matches!(value(name), Counter(n) if (n - expected).abs() < 0.5), "{name}: {:?}", value(name));
    }
    let share = value("tidegate_hottest_key_share_ratio{}");
    assert!(matches!(share, Gauge(n) if (n - 0.6).abs() < 0.01), "{share:?}");
    for (name, expected) in
        [("tidegate_memory_keys{}", 3.0), ("tidegate_rules{}", 2.0), ("tidegate_rules_stale{}", 0.0)]
    {
        assert!(matches!(value(name), Gauge(n) if (n - expected).abs() < 0.5), "{name}: {:?}", value(name));
    }
    let Histogram(buckets) = value("tidegate_decision_duration_seconds{}") else { panic!("a histogram") };
    assert!(buckets.is_sorted_by(|a, b| a.less_than < b.less_than && a.count <= b.count), "{buckets:?}");
    assert!(
        buckets.last().is_some_and(|last| last.less_than.is_infinite() && (last.count - 6.0).abs() < 0.5)
    );
    assert!(page.contains(concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1")));
}

#[tokio::test]
async fn the_hottest_keys_are_a_page_for_people_and_for_programs() {
    let admin = admin(Some(RULES));
    for key in ["user", "user", "user", "trial"] {
        json_call(&admin, &descriptor(key)).await;
    }
    let (status, kind, text) = ask(debug_router(admin.clone()), Method::GET, "/top", "").await;
    assert_eq!((status, &*kind), (StatusCode::OK, TEXT));
    let row = text.lines().find(|line| line.contains("|user=7|")).unwrap_or_else(|| panic!("{text}"));
    for words in ["75.0%", "33.3%", "odd \"one\"|user=7|3600s", "[odd \"one\".user]"] {
        assert!(row.contains(words), "no {words} in {row}");
    }
    let (_, kind, page) = ask(debug_router(admin.clone()), Method::GET, "/top?format=json&n=1", "").await;
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(kind, "application/json");
    assert_eq!(page["hottest"].as_array().unwrap().len(), 1);
    assert_eq!(page["hottest"][0]["rule"], "odd \"one\".user");
    assert_eq!(page["most_refused"][0]["share"], 0.5);
    for path in ["/top?format=xml", "/top?n=many", "/top?rows=1"] {
        let (status, _, text) = ask(debug_router(admin.clone()), Method::GET, path, "").await;
        assert!(status == StatusCode::BAD_REQUEST && text.contains("format=json"), "{path}: {text}");
    }
    let renamed = RULES.replace("key: user", "key: other");
    let file = RuleFile { name: "limits.yaml".to_owned(), bytes: renamed.into_bytes() };
    let rules = RuleSet::load(&[file], &LoadOptions::default()).unwrap().rules;
    admin.limiter.shared().set_rules(Arc::new(rules));
    let (_, _, text) = ask(debug_router(admin), Method::GET, "/top", "").await;
    assert!(text.contains("[(no longer in force)]"), "{text}");
}
