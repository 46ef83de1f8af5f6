//! What the rules cost: a lookup in ten thousand rules, the worst that five hundred patterns at one level can do to it, and
//! a load of all of them.

#![expect(clippy::unwrap_used, reason = "what fails in a benchmark should fail loudly")]

use std::{fmt::Write, hint::black_box};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use tidegate::{
    descriptor::Entry,
    rules::{LoadOptions, Lookup, RuleFile, RuleSet},
};

const N_EXACT: usize = 10_000;
const N_PATTERNS: usize = 500;

fn main_file(pattern: impl Fn(usize) -> String) -> RuleFile {
    let limit = "rate_limit: {unit: minute, requests_per_unit: 100}";
    let mut yaml = "domain: shop\ndescriptors:\n".to_owned();
    for n in 0..N_EXACT {
        writeln!(yaml, "  - {{key: path, value: /exact/{n}, {limit}}}").unwrap();
    }
    for n in 0..N_PATTERNS {
        writeln!(yaml, "  - {{key: path, value: \"{}\", {limit}}}", pattern(n)).unwrap();
    }
    yaml += "  - key: tenant\n    descriptors: [{key: user, descriptors: [{key: op, rate_limit: {unit: hour, requests_per_unit: 5}}]}]\n";
    RuleFile { name: "limits.yaml".to_owned(), bytes: yaml.into_bytes() }
}

fn load(file: &RuleFile) -> RuleSet {
    RuleSet::load(std::slice::from_ref(file), &LoadOptions::default()).unwrap().rules
}

fn entry(key: &str, value: &str) -> Entry {
    Entry { key: Bytes::copy_from_slice(key.as_bytes()), value: Bytes::copy_from_slice(value.as_bytes()) }
}

fn lookups(c: &mut Criterion) {
    let rules = load(&main_file(|n| format!("/api/v1/service-{n}/*")));
    let mut group = c.benchmark_group("lookup");
    let mut bench = |name: &str, rules: &RuleSet, entries: &[Entry], found: bool| {
        assert_eq!(matches!(rules.lookup(b"shop", entries), Lookup::Found(_)), found, "{name}");
        group.bench_function(name, |b| {
            b.iter(|| black_box(rules.lookup(black_box(b"shop"), black_box(entries))))
        });
    };
    bench("exact of 10,000", &rules, &[entry("path", "/exact/7777")], true);
    bench(
        "three levels of any value",
        &rules,
        &[entry("tenant", "t-1"), entry("user", "u-1"), entry("op", "read")],
        true,
    );
    bench("last of 500 prefixes", &rules, &[entry("path", "/api/v1/service-499/orders/17")], true);
    bench("none of 500 prefixes", &rules, &[entry("path", "/api/v1/service-x/orders/17")], false);

    let long = |n: usize| "/orders/17/items".chars().cycle().take(n).collect::<String>();
    let suffixes = load(&main_file(|n| format!("*/orders/host-{n}.example")));
    bench("none of 500 suffixes", &suffixes, &[entry("path", &(long(100) + "host-x.example"))], false);
    let middles = load(&main_file(|n| format!("/api/*/item-{n}/*/buy")));
    for n in [100, 1_000, 4_000] {
        bench(
            &format!("none of 500 middles, {n} bytes"),
            &middles,
            &[entry("path", &format!("/api/{}/buy", long(n)))],
            false,
        );
    }
    // Every pair of neighbouring bytes that any pattern needs, and none of the patterns.
    let pairs: String = (0..100).map(|n| format!("-{}x{n:02}/", n % 10)).collect();
    bench(
        "none of 500 middles, 600 bytes made to mislead",
        &middles,
        &[entry("path", &format!("/api//item-x{pairs}/buy"))],
        false,
    );
    let crafted = load(&main_file(|n| "*a".repeat(20) + "*b" + &n.to_string() + "*c"));
    bench(
        "none of 500 crafted patterns, 100 bytes",
        &crafted,
        &[entry("path", &("a".repeat(99) + "c"))],
        false,
    );
}

fn loads(c: &mut Criterion) {
    let file = main_file(|n| format!("/api/*/item-{n}/*/buy"));
    let mut group = c.benchmark_group("load");
    group.sample_size(10);
    group.bench_function("10,000 rules and 500 patterns", |b| b.iter(|| load(black_box(&file))));
}

criterion_group!(benches, lookups, loads);
criterion_main!(benches);
