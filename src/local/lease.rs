//! A lease: hits that the store has debited, to be spent on this node without asking.
//!
//! Pure and clock-free: `(state, now, what happened) → (state', what to do)`. Knows nothing of stores, threads or other nodes.
//! The life of one: asked for ([`Lease::ask`]), granted ([`Lease::granted`]), spent ([`Lease::spend`]), asked for again when
//! little is left, and at its end given back ([`Lease::end`]).
//!
//! **Invariant:** no hit is spent that was not debited before, none twice, none after the window that it was debited from (by
//! the store's clock, as far as this node can know it) and none that is given back. So what all nodes admit in a window,
//! together with what they hold, is at most what the store has counted of it. A token bucket has no window: what was debited
//! is spent [`Options::ttl`] later at most, while it refills, so that what nodes hold comes on top of a full one.

#[cfg(test)]
mod agenda;
#[cfg(test)]
mod moving;
#[cfg(test)]
mod simulation;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::table::{Ask, Leases, MAX_LEASES, Return, Totals};
use crate::{
    clock::{Tick, UnixMicros},
    limit::{Algorithm, Charged, Cost, Hits, Limit, Scale, most_lent},
};

/// No lease is for more than what is spent in this time: many round trips, and little to lose.
pub const SPAN: Duration = Duration::from_millis(50);

/// More is asked for when half of the last grant is left, which is 25 ms and many round trips. How often that is hangs on the
/// size of a grant alone.
const LOW: u64 = 2;

/// A rate is taken over this time at least, so that a handful of calls at once is no flood.
const MEASURED_OVER: Duration = Duration::from_millis(10);

/// After a grant of nothing, or a question without an answer, nothing is asked for during this time.
const PAUSE: Duration = Duration::from_millis(50);

/// From when on, and for how long, a node leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// In hits a second, on this node: from there on a key is leased.
    pub min_rate: u32,
    /// What was not spent is back at the store after this time, if the store is well.
    pub ttl: Duration,
}

impl Options {
    /// Until when a grant that was asked for at `asked` may be spent: an eighth is for the sweep to find it, another for the
    /// way back.
    pub fn spent_until(self, asked: Tick) -> Tick {
        asked.after(self.ttl * 3 / 4)
    }

    /// The same for a grant that was answered at `back`, of a window that ends so long after `asked`, as far as this node knows
    /// with this uncertainty: it is not spent after its window, less a round trip.
    pub fn spent_within(self, asked: Tick, back: Tick, ends_after: Duration, uncertainty: Duration) -> Tick {
        let margin = uncertainty + asked.until(back);
        self.spent_until(asked).min(asked.after(ends_after.saturating_sub(margin)))
    }

    /// How often ends are looked for.
    pub fn sweep_every(self) -> Duration {
        self.ttl / 8
    }

    /// Whether a key of so many hits a second is leased.
    pub fn is_hot(self, hits_per_second: f64) -> bool {
        hits_per_second >= f64::from(self.min_rate)
    }

    /// How many hits to ask for, of a key with this rate: what is spent of it in [`SPAN`].
    pub fn wanted(self, hits_per_second: f64) -> Hits {
        let rate = hits_per_second.max(f64::from(self.min_rate));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "above zero; it saturates"
        )]
        let wanted = Hits::new((rate * SPAN.as_secs_f64()) as u64);
        wanted.max(Hits::new(1))
    }
}

/// What this node holds of one counter, and what it knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    limit: Limit,
    /// Always zero in a token bucket, and without an end.
    window: u64,
    window_ends: Tick,
    /// The same moment by the process's clock, to tell which window an answer is of.
    window_ends_at: UnixMicros,
    spent_until: Tick,
    /// A caller gives hits back, and nothing was granted since it asked to.
    is_stopped: bool,
    /// Debited and not spent.
    held: Hits,
    /// What the store had counted when it was heard of last, all that was ever held here included.
    counted: Hits,
    /// The end of the window that callers were told of last, by the process's clock, and the least that remained in it.
    told: (UnixMicros, Hits),
    /// What the store refused and counted all the same: it takes the place of hits that are given back, so it goes with them.
    owed: Hits,
    /// More is asked for below this.
    low: Hits,
    /// Hits that were admitted here since the last grant, whoever paid them, and when that was.
    admitted: Hits,
    since: Option<Tick>,
    asking: Asking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Now,
    NotBefore(Tick),
}

/// What the store said to a question for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub window: u64,
    pub window_ends: Tick,
    pub window_ends_at: UnixMicros,
    /// See [`Options::spent_within`].
    pub spent_until: Tick,
    pub granted: Hits,
    /// After it.
    pub counted: Hits,
}

/// What is to be given back to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub window: u64,
    /// Not spent.
    pub held: Hits,
    /// Refused and counted.
    pub owed: Hits,
    /// Whether the window is over, so that there is nothing to give it back to.
    pub is_past: bool,
}

