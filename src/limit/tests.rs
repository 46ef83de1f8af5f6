//! Random histories, the clock's steps back included, and what must hold in all of them.

mod doubles;
mod examples;
mod oracles;
mod promises;

use std::{num::NonZeroU32, time::Duration};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::clock::UnixMicros;

const SECOND: u64 = 1_000_000;

/// A moment to start from: the start of a minute, an hour and a day.
const START: u64 = 1_700_006_400 * SECOND;

fn limit(requests_per_unit: u32, window_secs: u32, algorithm: Algorithm) -> Limit {
    let window = Window::new(Unit::Second, NonZeroU32::new(window_secs).unwrap()).unwrap();
    Limit { requests_per_unit, window, algorithm }
}

/// One charge of a history: so much later (or earlier) than the one before.
#[derive(Clone, Copy, Debug)]
struct Step {
    micros: i64,
    cost: Cost,
}

/// The state after a history, and the moment at which it ended.
fn after(limit: &Limit, history: &[Step]) -> (State, u64) {
    let (mut state, mut now) = (State::new(limit), START);
    for step in history {
        now = now.saturating_add_signed(step.micros);
        charge(&mut state, limit, now, step.cost);
    }
    (state, now)
}

fn charge(state: &mut State, limit: &Limit, now: u64, cost: Cost) -> Charged {
    state.charge(limit, UnixMicros::new(now), cost, Duration::MAX)
}

fn hits(n: u64) -> Cost {
    Cost::charge(Hits::new(n))
}

fn refund(n: u64) -> Cost {
    Cost::refund(Hits::new(n))
}

/// Every algorithm, with small numbers, so that histories reach every edge of it.
fn small_limits() -> impl Strategy<Value = Limit> {
    let algorithm = prop_oneof![
        Just(Algorithm::FixedWindow),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::SlidingLog),
        token_buckets(),
        leaky_buckets(),
    ];
    limits_of(algorithm)
}

fn limits_of(algorithm: impl Strategy<Value = Algorithm>) -> impl Strategy<Value = Limit> {
    (1_u32..12, 1_u32..4, algorithm).prop_map(|(requests, secs, algorithm)| limit(requests, secs, algorithm))
}

fn token_buckets() -> impl Strategy<Value = Algorithm> {
    (1_u32..20).prop_map(|burst| Algorithm::TokenBucket { burst })
}

fn leaky_buckets() -> impl Strategy<Value = Algorithm> {
    (0_u32..6, prop_oneof![Just(0), 1_u64..2_000_000])
        .prop_map(|(burst, delay)| Algorithm::LeakyBucket { burst, max_delay: Duration::from_micros(delay) })
}

/// Charges mostly, at moments that crowd windows of a few seconds. `back`: the furthest step back of the clock.
fn histories(back: i64) -> impl Strategy<Value = Vec<Step>> {
    let micros = prop_oneof![
        4 => Just(0_i64),
        2 => Just(1_i64),
        6 => 0_i64..400_000,
        3 => 0_i64..3_000_000,
        1 => 3_000_000_i64..30_000_000,
        1 => -back..=0,
        1 => -back / 20..=0,
    ];
    vec((micros, costs()).prop_map(|(micros, cost)| Step { micros, cost }), 0..60)
}

fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![
        8 => Just(hits(1)),
        4 => (1_u64..5).prop_map(hits),
        1 => (1_u64..40).prop_map(hits),
        1 => Just(hits(u64::MAX)),
        2 => Just(Cost::Peek),
        2 => (1_u64..5).prop_map(refund),
        1 => Just(refund(u64::MAX)),
    ]
}
