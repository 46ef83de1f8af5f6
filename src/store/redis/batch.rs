//! What a request needs of one server, as commands in one write, and what their replies say.
//!
//! A plain charge of `fixed_window` is `INCRBY` and `EXPIRE`, a look at it `GET`; everything else goes into one call of the
//! script, where the first of them stood.
//!
//! **Invariant:** two charges of one key are made in their order: if one of them needs the script, both are in it.

use redis::{Cmd, Pipeline, Value};
use smallvec::SmallVec;

use super::{
    clock::ShardClock,
    cluster::slot,
    config::{KeyStyle, TimeSource},
    exchange::Manner,
    reply::Said,
    script::{self, ScriptCharge, Source, Together},
};
use crate::{
    clock::{Clock, UnixMicros},
    limit::{Algorithm, Charged, Cost, Found, Hits, slice},
    store::Charge,
};

/// Indices into the charges of a request.
pub(super) type Members = SmallVec<[usize; 8]>;

/// The charges of a request, and what all its batches have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub charges: &'a [Charge<'a>],
    /// By the process's clock.
    pub now: UnixMicros,
    pub clock: &'a Clock,
    pub together: Together,
    /// Whether each charge's refusal is; empty: none's.
    pub enforced: &'a [bool],
    pub keys: KeyStyle,
    pub time: TimeSource,
    /// Below this expiries are late, in milliseconds; never zero.
    pub jitter: u64,
    /// A random number of this request.
    pub random: u64,
    /// The numbers of the windows that are charged, whichever window it is now, or that refunds of sliding windows are for;
    /// empty: by the clock.
    pub windows: &'a [u64],
    pub slots: Slots,
}

/// Whether one call of the script may have keys of several slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slots {
    Together,
    /// A cluster's nodes refuse it.
    Apart,
}

/// What a connection's server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// `EXPIRE … NX`: Redis 7.
    pub expire_nx: bool,
    /// Whether a script may be sent at all: some proxies close the connection at it, and everybody waits on that one.
    pub scripts: bool,
}

/// Keys with the number of their window.
type WindowKey = SmallVec<[u8; 160]>;

/// The keys of a request in the server, and the moment that they were named for.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// By the shard's clock, as far as the node knows it.
    moment: UnixMicros,
    /// In the order of the charges: the key, and for a fixed window its number, for a sliding one that of the request.
    keys: SmallVec<[(WindowKey, u64); 4]>,
}

impl Names {
    pub fn of(request: Request<'_>, clock: &ShardClock) -> Self {
        let moment = match (request.keys, request.time) {
            (KeyStyle::Tidegate, TimeSource::Server) => clock.at(request.now),
            _ => request.now,
        };
        let windows = request.windows.iter().copied().map(Some).chain(std::iter::repeat(None));
        let named = request.charges.iter().zip(windows);
        let keys = named.map(|(charge, window)| name(request.keys, charge, clock, moment, window)).collect();
        Self { moment, keys }
    }

    pub fn key(&self, member: usize) -> &[u8] {
        self.keys.get(member).map_or(&[], |(key, _)| key)
    }

    fn window(&self, member: usize) -> u64 {
        self.keys.get(member).map_or(0, |(_, window)| *window)
    }
}

/// The key in the server, and the number of the window.
fn name(
    style: KeyStyle,
    charge: &Charge<'_>,
    clock: &ShardClock,
    moment: UnixMicros,
    window: Option<u64>,
) -> (WindowKey, u64) {
    let mut key = WindowKey::from_slice(charge.key.as_bytes());
    if charge.limit.algorithm != Algorithm::FixedWindow {
        return (key, window.unwrap_or(0));
    }
    let mut digits = itoa::Buffer::new();
    let window = match style {
        KeyStyle::Tidegate => {
            let window = window.unwrap_or_else(|| clock.window(moment, charge.limit.window.micros()));
            key.push(b'@');
            key.extend_from_slice(digits.format(window).as_bytes());
            window
        }
        KeyStyle::Envoyproxy => {
            let seconds = charge.limit.window.secs();
            let window = moment.secs() / seconds;
            key.extend_from_slice(digits.format(window * seconds).as_bytes());
            window
        }
    };
    (key, window)
}

