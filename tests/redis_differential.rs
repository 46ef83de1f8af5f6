//! Three implementations of the same functions say the same: the pure ones, the memory store's, and the scripts and commands of the
//! Redis store on real servers, whose clock these tests turn. Random histories of charges, refunds and peeks, of several counters
//! at once and of one several times, while the time goes on, stands still or steps back.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/faults.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod faults;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis;
#[path = "support/redis_store.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod redis_store;

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate::clock::UnixMicros;
use tidegate::key::CounterKey;
use tidegate::limit::{Algorithm, Charged, Cost, Hits, Limit, State, Unit, Window};
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::config::{TimeSource, TopologyKind};
use tidegate::store::redis::{RedisConfig, RedisStore};
use tidegate::store::{Budget, Charge};
use tokio::runtime::Runtime;

use redis::clock::ServerClock;
use redis::server::{Kind, Server, Setup};
use redis_store::{at, key, open};

const SECOND: u64 = 1_000_000;
/// The start of a minute, an hour and a day.
const START: u64 = 1_700_006_400 * SECOND;
const DAY: u64 = 86_400 * SECOND;
const BUDGET: Duration = Duration::from_secs(10);
const N_HISTORIES: u32 = 100;

/// One request: so much later or earlier than the one before, and what it charges to which of the counters, and whether a
/// refusal counts.
#[derive(Clone, Debug)]
struct Step {
    micros: i64,
    charges: Vec<(prop::sample::Index, Cost, bool)>,
}

#[derive(Clone, Debug)]
struct History {
    limits: Vec<Limit>,
    steps: Vec<Step>,
}

/// What the clock does between two requests.
#[derive(Clone, Copy, PartialEq)]
enum Clock {
    GoesOn,
    StepsBackToo,
}

fn limits(algorithms: impl Strategy<Value = Algorithm>) -> impl Strategy<Value = Limit> {
    let small = (0_u32..12, 1_u32..4);
    let large = (
        prop_oneof![Just(1_000_000), Just(u32::MAX), any::<u32>()],
        prop_oneof![Just(1), 1_u32..3_153_600_000],
    );
    (prop_oneof![4 => small, 1 => large], algorithms).prop_map(|((requests_per_unit, secs), algorithm)| {
        let window = Window::new(Unit::Second, NonZeroU32::new(secs).unwrap()).unwrap();
        let most = if algorithm == Algorithm::SlidingLog { 10_000 } else { u32::MAX };
        Limit { requests_per_unit: requests_per_unit.min(most), window, algorithm }
    })
}

/// Those that are scripts on the server.
fn scripted() -> impl Strategy<Value = Algorithm> {
    let burst = || prop_oneof![4 => 1_u32..20, 1 => any::<u32>()];
    let delay =
        prop_oneof![Just(0), 1_u64..2_000_000, 1_u64..1_000_000_000_000].prop_map(Duration::from_micros);
    prop_oneof![
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::SlidingLog),
        burst().prop_map(|burst| Algorithm::TokenBucket { burst }),
        (burst(), delay)
            .prop_map(|(burst, max_delay)| Algorithm::LeakyBucket { burst: burst - 1, max_delay }),
    ]
}

fn costs() -> impl Strategy<Value = Cost> {
    let hits = |n| Cost::charge(Hits::new(n));
    let refund = |n| Cost::refund(Hits::new(n));
    prop_oneof![
        8 => Just(hits(1)),
        4 => (1_u64..5).prop_map(hits),
        1 => (1_u64..40).prop_map(hits),
        1 => any::<u64>().prop_map(hits),
        2 => Just(Cost::Peek),
        2 => (1_u64..5).prop_map(refund),
        1 => any::<u64>().prop_map(refund),
    ]
}

fn histories(algorithms: impl Strategy<Value = Algorithm>, clock: Clock) -> impl Strategy<Value = History> {
    let back = if clock == Clock::StepsBackToo { 4_000_000_i64 } else { 0 };
    let micros = prop_oneof![
        4 => Just(0_i64),
        2 => Just(1_i64),
        6 => 0_i64..400_000,
        3 => 0_i64..3_000_000,
        1 => 3_000_000_i64..30_000_000,
        1 => 0_i64..1_000_000_000_000,
        1 => -back..=0,
        1 => -back / 20..=0,
    ];
    let charges = vec((any::<prop::sample::Index>(), costs(), any::<bool>()), 1..6);
    let step = (micros, charges).prop_map(|(micros, charges)| Step { micros, charges });
    (vec(limits(algorithms), 1..4), vec(step, 1..40)).prop_map(|(limits, steps)| History { limits, steps })
}

/// A Redis whose clock is turned by hand, and a store on it.
struct Bench {
    runtime: Runtime,
    store: RedisStore,
    _server: Server,
    clock: ServerClock,
    memory: MemoryStore,
    /// Histories follow each other in time too: the store holds the number of a window when the time steps back.
    latest: Cell<u64>,
    n_held: Cell<u64>,
}

impl Bench {
    fn new(kind: Kind, change: impl FnOnce(&mut RedisConfig)) -> anyhow::Result<Self> {
        let clock = ServerClock::at(START)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (server, store) = runtime.block_on(async {
            let server = Setup::new(kind).clock(&clock).start().await?;
            let mut config = at(TopologyKind::Single, &server.address().to_string())?;
            change(&mut config);
            let store = open(config).await?;
            anyhow::Ok((server, store))
        })?;
        let memory = MemoryStore::new(1_000_000);
        let (latest, n_held) = (Cell::new(START), Cell::new(0));
        Ok(Self { runtime, store, _server: server, clock, memory, latest, n_held })
    }

