//! What is to happen in a simulation, in the order of time, and the chance in it. Knows nothing of what happens.

use std::{cmp::Reverse, collections::BinaryHeap, fmt::Debug};

use crate::clock::Tick;

pub(super) trait Happens: Copy + Debug + Ord {
    /// Whether it only looks after what is there, so that nothing is to come as long as there are but these.
    fn is_sweep(self) -> bool;
}

pub(super) struct Agenda<E> {
    /// In microseconds.
    pub now: u64,
    pub loses_messages: bool,
    seed: u64,
    random: u64,
    queue: BinaryHeap<Reverse<(u64, u64, E)>>,
    n_events: u64,
    history: Vec<(u64, E)>,
}

impl<E: Happens> Agenda<E> {
    pub fn new(seed: u64, now: u64) -> Self {
        let (queue, history) = (BinaryHeap::new(), Vec::new());
        Self { now, loses_messages: false, seed, random: seed, queue, n_events: 0, history }
    }

    /// splitmix64
    pub fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    pub fn push(&mut self, at: u64, event: E) {
        self.n_events += 1;
        self.queue.push(Reverse((at, self.n_events, event)));
    }

    /// Sends a message: it arrives, after a while, or it does not. Whether it does.
    pub fn send(&mut self, event: E) -> bool {
        let delay = 50 + if self.below(20) == 0 { self.below(60_000) } else { self.below(1_000) };
        let arrives = !self.loses_messages || self.below(50) != 0;
        if arrives {
            self.push(self.now + delay, event);
        }
        arrives
    }

    /// Turns the clock to what happens next.
    pub fn next(&mut self) -> Option<E> {
        let Reverse((at, _, event)) = self.queue.pop()?;
        self.now = at;
        if !event.is_sweep() {
            self.history.push((at, event));
        }
        Some(event)
    }

    pub fn to_come(&self) -> impl Iterator<Item = E> {
        self.queue.iter().map(|Reverse((_, _, event))| *event)
    }

    /// Whether nothing is to come but sweeps.
    pub fn is_done(&self) -> bool {
        self.to_come().all(E::is_sweep)
    }

    pub fn tick(&self) -> Tick {
        Tick::new(self.now)
    }

    /// What has happened.
    pub fn story(&self) -> String {
        let told = self.history.iter().map(|(at, event)| format!("{at} {event:?}\n"));
        format!("seed {}\n{}", self.seed, told.collect::<String>())
    }
}
