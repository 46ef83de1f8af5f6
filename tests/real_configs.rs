//! Rules files shaped like those of real users load and answer; so do the examples in `config/`, without a warning; and no
//! mutation of any of them makes the reader panic.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, what fails should fail loudly"
)]

#[path = "../fuzz/invariants/rules_file.rs"]
mod invariants;

use std::{fs, path::Path};

use bytes::Bytes;
use proptest::prelude::*;
use tidegate::{
    descriptor::Entry,
    rules::{Grant, LoadOptions, Loaded, Lookup, RuleFile, RuleSet},
};

fn read(folder: &str, prefix: &str) -> Vec<RuleFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<RuleFile> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name.starts_with(prefix) && name.ends_with(".yaml"))
        .map(|(name, path)| RuleFile { name, bytes: fs::read(path).unwrap() })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

fn load(files: &[RuleFile], merge_domains: bool) -> Loaded {
    let options = LoadOptions { merge_domains, ..LoadOptions::default() };
    RuleSet::load(files, &options).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What the rules say to `key=value,key=value`: the limit, `unlimited`, `none`, or `unknown` for the domain; after it the
/// patterns that counters are shared under.
fn ask(rules: &RuleSet, domain: &str, descriptor: &str) -> String {
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        Entry { key: Bytes::copy_from_slice(key.as_bytes()), value: Bytes::copy_from_slice(value.as_bytes()) }
    };
    let entries: Vec<Entry> = descriptor.split(',').map(entry).collect();
    let found = match rules.lookup(domain.as_bytes(), &entries) {
        Lookup::UnknownDomain => return "unknown".to_owned(),
        Lookup::NoRule => return "none".to_owned(),
        Lookup::Found(found) => found,
    };
    let mut said = match found.rule.grant {
        Grant::Unlimited => "unlimited".to_owned(),
        Grant::Limited(limit) => limit.to_string(),
    };
    if found.rule.shadow_mode {
        said += " shadow";
    }
    if found.rule.quota_mode {
        said += " quota";
    }
    for pattern in &found.shared {
        said += " ";
        said += pattern.map_or("-", |pattern| std::str::from_utf8(pattern).unwrap());
    }
    said
}

/// A descriptor, and what must be said to it.
type Answer = (&'static str, &'static str);

