//! The same for limits whose window moves with the clock: one counter, the nodes that lease it, in virtual time, seeded.
//!
//! A sliding window is held against its own estimate of what was *admitted*: leases add nothing to it, since what was debited is
//! spent in the same window, in which the estimate only falls. A token bucket is held against its bound in every span of time: a
//! full bucket, what flows in, and what nodes held when the span began.

use std::collections::BTreeMap;

use super::{
    agenda::{Agenda, Happens},
    *,
};
use crate::limit::{Found, State, Unit, Window, slice};

const SEEDS: u64 = 2_000;
const WINDOW: u64 = 1_000_000;
const OPTIONS: Options = Options { min_rate: 1, ttl: Duration::from_millis(200) };

/// What happens, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call {
        node: usize,
        cost: u64,
    },
    /// At the server.
    Charge {
        node: usize,
        cost: u64,
    },
    Lend {
        node: usize,
        wanted: u64,
        asked: u64,
        life: u64,
    },
    Return {
        window: u64,
        held: u64,
    },
    /// At the node.
    Charged {
        node: usize,
        cost: u64,
        charged: Said,
    },
    Lent {
        node: usize,
        charged: Said,
        at: u64,
        asked: u64,
        life: u64,
    },
    Lost {
        node: usize,
        life: u64,
    },
    Sweep {
        node: usize,
    },
    Crash {
        node: usize,
    },
}

impl Happens for Event {
    fn is_sweep(self) -> bool {
        matches!(self, Self::Sweep { .. })
    }
}

/// What is kept of a [`Charged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    admitted: bool,
    before: u64,
    after: u64,
}

/// The server's counter: `current` and `previous` of a window, or the moment at which a bucket is empty, and its rest.
#[derive(Debug)]
enum Counter {
    Sliding { window: u64, current: u64, previous: u64 },
    Bucket(State),
}

struct Node {
    lease: Lease,
    life: u64,
    wants: u64,
}

