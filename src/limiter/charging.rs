//! Steps 6 and 7: charge what is due, the store being asked for what this node does not know by itself, and say what each rule
//! says whose counter could not be charged.
//!
//! **Invariant:** where a refused request is to charge nothing, what was counted is given back, whoever refused it: the
//! store, this node's own counters, or a rule that denies while the store is away.

use smallvec::SmallVec;

use super::{
    Due, Limiter, Shared,
    front::{Answers, Front},
};
use crate::{
    clock::UnixMicros,
    decision::{By, FailureSays, StoreFailure},
    limit::{Charged, Cost, Limit},
    local::Known,
    rules::Posture,
    store::{self, Budget, Charge, Outcomes, Store, StoreError, memory::MemoryStore, pair::spared},
};

/// What a request's charges came to.
pub(super) struct Charges<'a> {
    pub asked: SmallVec<[Charge<'a>; 4]>,
    pub outcomes: SmallVec<[Outcome; 4]>,
    /// Nothing is counted any more: the request was refused, and such requests charge nothing.
    pub spared: bool,
}

/// What one charge came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// What was counted against: the rule's limit, or this node's share of it.
    pub limit: Limit,
    pub charged: Result<Charged, StoreFailure>,
    pub by: By,
}

/// What a refusal means for the request's other charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    No,
    AllOrNothing,
}

/// Charges what is due. Shapes: one outcome for each charge, in their order.
pub(super) async fn charge<'a>(
    limiter: &Limiter,
    (due, asked): (&[Due<'_>], SmallVec<[Charge<'a>; 4]>),
    together: Together,
    now: UnixMicros,
    budget: Budget,
) -> Charges<'a> {
    let Limiter { shared, store, .. } = limiter;
    let front = Front { limiter, due, now, budget };
    if together == Together::No {
        let answers = front.charge(&asked).await;
        let outcomes = settle(shared, due, &asked, answers);
        let mut charges = Charges { asked, outcomes, spared: false };
        charges.count_here(&shared.fallback, now);
        return charges;
    }
    let enforced: SmallVec<[bool; 4]> = due.iter().map(|due| shared.enforces(due)).collect();
    let answers = front.charge_all_or_nothing(&asked, &enforced).await;
    let refused = store::refuses(&asked, &enforced, &answers.outcomes);
    let outcomes = settle(shared, due, &asked, answers);
    let mut charges = Charges { asked, outcomes, spared: refused };
    charges.count_here_or_nowhere(&shared.fallback, &enforced, now);
    if charges.spared && !refused {
        charges.spare((shared, store), now);
    }
    charges
}