/// The number of a file, its domain, and what its rules must say.
const ANSWERS: &[(&str, &str, &[Answer])] = &[
    (
        "01",
        "storefront-ratelimit",
        &[("PATH=/catalog", "1/minute"), ("PATH=/catalog?page=2", "100/minute"), ("path=/catalog", "none")],
    ),
    (
        "02",
        "mesh-ingress",
        &[
            ("HOST=shop.example.test", "500/second"),
            ("HOST=other.example.test", "50/second"),
            ("HOST=shop.example.test,PATH=/login", "none"),
            ("HOST=shop.example.test,PATH=/basket", "80/second"),
            ("HOST=shop.example.test,PATH=/login,METHOD=POST", "12/minute"),
            ("HOST=shop.example.test,PATH=/login,METHOD=GET", "240/minute"),
            ("HOST=shop.example.test,PATH=/login,METHOD=POST,extra=1", "none"),
            ("METHOD=POST,PATH=/login,HOST=shop.example.test", "none"),
        ],
    ),
    (
        "03",
        "contour-edge",
        &[
            ("generic_key=checkout", "2/minute"),
            ("tier=beta", "100/minute"),
            ("generic_key=beta", "none"),
            ("remote_address=198.51.100.1", "3/minute"),
        ],
    ),
    (
        "04",
        "edge/listener-http",
        &[
            (
                "httproute/shop/orders/rule/0/match/0/*=httproute/shop/orders/rule/0/match/0/*,rule-0-match-0=user-a",
                "5/second",
            ),
            ("httproute/shop/orders/rule/0/match/0/*=httproute/shop/orders/rule/0/match/0/*", "none"),
            (
                "httproute/shop/orders/rule/0/match/1/*=httproute/shop/orders/rule/0/match/0/*,rule-0-match-0=user-a",
                "none",
            ),
        ],
    ),
    (
        "05",
        "edge/listener-https",
        &[
            (
                "httproute/shop/api/rule/1/match/0/*=httproute/shop/api/rule/1/match/0/*,rule-1-match-0=rule-1-match-0,masked_remote_address=10.20.0.0/16",
                "40/hour",
            ),
            (
                "httproute/shop/api/rule/1/match/0/*=httproute/shop/api/rule/1/match/0/*,rule-1-match-0=rule-1-match-0,masked_remote_address=10.20.0.0/16,remote_address=10.20.3.4",
                "4/minute",
            ),
            (
                "httproute/shop/api/rule/1/match/0/*=httproute/shop/api/rule/1/match/0/*,rule-1-match-0=rule-1-match-0,masked_remote_address=2001:db8::/32",
                "7/minute",
            ),
            (
                "httproute/shop/api/rule/1/match/0/*=httproute/shop/api/rule/1/match/0/*,rule-1-match-0=rule-1-match-0,masked_remote_address=invert:192.168.8.0/24",
                "9/minute",
            ),
        ],
    ),
    ("06", "edge/listener-a", &[("route-a=route-a", "5/second")]),
    ("06", "shop/shared-policy", &[("shop/shared-policy/rule/0=shop/shared-policy/rule/0", "unknown")]),
    (
        "07",
        "edge/listener-long",
        &[
            ("route-billing=route-billing,rule-0-match-0=rule-0-match-0", "50000/month shadow"),
            ("route-archive=route-archive,rule-0-match-0=rule-0-match-0", "1/year"),
            ("route-report=route-report", "3/week"),
            ("route-billing=route-billing", "none"),
        ],
    ),
    (
        "08",
        "per-ip-edge",
        &[
            ("remote_address=203.0.113.9", "0/second"),
            ("remote_address=198.51.100.77", "unlimited"),
            ("remote_address=198.51.100.78", "none"),
            ("remote_address=198.51.100.50", "10000/minute"),
            ("remote_address=198.51.100.51", "60/minute"),
        ],
    ),
    (
        "09",
        "notifications",
        &[
            ("campaign=promo,msisdn=0049301234567", "1/day"),
            ("campaign=promo,msisdn=49301234567", "4/day"),
            ("campaign=otp,msisdn=0049301234567", "3/minute"),
            ("msisdn=0049301234567", "90/day"),
            ("campaign=promo", "none"),
        ],
    ),
    (
        "10",
        "public-api",
        &[
            ("plan=free,user_id=u1", "30/minute"),
            ("plan=pro", "2000/second"),
            ("plan=pro,user_id=batch-runner", "6000/minute"),
            ("plan=enterprise", "unlimited"),
            ("plan=enterprise,user_id=7", "unlimited"),
            ("plan=trial,user_id=u1", "10/minute"),
            ("plan=trial", "none"),
        ],
    ),
    (
        "11",
        "tenant-overrides",
        &[
            ("tenant=umbrella", "5/second"),
            ("tenant=acme", "20/second"),
            ("endpoint=/export", "2/minute"),
            ("endpoint=/health", "unlimited"),
            ("endpoint=/import", "none"),
        ],
    ),
    (
        "12",
        "wildcard-routes",
        &[
            ("path=/api/v1/x", "100/minute"),
            ("path=/api/v1/", "100/minute"),
            ("path=/api/v1/orders/7", "100/minute"),
            ("path=/api/v1", "500/minute"),
            ("path=/api/9/items/3/buy", "7/minute"),
            ("path=/api//items//buy", "7/minute"),
            ("path=/api/9/items/buy", "500/minute"),
            ("path=logo.png", "900/second"),
            ("path=/api/v1/orders/export", "1/minute"),
            ("host=a.tenant.example.test", "20/minute"),
            ("host=.tenant.example.test", "20/minute"),
            ("host=tenant.example.test", "none"),
        ],
    ),
    (
        "13",
        "shared-buckets",
        &[
            ("bucket=team-a,object=raw/1", "30/hour team-* raw/*"),
            ("bucket=team-a,object=tmp/1", "4/hour team-* -"),
            ("object=reports/a", "10/hour reports/*"),
            ("object=reports/today.csv", "2/hour"),
            ("route=/v1/status", "8/minute /v*/status"),
            ("route=/v/x", "none"),
        ],
    ),
    (
        "14",
        "model-gateway",
        &[
            ("backend=small-model", "1000/minute quota"),
            ("backend=large-model", "200/minute quota"),
            ("tenant=t1", "50000/day"),
        ],
    ),
    (
        "15",
        "soft-launch",
        &[
            ("service=search,caller=legacy-batch", "10/second shadow"),
            ("service=search,caller=web", "20/second"),
            ("service=payments,caller=web", "0/second shadow"),
            ("service=payments,caller=legacy-batch", "0/second shadow"),
        ],
    ),
    (
        "16",
        "metric-shape",
        &[
            ("route=web,http_method=GET,subject_id=1", "60/minute"),
            ("route=web,http_method=DELETE,subject_id=1", "6/minute"),
            ("route=api,http_method=GET", "none"),
        ],
    ),
    (
        "17",
        "api.example.test",
        &[
            ("grpc.method=/inventory.v1.Stock/Reserve", "25/second"),
            ("authority=grpc.example.test:8443", "100/second"),
            ("authority=grpc.example.test", "none"),
            ("remote_address=2001:db8::17", "3/second"),
            ("remote_address=203.0.113.5", "50/second"),
            ("shard=eu|west", "4/second"),
        ],
    ),
    (
        "18",
        "platform-core",
        &[
            ("region=eu,tenant=t-001,product=search,op=query", "100/second"),
            ("region=eu,tenant=t-001,product=search,op=reindex", "1/hour"),
            ("region=eu,tenant=t-001,product=search", "120/second"),
            ("region=eu,tenant=t-001,product=billing", "none"),
            ("region=eu,tenant=t-001,product=billing,op=refund", "2/minute"),
            ("region=eu,tenant=t-001,product=billing,op=charge", "30/minute"),
            ("region=eu,tenant=t-002,product=search,op=x", "5/second"),
            ("region=eu,tenant=internal-ci", "unlimited"),
            ("region=eu,tenant=internal-ci,product=search", "none"),
            ("region=eu,tenant=t-003,product=search", "10/second"),
            ("region=us,tenant=t-001,product=export", "3/day shadow"),
            ("region=us,tenant=t-001,product=mail", "none"),
            ("region=asia", "100/second"),
            ("region=eu", "none"),
        ],
    ),
    (
        "19",
        "anchored",
        &[
            ("team=blue", "50/minute"),
            ("team=green", "5/minute"),
            ("team=gold,op=x", "50/minute"),
            ("team=grey", "none"),
        ],
    ),
    (
        "20",
        "yaml11",
        &[
            ("enabled=yes", "1000/minute shadow"),
            ("enabled=true", "16/minute"),
            ("port=8443", "8/minute"),
            ("port=0x1F", "3/minute"),
            ("port=31", "none"),
            ("released=2024-02-29", "2/day"),
            ("clock=12:30", "2/day"),
            ("clock=750", "none"),
            ("nothing=anything", "4/day"),
        ],
    ),
    (
        "23",
        "repeated-keys",
        &[
            ("header_match=mobile,header_match=checkout", "4/minute"),
            ("header_match=mobile,header_match=other", "40/minute"),
            ("header_match=checkout", "none"),
        ],
    ),
    (
        "24",
        "auth-guard",
        &[
            ("login_ip_burst=198.51.100.1", "2/second"),
            ("login_user_day=ann", "50/day"),
            ("password_reset=1,email_hash=abc", "3/day"),
            ("password_reset=1", "none"),
        ],
    ),
    (
        "25",
        "storage-conns",
        &[("store=accounts", "450/second"), ("store=reporting", "30/minute"), ("store=archive", "none")],
    ),
];

