//! One Redis store or two: limits per second may have one of their own. Both are asked at the same time.
//!
//! **Invariant:** a charge goes to one of the two, always the same for one limit; what goes wrong at one touches no charge
//! of the other.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Budget, Charge, Outcomes, StoreError, redis::RedisStore, refuses};
use crate::{
    clock::UnixMicros,
    limit::{Charged, Cost, Limit},
};

#[derive(Debug)]
pub struct Pair {
    pub main: RedisStore,
    /// Counts the limits whose window is one second.
    pub per_second: Option<RedisStore>,
}

/// The part of a request that one store gets: its charges, and the place of each in the whole.
#[derive(Default)]
struct Part<'a> {
    charges: SmallVec<[Charge<'a>; 4]>,
    enforced: SmallVec<[bool; 4]>,
    places: SmallVec<[usize; 4]>,
}

impl Pair {
    /// The store that counts by this limit.
    pub fn of(&self, limit: &Limit) -> &RedisStore {
        self.per_second.as_ref().filter(|_| limit.window.secs() == 1).unwrap_or(&self.main)
    }

    pub(super) async fn charge(&self, charges: &[Charge<'_>], now: UnixMicros, budget: Budget) -> Outcomes {
        match &self.per_second {
            None => self.main.charge(charges, now, budget).await,
            // Boxed: what asks two stores is twice as large, and every call would be moved about with room for it.
            Some(second) => Box::pin(self.charge_both(second, charges, now, budget)).await,
        }
    }

    async fn charge_both(
        &self,
        second: &RedisStore,
        charges: &[Charge<'_>],
        now: UnixMicros,
        budget: Budget,
    ) -> Outcomes {
        let [main, rest] = parts(charges, &[]);
        let (of_main, of_second) = tokio::join!(
            self.main.charge(&main.charges, now, budget),
            second.charge(&rest.charges, now, budget)
        );
        merge(charges.len(), [(&main, of_main), (&rest, of_second)])
    }

    pub(super) async fn charge_all_or_nothing(
        &self,
        charges: &[Charge<'_>],
        enforced: &[bool],
        now: UnixMicros,
        budget: Budget,
    ) -> Outcomes {
        match &self.per_second {
            None => self.main.charge_all_or_nothing(charges, enforced, now, budget).await,
            Some(second) => {
                Box::pin(self.charge_both_or_nothing(second, charges, enforced, now, budget)).await
            }
        }
    }

    async fn charge_both_or_nothing(
        &self,
        second: &RedisStore,
        charges: &[Charge<'_>],
        enforced: &[bool],
        now: UnixMicros,
        budget: Budget,
    ) -> Outcomes {
        let [main, rest] = parts(charges, enforced);
        let (mut of_main, mut of_second) = tokio::join!(
            self.main.charge_all_or_nothing(&main.charges, &main.enforced, now, budget),
            second.charge_all_or_nothing(&rest.charges, &rest.enforced, now, budget)
        );
        match (main.refuses(&of_main), rest.refuses(&of_second)) {
            (true, false) => rest.spare(second, &mut of_second, now),
            (false, true) => main.spare(&self.main, &mut of_main, now),
            (true, true) | (false, false) => {}
        }
        merge(charges.len(), [(&main, of_main), (&rest, of_second)])
    }

    pub(super) fn give_back(&self, charges: &[Charge<'_>], now: UnixMicros) {
        let Some(second) = &self.per_second else { return self.main.give_back(charges, now) };
        let [main, rest] = parts(charges, &[]);
        self.main.give_back(&main.charges, now);
        second.give_back(&rest.charges, now);
    }

    pub(super) fn troubles(&self) -> Vec<String> {
        [&self.main].into_iter().chain(&self.per_second).flat_map(|store| store.shared().troubles()).collect()
    }

    pub(super) async fn tried(&self, within: Duration) {
        let second = async {
            if let Some(second) = &self.per_second {
                second.tried(within).await;
            }
        };
        tokio::join!(self.main.tried(within), second);
    }

    pub(super) async fn close(&self, within: Duration) {
        let second = async {
            if let Some(second) = &self.per_second {
                second.close(within).await;
            }
        };
        tokio::join!(self.main.close(within), second);
    }
}

impl Part<'_> {
    fn refuses(&self, outcomes: &Outcomes) -> bool {
        refuses(&self.charges, &self.enforced, outcomes)
    }

    /// Gives back what was counted here although the other store refused.
    fn spare(&self, store: &RedisStore, outcomes: &mut Outcomes, now: UnixMicros) {
        for (charge, outcome) in self.charges.iter().zip(outcomes) {
            if let (Cost::Charge(_), Ok(charged)) = (charge.cost, outcome)
                && charged.admitted
            {
                store.give_back(std::slice::from_ref(charge), now);
                *charged = spared(charge, charged);
            }
        }
    }
}

/// What a look would have said instead of this charge, which was admitted and is given back.
pub(crate) fn spared(charge: &Charge<'_>, charged: &Charged) -> Charged {
    Charged {
        used_after: charged.used_before,
        remaining: charged.remaining.plus(charge.cost.hits()),
        delay: Duration::ZERO,
        ..*charged
    }
}

fn parts<'a>(charges: &[Charge<'a>], enforced: &[bool]) -> [Part<'a>; 2] {
    let [mut main, mut second] = [Part::default(), Part::default()];
    for (place, charge) in charges.iter().enumerate() {
        let part = if charge.limit.window.secs() == 1 { &mut second } else { &mut main };
        part.charges.push(charge.clone());
        part.enforced.push(enforced.get(place).copied().unwrap_or(false));
        part.places.push(place);
    }
    [main, second]
}

fn merge(len: usize, parts: [(&Part<'_>, Outcomes); 2]) -> Outcomes {
    let mut all = Outcomes::from_elem(Err(StoreError::Unavailable), len);
    for (part, outcomes) in parts {
        for (place, outcome) in part.places.iter().zip(outcomes) {
            if let Some(slot) = all.get_mut(*place) {
                *slot = outcome;
            }
        }
    }
    all
}
