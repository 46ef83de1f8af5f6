//! One request, step by step: snapshot, match, key, charge, decide, record. Every way in (gRPC, `/json`, tests) ends here.
//!
//! **Invariant:** one request sees one snapshot of the rules and one reading of the clock.

mod charging;
mod front;
mod lending;
mod line;

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;

use self::{
    charging::{Charges, Outcome, Together},
    lending::Lender,
};
use crate::{
    clock::{Clock, UnixMicros},
    decision::{self, Answer, Code, Finding, Modes},
    descriptor::{Descriptor, Request},
    key::CounterKey,
    limit::{Algorithm, Cost, Limit},
    local::{
        self, Local,
        sketch::{Seen, Sketch},
    },
    rules::{Charging, Grant, Lookup, Posture, Rule, RuleSet, StatKey},
    store::{Budget, Charge, Store, StoreError, memory::MemoryStore, redis::config::KeyStyle},
    telemetry::{
        metrics::{CallOutcome, Metrics},
        traces::{self, StoreCall, StoreKind, Trace},
    },
};

/// What a held answer leaves of the budget for the way back.
const HOLD_MARGIN: Duration = Duration::from_millis(2);

/// How long a start waits for a store that does not answer: longer than any that is well, shorter than a probe's patience.
const TRYING: Duration = Duration::from_millis(500);

/// What ending the store may take: as much as one batch of refunds.
const CLOSING: Duration = Duration::from_secs(1);

/// Why a request got no answer. The caller made no mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    #[error("no rate limit configuration loaded")]
    NoRules,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How to decide, beside the rules.
#[derive(Clone, Debug)]
pub struct Options {
    pub key_prefix: Box<[u8]>,
    pub key_style: KeyStyle,
    pub modes: Modes,
    /// For rules that do not say what they answer when the store cannot.
    pub posture: Posture,
    /// How many replicas share a limit that is counted locally.
    pub replicas: NonZeroU32,
    /// For all domains; one may ask for it by itself.
    pub charging: Charging,
    /// What this node keeps in front of the store.
    pub local: local::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key_prefix: Box::default(),
            key_style: KeyStyle::Tidegate,
            modes: Modes::default(),
            posture: Posture::Error,
            replicas: NonZeroU32::MIN,
            charging: Charging::Always,
            local: local::Options::default(),
        }
    }
}

/// What the limiters of all workers share.
#[derive(Debug)]
pub struct Shared {
    /// `None` until rules were loaded for the first time.
    rules: ArcSwapOption<RuleSet>,
    clock: Clock,
    options: Options,
    metrics: Arc<Metrics>,
    /// Counters of rules that are counted here while the store is away.
    fallback: Arc<MemoryStore>,
    local: Local,
}

impl Shared {
    pub fn new(clock: Clock, options: Options, metrics: Arc<Metrics>, fallback: Arc<MemoryStore>) -> Self {
        let local = Local::new(options.local);
        Self { rules: ArcSwapOption::empty(), clock, options, metrics, fallback, local }
    }

    /// Puts `rules` in force; requests under way finish with the rules that they began with.
    pub fn set_rules(&self, rules: Arc<RuleSet>) {
        self.rules.store(Some(rules));
    }

    /// The rules in force; `None` until some were loaded.
    pub fn rules(&self) -> Option<Arc<RuleSet>> {
        self.rules.load_full()
    }

    /// Counters of rules that are counted here while the store is away.
    pub fn fallback(&self) -> &MemoryStore {
        &self.fallback
    }