#[test]
fn each_real_file_loads_and_answers() {
    for (number, domain, expected) in ANSWERS {
        let files = read("tests/real-configs", number);
        assert_eq!(files.len(), 1, "{number}");
        let rules = load(&files, false).rules;
        for (descriptor, answer) in *expected {
            assert_eq!(ask(&rules, domain, descriptor), *answer, "{number} {descriptor}");
        }
    }
}

#[test]
fn two_files_of_one_domain_load_together_only_with_merging() {
    let mut files = [read("tests/real-configs", "21"), read("tests/real-configs", "22")].concat();
    let refused = RuleSet::load(&files, &LoadOptions::default()).unwrap_err().to_string();
    assert!(
        refused.contains("22-merge-domain-part2.yaml:2:9: duplicate domain 'merged-domain'"),
        "{refused}"
    );
    // The order given is no matter: the file whose name sorts first declares first.
    for _ in 0..2 {
        let rules = load(&files, true).rules;
        assert_eq!(ask(&rules, "merged-domain", "path=/v1/users/7"), "3/minute");
        assert_eq!(ask(&rules, "merged-domain", "path=/v2/orders"), "30/minute");
        assert_eq!(ask(&rules, "merged-domain", "api_key=k1"), "60/minute");
        files.reverse();
    }
}