    /// Runs histories until one shows a difference.
    fn compare(self, histories: impl Strategy<Value = History>, requests: Requests) {
        let config = Config { cases: N_HISTORIES, failure_persistence: None, ..Config::default() };
        TestRunner::new(config).run(&histories, |history| self.hold(&history, requests)).unwrap();
    }

    fn hold(&self, history: &History, requests: Requests) -> Result<(), TestCaseError> {
        let own = self.n_held.replace(self.n_held.get() + 1);
        let limits = &history.limits;
        let keys: Vec<CounterKey> =
            limits.iter().enumerate().map(|(n, limit)| key(limit, &format!("{own}.{n}"))).collect();
        let mut states: Vec<State> = limits.iter().map(State::new).collect();
        let mut now = self.latest.get().next_multiple_of(DAY) + START % DAY;
        for (n, step) in history.steps.iter().enumerate() {
            now = now.saturating_add_signed(step.micros);
            self.latest.set(self.latest.get().max(now));
            self.clock.set(now).unwrap();
            let now = UnixMicros::new(now);
            let picked: Vec<_> = step
                .charges
                .iter()
                .map(|(index, cost, enforced)| (index.index(keys.len()), *cost, *enforced))
                // What a refusal does to a refund is no question of numbers.
                .filter(|(_, cost, _)| requests == Requests::EachByItself || !matches!(cost, Cost::Refund(_)))
                .collect();
            let charges: Vec<Charge<'_>> = picked
                .iter()
                .map(|&(at, cost, _)| Charge {
                    key: &keys[at],
                    limit: &limits[at],
                    cost,
                    max_wait: Duration::MAX,
                })
                .collect();
            let budget = Budget::of(BUDGET);
            let (pure, redis) = match requests {
                Requests::EachByItself => {
                    let charge = |&(at, cost, _): &(usize, Cost, bool)| {
                        states[at].charge(&limits[at], now, cost, Duration::MAX)
                    };
                    let pure: Vec<Charged> = picked.iter().map(charge).collect();
                    let memory: Vec<Charged> =
                        charges.iter().map(|charge| self.memory.charge(charge, now)).collect();
                    prop_assert_eq!(&memory, &pure, "memory, step {}", n);
                    (pure, self.runtime.block_on(self.store.charge(&charges, now, budget)))
                }
                Requests::AllOrNothing => {
                    let enforced: Vec<_> = picked.iter().map(|(_, _, enforced)| *enforced).collect();
                    let redis = self.store.charge_all_or_nothing(&charges, &enforced, now, budget);
                    (all_or_nothing(&mut states, limits, &picked, now), self.runtime.block_on(redis))
                }
            };
            let redis: Vec<Charged> = redis.into_iter().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&redis, &pure, "redis, step {}", n);
        }
        Ok(())
    }
}

/// What a request's charges have to do with each other.
#[derive(Clone, Copy, PartialEq)]
enum Requests {
    EachByItself,
    AllOrNothing,
}

/// Charges all of these or, where one is refused whose refusal counts, none; those that would have been admitted then say what
/// a look would have said.
fn all_or_nothing(
    states: &mut [State],
    limits: &[Limit],
    picked: &[(usize, Cost, bool)],
    now: UnixMicros,
) -> Vec<Charged> {
    let before = states.to_vec();
    let mut refused = false;
    let mut answers = Vec::new();
    for &(at, cost, enforced) in picked {
        let found = states[at].clone();
        let charged = states[at].charge(&limits[at], now, cost, Duration::MAX);
        let charges = matches!(cost, Cost::Charge(_));
        if charges && enforced && !charged.admitted {
            refused = true;
            states[at] = found.clone();
        }
        let look = found.clone().charge(&limits[at], now, Cost::Peek, Duration::MAX);
        answers.push((charged, look, charges && charged.admitted));
    }
    if refused {
        states.clone_from_slice(&before);
    }
    let answer = |(charged, look, admitted)| if refused && admitted { look } else { charged };
    answers.into_iter().map(answer).collect()
}

#[test]
fn scripts_by_the_servers_clock() {
    Bench::new(Kind::Redis7, |_| {})
        .unwrap()
        .compare(histories(scripted(), Clock::StepsBackToo), Requests::EachByItself);
}

#[test]
fn scripts_by_the_clock_of_an_old_server() {
    Bench::new(Kind::Redis62, |_| {})
        .unwrap()
        .compare(histories(scripted(), Clock::StepsBackToo), Requests::EachByItself);
}

#[test]
fn all_by_the_callers_clock() {
    let all = prop_oneof![1 => Just(Algorithm::FixedWindow), 2 => scripted()];
    let bench = Bench::new(Kind::Redis7, |config| config.time = TimeSource::Caller).unwrap();
    bench.compare(histories(all, Clock::GoesOn), Requests::EachByItself);
}

#[test]
fn fixed_windows_on_every_kind() {
    // Valkey reads the wall clock ten times a second only, so it is no match for one that leaps.
    for kind in [Kind::Redis7, Kind::Redis62] {
        let bench = Bench::new(kind, |config| config.time = TimeSource::Caller).unwrap();
        bench.compare(histories(Just(Algorithm::FixedWindow), Clock::GoesOn), Requests::EachByItself);
    }
}

#[test]
fn all_or_nothing_in_one_call() {
    let all = prop_oneof![1 => Just(Algorithm::FixedWindow), 2 => scripted()];
    let bench = Bench::new(Kind::Redis7, |config| config.time = TimeSource::Caller).unwrap();
    bench.compare(histories(all, Clock::GoesOn), Requests::AllOrNothing);
}
