//! The scripts, and the arguments that `charge.lua` takes.

use std::sync::LazyLock;

use redis::{Cmd, Script};
use smallvec::SmallVec;

use crate::{
    limit::{Algorithm, BucketStep, Cost, Hits, MAX_LOG_HITS, Parts, room_to_lend},
    store::Charge,
};

pub(super) const CHARGE: &str = include_str!("charge.lua");
pub(super) const CHECK: &str = include_str!("check.lua");

/// The digest that the server knows `charge.lua` by.
pub(super) static CHARGE_DIGEST: LazyLock<String> =
    LazyLock::new(|| Script::new(CHARGE).get_hash().to_owned());

/// What a refusal means for the other charges of a call; the second argument of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    No,
    AllOrNothing,
    /// The same, but the refused one is counted.
    RefuserPays,
    /// Nothing; and of each cost only so much is counted as a node may be lent at once (`limit::slice`).
    Lend,
}

/// One charge as the script takes it.
#[derive(Debug)]
pub(super) struct ScriptCharge<'a> {
    pub key: &'a [u8],
    pub charge: &'a Charge<'a>,
    pub enforced: bool,
    /// fixed_window: the expiry of a key that is born.
    pub seconds_to_live: u64,
    /// The others: what the expiry is late by, in milliseconds.
    pub jitter_millis: u64,
    /// sliding_window: the window that a refund is for; zero for all that is counted.
    pub window: u64,
}

/// `EVALSHA`, or `EVAL` for a server that forgot the script. `moment`: microseconds, zero for the server's clock.
pub(super) fn call(source: Source, moment: u64, together: Together, charges: &[ScriptCharge<'_>]) -> Cmd {
    let keys: usize = charges.iter().map(|charge| charge.key.len()).sum();
    let (command, script) = match source {
        Source::Digest => ("EVALSHA", CHARGE_DIGEST.as_str()),
        Source::Whole => ("EVAL", CHARGE),
    };
    let size = script.len() + keys + (charges.len() + 1) * Packed::CHARGE;
    let mut cmd = Cmd::with_capacity(4 + charges.len(), size);
    cmd.arg(command).arg(script).arg(charges.len());
    for charge in charges {
        cmd.arg(charge.key);
    }
    let mut packed = Packed::default();
    packed.doubles(&[moment]);
    packed.byte(match together {
        Together::No | Together::Lend => 0,
        Together::AllOrNothing => 1,
        Together::RefuserPays => 2,
    });
    charges.iter().for_each(|charge| charge.pack(together, &mut packed));
    cmd.arg(packed.0.as_slice());
    cmd
}

/// The reply of the script as numbers; `None` if it is none.
pub(super) fn numbers(reply: &[u8]) -> Option<SmallVec<[u64; 32]>> {
    let (doubles, rest) = reply.as_chunks::<8>();
    rest.is_empty().then(|| doubles.iter().map(|bytes| f64::from_le_bytes(*bytes) as u64).collect())
}

/// Numbers as `struct.unpack` reads them.
#[derive(Debug, Default)]
struct Packed(SmallVec<[u8; 320]>);

impl Packed {
    /// Numbers of a charge, and their bytes with the two in front.
    const NUMBERS: usize = 8;
    const CHARGE: usize = 2 + 8 * Self::NUMBERS;

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Below 2^53, so that they are exact.
    fn doubles(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.double(*number as f64));
    }

    fn double(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Zeros up to the end of a charge that began there.
    fn fill(&mut self, began: usize) {
        self.0.resize(began + Self::CHARGE, 0);
    }
}

/// How a script is named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Digest,
    Whole,
}

impl ScriptCharge<'_> {
    fn pack(&self, together: Together, packed: &mut Packed) {
        let Charge { limit, cost, .. } = *self.charge;
        let began = packed.0.len();
        let operation = match (limit.algorithm, cost) {
            (Algorithm::FixedWindow, _) => 1,
            (Algorithm::SlidingWindow, _) => 2,
            (Algorithm::SlidingLog, _) => 3,
            (_, Cost::Refund(_)) => 5,
            (Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. }, _) => 4,
        };
        packed.byte(operation);
        packed.byte(if together == Together::Lend { 2 } else { self.enforced.into() });
        let requests = u64::from(limit.requests_per_unit);
        match limit.algorithm {
            Algorithm::FixedWindow => {
                packed.doubles(&[requests]);
                packed.double(signed(cost));
                packed.doubles(&[self.seconds_to_live]);
            }
            Algorithm::SlidingWindow => {
                // What is lent fits where so much more does.
                let more = if together == Together::Lend { more_to_lend(cost.hits()) } else { Hits::ZERO };
                packed.doubles(&[requests.saturating_sub(more.get())]);
                packed.double(signed(cost));
                packed.doubles(&[limit.window.secs(), self.jitter_millis, self.window]);
            }
            Algorithm::SlidingLog => {
                packed.doubles(&[requests.min(u64::from(MAX_LOG_HITS))]);
                packed.double(signed(cost));
                packed.doubles(&[limit.window.secs(), self.jitter_millis]);
            }
            Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } => {
                packed.doubles(&[requests]);
                self.pack_step(together, packed);
                packed.doubles(&[self.jitter_millis]);
            }
        }
        packed.fill(began);
    }

    fn pack_step(&self, together: Together, packed: &mut Packed) {
        let Charge { limit, cost, max_wait, .. } = *self.charge;
        let step = match together {
            Together::Lend => BucketStep::lending(limit, cost.hits()),
            _ => BucketStep::of(limit, cost, max_wait),
        };
        let pair = |(micros, rest): Parts| [micros, u64::from(rest)];
        packed.doubles(&pair(step.full));
        match step.allowed {
            Some(allowed) => packed.doubles(&pair(allowed)),
            None => [-1.0, 0.0].into_iter().for_each(|number| packed.double(number)),
        }
        packed.doubles(&pair(step.change));
    }
}

/// What must be left beside the hits that are lent.
fn more_to_lend(wanted: Hits) -> Hits {
    room_to_lend(wanted).minus(wanted)
}

/// A refund is below zero.
fn signed(cost: Cost) -> f64 {
    match cost {
        Cost::Peek => 0.0,
        Cost::Charge(hits) => hits.get() as f64,
        Cost::Refund(hits) => -(hits.get() as f64),
    }
}