struct World {
    agenda: Agenda<Event>,
    limit: Limit,
    nodes: Vec<Node>,
    counter: Counter,
    /// Debited, and neither spent nor given back nor lost.
    outstanding: u64,
    /// Most of that which there was at any time.
    most_outstanding: u64,
    /// Sliding: what was admitted in each window.
    admitted: BTreeMap<u64, u64>,
    /// Bucket, in hits times the window's length: what was admitted less what has flowed in, and the least that this could be
    /// at the beginning of a span, with what was outstanding then.
    level: i128,
    least: i128,
    n_leased: u64,
    n_refused: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut agenda = Agenda::new(seed, 50 * WINDOW);
        let requests_per_unit = [40, 200, 1_000, 4_000][agenda.below(4) as usize];
        let burst = [20, 100, 1_000][agenda.below(3) as usize];
        let is_bucket = agenda.below(2) == 0;
        let algorithm = if is_bucket { Algorithm::TokenBucket { burst } } else { Algorithm::SlidingWindow };
        let limit = Limit { requests_per_unit, window: Window::of(Unit::Second), algorithm };
        let counter = match algorithm {
            Algorithm::SlidingWindow => Counter::Sliding { window: 0, current: 0, previous: 0 },
            _ => Counter::Bucket(State::new(&limit)),
        };
        let mut world = Self {
            agenda,
            limit,
            nodes: Vec::new(),
            counter,
            outstanding: 0,
            most_outstanding: 0,
            admitted: BTreeMap::new(),
            level: 0,
            least: i128::MAX,
            n_leased: 0,
            n_refused: 0,
        };
        world.agenda.loses_messages = world.agenda.below(2) == 0;
        let n_nodes = 1 + world.agenda.below(4) as usize;
        for node in 0..n_nodes {
            let mut lease = Lease::asked(limit);
            lease.not_granted(Tick::default());
            let wants = 1 + world.agenda.below(40);
            world.nodes.push(Node { lease, life: 0, wants });
            world.agenda.push(world.agenda.now, Event::Sweep { node });
            world.calls(node);
        }
        if world.agenda.loses_messages && world.agenda.below(2) == 0 {
            let (node, at) = (
                world.agenda.below(n_nodes as u64) as usize,
                world.agenda.now + world.agenda.below(2 * WINDOW),
            );
            world.agenda.push(at, Event::Crash { node });
        }
        world
    }

    /// Bursts and pauses, across the ends of windows.
    fn calls(&mut self, node: usize) {
        let end = self.agenda.now + 2 * WINDOW;
        let mut at = self.agenda.now + self.agenda.below(WINDOW / 2);
        let every = 500 + self.agenda.below(9_000);
        while at < end {
            let cost = if self.agenda.below(10) == 0 { 1 + self.agenda.below(5) } else { 1 };
            self.agenda.push(at, Event::Call { node, cost });
            at += 1 + self.agenda.below(2 * every);
            if self.agenda.below(300) == 0 {
                at += self.agenda.below(WINDOW);
            }
        }
    }

    fn run(&mut self) {
        let mut before = self.agenda.now;
        while let Some(event) = self.agenda.next() {
            let elapsed = self.agenda.now - std::mem::replace(&mut before, self.agenda.now);
            self.level -= i128::from(elapsed) * i128::from(self.limit.requests_per_unit);
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        let tick = self.agenda.tick();
        match event {
            Event::Call { node, cost } => self.call(node, cost),
            Event::Charge { node, cost } => {
                let charged = self.charge(Cost::charge(Hits::new(cost)));
                if charged.admitted {
                    self.admit(cost);
                } else {
                    self.n_refused += 1;
                }
                self.agenda.send(Event::Charged { node, cost, charged });
            }
            Event::Charged { node, cost, charged } => {
                let lease = &mut self.nodes[node].lease;
                let asked_at = UnixMicros::new(self.agenda.now);
                lease.heard(asked_at, Cost::charge(Hits::new(cost)), charged.whole(), false);
                if charged.admitted && lease.ask(tick) {
                    self.ask(node);
                }
            }
            Event::Lend { node, wanted, asked, life } => {
                let before = self.charge(Cost::Peek).before;
                let lent = slice(&self.limit, Hits::new(before), Hits::new(wanted));
                let charged = self.charge(Cost::charge(lent));
                self.debit(lent.get());
                if !self.agenda.send(Event::Lent { node, charged, at: self.agenda.now, asked, life }) {
                    self.outstanding -= lent.get();
                    self.agenda.push(self.agenda.now + 200_000, Event::Lost { node, life });
                }
            }
            Event::Lent { node, charged, at, asked, life } => {
                let granted = charged.after - charged.before;
                if self.nodes[node].life != life {
                    self.outstanding -= granted;
                    return;
                }
                let grant = self.grant(charged, at, asked);
                let leftover = self.nodes[node].lease.granted(tick, grant);
                self.give_back(leftover);
                let Node { lease, wants, .. } = &self.nodes[node];
                let most = wants * (LOW + 1) / LOW;
                assert!(
                    lease.held().get() <= most,
                    "{:?} held, {most} at most: {}",
                    lease.held(),
                    self.story()
                );
            }
            Event::Lost { node, life } => {
                if self.nodes[node].life == life {
                    self.nodes[node].lease.not_granted(tick);
                }
            }
            Event::Return { window, held } => {
                self.take_back(window, held);
                self.outstanding -= held;
            }
            Event::Sweep { node } => {
                let leftover = self.nodes[node].lease.end(tick);
                self.give_back(leftover);
                if !self.agenda.is_done() || self.nodes[node].lease.held() > Hits::ZERO {
                    let every = u64::try_from(OPTIONS.sweep_every().as_micros()).unwrap();
                    self.agenda.push(self.agenda.now + every, Event::Sweep { node });
                }
            }
            Event::Crash { node } => {
                let mut lease = std::mem::replace(&mut self.nodes[node].lease, Lease::asked(self.limit));
                self.nodes[node].lease.not_granted(tick);
                self.outstanding -= lease.take_all(tick).map_or(0, |leftover| leftover.held.get());
                self.nodes[node].life += 1;
            }
        }
    }

    fn call(&mut self, node: usize, cost: u64) {
        let tick = self.agenda.tick();
        let lease = &mut self.nodes[node].lease;
        let Some(charged) = lease.spend(tick, Hits::new(cost)) else {
            self.agenda.send(Event::Charge { node, cost });
            return;
        };
        let (window, asks) = (lease.window, lease.ask(tick));
        assert!(charged.used_after <= Scale::of(&self.limit).capacity(), "{}", self.story());
        if let Counter::Sliding { .. } = self.counter {
            assert_eq!(window, self.agenda.now / WINDOW, "spent in another window: {}", self.story());
        }
        self.n_leased += 1;
        self.admit_from(cost, self.outstanding);
        self.outstanding -= cost;
        if asks {
            self.ask(node);
        }
    }

    fn ask(&mut self, node: usize) {
        let tick = self.agenda.tick();
        let Node { lease, wants, life } = &mut self.nodes[node];
        let (wanted, life) = (lease.most_lent().get().min(*wants), *life);
        if wanted == 0 {
            lease.not_granted(tick);
        } else if !self.agenda.send(Event::Lend { node, wanted, asked: self.agenda.now, life }) {
            self.agenda.push(self.agenda.now + 200_000, Event::Lost { node, life });
        }
    }

    /// Of hits that were debited at `at`.
    fn grant(&self, charged: Said, at: u64, asked: u64) -> Grant {
        let window = at / WINDOW;
        let (window, ends_after) = match self.counter {
            Counter::Sliding { .. } => (window, Duration::from_micros((window + 1) * WINDOW - at)),
            Counter::Bucket(_) => (0, Duration::MAX),
        };
        let asked = Tick::new(asked);
        Grant {
            window,
            window_ends: asked.after(ends_after),
            window_ends_at: UnixMicros::new(self.agenda.now),
            spent_until: OPTIONS.spent_within(asked, self.agenda.tick(), ends_after, Duration::ZERO),
            granted: Hits::new(charged.after - charged.before),
            counted: Hits::new(charged.after),
        }
    }

    fn give_back(&mut self, leftover: Option<Leftover>) {
        let Some(Leftover { window, held, owed, is_past }) = leftover else { return };
        assert_eq!(owed, Hits::ZERO, "nothing refused is counted");
        let held = held.get();
        if is_past || !self.agenda.send(Event::Return { window, held }) {
            self.outstanding -= held;
        }
    }

    /// The server's part.
    fn charge(&mut self, cost: Cost) -> Said {
        let now = UnixMicros::new(self.agenda.now);
        let charged = match &mut self.counter {
            Counter::Bucket(state) => state.charge(&self.limit, now, cost, Duration::MAX),
            Counter::Sliding { window, current, previous } => {
                let is = self.agenda.now / WINDOW;
                if *window != is {
                    (*window, *previous, *current) = (is, if *window + 1 == is { *current } else { 0 }, 0);
                }
                let [now_counted, before] = [*current, *previous].map(|count| u32::try_from(count).unwrap());
                let found = Found::SlidingWindow { window: is, current: now_counted, previous: before };
                let charged = found.charge(&self.limit, now, cost, Duration::MAX);
                *current += if charged.admitted { cost.hits().get() } else { 0 };
                charged
            }
        };
        Said {
            admitted: charged.admitted,
            before: charged.used_before.get(),
            after: charged.used_after.get(),
        }
    }

    fn debit(&mut self, hits: u64) {
        self.outstanding += hits;
        self.most_outstanding = self.most_outstanding.max(self.outstanding);
    }

    /// As the script does it.
    fn take_back(&mut self, of: u64, held: u64) {
        self.charge(Cost::Peek);
        match &mut self.counter {
            Counter::Bucket(_) => drop(self.charge(Cost::refund(Hits::new(held)))),
            Counter::Sliding { window, current, .. } if of == *window => {
                *current = current.saturating_sub(held)
            }
            Counter::Sliding { window, previous, .. } if of + 1 == *window => {
                *previous = previous.saturating_sub(held);
            }
            Counter::Sliding { .. } => {}
        }
    }

    fn admit(&mut self, cost: u64) {
        self.admit_from(cost, self.outstanding);
    }

    /// `outstanding`: before it.
    fn admit_from(&mut self, cost: u64, outstanding: u64) {
        match self.counter {
            Counter::Sliding { .. } => {
                let window = self.agenda.now / WINDOW;
                *self.admitted.entry(window).or_default() += cost;
                let of = |window| self.admitted.get(&window).copied().unwrap_or(0);
                let left = WINDOW - self.agenda.now % WINDOW;
                let estimate = of(window) + (of(window - 1) * left).div_ceil(WINDOW);
                assert!(estimate <= u64::from(self.limit.requests_per_unit), "{estimate}: {}", self.story());
            }
            Counter::Bucket(_) => {
                let window = i128::from(WINDOW);
                self.least = self.least.min(self.level + i128::from(outstanding) * window);
                self.level += i128::from(cost) * window;
                let full = i128::from(Scale::of(&self.limit).capacity().get()) * window;
                assert!(self.level - self.least <= full, "{}", self.story());
            }
        }
    }

    fn story(&self) -> String {
        format!("limit {}, {}", self.limit, self.agenda.story())
    }
}