/// Takes what the store said, and what a rule says to which it said nothing.
fn settle(
    shared: &Shared,
    due: &[Due<'_>],
    asked: &[Charge<'_>],
    answers: Answers,
) -> SmallVec<[Outcome; 4]> {
    let Answers { known, outcomes } = answers;
    let mut settled: SmallVec<[Outcome; 4]> = due
        .iter()
        .zip(asked)
        .zip(outcomes)
        .map(|((due, charge), answer)| {
            let limit = *charge.limit;
            match answer {
                Ok(charged) => Outcome { limit, charged: Ok(charged), by: By::Store },
                Err(error) => shared.without_store(due, limit, error),
            }
        })
        .collect();
    for (outcome, known) in settled.iter_mut().zip(known) {
        match known {
            Known::Refused(_) => outcome.by = By::Memo,
            Known::Leased(_) => outcome.by = By::Lease,
            Known::Nothing | Known::Asks => {}
        }
    }
    settled
}

impl Shared {
    /// Whether this counter's refusal refuses the request by itself.
    fn enforces(&self, due: &Due<'_>) -> bool {
        let excused = due.rule.is_some_and(|rule| rule.shadow_mode || rule.quota_mode);
        !excused && !self.options.modes.shadow && !self.options.modes.quota
    }

    fn without_store(&self, due: &Due<'_>, limit: Limit, error: StoreError) -> Outcome {
        let says = |says| Outcome { limit, charged: Err(StoreFailure { error, says }), by: By::Store };
        if due.rule.is_some_and(|rule| rule.shadow_mode) {
            return says(FailureSays::Allow);
        }
        let posture = due.rule.and_then(|rule| rule.on_store_failure).unwrap_or(self.options.posture);
        self.metrics.posture_applied(posture);
        match posture {
            Posture::Error => says(FailureSays::Error),
            Posture::Allow => says(FailureSays::Allow),
            Posture::Deny => says(FailureSays::Deny),
            Posture::Local => {
                let requests_per_unit = limit.requests_per_unit.div_ceil(self.options.replicas.get());
                let limit = Limit { requests_per_unit, ..limit };
                Outcome { limit, by: By::Node, ..says(FailureSays::Error) }
            }
        }
    }
}

impl Charges<'_> {
    /// Charges this node's own counters, each for itself.
    fn count_here(&mut self, memory: &MemoryStore, now: UnixMicros) {
        for (charge, outcome) in self.asked.iter().zip(&mut self.outcomes) {
            if outcome.by == By::Node {
                let charge = Charge { limit: &outcome.limit, ..charge.clone() };
                outcome.charged = Ok(memory.charge(&charge, now));
            }
        }
    }

    /// Charges this node's own counters, or none if the request is refused: by the store, by a rule that denies, or by one
    /// of them.
    fn count_here_or_nowhere(&mut self, memory: &MemoryStore, enforced: &[bool], now: UnixMicros) {
        let denied = |(outcome, enforced): (&Outcome, &bool)| {
            *enforced && matches!(outcome.charged, Err(StoreFailure { says: FailureSays::Deny, .. }))
        };
        self.spared |= self.outcomes.iter().zip(enforced).any(denied);
        let here: SmallVec<[usize; 4]> = (0..self.outcomes.len())
            .filter(|&i| self.outcomes.get(i).is_some_and(|outcome| outcome.by == By::Node))
            .collect();
        if here.is_empty() {
            return;
        }
        let limits: SmallVec<[Limit; 4]> =
            here.iter().filter_map(|&i| Some(self.outcomes.get(i)?.limit)).collect();
        let charges: SmallVec<[Charge<'_>; 4]> = here
            .iter()
            .zip(&limits)
            .filter_map(|(&i, limit)| {
                let charge = self.asked.get(i)?;
                let cost = if self.spared { Cost::Peek } else { charge.cost };
                Some(Charge { limit, cost, ..charge.clone() })
            })
            .collect();
        let enforced: SmallVec<[bool; 4]> =
            here.iter().map(|&i| enforced.get(i).copied().unwrap_or(false)).collect();
        let charged = memory.charge_all_or_nothing(&charges, &enforced, now);
        let mut answers = Outcomes::new();
        for (&i, charged) in here.iter().zip(charged) {
            answers.push(Ok(charged));
            if let Some(outcome) = self.outcomes.get_mut(i) {
                outcome.charged = Ok(charged);
            }
        }
        self.spared |= store::refuses(&charges, &enforced, &answers);
    }

    /// Gives back what the store has counted, which knew nothing of the refusal.
    fn spare(&mut self, (shared, store): (&Shared, &Store), now: UnixMicros) {
        for (charge, outcome) in self.asked.iter().zip(&mut self.outcomes) {
            if let (By::Store, Cost::Charge(_), Ok(charged)) = (outcome.by, charge.cost, &mut outcome.charged)
                && charged.admitted
            {
                store.give_back(std::slice::from_ref(charge), now);
                shared.local.giving_back(std::slice::from_ref(charge), &shared.clock);
                *charged = spared(charge, charged);
            }
        }
    }

    /// Gives back the charges at these places, to whoever counted them.
    pub fn give_back(&self, places: &[usize], (shared, store): (&Shared, &Store), now: UnixMicros) {
        for &place in places {
            let (Some(charge), Some(outcome)) = (self.asked.get(place), self.outcomes.get(place)) else {
                continue;
            };
            match outcome.by {
                By::Store => {
                    store.give_back(std::slice::from_ref(charge), now);
                    shared.local.giving_back(std::slice::from_ref(charge), &shared.clock);
                }
                // Slots of leaky buckets are given back here, which are never leased.
                By::Memo | By::Lease => {}
                By::Node => {
                    let charge = Charge { limit: &outcome.limit, ..charge.clone() };
                    shared.fallback.give_back(&[charge], now);
                }
            }
        }
    }
}