    /// What this node knows of counters by itself.
    pub fn local(&self) -> &Local {
        &self.local
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// One worker's limiter: decides requests by the rules in force and the counters of its store.
#[derive(Debug)]
pub struct Limiter {
    shared: Arc<Shared>,
    store: Arc<Store>,
    sketch: Option<Arc<Sketch>>,
    /// `None`: no key is leased.
    lender: Option<Lender>,
}

/// A descriptor that is to be counted: which one, under which limit and key.
struct Due<'r> {
    index: usize,
    rule: Option<&'r Rule>,
    limit: Limit,
    key: CounterKey,
}

impl Limiter {
    pub fn new(shared: Arc<Shared>, store: Store) -> Self {
        let sketch = shared.local.add_worker();
        let store = Arc::new(store);
        let lender = Lender::start(&shared, &store);
        Self { shared, store, sketch, lender }
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Waits until the store was tried once, so that the first call finds it; bounded.
    pub async fn ready(&self) {
        self.store.tried(TRYING).await;
    }

    /// Ends what the store still has to do, such as giving back; bounded.
    pub async fn close(&self) {
        if let Some(lender) = &self.lender {
            lender.close(CLOSING).await;
        }
        self.store.close(CLOSING).await;
    }

    /// Decides one request.
    ///
    /// Bound: returns within `budget`, plus nothing: a leaky bucket's wait is cut to what the budget leaves.
    /// Cancel safety: what was charged stays charged.
    pub fn decide(
        &self,
        request: &Request,
        budget: Budget,
    ) -> impl Future<Output = Result<Answer, DecideError>> {
        self.decide_in(request, budget, None)
    }

    /// The same for a call that is traced.
    pub fn decide_traced(
        &self,
        request: &Request,
        budget: Budget,
        trace: &Trace,
    ) -> impl Future<Output = Result<Answer, DecideError>> {
        self.decide_in(request, budget, Some(trace))
    }

    async fn decide_in(
        &self,
        request: &Request,
        budget: Budget,
        trace: Option<&Trace>,
    ) -> Result<Answer, DecideError> {
        let began = Instant::now();
        let decided = self.decide_now(request, budget, trace).await;
        let outcome = match &decided {
            Ok(answer) if answer.overall == Code::OverLimit => CallOutcome::OverLimit,
            Ok(_) => CallOutcome::Ok,
            Err(_) => CallOutcome::Unavailable,
        };
        self.shared.metrics.called(outcome, began.elapsed());
        decided
    }

    async fn decide_now(
        &self,
        request: &Request,
        budget: Budget,
        trace: Option<&Trace>,
    ) -> Result<Answer, DecideError> {
        let snapshot = self.shared.rules.load();
        let Some(rules) = snapshot.as_deref() else {
            self.shared.metrics.found_no_rules();
            return Err(DecideError::NoRules);
        };
        let now = self.shared.clock.now();
        let (mut findings, due) = self.match_all(rules, request);
        let max_wait = budget.left().saturating_sub(HOLD_MARGIN);
        let asked = due.iter().map(|due| due.charge(cost_of(request, due.index), max_wait)).collect();
        let together = self.together(rules, request);
        let store_call = trace.and_then(|trace| self.store_call(trace, &due));
        let charges = charging::charge(self, (&due, asked), together, now, budget).await;
        if let Some(store_call) = store_call {
            store_call.came_back(charges.outcomes.iter().filter(|outcome| outcome.charged.is_err()).count());
        }
        for (due, outcome) in due.iter().zip(&charges.outcomes) {
            if let Some(finding) = findings.get_mut(due.index) {
                let cost = cost_of(request, due.index).hits();
                let Outcome { limit, charged, by } = *outcome;
                *finding = Finding::Counted { limit, rule: due.rule, cost, charged, by };
            }
        }
        self.sketch(&due, &charges, now);
        self.record(rules, request, &findings, now);
        let modes = &self.shared.options.modes;
        let mut answer = decision::decide(&findings, modes)?;
        if modes.shadow && decision::is_refused(&findings, &answer.statuses, modes) {
            self.shared.metrics.let_through();
        }
        line::log(request, &findings, &answer);
        self.hold_or_give_back(&due, &charges, &answer, now).await;
        if modes.dynamic_metadata {
            answer.dynamic_metadata = Some(metadata(request, &findings, &answer));
        }
        Ok(answer)
    }

    /// The span of what comes next, if anything is to be charged.
    fn store_call<'t>(&self, trace: &'t Trace, due: &[Due<'_>]) -> Option<StoreCall<'t>> {
        let (kind, has_second) = match &*self.store {
            Store::Memory(_) => (StoreKind::Memory, false),
            Store::Redis(pair) => (StoreKind::Redis, pair.per_second.is_some()),
        };
        let is_per_second = |due: &&Due<'_>| has_second && due.limit.window.secs() == 1;
        let n = traces::Charges { all: due.len(), per_second: due.iter().filter(is_per_second).count() };
        (n.all > 0).then(|| trace.store_call(kind, n))
    }

    fn together(&self, rules: &RuleSet, request: &Request) -> Together {
        let admitted_only = self.shared.options.charging == Charging::Admitted
            || rules.charging(&request.domain) == Charging::Admitted;
        if admitted_only { Together::AllOrNothing } else { Together::No }
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
            let options = &self.shared.options;
            match options.key_style {
                KeyStyle::Tidegate => CounterKey::new(&options.key_prefix, &request.domain, entries, limit),
                KeyStyle::Envoyproxy => CounterKey::envoyproxy(&options.key_prefix, &request.domain, entries),
            }
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
        self.shared.metrics.unknown_domain();
        Found::Nothing
    }

    /// Step 10: the rules' own counters, and one for all overrides.
    fn record(&self, rules: &RuleSet, request: &Request, findings: &[Finding<'_>], now: UnixMicros) {
        let metrics = &self.shared.metrics;
        for (finding, descriptor) in findings.iter().zip(&request.descriptors) {
            let Some((verdict, hits)) = decision::tally(finding, &self.shared.options.modes) else {
                continue;
            };
            let rule = match finding {
                Finding::Counted { rule, .. } => *rule,
                Finding::NoRule | Finding::Unlimited => None,
            };
            rule.map_or(&metrics.overrides, |rule| &rule.counters).record(verdict, hits);
            if let Some(names) = metrics.names()
                && let Some(name) = name_in_statistics(rules, rule, request, descriptor)
            {
                names.decided(name, hits, now);
            }
        }
        if let Some(names) = metrics.names()
            && findings.iter().all(|finding| matches!(finding, Finding::NoRule))
            && !rules.has_domain(&request.domain)
        {
            let n = u64::try_from(findings.len()).unwrap_or(u64::MAX);
            names.unknown_domain(&request.domain, n, now);
        }
    }

    /// Which keys are asked for, and which are refused.
    fn sketch(&self, due: &[Due<'_>], charges: &Charges<'_>, now: UnixMicros) {
        let Some(sketch) = &self.sketch else { return };
        let seen =
            due.iter().zip(&charges.asked).zip(&charges.outcomes).map(|((due, charge), outcome)| Seen {
                key: &due.key,
                rule: due.rule.map(|rule| &rule.counters),
                hits: charge.cost.hits().get(),
                refused: matches!(outcome.charged, Ok(charged) if !charged.admitted),
            });
        sketch.record(now, seen);
    }

    /// leaky_bucket: an admitted request waits for the latest of its slots; a refused one gives its slots back. What is in
    /// shadow mode holds nobody.
    async fn hold_or_give_back(
        &self,
        due: &[Due<'_>],
        charges: &Charges<'_>,
        answer: &Answer,
        now: UnixMicros,
    ) {
        let mut longest = Duration::ZERO;
        let mut slots: SmallVec<[usize; 4]> = SmallVec::new();
        for (place, (charge, outcome)) in charges.asked.iter().zip(&charges.outcomes).enumerate() {
            if let (Algorithm::LeakyBucket { .. }, Cost::Charge(_), Ok(charged)) =
                (outcome.limit.algorithm, charge.cost, &outcome.charged)
                && charged.admitted
            {
                let is_shadow = due.get(place).and_then(|due| due.rule).is_some_and(|rule| rule.shadow_mode);
                if !is_shadow && !self.shared.options.modes.shadow {
                    longest = longest.max(charged.delay);
                }
                slots.push(place);
            }
        }
        if answer.overall == Code::Ok {
            if !longest.is_zero() {
                tokio::time::sleep(longest).await;
            }
        } else if !charges.spared {
            charges.give_back(&slots, (&self.shared, &self.store), now);
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

/// The name under which statistics count a decision; `None` for a rule that is counted under its full key, by itself.
fn name_in_statistics(
    rules: &RuleSet,
    rule: Option<&Rule>,
    request: &Request,
    descriptor: &Descriptor,
) -> Option<StatKey> {
    match rule {
        None => Some(StatKey::entries(&request.domain, &descriptor.entries)),
        Some(rule) if rule.names_values() => {
            let name = rules.stat_key(&request.domain, &descriptor.entries);
            Some(name.unwrap_or_else(|| StatKey::rule(rule)))
        }
        Some(_) => None,
    }
}

fn cost_of(request: &Request, index: usize) -> Cost {
    request.descriptors.get(index).map_or(Cost::Peek, |descriptor| descriptor.cost)
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