/// Commands for one server.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    request: Request<'a>,
    names: &'a Names,
    steps: SmallVec<[Step; 4]>,
    /// The calls of the script: the slot of their keys, zero where there is no cluster, and whose they are.
    scripts: SmallVec<[(u16, Members); 1]>,
    /// Those that need a script where none may be sent.
    denied: Members,
    abilities: Abilities,
}

/// A command, or two, and whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// `INCRBY`, `EXPIRE`.
    Count(usize),
    /// `GET`.
    Look(usize),
    /// One of `scripts`.
    Script(usize),
}

/// What came of one charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Charged(Charged),
    Said(Said),
}

impl<'a> Batch<'a> {
    pub fn new(request: Request<'a>, members: &[usize], names: &'a Names, abilities: Abilities) -> Self {
        let mut batch = Self {
            request,
            names,
            steps: SmallVec::new(),
            scripts: SmallVec::new(),
            denied: Members::new(),
            abilities,
        };
        for &member in members {
            let Some(charge) = request.charges.get(member) else { continue };
            if batch.needs_script(members, charge) {
                if abilities.scripts { batch.push_script(member) } else { batch.denied.push(member) }
            } else if charge.cost == Cost::Peek && request.keys == KeyStyle::Tidegate {
                batch.steps.push(Step::Look(member));
            } else {
                batch.steps.push(Step::Count(member));
            }
        }
        batch
    }