#[test]
fn only_the_ignored_document_is_warned_of() {
    let files = read("tests/real-configs", "");
    assert_eq!(files.len(), 25);
    let said: Vec<String> = load(&files, true).warnings.iter().map(ToString::to_string).collect();
    assert!(
        matches!(said.as_slice(), [one] if one.starts_with("06-") && one.contains("1 more YAML document")),
        "{said:?}"
    );
}

#[test]
fn the_examples_load_without_a_warning() {
    let files = read("config", "");
    let Loaded { rules, warnings } = load(&files, false);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(ask(&rules, "shop", "path=/search"), "20/second");
    assert_eq!(ask(&rules, "shop", "path=/api/orders"), "6000/minute /api/*");
    assert_eq!(ask(&rules, "shop", "path=/healthz"), "unlimited");
    assert_eq!(ask(&rules, "shop", "plan=pro,user=batch-runner"), "6000/minute");
    assert_eq!(ask(&rules, "shop", "coupon=SPRING"), "5/hour shadow");
    assert_eq!(ask(&rules, "lab", "leaky_bucket=x"), "10/10 seconds");
}

/// A file in the documentation, and below it what is said about it, or nothing.
fn documented() -> Vec<(String, String)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md")).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| {
        let (yaml, rest) = rest.split_once("```\n").unwrap();
        let said = rest
            .strip_prefix("\n```text\n")
            .and_then(|rest| rest.split_once("\n```"))
            .map_or("", |(said, _)| said);
        (yaml.to_owned(), said.to_owned())
    });
    blocks.collect()
}

#[test]
fn the_documentation_shows_what_the_reader_says() {
    let documented = documented();
    assert!(documented.iter().filter(|(_, said)| said.is_empty()).count() >= 4);
    assert!(documented.iter().filter(|(_, said)| !said.is_empty()).count() >= 4);
    for (yaml, expected) in documented {
        let file = RuleFile { name: "limits.yaml".to_owned(), bytes: yaml.clone().into_bytes() };
        let said = match RuleSet::load(&[file], &LoadOptions::default()) {
            Ok(loaded) => loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            Err(problems) => problems.to_string(),
        };
        assert_eq!(said, expected, "{yaml}");
    }
}

/// A real file with some places overwritten, cut out or doubled.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<Vec<u8>> = ["tests/real-configs", "config"]
        .iter()
        .flat_map(|folder| read(folder, ""))
        .map(|file| file.bytes)
        .collect();
    let token = prop::sample::select(vec![
        "*",
        "&a ",
        "*a",
        "<<: ",
        "~",
        "- ",
        "\n",
        "\t",
        ": ",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "|\n",
        "!!int ",
        "!!binary ",
        "---\n",
        "# ",
        "1e3",
        "0x1F",
        "-1",
        "true",
        "\u{FEFF}",
        "\u{0}",
        "é",
        "rate_limit: ",
        "descriptors: ",
        "key: ",
        "unit: ",
        "algorithm: leaky_bucket",
        "max_delay: 9s",
        "burst: 5",
        "metadata: ",
        "replaces: ",
        "share_threshold: true\n",
    ]);
    let edit = (any::<prop::sample::Index>(), 0_usize..30, token);
    (prop::sample::select(seeds), prop::collection::vec(edit, 1..6)).prop_map(|(mut bytes, edits)| {
        for (at, n_cut, token) in edits {
            let start = at.index(bytes.len() + 1);
            let end = (start + n_cut).min(bytes.len());
            bytes.splice(start..end, token.bytes());
        }
        bytes
    })
}

proptest! {
    #[test]
    fn no_mutation_of_a_file_makes_the_reader_panic(bytes in mutated()) {
        invariants::check(&bytes);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        invariants::check(&bytes);
    }

    #[test]
    fn no_text_of_yamls_own_signs_makes_the_reader_panic(text in "[-\\[\\]{}:,&*!|>'\"%@`#? \n\ta0~<.]{0,60}") {
        invariants::check(text.as_bytes());
    }
}
