use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::limit::{Algorithm, Limit, Unit, Window};

fn key(name: &str) -> CounterKey {
    let limit =
        Limit { requests_per_unit: 1, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow };
    CounterKey::new(b"", b"d", [(&b"k"[..], name.as_bytes())].into_iter(), &limit)
}

fn keys(n: usize) -> Vec<CounterKey> {
    (0..n).map(|n| key(&n.to_string())).collect()
}

fn seen(key: &CounterKey) -> Seen<'_> {
    Seen { key, rule: None, hits: 1, refused: false }
}

fn at(micros: u64) -> UnixMicros {
    UnixMicros::new(1_000_000_000_000 + micros)
}

fn sketch() -> Sketch {
    Sketch::new(SketchKeeps::Named)
}

proptest! {
    #[test]
    fn the_lightest_is_the_first_of_those_that_weigh_least(
        weights in prop::collection::vec((0_u32..40).prop_map(f64::from), 0..70),
    ) {
        let found = summary::lightest(&weights);
        let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
        let place = weights.iter().position(|&weight| weight == least).unwrap_or(0);
        prop_assert_eq!(found, (place, least));
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// In [0, 1).
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Numbers below `n`; the k-th is drawn 1/k^s as often as the first.
fn zipf(n: usize, s: f64, seed: u64) -> impl Iterator<Item = usize> {
    let mut until = Vec::with_capacity(n);
    let mut sum = 0.0;
    for k in 1..=n {
        sum += (k as f64).powf(-s);
        until.push(sum);
    }
    let mut random = Random(seed);
    std::iter::repeat_with(move || {
        let drawn = random.share() * sum;
        until.partition_point(|&until| until <= drawn).min(n - 1)
    })
}

/// The stream, counted exactly with the same decay, beside the sketch of it.
#[test]
fn every_count_is_within_its_error_on_zipf_streams() {
    for (s, seed) in [(0.6, 1), (0.8, 2), (1.0, 3), (1.2, 4)] {
        let (sketch, keys) = (sketch(), keys(20_000));
        let mut exact = vec![0.0_f64; keys.len()];
        let (mut total, mut n_calls) = (0.0, 0_u64);
        // Six seconds at 20,000 calls a second, by the steps in which the sketch sees time.
        for drawn in zipf(keys.len(), s, seed).take(120_000) {
            let now = n_calls * 50;
            sketch.record(at(now), std::iter::once(seen(&keys[drawn])));
            let weight = ((now / STEP * STEP) as f64 / (HALF_LIFE.as_secs_f64() * 1e6)).exp2();
            exact[drawn] += weight;
            total += weight;
            n_calls += 1;
        }
        let state = sketch.state.lock();
        let scale = total / state.hottest.total();
        let listed: HashMap<KeyId, Listed<'_>> =
            state.hottest.listed().map(|listed| (listed.id, listed)).collect();
        let mut hottest: Vec<usize> = (0..keys.len()).collect();
        hottest.sort_by(|a, b| exact[*b].total_cmp(&exact[*a]));
        let rounding = 1e-6 * total;
        for (n, key) in keys.iter().enumerate() {
            match listed.get(&key.id()) {
                Some(listed) => {
                    let most = listed.weight * scale;
                    let least = most - listed.error * scale;
                    assert!(exact[n] <= most + rounding && exact[n] >= least - rounding, "{s} {n}");
                    assert!(listed.error * scale <= total / 128.0, "{s} {n}: the stated bound of an error");
                }
                None => {
                    let most = state.hottest.most_unlisted(key.id()) * scale;
                    assert!(exact[n] <= most + rounding, "{s} {n}");
                    assert!(exact[n] <= total / 128.0, "{s} {n}: what makes more than that is listed");
                    assert!(most <= state.hottest.most_of_any_unlisted() * scale);
                }
            }
        }
        for n in &hottest[..20] {
            assert!(listed.contains_key(&keys[*n].id()), "{s}: the {n}th is one of the 20 hottest");
        }
    }
}

#[test]
fn a_call_counts_half_after_the_half_life_and_nothing_after_a_night() {
    let (sketch, keys) = (sketch(), keys(2));
    let half_life = HALF_LIFE.as_micros() as u64;
    (0..100).for_each(|_| sketch.record(at(0), std::iter::once(seen(&keys[0]))));
    let weight_of = |now: u64| {
        let reading = sketch.read(at(now));
        let id = keys[0].id();
        reading.hottest.listed().find(|listed| listed.id == id).map_or(0.0, |listed| listed.weight)
    };
    for (halvings, left) in [(0.0, 100.0), (1.0, 50.0), (2.0, 25.0), (10.0, 0.098)] {
        assert!((weight_of((half_life as f64 * halvings) as u64) - left).abs() < 0.5, "{halvings}");
    }
    let night = 8 * 3_600 * 1_000_000;
    sketch.record(at(night), std::iter::once(seen(&keys[1])));
    assert!(weight_of(night) < 1e-9);
    assert!((sketch.read(at(night)).hottest.total() - 1.0).abs() < 1e-9);
}

#[test]
fn days_of_calls_neither_overflow_nor_forget() {
    let (sketch, keys) = (sketch(), keys(1));
    for tenth in 0..36_000_u64 {
        sketch.record(at(tenth * 100_000), std::iter::once(seen(&keys[0])));
    }
    let rate = sketch.rate(keys[0].id(), at(3_600_000_000));
    assert!((rate.calls_per_second - 10.0).abs() < 0.3, "{rate:?}");
}

#[test]
fn a_rate_is_that_of_the_last_seconds() {
    let (sketch, keys) = (sketch(), keys(2));
    for n in 0..20_000_u64 {
        let hot = Seen { hits: 3, ..seen(&keys[0]) };
        sketch.record(at(n * 1_000), std::iter::once(hot));
    }
    let rate = sketch.rate(keys[0].id(), at(20_000_000));
    assert!((rate.calls_per_second / 1_000.0 - 1.0).abs() < 0.02, "{rate:?}");
    assert!((rate.hits_per_second / 3_000.0 - 1.0).abs() < 0.02, "{rate:?}");
    let later = sketch.rate(keys[0].id(), at(22_000_000));
    assert!((later.calls_per_second / 500.0 - 1.0).abs() < 0.02, "{later:?}");
    assert_eq!(sketch.rate(keys[1].id(), at(20_000_000)), Rate::default());
}

#[test]
fn a_clock_that_steps_back_goes_on_from_there() {
    let (sketch, keys) = (sketch(), keys(1));
    let hour = 3_600_000_000;
    let send = |from: u64| {
        (0..10_000).for_each(|n| {
            sketch.record(at(from + n * 1_000), std::iter::once(seen(&keys[0])));
        })
    };
    send(hour);
    send(0);
    let rate = sketch.rate(keys[0].id(), at(10_000_000));
    assert!((rate.calls_per_second / 1_000.0 - 1.0).abs() < 0.05, "{rate:?}");
    assert!(sketch.state.lock().decay.weight < 2e3, "no time has passed twice");
}

#[test]
fn a_late_answer_is_no_step_back() {
    let (sketch, keys) = (sketch(), keys(1));
    for n in 0..20_000_u64 {
        let late = if n % 3 == 0 { 900_000 } else { 0 };
        sketch.record(at(1_000_000 + n * 1_000 - late), std::iter::once(seen(&keys[0])));
    }
    let rate = sketch.rate(keys[0].id(), at(21_000_000));
    assert!((rate.calls_per_second / 1_000.0 - 1.0).abs() < 0.05, "{rate:?}");
}

/// The memory that the documentation states, whatever is asked; and how seldom a cold key costs more than an addition.
#[test]
fn a_million_cold_keys_change_no_memory_and_hide_no_hot_one() {
    let sketch = sketch();
    let before = sketch.bytes();
    assert!(before <= 128 << 10, "{before}");
    let hot = key("hot");
    for n in 0..1_000_000_u64 {
        let cold = key(&format!("cold-{n}"));
        let refused = n % 2 == 0;
        sketch.record(at(n * 100), std::iter::once(Seen { refused, ..seen(&cold) }));
        if n % 50 == 0 {
            sketch.record(at(n * 100), std::iter::once(seen(&hot)));
        }
    }
    assert_eq!(sketch.bytes(), before);
    let rate = sketch.rate(hot.id(), at(100_000_000));
    assert!((rate.calls_per_second / 200.0 - 1.0).abs() < 0.25, "{rate:?}");
    let state = sketch.state.lock();
    let share = state.hottest.n_replaced as f64 / 1e6;
    assert!(share < 0.10, "{share} of the cold calls took a counter's place");
}

#[test]
fn names_are_kept_in_bounds_and_do_nothing_to_a_terminal() {
    let long = (0..20).map(|n| format!("segment-{n}")).collect::<String>();
    let limit =
        Limit { requests_per_unit: 1, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow };
    let entries = [(&b"one"[..], &long.as_bytes()[..100]), (b"two", &long.as_bytes()[..99])];
    let long = CounterKey::new(b"", b"domain", entries.into_iter(), &limit);
    let evil = CounterKey::envoyproxy(b"", b"d", [(&b"k"[..], &b"\x1b[2J\xff"[..])].into_iter());
    let text = |key: &CounterKey, keeps| {
        let sketch = Sketch::new(keeps);
        sketch.record(at(0), std::iter::once(seen(key)));
        let reading = sketch.read(at(0));
        let name = reading.hottest.listed().next().map(|listed| listed.name);
        name.unwrap_or_default()
    };
    let shown = text(&long, SketchKeeps::Named);
    assert_eq!(shown.chars().count(), MAX_NAME + 1);
    assert!(shown.starts_with("domain|one=segment-0") && shown.ends_with("|60s"), "{shown}");
    assert_eq!(text(&evil, SketchKeeps::Named), "d_k_\u{fffd}[2J\u{fffd}_");
    assert_eq!(text(&evil, SketchKeeps::Unnamed), "");
}

#[test]
fn a_worker_does_not_wait_for_a_reader() {
    let (sketch, keys) = (sketch(), keys(1));
    let reading = sketch.state.lock();
    sketch.record(at(0), std::iter::once(seen(&keys[0])));
    drop(reading);
    assert_eq!(sketch.read(at(0)).hottest.listed().count(), 0);
}
