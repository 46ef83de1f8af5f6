//! Step 6: the store, behind what this node knows by itself. Whatever it knows is said without asking; what comes of the rest is
//! taken note of.
//!
//! **Invariant:** one outcome for each charge, in their order, whoever said it; a charge that the store is not asked for is one
//! that it would have refused, or that was paid before.

use smallvec::SmallVec;

use super::{Due, Limiter, lending};
use crate::{
    clock::UnixMicros,
    limit::Cost,
    local::{self, Knowledge, Known, RefusedHits},
    store::{self, Budget, Charge, Outcomes, StoreError},
};

/// The store, behind what this node knows by itself.
#[derive(Clone, Copy)]
pub(super) struct Front<'s> {
    pub limiter: &'s Limiter,
    /// What the charges are for, in their order.
    pub due: &'s [Due<'s>],
    pub now: UnixMicros,
    pub budget: Budget,
}

impl Front<'_> {
    /// Charges each counter for itself. Shapes: as [`Store::charge`].
    pub async fn charge(self, charges: &[Charge<'_>]) -> Answers {
        let Limiter { shared, store, .. } = self.limiter;
        let mut known = shared.local.look(charges, self.now);
        lending::spend(self, charges, &mut known);
        if known.is_empty() {
            let mut outcomes = store.charge(charges, self.now, self.budget).await;
            lending::heard(self, charges, None, &mut outcomes, RefusedHits::Counted);
            self.learn(charges, &[], &outcomes, RefusedHits::Counted);
            return Answers { known, outcomes };
        }
        let rest = Rest::of(charges, &[], &known, |charge| charge.cost);
        let mut answers = if rest.charges.is_empty() {
            Outcomes::new()
        } else {
            store.charge(&rest.charges, self.now, self.budget).await
        };
        lending::heard(self, &rest.charges, Some(&rest.places), &mut answers, RefusedHits::Counted);
        self.learn(&rest.charges, &rest.asks, &answers, RefusedHits::Counted);
        let outcomes = self.merge(charges, &known, answers);
        Answers { known, outcomes }
    }

    /// Charges all counters or none. Where this node knows already that the request is refused, the store is only looked at.
    pub async fn charge_all_or_nothing(self, charges: &[Charge<'_>], enforced: &[bool]) -> Answers {
        let Self { limiter: Limiter { shared, store, .. }, now, budget, .. } = self;
        let known = shared.local.look(charges, now);
        if known.is_empty() {
            let mut outcomes = store.charge_all_or_nothing(charges, enforced, now, budget).await;
            lending::heard(self, charges, None, &mut outcomes, RefusedHits::Spared);
            self.learn(charges, &[], &outcomes, RefusedHits::Spared);
            self.learn_what_is_spared(charges, enforced, &outcomes);
            return Answers { known, outcomes };
        }
        let is_refused = known
            .iter()
            .zip(enforced)
            .any(|(known, enforced)| *enforced && matches!(known, Known::Refused(_)));
        let cost = |charge: &Charge<'_>| if is_refused { Cost::Peek } else { charge.cost };
        let rest = Rest::of(charges, enforced, &known, cost);
        let mut answers = if rest.charges.is_empty() {
            Outcomes::new()
        } else if is_refused {
            store.charge(&rest.charges, now, budget).await
        } else {
            store.charge_all_or_nothing(&rest.charges, &rest.enforced, now, budget).await
        };
        lending::heard(self, &rest.charges, Some(&rest.places), &mut answers, RefusedHits::Spared);
        self.learn(&rest.charges, &rest.asks, &answers, RefusedHits::Spared);
        self.learn_what_is_spared(&rest.charges, &rest.enforced, &answers);
        let outcomes = self.merge(charges, &known, answers);
        Answers { known, outcomes }
    }

    fn learn(self, charges: &[Charge<'_>], asks: &[bool], outcomes: &Outcomes, refused_hits: RefusedHits) {
        let shared = &self.limiter.shared;
        shared.local.learn(charges, asks, outcomes, refused_hits, self.now, &shared.clock);
    }

    /// What one server has counted before another refused is given back: until then it counted against others, too.
    fn learn_what_is_spared(self, charges: &[Charge<'_>], enforced: &[bool], outcomes: &Outcomes) {
        if charges.len() > 1 && store::refuses(charges, enforced, outcomes) {
            for (charge, outcome) in charges.iter().zip(outcomes) {
                if matches!(outcome, Ok(charged) if charged.admitted) {
                    let shared = &self.limiter.shared;
                    shared.local.giving_back(std::slice::from_ref(charge), &shared.clock);
                }
            }
        }
    }

    /// Puts what was known and what the store said in the order of the charges.
    fn merge(self, charges: &[Charge<'_>], known: &Knowledge, answers: Outcomes) -> Outcomes {
        let mut answers = answers.into_iter();
        let known = known.iter().copied().chain(std::iter::repeat(Known::Nothing));
        let one = |(charge, known): (&Charge<'_>, Known)| match known {
            Known::Refused(until) => Ok(local::refusal(charge.limit, charge.cost.hits(), until, self.now)),
            Known::Leased(charged) => Ok(charged),
            Known::Nothing | Known::Asks => answers.next().unwrap_or(Err(StoreError::Unavailable)),
        };
        charges.iter().zip(known).map(one).collect()
    }
}

/// The charges that the store is asked for, in their order.
#[derive(Default)]
struct Rest<'a> {
    charges: SmallVec<[Charge<'a>; 4]>,
    /// The place of each in the request.
    places: SmallVec<[usize; 4]>,
    enforced: SmallVec<[bool; 4]>,
    /// Which of them are made on behalf of others.
    asks: SmallVec<[bool; 4]>,
}

impl<'a> Rest<'a> {
    fn of(
        charges: &[Charge<'a>],
        enforced: &[bool],
        known: &Knowledge,
        cost: impl Fn(&Charge<'a>) -> Cost,
    ) -> Self {
        let mut rest = Self::default();
        for (place, charge) in charges.iter().enumerate() {
            let known = known.get(place).copied().unwrap_or(Known::Nothing);
            if let Known::Refused(_) | Known::Leased(_) = known {
                continue;
            }
            rest.places.push(place);
            rest.charges.push(Charge { cost: cost(charge), ..charge.clone() });
            rest.enforced.push(enforced.get(place).copied().unwrap_or(false));
            rest.asks.push(known == Known::Asks);
        }
        rest
    }
}

/// What was said to the charges of a request, and which of them this node said by itself.
pub(super) struct Answers {
    pub known: Knowledge,
    pub outcomes: Outcomes,
}