impl Lease {
    /// One that was asked for, and holds nothing yet.
    pub fn asked(limit: Limit) -> Self {
        Self {
            limit,
            window: 0,
            window_ends: Tick::default(),
            window_ends_at: UnixMicros::default(),
            spent_until: Tick::default(),
            is_stopped: false,
            held: Hits::ZERO,
            counted: Hits::ZERO,
            told: (UnixMicros::default(), Hits::MAX),
            owed: Hits::ZERO,
            low: Hits::ZERO,
            admitted: Hits::ZERO,
            since: None,
            asking: Asking::Now,
        }
    }

    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Hits that would be lost with this node.
    pub fn held(&self) -> Hits {
        self.held
    }

    /// Takes `hits` off what is held, and says what the store would have said; `None`: the store is to be asked.
    pub fn spend(&mut self, now: Tick, hits: Hits) -> Option<Charged> {
        if now >= self.spent_until || self.held < hits {
            return None;
        }
        let used_before = self.counted.minus(self.held);
        self.held = self.held.minus(hits);
        self.admitted = self.admitted.plus(hits);
        let used_after = used_before.plus(hits);
        let remaining = self.most().minus(used_after);
        let (remaining, reset_after) = match self.limit.algorithm {
            Algorithm::FixedWindow => {
                (self.shown(self.window_ends_at, remaining), now.until(self.window_ends))
            }
            // What drained since the last grant, of which there are many a second, is not looked at.
            Algorithm::TokenBucket { .. } => (remaining, drains_in(&self.limit, used_after)),
            _ => (remaining, now.until(self.forgotten_at())),
        };
        Some(Charged {
            admitted: true,
            used_before,
            used_after,
            remaining,
            reset_after,
            delay: Duration::ZERO,
        })
    }

    /// The most that is worth asking for, by what the store said last.
    pub fn most_lent(&self) -> Hits {
        most_lent(&self.limit, self.counted)
    }

    /// Hits a second that were admitted here since the last grant; `None` before the first.
    pub fn rate(&self, now: Tick) -> Option<f64> {
        let elapsed = self.since?.until(now).max(MEASURED_OVER);
        #[expect(clippy::cast_precision_loss, reason = "hits are below 2^53")]
        let admitted = self.admitted.get() as f64;
        Some(admitted / elapsed.as_secs_f64())
    }

    /// Whether more is to be asked for, which is then under way.
    pub fn ask(&mut self, now: Tick) -> bool {
        let is_low = self.held <= self.low || now >= self.spent_until;
        let is_time = matches!(self.asking, Asking::NotBefore(moment) if now >= moment);
        if is_low && is_time {
            self.asking = Asking::Now;
        }
        is_low && is_time
    }

    /// Takes over what was granted. What is left of a grant whose time is over, or of another window, is to be given back.
    #[must_use]
    pub fn granted(&mut self, now: Tick, grant: Grant) -> Option<Leftover> {
        let leftover = if grant.window == self.window { self.end(now) } else { self.take_all(now) };
        self.is_stopped = false;
        self.window = grant.window;
        self.held = self.held.plus(grant.granted);
        // It was counted before what is on its way back is there.
        let on_its_way = leftover.filter(|leftover| leftover.window == grant.window);
        let on_its_way = on_its_way.map_or(Hits::ZERO, |leftover| leftover.held.plus(leftover.owed));
        self.counted = grant.counted.minus(on_its_way);
        self.low = Hits::new(grant.granted.get() / LOW);
        (self.admitted, self.since) = (Hits::ZERO, Some(now));
        (self.window_ends, self.window_ends_at) = (grant.window_ends, grant.window_ends_at);
        self.spent_until = grant.spent_until;
        let pause = if grant.granted == Hits::ZERO { PAUSE } else { Duration::ZERO };
        self.asking = Asking::NotBefore(now.after(pause));
        leftover
    }

    /// A question went without an answer, or was not worth asking.
    pub fn not_granted(&mut self, now: Tick) {
        self.asking = Asking::NotBefore(now.after(PAUSE));
    }

    /// What is held is spent no more: a caller gives hits back, and they must not be taken off what is held here.
    pub fn stop(&mut self, now: Tick) {
        self.is_stopped = true;
        self.spent_until = self.spent_until.min(now);
    }

    /// What the store said, at `asked_at`, to another charge of this counter, seen with what is held. `is_counted`: a refused
    /// cost was.
    pub fn heard(&mut self, asked_at: UnixMicros, cost: Cost, charged: Charged, is_counted: bool) -> Charged {
        if !self.is_fixed() {
            return self.heard_of_moving(cost, charged);
        }
        let ends_at = asked_at.after(charged.reset_after);
        if !self.is_same_window(ends_at, self.window_ends_at) || charged.used_before < self.held {
            let remaining = self.shown(ends_at, charged.remaining);
            return Charged { remaining, ..charged };
        }
        let mut behind = Hits::ZERO;
        match cost {
            Cost::Charge(hits) if !charged.admitted => {
                self.owed = if is_counted { self.owed.plus(hits) } else { self.owed };
            }
            Cost::Charge(hits) => {
                // It may have been said before what is held was debited, and come after.
                behind = self.counted.minus(charged.used_after);
                self.counted = self.counted.max(charged.used_after);
                self.admitted = self.admitted.plus(hits);
            }
            Cost::Peek => behind = self.counted.minus(charged.used_after),
            Cost::Refund(hits) => {
                self.take_off(hits, charged.used_before);
                // Of a grant that came between it may know nothing; the next one puts that right.
                let taken = charged.used_before.minus(charged.used_after);
                self.counted = charged.used_after.max(self.counted.minus(taken));
                behind = self.counted.minus(charged.used_after);
                self.told = (ends_at, Hits::MAX);
            }
        }
        let seen = |used: Hits| used.plus(behind).minus(self.held);
        let (used_before, used_after) = (seen(charged.used_before), seen(charged.used_after));
        let admitted = charged.admitted || (!matches!(cost, Cost::Charge(_)) && used_after <= self.most());
        let remaining = self.shown(ends_at, charged.remaining.plus(self.held).minus(behind));
        Charged { admitted, used_before, used_after, remaining, ..charged }
    }