    /// Whether there is nothing to be sent.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn push_script(&mut self, member: usize) {
        let slot = if self.request.slots == Slots::Apart { slot(self.names.key(member)) } else { 0 };
        if let Some((_, members)) = self.scripts.iter_mut().find(|(known, _)| *known == slot) {
            members.push(member);
        } else {
            self.steps.push(Step::Script(self.scripts.len()));
            self.scripts.push((slot, Members::from_slice(&[member])));
        }
    }

    fn needs_script(&self, members: &[usize], charge: &Charge<'_>) -> bool {
        let by_itself = |charge: &Charge<'_>| {
            self.request.together != Together::No
                || charge.limit.algorithm != Algorithm::FixedWindow
                || matches!(charge.cost, Cost::Refund(_))
        };
        by_itself(charge)
            || members
                .iter()
                .filter_map(|&other| self.request.charges.get(other))
                .any(|other| by_itself(other) && other.key.id() == charge.key.id())
    }

    /// The commands. With [`Source::Whole`] the script is sent along.
    pub fn pipeline(&self, source: Source, manner: Manner) -> Pipeline {
        let plain = self.plain_pipeline(source);
        if manner == Manner::Plain {
            return plain;
        }
        let mut asking = Pipeline::with_capacity(2 * plain.len());
        for command in plain.cmd_iter() {
            asking.cmd("ASKING");
            asking.add_command(command.clone());
        }
        asking
    }

    fn plain_pipeline(&self, source: Source) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(2 * self.steps.len());
        for step in &self.steps {
            match *step {
                Step::Count(member) => self.push_count(&mut pipeline, member),
                Step::Look(member) => {
                    pipeline.add_command(command("GET", self.names.key(member), 0));
                }
                Step::Script(n) => {
                    pipeline.add_command(self.script_call(source, self.script(n)));
                }
            }
        }
        pipeline
    }

    fn push_count(&self, pipeline: &mut Pipeline, member: usize) {
        let Some(charge) = self.request.charges.get(member) else { return };
        let key = self.names.key(member);
        let mut count = command("INCRBY", key, 24);
        count.arg(charge.cost.hits().get());
        pipeline.add_command(count);
        let mut expire = command("EXPIRE", key, 32);
        expire.arg(self.seconds_to_live(member, charge));
        if self.request.keys == KeyStyle::Tidegate && self.abilities.expire_nx {
            expire.arg("NX");
        }
        pipeline.add_command(expire);
    }

    fn script(&self, n: usize) -> &[usize] {
        self.scripts.get(n).map_or(&[], |(_, members)| members)
    }

    fn script_call(&self, source: Source, members: &[usize]) -> Cmd {
        let charges: SmallVec<[ScriptCharge<'_>; 8]> = members
            .iter()
            .filter_map(|&member| {
                let charge = self.request.charges.get(member)?;
                Some(ScriptCharge {
                    key: self.names.key(member),
                    charge,
                    enforced: self.request.enforced.get(member).copied().unwrap_or(false),
                    seconds_to_live: self.seconds_to_live(member, charge),
                    jitter_millis: self.late_by(member),
                    window: self.names.window(member),
                })
            })
            .collect();
        let moment = if self.reads_clock(members) { 0 } else { self.names.moment.get() };
        script::call(source, moment, self.request.together, &charges)
    }

    /// Whether a call of the script for these is by the server's clock, and says what that shows.
    fn reads_clock(&self, members: &[usize]) -> bool {
        let is_fixed = |charge: &Charge<'_>| charge.limit.algorithm == Algorithm::FixedWindow;
        let mut charges = members.iter().filter_map(|&member| self.request.charges.get(member));
        self.request.time == TimeSource::Server && !charges.all(is_fixed)
    }

    /// fixed_window: to the end of the window, rounded up, and some more. The reference: always a window's length.
    fn seconds_to_live(&self, member: usize, charge: &Charge<'_>) -> u64 {
        let end = (self.names.window(member) + 1) * charge.limit.window.micros();
        let left = match self.request.keys {
            KeyStyle::Tidegate => end.saturating_sub(self.names.moment.get()).div_ceil(1_000_000),
            KeyStyle::Envoyproxy => charge.limit.window.secs(),
        };
        left.max(1) + self.late_by(member) / 1_000
    }

    /// Random and below the jitter, another for each member; in milliseconds.
    fn late_by(&self, member: usize) -> u64 {
        let mixed = super::mix(self.request.random.wrapping_add(member as u64));
        mixed % self.request.jitter.max(1)
    }

    /// What the replies say: for each member what came of it. Returns what the server's clock showed, if they say that.
    pub fn outcomes(&self, replies: Vec<Value>, mut take: impl FnMut(usize, Outcome)) -> Option<UnixMicros> {
        let mut reading = None;
        self.denied.iter().for_each(|&member| take(member, Outcome::Said(Said::Denied)));
        let mut replies = replies.into_iter();
        for step in &self.steps {
            let reply = replies.next().unwrap_or_default();
            match *step {
                Step::Count(member) => {
                    // What EXPIRE says only matters where it could not be executed, and then neither was INCRBY.
                    let _ = replies.next();
                    take(member, self.counted(member, reply));
                }
                Step::Look(member) => take(member, self.seen(member, reply)),
                Step::Script(n) => {
                    let members = self.script(n);
                    let moment = self.scripted(members, reply, &mut take);
                    reading = reading.or(moment.filter(|_| self.reads_clock(members)));
                }
            }
        }
        reading
    }

    fn counted(&self, member: usize, reply: Value) -> Outcome {
        let Some(charge) = self.request.charges.get(member) else { return Outcome::Said(Said::Other) };
        let before = match reply {
            Value::Int(count) => {
                Hits::new(u64::try_from(count).unwrap_or(0).saturating_sub(charge.cost.hits().get()))
            }
            Value::ServerError(error) => match Said::of(&error) {
                // The count does not fit 64 bits: it is as far over any limit as can be.
                Said::Overflow => Hits::MAX,
                said => return Outcome::Said(said),
            },
            _ => return Outcome::Said(Said::Other),
        };
        self.fixed(member, charge, before, charge.cost)
    }

    fn seen(&self, member: usize, reply: Value) -> Outcome {
        let Some(charge) = self.request.charges.get(member) else { return Outcome::Said(Said::Other) };
        let count = match reply {
            Value::Nil => Some(0),
            Value::BulkString(text) => {
                std::str::from_utf8(&text).ok().and_then(|text| text.parse::<i64>().ok())
            }
            Value::ServerError(error) => return Outcome::Said(Said::of(&error)),
            _ => None,
        };
        match count {
            Some(count) => {
                self.fixed(member, charge, Hits::new(u64::try_from(count).unwrap_or(0)), charge.cost)
            }
            None => Outcome::Said(Said::WrongType),
        }
    }

    fn fixed(&self, member: usize, charge: &Charge<'_>, count: Hits, cost: Cost) -> Outcome {
        let found = Found::FixedWindow { window: self.names.window(member), count };
        Outcome::Charged(found.charge(charge.limit, self.names.moment, cost, charge.max_wait))
    }

    /// Returns the moment that the script counted by.
    fn scripted(
        &self,
        members: &[usize],
        reply: Value,
        take: &mut impl FnMut(usize, Outcome),
    ) -> Option<UnixMicros> {
        let said = match reply {
            Value::BulkString(packed) => {
                let numbers =
                    script::numbers(&packed).filter(|numbers| numbers.len() == 2 + 3 * members.len());
                if let Some(([moment, spared], states)) =
                    numbers.as_deref().and_then(<[u64]>::split_first_chunk)
                {
                    let (triples, _) = states.as_chunks::<3>();
                    for (&member, state) in members.iter().zip(triples) {
                        take(member, self.found(member, UnixMicros::new(*moment), *spared == 1, *state));
                    }
                    return Some(UnixMicros::new(*moment));
                }
                Said::Other
            }
            Value::ServerError(error) => Said::of(&error),
            _ => Said::Other,
        };
        members.iter().for_each(|&member| take(member, Outcome::Said(said.clone())));
        None
    }

    fn found(&self, member: usize, moment: UnixMicros, spared: bool, [a, b, c]: [u64; 3]) -> Outcome {
        let Some(charge) = self.request.charges.get(member) else { return Outcome::Said(Said::Other) };
        let lent = |used: Hits| match charge.cost {
            Cost::Charge(wanted) if self.request.together == Together::Lend => {
                Cost::charge(slice(charge.limit, used, wanted))
            }
            cost => cost,
        };
        let found = match charge.limit.algorithm {
            Algorithm::FixedWindow => {
                let cost = lent(Hits::new(a));
                let outcome = self.fixed(member, charge, Hits::new(a), cost);
                let admitted = matches!(&outcome, Outcome::Charged(charged) if charged.admitted);
                return if spared && admitted && matches!(cost, Cost::Charge(_)) {
                    self.fixed(member, charge, Hits::new(a), Cost::Peek)
                } else {
                    outcome
                };
            }
            Algorithm::SlidingWindow => Found::SlidingWindow { window: a, current: low(b), previous: low(c) },
            Algorithm::SlidingLog => Found::SlidingLog { total: Hits::new(a), newest: b, frees: c },
            Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } => {
                Found::Bucket { empty_at: a, rest: low(b) }
            }
        };
        let says = |cost| found.charge(charge.limit, moment, cost, charge.max_wait);
        if self.request.together == Together::Lend {
            return Outcome::Charged(says(lent(says(Cost::Peek).used_before)));
        }
        let charged = says(charge.cost);
        let take_back = spared && charged.admitted && matches!(charge.cost, Cost::Charge(_));
        if !take_back {
            return Outcome::Charged(charged);
        }
        let found = match found {
            // The newest hit is the one before again.
            Found::SlidingLog { total, .. } => Found::SlidingLog { total, newest: c, frees: 0 },
            found => found,
        };
        Outcome::Charged(found.charge(charge.limit, moment, Cost::Peek, charge.max_wait))
    }
}

fn command(name: &str, key: &[u8], more: usize) -> Cmd {
    let mut cmd = Cmd::with_capacity(4, name.len() + key.len() + more);
    cmd.arg(name).arg(key);
    cmd
}

fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
