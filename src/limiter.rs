//! One request, step by step: snapshot, match, key, charge, decide, record. Every way in (gRPC, `/json`, tests) ends here.
//!
//! **Invariant:** one request sees one snapshot of the rules and one reading of the clock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;

use crate::{
    clock::{Clock, UnixMicros},
    decision::{self, Answer, Code, Finding, Modes},
    descriptor::{Descriptor, Request},
    key::CounterKey,
    limit::{Algorithm, Charged, Cost, Hits, Limit},
    rules::{Grant, Lookup, Rule, RuleSet},
    store::{Budget, Charge, Store, StoreError},
    telemetry::metrics::{CallOutcome, Metrics},
};

/// What a held answer leaves of the budget for the way back.
const HOLD_MARGIN: Duration = Duration::from_millis(2);

/// Why a request got no answer. The caller made no mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    #[error("no rate limit configuration loaded")]
    NoRules,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Decides requests by the rules in force and the counters of a store.
#[derive(Debug)]
pub struct Limiter {
    /// `None` until rules were loaded for the first time.
    rules: ArcSwapOption<RuleSet>,
    store: Store,
    clock: Clock,
    key_prefix: Box<[u8]>,
    modes: Modes,
    metrics: Arc<Metrics>,
}

/// A descriptor that is to be counted: which one, under which limit and key.
struct Due<'r> {
    index: usize,
    rule: Option<&'r Rule>,
    limit: Limit,
    key: CounterKey,
}

impl Limiter {
    pub fn new(store: Store, clock: Clock, key_prefix: &str, modes: Modes, metrics: Arc<Metrics>) -> Self {
        Self {
            rules: ArcSwapOption::empty(),
            store,
            clock,
            key_prefix: key_prefix.as_bytes().into(),
            modes,
            metrics,
        }
    }

    /// Puts `rules` in force; requests under way finish with the rules that they began with.
    pub fn set_rules(&self, rules: Arc<RuleSet>) {
        self.rules.store(Some(rules));
    }

    /// The rules in force; `None` until some were loaded.
    pub fn rules(&self) -> Option<Arc<RuleSet>> {
        self.rules.load_full()
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Decides one request.
    ///
    /// Bound: returns within `budget`, plus nothing: a leaky bucket's wait is cut to what the budget leaves.
    /// Cancel safety: what was charged stays charged.
    pub async fn decide(&self, request: &Request, budget: Budget) -> Result<Answer, DecideError> {
        let began = Instant::now();
        let decided = self.decide_now(request, budget).await;
        let outcome = match &decided {
            Ok(answer) if answer.overall == Code::OverLimit => CallOutcome::OverLimit,
            Ok(_) => CallOutcome::Ok,
            Err(_) => CallOutcome::Unavailable,
        };
        self.metrics.called(outcome, began.elapsed());
        decided
    }

    async fn decide_now(&self, request: &Request, budget: Budget) -> Result<Answer, DecideError> {
        let snapshot = self.rules.load();
        let rules = snapshot.as_deref().ok_or(DecideError::NoRules)?;
        let now = self.clock.now();
        let (mut findings, due) = self.match_all(rules, request);
        let max_wait = budget.left().saturating_sub(HOLD_MARGIN);
        let outcomes = {
            let charges: SmallVec<[Charge<'_>; 4]> =
                due.iter().map(|due| due.charge(cost_of(request, due.index), max_wait)).collect();
            self.store.charge(&charges, now, budget).await
        };
        for (due, charged) in due.iter().zip(outcomes) {
            if let Some(finding) = findings.get_mut(due.index) {
                let cost = cost_of(request, due.index).hits();
                *finding = Finding::Counted { limit: due.limit, rule: due.rule, cost, charged };
            }
        }
        self.record(&findings);
        let mut answer = decision::decide(&findings, &self.modes)?;
        log(request, &findings, &answer);
        self.hold_or_give_back(&due, &findings, request, &answer, now, budget).await;
        if self.modes.dynamic_metadata {
            answer.dynamic_metadata = Some(metadata(request, &findings, &answer));
        }
        Ok(answer)
    }

    /// Step 4 and 5: which rule or override counts each descriptor, and under which key.
    fn match_all<'r>(
        &self,
        rules: &'r RuleSet,
        request: &Request,
    ) -> (SmallVec<[Finding<'r>; 4]>, SmallVec<[Due<'r>; 4]>) {
        let mut findings = SmallVec::with_capacity(request.descriptors.len());
        let mut due = SmallVec::new();
        // All names that a matched rule replaces, also a rule that is unlimited or replaced itself.
        let mut replaced: SmallVec<[&str; 4]> = SmallVec::new();
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let found = self.find(rules, request, descriptor);
            replaced
                .extend(found.rule().into_iter().flat_map(|rule| rule.replaces.iter().map(|name| &**name)));
            findings.push(if matches!(found, Found::Unlimited(_)) {
                Finding::Unlimited
            } else {
                Finding::NoRule
            });
            due.extend(found.due(index));
        }
        if !replaced.is_empty() {
            due.retain(|due: &mut Due<'_>| !due.name().is_some_and(|name| replaced.contains(&name)));
        }
        (findings, due)
    }

    fn find<'r>(&self, rules: &'r RuleSet, request: &Request, descriptor: &Descriptor) -> Found<'r> {
        let key = |limit: &Limit, shared: &[Option<&[u8]>]| {
            let entries = descriptor.entries.iter().enumerate().map(|(i, entry)| {
                (&entry.key[..], shared.get(i).copied().flatten().unwrap_or(&entry.value[..]))
            });
            CounterKey::new(&self.key_prefix, &request.domain, entries, limit)
        };
        if let Some(limit) = descriptor.override_limit {
            if !rules.has_domain(&request.domain) {
                return self.unknown_domain();
            }
            return Found::Limited { rule: None, limit, key: key(&limit, &[]) };
        }
        match rules.lookup(&request.domain, &descriptor.entries) {
            Lookup::UnknownDomain => self.unknown_domain(),
            Lookup::NoRule => Found::Nothing,
            Lookup::Found(found) => match found.rule.grant {
                Grant::Unlimited => Found::Unlimited(found.rule),
                Grant::Limited(limit) => {
                    let key = key(&limit, &found.shared);
                    Found::Limited { rule: Some(found.rule), limit, key }
                }
            },
        }
    }

    fn unknown_domain<'r>(&self) -> Found<'r> {
        self.metrics.unknown_domain();
        Found::Nothing
    }

    /// Step 10: the rules' own counters, and one for all overrides.
    fn record(&self, findings: &[Finding<'_>]) {
        for finding in findings {
            let Some((verdict, hits)) = decision::tally(finding, &self.modes) else {
                continue;
            };
            match finding {
                Finding::Counted { rule: Some(rule), .. } => rule.counters.record(verdict, hits),
                _ => self.metrics.overrides.record(verdict, hits),
            }
        }
    }

    /// leaky_bucket: an admitted request waits for the latest of its slots; a refused one gives its slots back. What is in
    /// shadow mode holds nobody.
    async fn hold_or_give_back(
        &self,
        due: &[Due<'_>],
        findings: &[Finding<'_>],
        request: &Request,
        answer: &Answer,
        now: UnixMicros,
        budget: Budget,
    ) {
        let mut longest = Duration::ZERO;
        let mut slots: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
        for due in due {
            let Some(finding) = findings.get(due.index) else { continue };
            let Some(charged) = admitted_slot(finding) else { continue };
            if !self.modes.shadow && !finding.is_shadow() {
                longest = longest.max(charged.delay);
            }
            slots.push(due.charge(Cost::refund(cost_of(request, due.index).hits()), Duration::MAX));
        }
        if slots.is_empty() {
            return;
        }
        if answer.overall == Code::OverLimit {
            let _given_back = self.store.charge(&slots, now, budget).await;
        } else if !longest.is_zero() {
            tokio::time::sleep(longest).await;
        }
    }
}

/// What the rules or the caller say of one descriptor.
enum Found<'r> {
    Nothing,
    Unlimited(&'r Rule),
    Limited { rule: Option<&'r Rule>, limit: Limit, key: CounterKey },
}

impl<'r> Found<'r> {
    fn rule(&self) -> Option<&'r Rule> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) => Some(rule),
            Self::Limited { rule, .. } => *rule,
        }
    }

    fn due(self, index: usize) -> Option<Due<'r>> {
        match self {
            Self::Limited { rule, limit, key } => Some(Due { index, rule, limit, key }),
            Self::Nothing | Self::Unlimited(_) => None,
        }
    }
}

