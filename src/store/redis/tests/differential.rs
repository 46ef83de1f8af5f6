//! The scripts say what the pure functions say: random histories of charges, refunds, looks and steps of the clock, on a
//! real server and on the state in memory.

use std::{collections::HashMap, ops::Range};

use proptest::{prelude::*, test_runner::TestRunner};
use tokio::runtime::Runtime;

use super::*;
use crate::limit::{State, slice};

#[derive(Clone, Debug)]
struct Step {
    /// Microseconds forwards or backwards.
    clock: i64,
    /// Key, cost, longest wait.
    charges: Vec<(usize, Cost, Duration)>,
}

const N_KEYS: usize = 2;

fn limits() -> impl Strategy<Value = Limit> {
    let requests = prop_oneof![Just(0), 1_u32..=12, Just(1_000), Just(1_000_003), Just(u32::MAX)];
    let window = prop_oneof![
        Just((Unit::Second, 1)),
        Just((Unit::Second, 7)),
        Just((Unit::Minute, 1)),
        Just((Unit::Hour, 1)),
        Just((Unit::Year, 100)),
    ];
    let burst = prop_oneof![1_u32..=12, Just(1_000_000), Just(u32::MAX)];
    let delay = prop_oneof![Just(0_u64), 1..5_000_000_u64, Just(u64::from(u32::MAX) * 1_000)];
    (requests, window, burst, delay, 1..=4_u8).prop_map(
        |(requests, (unit, multiplier), burst, delay, kind)| {
            let algorithm = match kind {
                1 => Algorithm::SlidingWindow,
                2 => Algorithm::SlidingLog,
                3 => Algorithm::TokenBucket { burst },
                _ => Algorithm::LeakyBucket { burst, max_delay: Duration::from_micros(delay) },
            };
            let window = Window::new(unit, NonZeroU32::new(multiplier).unwrap()).unwrap();
            Limit { requests_per_unit: requests, window, algorithm }
        },
    )
}

fn costs() -> impl Strategy<Value = Cost> {
    let n = || prop_oneof![8 => 1_u64..=9, 1 => 10_u64..3_000_000_000, 1 => Just(Hits::MAX.get())];
    prop_oneof![
        6 => n().prop_map(|n| Cost::charge(Hits::new(n))),
        1 => Just(Cost::Peek),
        2 => n().prop_map(|n| Cost::refund(Hits::new(n))),
    ]
}

fn steps(n: Range<usize>, back: bool) -> impl Strategy<Value = Vec<Step>> {
    let forwards = prop_oneof![3 => 0_i64..2_000, 3 => 0_i64..1_500_000, 2 => 0_i64..90_000_000, 1 => 0_i64..9_000_000_000];
    let clock = (forwards, prop::bool::weighted(if back { 0.2 } else { 0.0 }))
        .prop_map(|(span, backwards)| if backwards { -span } else { span });
    let wait = prop_oneof![Just(Duration::MAX), (0_u64..2_000_000).prop_map(Duration::from_micros)];
    let charges = prop::collection::vec((0..N_KEYS, costs(), wait), 1..4);
    prop::collection::vec((clock, charges).prop_map(|(clock, charges)| Step { clock, charges }), n)
}

/// Longer than any history, so that the next one finds the clock where it has not been yet.
const HISTORY: u64 = 300_000_000_000;

/// Both tell the same story. `nth`: no history has had the number yet.
async fn tell(store: &RedisStore, nth: u64, limit: &Limit, steps: &[Step]) -> Result<(), TestCaseError> {
    let keys: Vec<CounterKey> = (0..N_KEYS).map(|n| key(&format!("{nth}.{n}"), limit)).collect();
    let mut states: HashMap<usize, State> = HashMap::new();
    let mut moment = UnixMicros::new(now().get() + nth * HISTORY);
    for step in steps {
        moment = UnixMicros::new(moment.get().saturating_add_signed(step.clock));
        let charges: Vec<Charge<'_>> = step
            .charges
            .iter()
            .map(|(n, cost, max_wait)| Charge { key: &keys[*n], limit, cost: *cost, max_wait: *max_wait })
            .collect();
        let told = store.charge(&charges, moment, Budget::of(SOON)).await;
        for ((n, cost, max_wait), told) in step.charges.iter().zip(told) {
            let state = states.entry(*n).or_insert_with(|| State::new(limit));
            let before = state.clone();
            let expected = state.charge(limit, moment, *cost, *max_wait);
            prop_assert_eq!(told, Ok(expected), "{:?} of {:?} at {:?} in {:?}", cost, limit, moment, before);
        }
    }
    Ok(())
}

/// The same with one key, of which hits are lent in between.
async fn lend(store: &RedisStore, nth: u64, limit: &Limit, steps: &[Step]) -> Result<(), TestCaseError> {
    let key = key(&format!("lent{nth}"), limit);
    let (mut state, mut moment) = (State::new(limit), now().get() + nth * HISTORY);
    for step in steps {
        moment = moment.saturating_add_signed(step.clock);
        let at = UnixMicros::new(moment);
        for (n, cost, max_wait) in &step.charges {
            let charge = charge(&key, limit, *cost);
            if let (Cost::Charge(wanted), 0) = (*cost, *n) {
                let used = state.charge(limit, at, Cost::Peek, *max_wait).used_before;
                let lent = Cost::charge(slice(limit, used, wanted));
                let expected = state.charge(limit, at, lent, *max_wait);
                let told = store.lend(&charge, 0, at, Budget::of(SOON)).await;
                prop_assert_eq!(told, Ok(expected), "{:?} lent of {:?} at {}", wanted, limit, moment);
            } else {
                let expected = state.charge(limit, at, *cost, Duration::MAX);
                let told = store.charge(&[charge], at, Budget::of(SOON)).await;
                prop_assert_eq!(told[0], Ok(expected), "{:?} of {:?} at {}", cost, limit, moment);
            }
        }
    }
    Ok(())
}

