//! Nodes and shards in virtual time, seeded: leases as they are, counters as they are, and between them messages that take
//! their time or are lost. What is admitted is held against the limit.
//!
//! What is not simulated: threads, and the store's own failures; a shard that forgets its counters admits them again, leases or
//! not.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    agenda::{Agenda, Happens},
    *,
};
use crate::limit::{Algorithm, Unit, Window, slice};

const SEEDS: u64 = 2_000;
const WINDOW: u64 = 1_000_000;

/// What happens, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call {
        node: usize,
        key: usize,
        cost: u64,
    },
    Peek {
        node: usize,
        key: usize,
    },
    /// A caller gives back hits that were admitted.
    Refund {
        node: usize,
        key: usize,
    },
    /// At the shard. `wanted` zero: a plain charge.
    Lend {
        node: usize,
        key: usize,
        window: u64,
        /// Of the window, when it was asked for, as the node takes it.
        left: u64,
        wanted: u64,
        asked: u64,
        life: u64,
    },
    Charge {
        node: usize,
        key: usize,
        window: u64,
        cost: u64,
        asked: u64,
    },
    /// A look, if `refund` is zero.
    Look {
        node: usize,
        key: usize,
        window: u64,
        refund: u64,
        asked: u64,
    },
    Return {
        key: usize,
        window: u64,
        held: u64,
        owed: u64,
    },
    /// At the node.
    Lent {
        node: usize,
        key: usize,
        window: u64,
        left: u64,
        granted: u64,
        counted: u64,
        asked: u64,
        life: u64,
    },
    Lost {
        node: usize,
        key: usize,
        life: u64,
    },
    Charged {
        node: usize,
        key: usize,
        window: u64,
        cost: u64,
        before: u64,
        asked: u64,
    },
    Looked {
        node: usize,
        key: usize,
        window: u64,
        refund: u64,
        before: u64,
        /// Admitted by then, less what was refunded.
        used: u64,
        asked: u64,
    },
    Sweep {
        node: usize,
    },
    Crash {
        node: usize,
    },
    /// It gives back all that it holds, whether or not it is time.
    Stop {
        node: usize,
    },
}

impl Happens for Event {
    fn is_sweep(self) -> bool {
        matches!(self, Self::Sweep { .. })
    }
}

impl Event {
    /// Whether it is on its way between a node and a shard.
    fn is_message(self) -> bool {
        !matches!(
            self,
            Self::Call { .. }
                | Self::Peek { .. }
                | Self::Refund { .. }
                | Self::Lost { .. }
                | Self::Sweep { .. }
                | Self::Crash { .. }
                | Self::Stop { .. }
        )
    }
}

struct Node {
    leases: Vec<Lease>,
    /// Microseconds that it takes the shards' clock to be ahead of what it is; another reading says something else.
    wrong_by: i64,
    /// Lives so far: what was sent in another is not heard.
    life: u64,
    /// Hits that it wants at once, by key.
    wants: Vec<u64>,
}

