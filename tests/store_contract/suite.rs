//! The properties. Each uses keys of its own, so that they can share a store.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tidegate::{
    clock::UnixMicros,
    key::CounterKey,
    limit::{Algorithm, Charged, Cost, Hits, Limit, State, Unit, Window},
    store::Charge,
};

use crate::subject::Subject;

/// The start of an hour.
const START: u64 = 1_700_006_400_000_000;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket { burst: 8 },
    Algorithm::LeakyBucket { burst: 3, max_delay: Duration::from_millis(400) },
];

/// One charge of a request: of which of a few counters, and how much.
#[derive(Clone, Copy, Debug)]
struct Ask {
    counter: usize,
    cost: Cost,
}

/// So much later (or earlier) than the last one, a request.
#[derive(Clone, Debug)]
struct Call {
    micros: i64,
    asks: Vec<Ask>,
}

pub fn histories_come_out_as_computed(subject: &impl Subject) {
    compare_histories(subject, 0);
}

pub fn steps_back_come_out_as_computed(subject: &impl Subject) {
    compare_histories(subject, 900_000);
}

pub fn answers_come_in_the_order_of_the_charges(subject: &impl Subject) {
    subject.turn(UnixMicros::new(START));
    let limit = hourly(1_000, Algorithm::FixedWindow);
    let keys: Vec<_> = (0..9).map(|n| key(&domain(), n, &limit)).collect();
    let charges: Vec<_> = keys.iter().zip(1..).map(|(key, n)| charge(key, &limit, hits(n))).collect();
    let used: Vec<_> = subject.charge(&charges).1.iter().map(|charged| charged.used_after.get()).collect();
    assert_eq!(used, (1..10).collect::<Vec<_>>());
    assert!(subject.charge(&[]).1.is_empty());
}

pub fn a_descriptor_sent_twice_sees_its_own_first_charge(subject: &impl Subject) {
    subject.turn(UnixMicros::new(START));
    for algorithm in ALGORITHMS {
        let limit = hourly(3, algorithm);
        let key = key(&domain(), 0, &limit);
        let charges = [2, 1, 1].map(|n| charge(&key, &limit, hits(n)));
        let (_, charged) = subject.charge(&charges);
        let used: Vec<_> = charged.iter().map(|c| c.used_before.get()).collect();
        assert_eq!(used[..2], [0, 2], "{algorithm:?}");
    }
}