    /// The same where what is counted drains all the time: while something is held, which is never long, the highest count
    /// stands, and then the latest.
    fn heard_of_moving(&mut self, cost: Cost, charged: Charged) -> Charged {
        if charged.used_before < self.held {
            return charged;
        }
        let said = match cost {
            Cost::Charge(_) if !charged.admitted => charged.used_before,
            _ => charged.used_after,
        };
        if let Cost::Charge(hits) = cost
            && charged.admitted
        {
            self.admitted = self.admitted.plus(hits);
        }
        if let Cost::Refund(hits) = cost {
            self.take_off(hits, charged.used_before);
            self.counted = self.counted.minus(charged.used_before.minus(charged.used_after));
        }
        self.counted = if self.held > Hits::ZERO { self.counted.max(said) } else { said };
        let behind = self.counted.minus(said);
        let seen = |used: Hits| used.plus(behind).minus(self.held);
        let (used_before, used_after) = (seen(charged.used_before), seen(charged.used_after));
        let admitted = charged.admitted || (!matches!(cost, Cost::Charge(_)) && used_after <= self.most());
        let remaining = charged.remaining.plus(self.held).minus(behind).min(self.most());
        Charged { admitted, used_before, used_after, remaining, ..charged }
    }

    /// A caller gave back more hits than were used: what is beyond that was taken off what is held, and is not to be given back
    /// once more. Where hits were granted meanwhile, it cannot be told.
    fn take_off(&mut self, refund: Hits, used_before: Hits) {
        if !self.is_stopped {
            return;
        }
        let beyond = refund.minus(used_before.minus(self.held));
        self.held = self.held.minus(beyond);
    }

    /// What is to be given back because it may not be spent any more.
    #[must_use]
    pub fn end(&mut self, now: Tick) -> Option<Leftover> {
        if now >= self.spent_until { self.take_all(now) } else { None }
    }

    /// All that is held, whether or not its time has come.
    #[must_use]
    pub fn take_all(&mut self, now: Tick) -> Option<Leftover> {
        let leftover = Leftover {
            window: self.window,
            held: std::mem::take(&mut self.held),
            owed: std::mem::take(&mut self.owed),
            is_past: now >= self.forgotten_at(),
        };
        self.counted = self.counted.minus(leftover.held);
        (leftover.held.plus(leftover.owed) > Hits::ZERO).then_some(leftover)
    }

    /// Whether nothing is held, none is under way, and none was asked for in a while.
    pub fn is_over(&self, now: Tick) -> bool {
        let is_quiet = matches!(self.asking, Asking::NotBefore(moment) if now >= moment.after(PAUSE));
        self.held.plus(self.owed) == Hits::ZERO && now >= self.spent_until && is_quiet
    }

    fn is_fixed(&self) -> bool {
        self.limit.algorithm == Algorithm::FixedWindow
    }

    fn most(&self) -> Hits {
        Scale::of(&self.limit).capacity()
    }

    /// When nothing that was debited counts any more; a sliding window counts the one before, too.
    fn forgotten_at(&self) -> Tick {
        match self.limit.algorithm {
            Algorithm::SlidingWindow => {
                self.window_ends.after(Duration::from_micros(self.limit.window.micros()))
            }
            _ => self.window_ends,
        }
    }

    /// What remains never grows within a window, unless hits are given back by a caller. An answer of a window before is late.
    fn shown(&mut self, ends_at: UnixMicros, remaining: Hits) -> Hits {
        let (told_of, least) = self.told;
        if self.is_same_window(ends_at, told_of) {
            self.told.1 = least.min(remaining);
            return self.told.1;
        }
        if ends_at > told_of {
            self.told = (ends_at, remaining);
        }
        remaining
    }

    /// Whether these are the end of one window, as it was reckoned at different times.
    fn is_same_window(&self, one: UnixMicros, other: UnixMicros) -> bool {
        one.get().abs_diff(other.get()) < self.limit.window.micros() / 2
    }
}

/// How long so many tokens take to be there again.
fn drains_in(limit: &Limit, used: Hits) -> Duration {
    let micros = u128::from(used.get()) * u128::from(limit.window.micros());
    let micros = micros.div_ceil(u128::from(limit.requests_per_unit.max(1)));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}