impl<'r> Due<'r> {
    fn name(&self) -> Option<&'r str> {
        self.rule.and_then(|rule| rule.name.as_deref())
    }

    fn charge(&self, cost: Cost, max_wait: Duration) -> Charge<'_> {
        Charge { key: &self.key, limit: &self.limit, cost, max_wait }
    }
}

/// A line for each request, for whoever looks for one: costs nothing unless it is asked for.
fn log(request: &Request, findings: &[Finding<'_>], answer: &Answer) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let decided = findings.iter().zip(&answer.statuses).map(|(finding, status)| match finding {
        Finding::NoRule => "no rule".to_owned(),
        Finding::Unlimited => "unlimited".to_owned(),
        Finding::Counted { rule, limit, .. } => {
            let rule = rule.map_or("(from the request)", |rule| &rule.full_key);
            format!("{rule} {limit}: {:?}, {} left", status.code, status.remaining)
        }
    });
    let decided: Vec<_> = decided.collect();
    tracing::debug!(domain = %request.domain.escape_ascii(), answer = ?answer.overall, decided = %decided.join("; "), "decided");
}

fn cost_of(request: &Request, index: usize) -> Cost {
    request.descriptors.get(index).map_or(Cost::Peek, |descriptor| descriptor.cost)
}

fn admitted_slot<'f>(finding: &'f Finding<'_>) -> Option<&'f Charged> {
    match finding {
        Finding::Counted { limit, cost, charged: Ok(charged), .. } => {
            let leaky = matches!(limit.algorithm, Algorithm::LeakyBucket { .. });
            (leaky && charged.admitted && *cost > Hits::ZERO).then_some(charged)
        }
        _ => None,
    }
}

fn metadata(request: &Request, findings: &[Finding<'_>], answer: &Answer) -> crate::rules::Metadata {
    let passed =
        findings.iter().zip(&answer.statuses).filter(|(finding, status)| decision::passed(finding, status));
    let metadata = passed.filter_map(|(finding, _)| match finding {
        Finding::Counted { rule: Some(rule), .. } => rule.metadata.as_ref(),
        _ => None,
    });
    decision::dynamic_metadata(request, metadata)
}

#[cfg(test)]
mod tests;