impl Said {
    fn whole(self) -> Charged {
        Charged {
            admitted: self.admitted,
            used_before: Hits::new(self.before),
            used_after: Hits::new(self.after),
            remaining: Hits::ZERO,
            reset_after: Duration::ZERO,
            delay: Duration::ZERO,
        }
    }
}

#[test]
fn what_is_leased_of_a_moving_window_is_all_that_comes_on_top() {
    let (mut n_leased, mut n_refused) = ([0, 0], [0, 0]);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.run();
        assert_eq!(world.outstanding, 0, "not all is back: {}", world.story());
        // Of each node: what it holds, what it has asked for, and what is on its way back.
        let most = |node: &Node| 2 * (node.wants * (LOW + 1) / LOW) + node.wants;
        let most: u64 = world.nodes.iter().map(most).sum();
        assert!(world.most_outstanding <= most, "{} outstanding: {}", world.most_outstanding, world.story());
        let is_bucket = usize::from(matches!(world.counter, Counter::Bucket(_)));
        n_leased[is_bucket] += u64::from(world.n_leased > 0);
        n_refused[is_bucket] += u64::from(world.n_refused > 0);
    }
    // Else neither leases nor limits were ever in the way.
    for n in [n_leased, n_refused].as_flattened() {
        assert!(*n > SEEDS / 10, "{n_leased:?} with leases, {n_refused:?} with refusals, of {SEEDS}");
    }
}