fn all_tell(limits: impl Strategy<Value = Limit>, back: bool) {
    on_a_server(limits, back, |runtime, store, nth, limit, steps| {
        runtime.block_on(tell(store, nth, limit, steps))
    });
}

fn on_a_server(
    limits: impl Strategy<Value = Limit>,
    back: bool,
    tell: impl Fn(&Runtime, &RedisStore, u64, &Limit, &[Step]) -> Result<(), TestCaseError>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, store) = runtime.block_on(async {
        let server = Server::start().await;
        let store = single(&server).await;
        (server, store)
    });
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() });
    let n_told = std::cell::Cell::new(0_u64);
    let told = runner.run(&(limits, steps(1..30, back)), |(limit, steps)| {
        n_told.set(n_told.get() + 1);
        tell(&runtime, &store, n_told.get(), &limit, &steps)
    });
    drop(server);
    if let Err(error) = told {
        panic!("{error}");
    }
}

#[test]
fn scripts_and_pure_functions_tell_the_same() {
    all_tell(limits(), true);
}

#[test]
fn fixed_windows_and_the_pure_function_tell_the_same() {
    all_tell(limits().prop_map(|limit| Limit { algorithm: Algorithm::FixedWindow, ..limit }), false);
}

#[test]
fn where_the_window_moves_the_script_lends_what_the_pure_function_lends() {
    let is_lent =
        |limit: &Limit| matches!(limit.algorithm, Algorithm::SlidingWindow | Algorithm::TokenBucket { .. });
    on_a_server(limits().prop_filter("never lent", is_lent), true, |runtime, store, nth, limit, steps| {
        runtime.block_on(lend(store, nth, limit, steps))
    });
}

/// Hits of a sliding window are taken off the window that they were debited in, or off none.
#[tokio::test]
async fn what_is_given_back_to_a_sliding_window_names_it() {
    let server = Server::start().await;
    let store = single(&server).await;
    let limit = limit(1_000, Unit::Minute, Algorithm::SlidingWindow);
    let key = key("lent", &limit);
    // Half of a minute is over.
    let first = UnixMicros::from_secs(now().secs() / 60 * 60 + 90);
    let second = first.after(Duration::from_secs(60));
    let window = first.secs() / 60;
    let ask = async |cost, at| {
        let charges = [charge(&key, &limit, cost)];
        store.charge(&charges, at, Budget::of(SOON)).await[0].unwrap().used_after.get()
    };
    let give_back = async |n, window, at| {
        let refund = charge(&key, &limit, Cost::refund(Hits::new(n)));
        store.return_to(&refund, window, at, Budget::of(SOON)).await.unwrap();
    };
    assert_eq!(ask(hits(100), first).await, 100);
    give_back(10, window, first).await;
    assert_eq!(ask(Cost::Peek, first).await, 90);
    assert_eq!(ask(hits(7), second).await, 45 + 7);
    give_back(20, window, second).await;
    assert_eq!(ask(Cost::Peek, second).await, 35 + 7, "off the window before");
    give_back(500, window + 1, second).await;
    assert_eq!(ask(Cost::Peek, second).await, 35, "off this window, and no more than it holds");
    for another in [window - 1, window + 2] {
        give_back(20, another, second).await;
    }
    assert_eq!(ask(Cost::Peek, second).await, 35);
}

/// What is lent to a node, and given back, in a window that need not be the one of the clock.
#[tokio::test]
async fn the_script_lends_what_the_pure_function_lends() {
    let server = Server::start().await;
    let store = single(&server).await;
    let window = now().secs() / 60 + 1;
    for (nth, requests) in [0, 15, 16, 1_000, u32::MAX].into_iter().enumerate() {
        let limit = limit(requests, Unit::Minute, Algorithm::FixedWindow);
        let key = key(&format!("lent{nth}"), &limit);
        let mut count = Hits::ZERO;
        for wanted in [1, 7, 60, 1_000_000, Hits::MAX.get(), 3] {
            let wanted = Hits::new(wanted);
            let lent = slice(&limit, count, wanted);
            let asked = charge(&key, &limit, Cost::charge(wanted));
            let told = store.lend(&asked, window, now(), Budget::of(SOON)).await.unwrap();
            assert_eq!(
                (told.used_before, told.used_after),
                (count, count.plus(lent)),
                "{wanted:?} of {limit}"
            );
            count = count.plus(lent);
        }
        let given_back = Hits::new(count.get() / 3);
        let refund = charge(&key, &limit, Cost::refund(given_back));
        store.return_to(&refund, window, now(), Budget::of(SOON)).await.unwrap();
        let name = format!("{}@{window}", String::from_utf8_lossy(key.as_bytes()));
        let expected =
            if count == Hits::ZERO { String::new() } else { count.minus(given_back).get().to_string() };
        let found = server.call(&["GET", &name]);
        assert!(found == expected || count == Hits::ZERO, "{name}: {found}");
        let in_this_window = store.charge(&[charge(&key, &limit, Cost::Peek)], now(), Budget::of(SOON)).await;
        assert_eq!(in_this_window[0].unwrap().used_before, Hits::ZERO);
    }
}
