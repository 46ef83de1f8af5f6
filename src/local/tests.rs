//! The memo in front of a store that counts by the pure functions, over random histories on a clock that is turned by hand.

use proptest::prelude::*;

use super::*;
use crate::{
    key::CounterKey,
    limit::{State, Unit, Window},
};

const KEYS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask {
        key: usize,
        cost: Cost,
        limit: usize,
    },
    /// By another node: this one does not hear of it.
    RefundElsewhere {
        key: usize,
        hits: u64,
    },
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        8 => (1_u64..4).prop_map(|n| Cost::Charge(Hits::new(n))),
        1 => Just(Cost::Charge(Hits::new(50))),
        1 => Just(Cost::Peek),
        1 => (1_u64..4).prop_map(|n| Cost::Refund(Hits::new(n))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u64..60_000).prop_map(Step::Wait),
        1 => (0_u64..3_000_000).prop_map(Step::Wait),
        12 => (0..KEYS, cost(), prop_oneof![9 => Just(0_usize), 1 => Just(1_usize)])
            .prop_map(|(key, cost, limit)| Step::Ask { key, cost, limit }),
    ]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::FixedWindow),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::SlidingLog),
        (1_u32..8).prop_map(|burst| Algorithm::TokenBucket { burst }),
        (1_u32..8).prop_map(|burst| Algorithm::LeakyBucket { burst, max_delay: Duration::from_millis(10) }),
    ]
}

struct World {
    local: Local,
    clock: Clock,
    now: UnixMicros,
    keys: Vec<CounterKey>,
    states: Vec<State>,
    /// The moment until which a change made elsewhere may be unseen, for each key.
    unseen_until: Vec<UnixMicros>,
    n_remembered: usize,
    /// Only one limit and one cost are used, so that nothing that is admitted puts off what was refused.
    is_alone: bool,
}

impl World {
    fn new(limit: &Limit) -> Self {
        let now = UnixMicros::from_secs(1_000_000);
        let names = (0..KEYS).map(|n| n.to_string());
        let keys = names
            .map(|name| CounterKey::new(b"", b"d", [(&b"k"[..], name.as_bytes())].into_iter(), limit))
            .collect();
        Self {
            local: Local::new(Options { memo: Some(memo::Options::default()), ..Options::default() }),
            clock: Clock::manual(now),
            now,
            keys,
            states: vec![State::new(limit); KEYS],
            unseen_until: vec![UnixMicros::default(); KEYS],
            n_remembered: 0,
            is_alone: false,
        }
    }

    fn wait(&mut self, micros: u64) {
        self.now = self.now.after(Duration::from_micros(micros));
        self.clock.set(self.now);
    }

    fn ask(&mut self, key: usize, cost: Cost, limit: &Limit) -> Result<(), TestCaseError> {
        let charge = Charge { key: &self.keys[key], limit, cost, max_wait: Duration::MAX };
        let charges = std::slice::from_ref(&charge);
        let known = self.local.look(charges, self.now);
        if let Some(Known::Refused(until)) = known.first().copied() {
            let said = refusal(limit, cost.hits(), until, self.now);
            let pure = self.states[key].clone().charge(limit, self.now, cost, Duration::MAX);
            self.n_remembered += 1;
            if self.now >= self.unseen_until[key] {
                prop_assert!(!pure.admitted, "refused from memory what {limit:?} admits: {pure:?}");
                let fits = cost.hits() <= Scale::of(limit).capacity();
                match limit.algorithm {
                    Algorithm::FixedWindow => prop_assert_eq!(said.reset_after, pure.reset_after),
                    _ if self.is_alone => prop_assert_eq!(said.reset_after, pure.reset_after),
                    Algorithm::LeakyBucket { .. } if cost.hits().get() > 1 => {}
                    _ if fits => {
                        prop_assert!(said.reset_after <= pure.reset_after, "{said:?} {pure:?}");
                    }
                    _ => {}
                }
            }
            return Ok(());
        }
        let asks = [known.first() == Some(&Known::Asks)];
        let charged = self.states[key].charge(limit, self.now, cost, Duration::MAX);
        self.local.learn(charges, &asks, &[Ok(charged)], RefusedHits::Counted, self.now, &self.clock);
        Ok(())
    }

