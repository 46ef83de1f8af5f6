//! The recipes of the definitions, in doubles, against the whole numbers: what a language without integers must get.

use super::*;
use crate::limit::gcra::{Rate, Span};

/// The largest whole number up to which all are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Quotient and rest, as a script computes them.
fn div(a: f64, b: f64) -> (f64, f64) {
    let quotient = exact((a / b).floor());
    (quotient, exact(a - exact(quotient * b)))
}

/// Fails where a double would have been rounded.
fn exact(x: f64) -> f64 {
    assert!(x.fract() == 0.0 && (0.0..EXACT).contains(&x), "{x} is not exact");
    x
}

/// `gcra`'s span(h).
fn span(hits: f64, requests: f64, window: f64) -> (f64, f64) {
    let (q, r) = div(window, requests);
    let (high, low) = div(hits, 65_536.0);
    let (x, x_rest) = div(exact(high * r), requests);
    let (y, rest) = div(exact(exact(x_rest * 65_536.0) + exact(low * r)), requests);
    (exact(exact(hits * q) + exact(x * 65_536.0) + y), rest)
}

/// `gcra`'s hits_up(d), from a guess put right.
fn hits_up(d: (f64, f64), requests: f64, window: f64) -> f64 {
    let mut u = ((d.0 + d.1 / requests) * requests / window).floor();
    let guess = u;
    while span(u, requests, window) < d {
        u += 1.0;
    }
    while u > 0.0 && span(u - 1.0, requests, window) >= d {
        u -= 1.0;
    }
    assert!((-1.0..=2.0).contains(&(u - guess)), "the guess {guess} is further from {u} than promised");
    u
}

fn hits_down(d: (f64, f64), requests: f64, window: f64) -> f64 {
    let u = hits_up(d, requests, window);
    if span(u, requests, window) > d { u - 1.0 } else { u }
}

/// A rate and a number of hits that such a bucket can hold.
fn rates() -> impl Strategy<Value = (Scale, u32, u32)> {
    let requests =
        prop_oneof![1_u32..100, any::<u32>().prop_map(|n| n.max(1)), Just(u32::MAX), Just(1_000_000)];
    let secs = prop_oneof![Just(1_u32), 1_u32..100_000, 1_u32..=3_153_600_000, Just(3_153_600_000)];
    (requests, secs, any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
        |(requests, secs, burst, hits, rest)| {
            let scale = Scale::of(&limit(requests, secs, Algorithm::TokenBucket { burst: burst.max(1) }));
            (scale, hits % scale.capacity.max(1), rest % requests)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn spans_of_gcra((scale, hits, rest) in rates()) {
        let (requests, window) = (f64::from(scale.requests), scale.window() as f64);
        let rate = Rate::of(scale).unwrap();
        let ours = rate.span(u64::from(hits));
        prop_assert_eq!(span(f64::from(hits), requests, window), (ours.micros as f64, f64::from(ours.rest)));
        // The span itself, and one that no number of hits takes.
        for micros in [ours.micros, ours.micros + 1] {
            let d = Span { micros, rest: if micros == ours.micros { ours.rest } else { rest } };
            let (f, most) = ((d.micros as f64, f64::from(d.rest)), f64::from(scale.capacity));
            // A debt is at most full.
            if f <= span(most, requests, window) {
                prop_assert_eq!(hits_up(f, requests, window), rate.hits_up(d) as f64);
                prop_assert_eq!(hits_down(f, requests, window), rate.hits_down(d) as f64);
            }
        }
    }

    /// In units of 1 / L microseconds, which are whole.
    #[test]
    fn sums_of_spans(requests in prop_oneof![1_u32..5, any::<u32>().prop_map(|n| n.max(1))], a in any::<(u32, u32)>(), b in any::<(u32, u32)>()) {
        let rate = Rate::of(Scale::of(&limit(requests, 1, Algorithm::FixedWindow))).unwrap();
        let [a, b] = [a, b].map(|(micros, rest)| Span { micros: u64::from(micros), rest: rest % requests });
        let units = |span: Span| u128::from(span.micros) * u128::from(requests) + u128::from(span.rest);
        let (sum, difference) = (rate.plus(a, b), rate.minus(a, b));
        prop_assert!(sum.rest < requests && difference.rest < requests);
        prop_assert_eq!(units(sum), units(a) + units(b));
        prop_assert_eq!(units(difference), units(a).saturating_sub(units(b)));
    }

    #[test]
    fn the_estimate_of_a_sliding_window(previous in any::<u32>(), room in any::<u32>(), secs in 1_u32..=3_153_600_000, into in any::<u64>()) {
        let window = u64::from(secs) * SECOND;
        let into = into % window;
        let (elapsed, _) = div(into as f64, f64::from(secs));
        prop_assert_eq!(elapsed, (into / u64::from(secs)) as f64);
        let (weighted, _) = div(exact(exact(f64::from(previous) * (1e6 - elapsed)) + 999_999.0), 1e6);
        let ours = (u128::from(previous) * (1_000_000 - u128::from(into / u64::from(secs)))).div_ceil(1_000_000);
        prop_assert_eq!(weighted, ours as f64);
        if previous > 0 {
            let (parts, _) = div(exact(f64::from(room) * 1e6), f64::from(previous));
            prop_assert_eq!(parts, (u64::from(room) * 1_000_000 / u64::from(previous)) as f64);
        }
    }

    #[test]
    fn the_number_of_a_window(now in 0_u64..1 << 53, secs in 1_u32..=3_153_600_000) {
        let window = u64::from(secs) * SECOND;
        for now in [now, now / window * window, (now / window * window).saturating_sub(1)] {
            prop_assert_eq!(div(now as f64, window as f64), ((now / window) as f64, (now % window) as f64));
        }
    }
}

#[test]
fn a_full_bucket_drains_within_its_bound_and_is_exact() {
    for (requests, secs, burst) in
        [(u32::MAX, 1, u32::MAX), (1, 3_153_600_000, u32::MAX), (1, 31_536_000, 1_000), (3, 1, 7)]
    {
        let scale = Scale::of(&limit(requests, secs, Algorithm::TokenBucket { burst }));
        let full = span(f64::from(scale.capacity), f64::from(requests), scale.window() as f64);
        assert!(full.0 <= 3_153_600_000.0 * 1e6, "{full:?}");
        assert!(scale.capacity >= burst.min(requests));
    }
}
