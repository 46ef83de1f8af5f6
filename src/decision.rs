//! From what the counters said to what Envoy is told: one status per descriptor, the overall code, the headers.
//! Pure: no clock, no store, no wire.
//!
//! **Invariant:** `statuses.len()` equals the number of descriptors, in their order. An unlimited or unmatched descriptor
//! never refuses, and a rule in shadow mode never does.

mod metadata;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

pub use metadata::dynamic_metadata;

use crate::{
    limit::{Algorithm, Charged, Hits, Limit, Scale},
    rules::{Counted, Rule, Verdict},
    store::StoreError,
};

/// What a rule that grants without limit reports as remaining.
const UNLIMITED_REMAINING: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Ok,
    OverLimit,
}

/// The limit that a status is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLimit {
    pub limit: Limit,
    /// The rule's `name`, if it has one.
    pub name: Option<Arc<str>>,
}

/// What is said about one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    pub limit: Option<CurrentLimit>,
    pub remaining: u32,
    pub reset_after: Option<Duration>,
}

/// A response header: its name, as configured, and a number. Nothing that a client sent.
pub type Header = (Arc<str>, u64);

/// What is said about one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub overall: Code,
    pub statuses: SmallVec<[Status; 4]>,
    pub headers: SmallVec<[Header; 4]>,
    pub dynamic_metadata: Option<crate::rules::Metadata>,
}

/// The modes and names that hold for every rule of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modes {
    /// Refuse nothing: the overall code is OK, the statuses stay as they are.
    pub shadow: bool,
    /// Treat every descriptor as one of a quota rule.
    pub quota: bool,
    pub near_limit_ratio: NearLimitRatio,
    pub headers: HeaderNames,
    pub dynamic_metadata: bool,
}

/// From which share of a limit on hits count as near it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearLimitRatio(pub f32);

impl Default for NearLimitRatio {
    /// The reference's default.
    fn default() -> Self {
        Self(0.8)
    }
}

impl NearLimitRatio {
    /// The threshold in hits. The product is one of 32-bit floats, as the reference computes it.
    fn of(self, limit: u32) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "the reference rounds the limit to a 32-bit float here"
        )]
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and NaN is zero"
        )]
        let threshold = (limit as f32 * self.0).floor() as u64;
        threshold
    }
}

/// Which headers an answer carries, and under which names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    pub limit: Option<LimitHeaders>,
    /// On a refusal: seconds until the refused costs fit.
    pub retry_after: Option<Arc<str>>,
}

/// The names of the three headers that show the tightest limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitHeaders {
    pub limit: Arc<str>,
    pub remaining: Arc<str>,
    pub reset: Arc<str>,
}

/// A counter that could not be charged, and what its rule says then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    pub error: StoreError,
    pub says: FailureSays,
}

/// What a rule says without its counter. A rule that is counted locally then has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureSays {
    /// Nothing: the request fails, unless it is refused anyway.
    Error,
    Allow,
    Deny,
}

/// After how long a caller may ask again who was denied because the store was away: it may be back any moment.
const DENIED_FOR: Duration = Duration::from_secs(1);

/// Who said what came of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Store,
    /// This node alone, because the store could not.
    Node,
    /// The refusal memo: the store was not asked.
    Memo,
    /// This node, out of hits that the store had debited before.
    Lease,
}

/// What is known about one descriptor once the counters were asked.
#[derive(Clone, Debug)]
pub enum Finding<'r> {
    /// No rule applies, or the one that does was replaced.
    NoRule,
    Unlimited,
    Counted {
        limit: Limit,
        rule: Option<&'r Rule>,
        cost: Hits,
        charged: Result<Charged, StoreFailure>,
        by: By,
    },
}