    fn refund_elsewhere(&mut self, key: usize, hits: u64, limit: &Limit) {
        self.states[key].charge(limit, self.now, Cost::refund(Hits::new(hits)), Duration::MAX);
        self.unseen_until[key] = self.now.after(memo::DEFAULT_HORIZON + memo::GRACE);
    }
}

proptest! {
    #[test]
    fn nothing_is_refused_from_memory_that_the_limit_admits(
        algorithm in algorithm(),
        number in 1_u32..6,
        raised in 1_u32..3,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let window = Window::of(Unit::Second);
        let limit = Limit { requests_per_unit: number, window, algorithm };
        let limits = [limit, Limit { requests_per_unit: number + raised, ..limit }];
        let mut world = World::new(&limit);
        for step in steps {
            match step {
                Step::Wait(micros) => world.wait(micros),
                Step::Ask { key, cost, limit } => world.ask(key, cost, &limits[limit])?,
                Step::RefundElsewhere { .. } => {}
            }
        }
    }

    #[test]
    fn what_another_node_gives_back_is_seen_within_the_horizon(
        algorithm in algorithm(),
        steps in prop::collection::vec(
            prop_oneof![
                9 => step(),
                1 => (0..KEYS, 1_u64..9).prop_map(|(key, hits)| Step::RefundElsewhere { key, hits }),
            ],
            1..120,
        ),
    ) {
        let limit = Limit { requests_per_unit: 4, window: Window::of(Unit::Minute), algorithm };
        let mut world = World::new(&limit);
        for step in steps {
            match step {
                Step::Wait(micros) => world.wait(micros),
                Step::Ask { key, cost, .. } => world.ask(key, cost, &limit)?,
                Step::RefundElsewhere { key, hits } => world.refund_elsewhere(key, hits, &limit),
            }
        }
    }
}

/// The properties above would hold of a memo that never says anything.
#[test]
fn a_flood_is_refused_from_memory() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: 5 },
        Algorithm::LeakyBucket { burst: 5, max_delay: Duration::ZERO },
    ] {
        let limit = Limit { requests_per_unit: 5, window: Window::of(Unit::Hour), algorithm };
        let mut world = World { is_alone: true, ..World::new(&limit) };
        for _ in 0..5_000 {
            world.wait(1_000);
            world.ask(0, Cost::Charge(Hits::new(1)), &limit).unwrap();
        }
        assert!(world.n_remembered >= 4_980, "{algorithm:?}: {}", world.n_remembered);
    }
}

#[test]
fn what_only_one_caller_cannot_wait_for_is_not_remembered() {
    let max_delay = Duration::from_millis(10);
    let limit = Limit {
        requests_per_unit: 100,
        window: Window::of(Unit::Second),
        algorithm: Algorithm::LeakyBucket { burst: 1, max_delay },
    };
    let mut world = World::new(&limit);
    let cost = Cost::Charge(Hits::new(1));
    let key = world.keys[0].clone();
    let refusal = world.states[0].charge(&limit, world.now, cost, Duration::MAX);
    let refusal = Charged { admitted: false, reset_after: Duration::from_millis(5), ..refusal };
    for (max_wait, remembered) in [(Duration::from_millis(1), false), (max_delay, true)] {
        let charge = Charge { key: &key, limit: &limit, cost, max_wait };
        world.local.learn(
            std::slice::from_ref(&charge),
            &[],
            &[Ok(refusal)],
            RefusedHits::Counted,
            world.now,
            &world.clock,
        );
        assert_eq!(!world.local.look(&[charge], world.now).is_empty(), remembered, "{max_wait:?}");
    }
}

#[test]
fn one_of_several_is_known_in_its_place() {
    let limit =
        Limit { requests_per_unit: 5, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow };
    let mut world = World::new(&limit);
    (0..6).for_each(|_| world.ask(1, Cost::Charge(Hits::new(1)), &limit).unwrap());
    let charge =
        |n: usize, cost| Charge { key: &world.keys[n], limit: &limit, cost, max_wait: Duration::MAX };
    let one = Cost::Charge(Hits::new(1));
    let known = world.local.look(&[charge(0, one), charge(1, one), charge(0, one)], world.now);
    assert!(matches!(known[..], [Known::Nothing, Known::Refused(_), Known::Nothing]), "{known:?}");
    assert!(world.local.look(&[charge(0, one), charge(1, Cost::Peek)], world.now).is_empty());
}