/// Eight threads, each with requests of two counters: what is admitted of each is what one thread would get.
pub fn threads_share_exactly_the_limit(subject: &impl Subject) {
    subject.turn(UnixMicros::new(START));
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: 100 },
        Algorithm::LeakyBucket { burst: 99, max_delay: Duration::from_secs(3600) },
    ] {
        let limit = hourly(100, algorithm);
        let domain = domain();
        let keys = [key(&domain, 0, &limit), key(&domain, 1, &limit)];
        let admitted = [AtomicUsize::new(0), AtomicUsize::new(0)];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..30 {
                        let charges = [charge(&keys[0], &limit, hits(1)), charge(&keys[1], &limit, hits(1))];
                        for (charged, admitted) in subject.charge(&charges).1.iter().zip(&admitted) {
                            admitted.fetch_add(usize::from(charged.admitted), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.map(AtomicUsize::into_inner), [100, 100], "{algorithm:?}");
    }
}

pub fn one_thread_s_key_is_not_another_s(subject: &impl Subject) {
    subject.turn(UnixMicros::new(START));
    let limit = hourly(1, Algorithm::FixedWindow);
    let domain = domain();
    for n in 0..500 {
        assert!(subject.charge(&[charge(&key(&domain, n, &limit), &limit, hits(1))]).1[0].admitted);
    }
    for n in 0..500 {
        assert!(!subject.charge(&[charge(&key(&domain, n, &limit), &limit, hits(1))]).1[0].admitted);
    }
}

pub fn a_changed_number_counts_on(subject: &impl Subject) {
    subject.turn(UnixMicros::new(START));
    for algorithm in &ALGORITHMS[..3] {
        let domain = domain();
        let mut answers = Vec::new();
        for (number, cost) in [(2, 2), (10, 1), (3, 1)] {
            let limit = hourly(number, *algorithm);
            let charged = subject.charge(&[charge(&key(&domain, 0, &limit), &limit, hits(cost))]).1[0];
            answers.push((charged.used_before.get(), charged.admitted, charged.remaining.get()));
        }
        assert_eq!(answers, [(0, true, 0), (2, true, 7), (3, false, 0)], "{algorithm:?}");
    }
}

pub fn nobody_waits_longer_than_it_can(subject: &impl Subject) {
    subject.turn(UnixMicros::new(START));
    let algorithm = Algorithm::LeakyBucket { burst: 9, max_delay: Duration::from_secs(3600) };
    let limit = hourly(6, algorithm);
    let key = key(&domain(), 0, &limit);
    subject.charge(&[charge(&key, &limit, hits(1))]);
    let patient = charge(&key, &limit, hits(1));
    let hurried = Charge { max_wait: Duration::from_secs(300), ..patient.clone() };
    let answers = subject.charge(&[hurried, patient]).1;
    assert_eq!((answers[0].admitted, answers[1].admitted), (false, true));
    assert!(answers[1].delay > Duration::from_secs(300));
}

/// Random requests to a few counters of all algorithms; the store and the pure functions must agree in every field.
fn compare_histories(subject: &impl Subject, back: i64) {
    let config = ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = (vec(limits(), 3), vec(calls(back), 0..40));
    TestRunner::new(config)
        .run(&strategy, |(limits, calls)| {
            let domain = domain();
            let keys: Vec<_> = limits.iter().enumerate().map(|(n, limit)| key(&domain, n, limit)).collect();
            let mut states: HashMap<&[u8], State> = HashMap::new();
            let (mut now, mut left) = (START, back);
            for call in calls {
                // In all no further back than one window.
                let micros = call.micros.max(-left);
                left += micros.min(0);
                now = now.saturating_add_signed(micros);
                subject.turn(UnixMicros::new(now));
                let charges: Vec<_> = call
                    .asks
                    .iter()
                    .map(|ask| charge(&keys[ask.counter], &limits[ask.counter], ask.cost))
                    .collect();
                let (at, charged) = subject.charge(&charges);
                let computed: Vec<Charged> = charges
                    .iter()
                    .map(|charge| {
                        let state =
                            states.entry(charge.key.as_bytes()).or_insert_with(|| State::new(charge.limit));
                        state.charge(charge.limit, at, charge.cost, charge.max_wait)
                    })
                    .collect();
                prop_assert_eq!(charged, computed);
            }
            Ok(())
        })
        .unwrap();
}

fn limits() -> impl Strategy<Value = Limit> {
    (1_u32..10, 0..ALGORITHMS.len()).prop_map(|(requests_per_unit, n)| Limit {
        requests_per_unit,
        window: Window::of(Unit::Second),
        algorithm: ALGORITHMS[n],
    })
}

fn calls(back: i64) -> impl Strategy<Value = Call> {
    let micros = prop_oneof![
        3 => Just(0_i64),
        3 => 0_i64..300_000,
        1 => 0_i64..3_000_000,
        1 => -back..=0,
    ];
    let cost = prop_oneof![
        6 => (1_u64..4).prop_map(hits),
        1 => (1_u64..20).prop_map(hits),
        1 => Just(Cost::Peek),
        1 => (1_u64..4).prop_map(|n| Cost::refund(Hits::new(n))),
    ];
    let asks = vec((0_usize..3, cost).prop_map(|(counter, cost)| Ask { counter, cost }), 1..4);
    (micros, asks).prop_map(|(micros, asks)| Call { micros, asks })
}

fn hits(n: u64) -> Cost {
    Cost::charge(Hits::new(n))
}

fn hourly(requests_per_unit: u32, algorithm: Algorithm) -> Limit {
    Limit { requests_per_unit, window: Window::of(Unit::Hour), algorithm }
}

fn charge<'a>(key: &'a CounterKey, limit: &'a Limit, cost: Cost) -> Charge<'a> {
    Charge { key, limit, cost, max_wait: Duration::MAX }
}

fn key(domain: &str, counter: usize, limit: &Limit) -> CounterKey {
    let counter = counter.to_string();
    CounterKey::new(b"", domain.as_bytes(), [(&b"counter"[..], counter.as_bytes())].into_iter(), limit)
}

/// One that no other test or case uses.
fn domain() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("contract-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