impl Finding<'_> {
    /// Whether a rule decides here that is counted and not enforced.
    pub fn is_shadow(&self) -> bool {
        matches!(self, Self::Counted { rule: Some(rule), .. } if rule.shadow_mode)
    }

    /// Why there is no answer, if this is what its rule says.
    fn error(&self, modes: &Modes) -> Option<StoreError> {
        match self {
            Self::Counted { charged: Err(StoreFailure { error, says: FailureSays::Error }), .. }
                if !self.is_shadow() && !modes.shadow =>
            {
                Some(*error)
            }
            _ => None,
        }
    }

    fn is_quota(&self) -> bool {
        matches!(self, Self::Counted { rule: Some(rule), .. } if rule.quota_mode)
    }
}

/// Decides one request. Of several outcomes a refusal wins, be it by a counter or because the store is away and its rule
/// denies then; then an error; a failure under a rule that is not enforced changes nothing.
///
/// Fails when a counter could not be charged whose rule has nothing else to say: an outage is never a refusal.
pub fn decide(findings: &[Finding<'_>], modes: &Modes) -> Result<Answer, StoreError> {
    let statuses: SmallVec<[Status; 4]> = findings.iter().map(status).collect();
    let refused = overall(findings, &statuses, modes) == Code::OverLimit;
    if !refused && let Some(error) = findings.iter().find_map(|finding| finding.error(modes)) {
        return Err(error);
    }
    let enforced = refused && !modes.shadow;
    let mut headers = SmallVec::new();
    if let Some(names) = &modes.headers.limit {
        limit_headers(names, findings, &statuses, modes, &mut headers);
    }
    if let Some(name) = modes.headers.retry_after.as_ref().filter(|_| enforced) {
        headers.extend(retry_after(&statuses).map(|secs| (Arc::clone(name), secs)));
    }
    Ok(Answer {
        overall: if enforced { Code::OverLimit } else { Code::Ok },
        statuses,
        headers,
        dynamic_metadata: None,
    })
}

/// Whether the request is over its limits, enforced or not. `statuses` are those that [`decide`] made of `findings`.
pub fn is_refused(findings: &[Finding<'_>], statuses: &[Status], modes: &Modes) -> bool {
    overall(findings, statuses, modes) == Code::OverLimit
}

/// What the rule's counters record of this finding; `None` for a descriptor that none counts.
pub fn tally(finding: &Finding<'_>, modes: &Modes) -> Option<(Verdict, Counted)> {
    let Finding::Counted { limit, cost, charged, by, .. } = finding else { return None };
    let Ok(charged) = charged else {
        return Some((Verdict::StoreFailure, Counted { total: cost.get(), ..Counted::default() }));
    };
    let verdict = match (charged.admitted, finding.is_shadow() || modes.shadow) {
        (true, _) => Verdict::Ok,
        (false, true) => Verdict::Shadow,
        (false, false) => Verdict::OverLimit,
    };
    let mut counted = split(limit, cost.get(), charged, modes.near_limit_ratio);
    if finding.is_shadow() {
        counted.shadow_mode = counted.over_limit;
    }
    if *by == By::Memo {
        counted.over_limit_with_local_cache = counted.over_limit;
    }
    Some((verdict, counted))
}

/// Where the hits of one charge fell. The reference's formulas, with the capacity of a bucket in the place of the limit: what
/// a window refuses is counted in it, and the part below the limit was near it; what the others refuse was never counted.
fn split(limit: &Limit, hits: u64, charged: &Charged, ratio: NearLimitRatio) -> Counted {
    let capacity = Scale::of(limit).capacity().get();
    let near = ratio.of(u32::try_from(capacity).unwrap_or(u32::MAX));
    let (before, after) = (charged.used_before.get(), charged.used_after.get());
    let mut counted = Counted { total: hits, ..Counted::default() };
    if charged.admitted {
        counted.within_limit = hits;
        if after > near {
            counted.near_limit = if before >= near { hits } else { after - near };
        }
        return counted;
    }
    if limit.algorithm == Algorithm::FixedWindow && before < capacity {
        counted.over_limit = after.saturating_sub(capacity).min(hits);
        counted.near_limit = capacity - near.max(before).min(capacity);
    } else {
        counted.over_limit = hits;
    }
    counted
}

/// Whether this status lets the rule's metadata through: passed, and counted by a rule.
pub fn passed(finding: &Finding<'_>, status: &Status) -> bool {
    matches!(finding, Finding::Counted { .. }) && status.code == Code::Ok
}

fn status(finding: &Finding<'_>) -> Status {
    // Nothing is known, so nothing is said.
    let pass = Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None };
    let (limit, rule, charged) = match finding {
        Finding::NoRule => return pass,
        Finding::Unlimited => return Status { remaining: UNLIMITED_REMAINING, ..pass },
        Finding::Counted { limit, rule, charged, .. } => (limit, rule, charged),
    };
    let shadow = finding.is_shadow();
    let (code, remaining, reset_after) = match charged {
        Ok(charged) if charged.admitted => (Code::Ok, saturate(charged.remaining), charged.reset_after),
        Ok(charged) => (if shadow { Code::Ok } else { Code::OverLimit }, 0, charged.reset_after),
        Err(failure) if failure.says == FailureSays::Deny && !shadow => (Code::OverLimit, 0, DENIED_FOR),
        Err(_) => return pass,
    };
    let name = rule.and_then(|rule| rule.name.clone());
    let limit = Some(CurrentLimit { limit: *limit, name });
    Status { code, limit, remaining, reset_after: Some(reset_after) }
}

/// A refusal by any rule refuses, but quota rules refuse only all together. With the process's quota mode every
/// descriptor is of a quota rule, also one that no rule matched (it passes), as in the reference.
fn overall(findings: &[Finding<'_>], statuses: &[Status], modes: &Modes) -> Code {
    let (mut quotas, mut failed_quotas) = (0_usize, 0_usize);
    for (finding, status) in findings.iter().zip(statuses) {
        if matches!(finding, Finding::Unlimited) {
            continue;
        }
        let (over, quota) = (status.code == Code::OverLimit, modes.quota || finding.is_quota());
        if over && !quota {
            return Code::OverLimit;
        }
        quotas += usize::from(quota);
        failed_quotas += usize::from(over);
    }
    if quotas > 0 && failed_quotas == quotas { Code::OverLimit } else { Code::Ok }
}

/// The tightest status: the last refusal by a rule that is not a quota rule, else the first with the least remaining.
fn limit_headers(
    names: &LimitHeaders,
    findings: &[Finding<'_>],
    statuses: &[Status],
    modes: &Modes,
    headers: &mut SmallVec<[Header; 4]>,
) {
    let mut tightest: Option<(&Status, &CurrentLimit)> = None;
    let mut least = u32::MAX;
    for (finding, status) in findings.iter().zip(statuses) {
        let Some(limit) = &status.limit else { continue };
        let vetoes = status.code == Code::OverLimit && !modes.quota && !finding.is_quota();
        if vetoes || status.remaining < least {
            least = status.remaining;
            tightest = Some((status, limit));
        }
    }
    let Some((status, current)) = tightest else { return };
    headers.push((Arc::clone(&names.limit), u64::from(current.limit.requests_per_unit)));
    headers.push((Arc::clone(&names.remaining), u64::from(status.remaining)));
    headers.push((Arc::clone(&names.reset), status.reset_after.map_or(0, whole_seconds)));
}

/// Seconds until the last of the refused costs fits, at least one; `None` when nothing was refused.
fn retry_after(statuses: &[Status]) -> Option<u64> {
    let refused = statuses.iter().filter(|status| status.code == Code::OverLimit);
    refused.filter_map(|status| status.reset_after).max().map(|span| whole_seconds(span).max(1))
}

/// Rounded up, so that a client that waits so long has waited long enough (Envoy cuts fractions off).
pub fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

fn saturate(hits: Hits) -> u32 {
    u32::try_from(hits.get()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