struct World {
    agenda: Agenda<Event>,
    limit: Limit,
    nodes: Vec<Node>,
    /// By key and window: what the shard has counted, and what was admitted by nodes.
    counted: BTreeMap<(usize, u64), u64>,
    admitted: BTreeMap<(usize, u64), u64>,
    /// Debited, and lost by crashes, messages and ends of windows.
    lost: BTreeMap<(usize, u64), u64>,
    /// Counted all the same, and of these what was given back.
    refused: BTreeMap<(usize, u64), u64>,
    forgiven: BTreeMap<(usize, u64), u64>,
    /// What callers gave back, and what of it has come to the shard.
    refunding: BTreeMap<(usize, u64), u64>,
    refunded: BTreeMap<(usize, u64), u64>,
    /// Where something was given back since the last grant.
    returned: BTreeSet<(usize, u64)>,
    /// By node and key: the newest window that a caller was told of, and the least that remained in it.
    told: BTreeMap<(usize, usize), (u64, u64)>,
    /// Looks that could be held against the truth, while something was held.
    n_looks: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            agenda: Agenda::new(seed, 50 * WINDOW),
            limit: Limit {
                requests_per_unit: 0,
                window: Window::of(Unit::Second),
                algorithm: Algorithm::FixedWindow,
            },
            nodes: Vec::new(),
            counted: Default::default(),
            admitted: Default::default(),
            lost: Default::default(),
            refused: Default::default(),
            forgiven: Default::default(),
            refunding: Default::default(),
            refunded: Default::default(),
            returned: Default::default(),
            told: Default::default(),
            n_looks: 0,
        };
        world.limit.requests_per_unit = [20, 100, 500, 2_000][world.agenda.below(4) as usize];
        world.agenda.loses_messages = world.agenda.below(2) == 0;
        let (n_nodes, n_keys) = (1 + world.agenda.below(4) as usize, 1 + world.agenda.below(2) as usize);
        for n in 0..n_nodes {
            let wants = (0..n_keys).map(|_| 1 + world.agenda.below(40)).collect();
            let leases = vec![Lease::asked(world.limit); n_keys];
            let wrong_by = world.error();
            world.nodes.push(Node { leases, wrong_by, life: 0, wants });
            for key in 0..n_keys {
                world.nodes[n].leases[key].not_granted(Tick::default());
            }
            world.agenda.push(world.agenda.now, Event::Sweep { node: n });
        }
        world.calls(n_keys);
        if world.agenda.loses_messages && world.agenda.below(2) == 0 {
            let (node, at) = (
                world.agenda.below(n_nodes as u64) as usize,
                world.agenda.now + world.agenda.below(2 * WINDOW),
            );
            world.agenda.push(at, Event::Crash { node });
        }
        if world.agenda.below(4) == 0 {
            let (node, at) = (
                world.agenda.below(n_nodes as u64) as usize,
                world.agenda.now + world.agenda.below(2 * WINDOW),
            );
            world.agenda.push(at, Event::Stop { node });
        }
        world
    }

    /// Bursts and pauses, other ones on each node, across the ends of windows.
    fn calls(&mut self, n_keys: usize) {
        let end = self.agenda.now + WINDOW + WINDOW / 2;
        for node in 0..self.nodes.len() {
            let mut at = self.agenda.now + self.agenda.below(WINDOW / 2);
            let every = 1_000 + self.agenda.below(9_000);
            while at < end {
                let key = self.agenda.below(n_keys as u64) as usize;
                let cost = if self.agenda.below(10) == 0 { 1 + self.agenda.below(5) } else { 1 };
                let event = match self.agenda.below(40) {
                    0 => Event::Refund { node, key },
                    1..=3 => Event::Peek { node, key },
                    _ => Event::Call { node, key, cost },
                };
                self.agenda.push(at, event);
                at += 1 + self.agenda.below(2 * every);
                if self.agenda.below(300) == 0 {
                    at += self.agenda.below(WINDOW);
                }
            }
        }
    }

    fn error(&mut self) -> i64 {
        self.agenda.below(UNCERTAIN * 2) as i64 - UNCERTAIN as i64
    }

    /// Messages that have not arrived yet.
    fn n_under_way(&self) -> usize {
        self.agenda.to_come().filter(|event| event.is_message()).count()
    }

    /// What a node takes the shards' clock to show.
    fn by(&self, node: usize) -> u64 {
        self.agenda.now.saturating_add_signed(self.nodes[node].wrong_by)
    }

    fn run(&mut self) {
        while let Some(event) = self.agenda.next() {
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        let tick = self.agenda.tick();
        match event {
            Event::Call { node, key, cost } => self.call(node, key, cost),
            Event::Peek { node, key } => {
                let (window, asked) = (self.by(node) / WINDOW, self.by(node));
                self.agenda.send(Event::Look { node, key, window, refund: 0, asked });
            }
            Event::Refund { node, key } => {
                let (window, asked) = (self.by(node) / WINDOW, self.by(node));
                let admitted = self.admitted.get(&(key, window)).copied().unwrap_or(0);
                let sent = self.refunding.get(&(key, window)).copied().unwrap_or(0);
                if admitted > sent {
                    let refund = 1 + self.agenda.below((admitted - sent).min(8));
                    *self.refunding.entry((key, window)).or_default() += refund;
                    self.nodes[node].leases[key].stop(tick);
                    self.agenda.send(Event::Look { node, key, window, refund, asked });
                }
            }
            Event::Look { node, key, window, refund, asked } => {
                let before = *self.counted.entry((key, window)).or_default();
                assert!(before >= refund, "refunded, and never counted: {}", self.story());
                *self.counted.entry((key, window)).or_default() -= refund;
                *self.refunded.entry((key, window)).or_default() += refund;
                let used = self.used(key, window);
                self.agenda.send(Event::Looked { node, key, window, refund, before, used, asked });
            }
            Event::Looked { node, key, window, refund, before, used, asked } => {
                let cost = Cost::refund(Hits::new(refund));
                let seen = self.hear(node, key, window, cost, before, asked);
                // Which of a refund and a grant came first, a node cannot tell: what it then says is put right by the next grant.
                if self.refunding.contains_key(&(key, window)) {
                    return;
                }
                let used_after = seen.used_after.get();
                assert!(used_after >= used, "{used_after} told of {used}: {}", self.story());
                let lease = &self.nodes[node].leases[key];
                let (counted, held) = (self.counted[&(key, window)], lease.held().get());
                // It takes a lower count for an old one, until the next grant, too: something may have been given back.
                let is_known = self.nodes.len() == 1 && !self.returned.contains(&(key, window));
                if is_known && counted == before && self.n_under_way() == 0 && lease.window == window {
                    assert_eq!(used_after, counted - held, "{held} held: {}", self.story());
                    self.n_looks += u64::from(held > 0);
                }
            }
            Event::Charge { node, key, window, cost, asked } => {
                let before = *self.counted.entry((key, window)).or_default();
                *self.counted.entry((key, window)).or_default() += cost;
                self.agenda.send(Event::Charged { node, key, window, cost, before, asked });
                // Whoever asked may never hear of it; the call counts as admitted all the same.
                if before + cost <= self.most() {
                    self.admit(key, window, cost);
                } else {
                    *self.refused.entry((key, window)).or_default() += cost;
                }
            }
            Event::Charged { node, key, window, cost, before, asked } => {
                let admitted = before + cost <= self.most();
                self.hear(node, key, window, Cost::charge(Hits::new(cost)), before, asked);
                if admitted && self.nodes[node].leases[key].ask(tick) {
                    self.ask(node, key);
                }
            }
            Event::Lend { node, key, window, left, wanted, asked, life } => {
                let count = self.counted.entry((key, window)).or_default();
                let granted = slice(&self.limit, Hits::new(*count), Hits::new(wanted)).get();
                *count += granted;
                self.returned.remove(&(key, window));
                let counted = *count;
                if !self.agenda.send(Event::Lent { node, key, window, left, granted, counted, asked, life }) {
                    *self.lost.entry((key, window)).or_default() += granted;
                    self.agenda.push(self.agenda.now + 200_000, Event::Lost { node, key, life });
                }
            }
            Event::Lent { node, key, window, left, granted, counted, asked, life } => {
                if self.nodes[node].life != life {
                    *self.lost.entry((key, window)).or_default() += granted;
                    return;
                }
                let (asked, ends_after) = (Tick::new(asked), Duration::from_micros(left));
                let grant = Grant {
                    window,
                    window_ends: asked.after(ends_after),
                    window_ends_at: UnixMicros::new((window + 1) * WINDOW),
                    spent_until: OPTIONS.spent_within(
                        asked,
                        tick,
                        ends_after,
                        Duration::from_micros(UNCERTAIN),
                    ),
                    granted: Hits::new(granted),
                    counted: Hits::new(counted),
                };
                let leftover = self.nodes[node].leases[key].granted(tick, grant);
                self.give_back(key, leftover);
                // A grant, and what was left of the one before when it was asked for.
                let most = self.nodes[node].wants[key] * (LOW + 1) / LOW;
                let held = self.nodes[node].leases[key].held().get();
                assert!(held <= most, "{held} held, {most} at most: {}", self.story());
            }
            Event::Lost { node, key, life } => {
                if self.nodes[node].life == life {
                    self.nodes[node].leases[key].not_granted(tick);
                }
            }
            Event::Return { key, window, held, owed } => {
                self.returned.insert((key, window));
                let count = self.counted.entry((key, window)).or_default();
                let left = count.checked_sub(held + owed);
                *count = left.unwrap_or_default();
                *self.forgiven.entry((key, window)).or_default() += owed;
                assert!(left.is_some(), "given back, and never counted: {}", self.story());
            }
            Event::Sweep { node } => {
                for key in 0..self.nodes[node].leases.len() {
                    let leftover = self.nodes[node].leases[key].end(tick);
                    self.give_back(key, leftover);
                }
                if !self.agenda.is_done()
                    || self.nodes[node].leases.iter().any(|lease| lease.held() > Hits::ZERO)
                {
                    let every = u64::try_from(OPTIONS.sweep_every().as_micros()).unwrap();
                    self.agenda.push(self.agenda.now + every, Event::Sweep { node });
                }
            }
            Event::Crash { node } => {
                for key in 0..self.nodes[node].leases.len() {
                    let mut lease =
                        std::mem::replace(&mut self.nodes[node].leases[key], Lease::asked(self.limit));
                    self.nodes[node].leases[key].not_granted(tick);
                    if let Some(Leftover { window, held, .. }) = lease.take_all(tick) {
                        *self.lost.entry((key, window)).or_default() += held.get();
                    }
                }
                self.nodes[node].life += 1;
                self.told.retain(|(of, _), _| *of != node);
            }
            Event::Stop { node } => {
                for key in 0..self.nodes[node].leases.len() {
                    let leftover = self.nodes[node].leases[key].take_all(tick);
                    self.give_back(key, leftover);
                }
            }
        }
    }

    /// What a node makes of an answer, which it tells its caller.
    fn hear(&mut self, node: usize, key: usize, window: u64, cost: Cost, before: u64, asked: u64) -> Charged {
        let after = match cost {
            Cost::Charge(hits) => before + hits.get(),
            Cost::Refund(hits) => before - hits.get(),
            Cost::Peek => before,
        };
        let charged = Charged {
            admitted: after <= self.most(),
            used_before: Hits::new(before),
            used_after: Hits::new(after),
            remaining: Hits::new(self.most().saturating_sub(after)),
            reset_after: Duration::from_micros(((window + 1) * WINDOW).saturating_sub(asked)),
            delay: Duration::ZERO,
        };
        if let Cost::Refund(_) = cost {
            self.told.remove(&(node, key));
        }
        let seen = self.nodes[node].leases[key].heard(UnixMicros::new(asked), cost, charged, true);
        self.tell(node, key, window, seen.remaining.get());
        seen
    }

    /// What remains never grows, but by a refund on this node.
    fn tell(&mut self, node: usize, key: usize, window: u64, remaining: u64) {
        let told = self.told.entry((node, key)).or_insert((window, remaining));
        if window > told.0 {
            *told = (window, remaining);
        } else if window == told.0 {
            let least = std::mem::replace(&mut told.1, remaining);
            assert!(remaining <= least, "{remaining} remain, and {least} before: {}", self.story());
        }
    }

    /// Admitted, and not given back by callers.
    fn used(&self, key: usize, window: u64) -> u64 {
        let of = |map: &BTreeMap<_, u64>| map.get(&(key, window)).copied().unwrap_or(0);
        of(&self.admitted) - of(&self.refunded)
    }

    fn call(&mut self, node: usize, key: usize, cost: u64) {
        let tick = self.agenda.tick();
        if self.agenda.below(8) == 0 {
            self.nodes[node].wrong_by = self.error();
        }
        if let Some(charged) = self.nodes[node].leases[key].spend(tick, Hits::new(cost)) {
            let told_of = self.nodes[node].leases[key].window;
            self.tell(node, key, told_of, charged.remaining.get());
            let lease = &mut self.nodes[node].leases[key];
            let (window, asks) = (lease.window, lease.ask(tick));
            // By the shards' own clock, not the node's: never late, and early only as a plain charge can be.
            let windows = self.agenda.now / WINDOW..=(self.agenda.now + UNCERTAIN) / WINDOW;
            assert!(windows.contains(&window), "spent in another window: {}", self.story());
            self.admit(key, window, cost);
            if asks {
                self.ask(node, key);
            }
        } else {
            let (window, asked) = (self.by(node) / WINDOW, self.by(node));
            self.agenda.send(Event::Charge { node, key, window, cost, asked });
        }
    }

    fn ask(&mut self, node: usize, key: usize) {
        let (window, asked) = (self.by(node) / WINDOW, self.agenda.now);
        let left = (window + 1) * WINDOW - self.by(node);
        let Node { wants, life, .. } = &self.nodes[node];
        let (wanted, life) = (wants[key], *life);
        if !self.agenda.send(Event::Lend { node, key, window, left, wanted, asked, life }) {
            self.agenda.push(self.agenda.now + 200_000, Event::Lost { node, key, life });
        }
    }

    fn give_back(&mut self, key: usize, leftover: Option<Leftover>) {
        let Some(Leftover { window, held, owed, is_past }) = leftover else { return };
        let (held, owed) = (held.get(), owed.get());
        if is_past || !self.agenda.send(Event::Return { key, window, held, owed }) {
            *self.lost.entry((key, window)).or_default() += held;
        }
    }

    fn admit(&mut self, key: usize, window: u64, cost: u64) {
        *self.admitted.entry((key, window)).or_default() += cost;
        let used = self.used(key, window);
        assert!(used <= self.most(), "{used} admitted of {key} in {window}: {}", self.story());
    }

    fn most(&self) -> u64 {
        u64::from(self.limit.requests_per_unit)
    }

    /// Nothing is under way any more: all that is counted was admitted, refused and not given back, or is known to be lost
    /// with a node or a message that is lost, and no hit more.
    fn settled(&self) {
        for node in &self.nodes {
            assert!(node.leases.iter().all(|lease| lease.held() == Hits::ZERO), "{}", self.story());
        }
        for (place, counted) in &self.counted {
            let of = |map: &BTreeMap<_, u64>| map.get(place).copied().unwrap_or(0);
            let known = of(&self.admitted) + of(&self.refused) + of(&self.lost)
                - of(&self.forgiven)
                - of(&self.refunded);
            assert_eq!(*counted, known, "counted in {place:?}, and known: {}", self.story());
        }
    }

    fn story(&self) -> String {
        format!("limit {}, {}", self.limit, self.agenda.story())
    }
}

/// How wrong a node may be about the shards' clock, in microseconds.
const UNCERTAIN: u64 = 2_000;

const OPTIONS: Options = Options { min_rate: 1, ttl: Duration::from_millis(200) };

#[test]
fn leases_never_admit_more_and_give_everything_back() {
    let (mut n_spent_to_the_last, mut n_looks) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.run();
        world.settled();
        let most = world.most();
        n_spent_to_the_last += u64::from(world.admitted.values().any(|admitted| *admitted >= most));
        n_looks += world.n_looks;
    }
    assert!(n_looks > SEEDS / 2, "only {n_looks} looks found something held");
    // Else the limit was never in the way.
    assert!(n_spent_to_the_last > SEEDS / 10, "{n_spent_to_the_last} of {SEEDS}");
}
