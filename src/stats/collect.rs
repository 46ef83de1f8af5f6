//! Every statistic there is, by name and value, as it stands at this moment.

use std::{collections::BTreeMap, sync::Arc};

use super::name;
use crate::{
    limiter::Limiter,
    rls::serve::{Counts, Method},
    rules::{Counted, StatKey},
    store::{Store, redis::RedisStore},
    telemetry::{
        metrics::{CallOutcome, Metrics},
        timing::Timed,
    },
};

/// What stands before the name of everything that a rule counts.
const RULES: &str = "ratelimit.service.rate_limit";

/// The value of a statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Counter(u64),
    Gauge(u64),
    Timer(Box<Timed>),
}

/// Statistics by name, the dots within a part of it hidden.
pub(super) type Collected = BTreeMap<String, Value>;

/// What the statistics are made of.
#[derive(Clone, Debug)]
pub struct Statistics {
    pub limiter: Arc<Limiter>,
    pub metrics: Arc<Metrics>,
    pub counts: Counts,
}

impl Statistics {
    /// Everything, also what is zero. Takes some microseconds for each rule.
    pub(super) fn collect(&self) -> Collected {
        let mut all = Collected::new();
        self.rules(&mut all);
        self.names(&mut all);
        self.service(&mut all);
        self.methods(&mut all);
        self.redis(&mut all);
        self.memo(&mut all);
        all
    }

    /// Rules of one full key share their counters, and each of these is counted once.
    fn rules(&self, all: &mut Collected) {
        let Some(rules) = self.limiter.shared().rules() else { return };
        let mut last = None;
        let mut in_order: Vec<_> = rules.rules().filter(|rule| !rule.names_values()).collect();
        in_order.sort_by_key(|rule| &rule.full_key);
        for rule in in_order {
            if last != Some(&rule.full_key) {
                hits(&StatKey::rule(rule), rule.counters.hits(), all);
            }
            last = Some(&rule.full_key);
        }
    }

    fn names(&self, all: &mut Collected) {
        let Some(names) = self.metrics.names() else { return };
        names.each_hits(|name, counted| hits(name, *counted, all));
        names.each_unknown_domain(|domain, n| {
            add(format!("{RULES}.{}.domain_not_found", name::hidden(domain)), *n, all);
        });
    }

    fn service(&self, all: &mut Collected) {
        let metrics = &self.metrics;
        let (loaded, refused) = metrics.reloads();
        let without_rules = metrics.n_without_rules();
        // What is shed is counted too: to its caller it is an error like the others.
        let errors = [self.counts.invalid(), self.counts.shed(), metrics.n_invalid_json(), without_rules];
        for (name, n) in [
            ("config_load_success", loaded),
            ("config_load_error", refused),
            ("global_shadow_mode", metrics.n_let_through()),
            ("call.should_rate_limit.service_error", errors.into_iter().sum()),
            (
                "call.should_rate_limit.redis_error",
                metrics.calls(CallOutcome::Unavailable).saturating_sub(without_rules),
            ),
        ] {
            add(format!("ratelimit.service.{name}"), n, all);
        }
    }

    fn methods(&self, all: &mut Collected) {
        for method in Method::ALL {
            let of = format!("ratelimit_server.{}", method.name());
            add(format!("{of}.total_requests"), self.counts.calls_of(method), all);
            all.insert(format!("{of}.response_time"), Value::Timer(Box::new(self.counts.timed(method))));
        }
    }

    fn redis(&self, all: &mut Collected) {
        let Store::Redis(pair) = self.limiter.store() else { return };
        pool("redis_pool", &pair.main, all);
        if let Some(per_second) = &pair.per_second {
            pool("redis_per_second_pool", per_second, all);
        }
    }

    /// What the reference's local cache says of itself, as far as remembered refusals have it.
    fn memo(&self, all: &mut Collected) {
        if let Some(memo) = self.limiter.shared().local().memo() {
            all.insert("ratelimit.localcache.hitCount".to_owned(), Value::Gauge(memo.refusals()));
            all.insert("ratelimit.localcache.evacuateCount".to_owned(), Value::Gauge(memo.evictions()));
        }
    }
}

/// The connections of all threads to all servers.
fn pool(name: &str, store: &RedisStore, all: &mut Collected) {
    let (mut open, mut opened, mut closed) = (0, 0, 0);
    for shard in store.shared().shards() {
        open += shard.stats.connections_open();
        opened += shard.stats.connections_opened();
        closed += shard.stats.connections_closed();
    }
    all.insert(format!("ratelimit.{name}.cx_active"), Value::Gauge(open));
    add(format!("ratelimit.{name}.cx_total"), opened, all);
    add(format!("ratelimit.{name}.cx_local_close"), closed, all);
}

fn hits(key: &StatKey, counted: Counted, all: &mut Collected) {
    let key = name::hidden(key);
    for (kind, n) in Counted::NAMES.into_iter().zip(counted.fields()) {
        add(format!("{RULES}.{key}.{kind}"), n, all);
    }
}

/// Adds to a counter: names that read alike once they are cleaned are one.
fn add(name: String, n: u64, all: &mut Collected) {
    if let Value::Counter(sum) = all.entry(name).or_insert(Value::Counter(0)) {
        *sum = sum.wrapping_add(n);
    }
}
