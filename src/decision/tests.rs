use super::*;
use crate::{
    limit::{Algorithm, Unit, Window},
    rules::{Grant, Place, RuleCounters},
};

fn limit(n: u32) -> Limit {
    Limit { requests_per_unit: n, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow }
}

fn rule(shadow_mode: bool, quota_mode: bool) -> Rule {
    Rule {
        full_key: "d.k".into(),
        ends: [1, 3].into(),
        grant: Grant::Limited(limit(10)),
        name: None,
        replaces: Box::default(),
        shadow_mode,
        quota_mode,
        detailed_metric: false,
        value_to_metric: false,
        on_store_failure: None,
        lease: crate::rules::Leasing::Auto,
        metadata: None,
        place: Place { file: "limits.yaml".into(), line: 1 },
        counters: Arc::new(RuleCounters::default()),
    }
}

/// A fixed window of `limit` that stood at `before` and is charged `cost`.
fn charged(n: u32, before: u64, cost: u64) -> Charged {
    let after = before + cost;
    Charged {
        admitted: after <= u64::from(n),
        used_before: Hits::new(before),
        used_after: Hits::new(after),
        remaining: Hits::new(u64::from(n)).minus(Hits::new(after)),
        reset_after: Duration::from_millis(57_200),
        delay: Duration::ZERO,
    }
}

fn counted(rule: Option<&Rule>, n: u32, before: u64, cost: u64) -> Finding<'_> {
    Finding::Counted {
        limit: limit(n),
        rule,
        cost: Hits::new(cost),
        charged: Ok(charged(n, before, cost)),
        by: By::Store,
    }
}

fn overall_of(findings: &[Finding<'_>], modes: &Modes) -> Code {
    decide(findings, modes).expect("no store failed").overall
}

fn named() -> HeaderNames {
    HeaderNames {
        limit: Some(LimitHeaders { limit: "L".into(), remaining: "R".into(), reset: "T".into() }),
        retry_after: Some("retry-after".into()),
    }
}

#[test]
fn one_status_for_each_descriptor_in_order() {
    let rule = rule(false, false);
    let findings = [
        Finding::NoRule,
        counted(Some(&rule), 10, 3, 1),
        Finding::Unlimited,
        counted(Some(&rule), 10, 10, 1),
    ];
    let answer = decide(&findings, &Modes::default()).unwrap();
    let shown: Vec<_> = answer
        .statuses
        .iter()
        .map(|s| (s.code, s.limit.is_some(), s.remaining, s.reset_after.is_some()))
        .collect();
    assert_eq!(
        shown,
        [
            (Code::Ok, false, 0, false),
            (Code::Ok, true, 6, true),
            (Code::Ok, false, u32::MAX, false),
            (Code::OverLimit, true, 0, true)
        ]
    );
    assert_eq!(answer.overall, Code::OverLimit);
    assert!(answer.headers.is_empty());
}

#[test]
fn a_shadow_rule_answers_ok_and_spares_no_other() {
    let (shadow, enforced) = (rule(true, false), rule(false, false));
    let over = || counted(Some(&shadow), 1, 5, 1);
    let answer = decide(&[over()], &Modes::default()).unwrap();
    assert_eq!(
        (answer.overall, answer.statuses[0].code, answer.statuses[0].remaining),
        (Code::Ok, Code::Ok, 0)
    );
    assert_eq!(overall_of(&[over(), counted(Some(&enforced), 1, 1, 1)], &Modes::default()), Code::OverLimit);
}

#[test]
fn global_shadow_mode_changes_the_overall_code_only() {
    let modes = Modes { shadow: true, headers: named(), ..Modes::default() };
    let answer = decide(&[counted(None, 1, 1, 1)], &modes).unwrap();
    assert_eq!((answer.overall, answer.statuses[0].code), (Code::Ok, Code::OverLimit));
    let names: Vec<_> = answer.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["L", "R", "T"], "the headers tell, but nobody is asked to retry");
}

#[test]
fn quota_rules_refuse_only_all_together() {
    let (quota, hard) = (rule(false, true), rule(false, false));
    let (over, room) = (|| counted(Some(&quota), 1, 1, 1), || counted(Some(&quota), 9, 1, 1));
    let modes = Modes::default();
    assert_eq!(overall_of(&[over()], &modes), Code::OverLimit);
    assert_eq!(overall_of(&[over(), room()], &modes), Code::Ok);
    assert_eq!(overall_of(&[over(), over()], &modes), Code::OverLimit);
    assert_eq!(overall_of(&[counted(Some(&hard), 9, 1, 1), over()], &modes), Code::OverLimit);
    assert_eq!(overall_of(&[room(), counted(Some(&hard), 1, 1, 1)], &modes), Code::OverLimit);
    assert_eq!(overall_of(&[over(), Finding::Unlimited], &modes), Code::OverLimit);
}

#[test]
fn with_global_quota_mode_an_unmatched_descriptor_counts_as_passing() {
    let modes = Modes { quota: true, ..Modes::default() };
    assert_eq!(overall_of(&[counted(None, 1, 1, 1)], &modes), Code::OverLimit);
    assert_eq!(overall_of(&[counted(None, 1, 1, 1), Finding::NoRule], &modes), Code::Ok);
}

#[test]
fn headers_show_the_tightest_limit() {
    let (hard, quota) = (rule(false, false), rule(false, true));
    let modes = Modes { headers: named(), ..Modes::default() };
    let show = |findings: &[Finding<'_>]| -> Vec<u64> {
        decide(findings, &modes).unwrap().headers.iter().map(|(_, n)| *n).collect()
    };
    assert_eq!(show(&[Finding::NoRule, Finding::Unlimited]), Vec::<u64>::new());
    assert_eq!(
        show(&[
            counted(Some(&hard), 9, 3, 1),
            Finding::NoRule,
            counted(Some(&hard), 7, 4, 1),
            counted(None, 3, 0, 1)
        ]),
        [7, 2, 58],
        "the first of the two with 2 left"
    );
    assert_eq!(
        show(&[counted(Some(&hard), 5, 5, 1), counted(Some(&hard), 6, 6, 1), counted(Some(&quota), 7, 7, 1)]),
        [6, 0, 58, 58],
        "the last refusal that is not a quota rule's, and when to come back"
    );
}

fn failed(rule: Option<&Rule>, says: FailureSays) -> Finding<'_> {
    let failure = StoreFailure { error: StoreError::Unavailable, says };
    Finding::Counted { limit: limit(10), rule, cost: Hits::new(1), charged: Err(failure), by: By::Store }
}

#[test]
fn a_store_failure_is_not_a_refusal() {
    let (enforced, shadow) = (rule(false, false), rule(true, false));
    let error = |rule| failed(Some(rule), FailureSays::Error);
    assert_eq!(decide(&[error(&enforced)], &Modes::default()), Err(StoreError::Unavailable));
    assert_eq!(
        tally(&error(&enforced), &Modes::default()),
        Some((Verdict::StoreFailure, Counted { total: 1, ..Counted::default() })),
        "hits are counted before the store is asked"
    );
    for says in [FailureSays::Error, FailureSays::Allow, FailureSays::Deny] {
        let answer = decide(&[failed(Some(&shadow), says)], &Modes::default()).unwrap();
        assert_eq!(
            (answer.overall, answer.statuses[0].code),
            (Code::Ok, Code::Ok),
            "{says:?} in shadow mode"
        );
    }
    let modes = Modes { shadow: true, ..Modes::default() };
    assert_eq!(overall_of(&[error(&enforced)], &modes), Code::Ok, "nothing is enforced");
}

#[test]
fn a_rule_may_allow_or_deny_without_its_counter() {
    let modes = Modes { headers: named(), ..Modes::default() };
    let allowed = decide(&[failed(None, FailureSays::Allow), counted(None, 9, 1, 1)], &modes).unwrap();
    assert_eq!((allowed.overall, allowed.statuses[0].code), (Code::Ok, Code::Ok));
    assert!(allowed.statuses[0].limit.is_none(), "nothing is known of it");
    assert_eq!(allowed.headers[0].1, 9, "the limit that is known is the tightest");

    let denied = decide(&[failed(None, FailureSays::Deny)], &modes).unwrap();
    assert_eq!((denied.overall, denied.statuses[0].code), (Code::OverLimit, Code::OverLimit));
    let retry_after = denied.headers.last().unwrap();
    assert_eq!((&*retry_after.0, retry_after.1), ("retry-after", 1));
}

#[test]
fn of_several_outcomes_a_refusal_wins_then_a_denial_then_an_error() {
    let (error, deny) = (|| failed(None, FailureSays::Error), || failed(None, FailureSays::Deny));
    let (over, room) = (|| counted(None, 1, 1, 1), || counted(None, 9, 1, 1));
    let modes = Modes::default();
    let codes = |findings: &[Finding<'_>]| {
        decide(findings, &modes).map(|answer| answer.statuses.iter().map(|s| s.code).collect::<Vec<_>>())
    };
    assert_eq!(codes(&[error(), over()]), Ok(vec![Code::Ok, Code::OverLimit]));
    assert_eq!(codes(&[error(), deny()]), Ok(vec![Code::Ok, Code::OverLimit]));
    assert_eq!(codes(&[room(), error(), failed(None, FailureSays::Allow)]), Err(StoreError::Unavailable));
    let shadow = rule(true, false);
    assert_eq!(
        codes(&[error(), counted(Some(&shadow), 1, 1, 1)]),
        Err(StoreError::Unavailable),
        "a shadow rule refuses nothing"
    );
    let quota = rule(false, true);
    let (denied, failed) =
        (failed(Some(&quota), FailureSays::Deny), failed(Some(&quota), FailureSays::Error));
    assert_eq!(codes(&[denied.clone(), counted(Some(&quota), 9, 1, 1)]).map(|_| ()), Ok(()));
    assert_eq!(codes(&[denied, failed]), Err(StoreError::Unavailable), "quota rules refuse all together");
}

#[test]
fn hits_are_split_as_the_reference_splits_them() {
    let split = |n, before, cost| {
        let (verdict, c) = tally(&counted(None, n, before, cost), &Modes::default()).unwrap();
        (verdict, [c.total, c.over_limit, c.near_limit, c.within_limit])
    };
    for (n, before, cost, verdict, expected) in [
        (15, 10, 1, Verdict::Ok, [1, 0, 0, 1]),
        (15, 12, 1, Verdict::Ok, [1, 0, 1, 1]),
        (15, 15, 1, Verdict::OverLimit, [1, 1, 0, 0]),
        (20, 2, 3, Verdict::Ok, [3, 0, 0, 3]),
        (8, 5, 2, Verdict::Ok, [2, 0, 1, 2]),
        (20, 16, 3, Verdict::Ok, [3, 0, 3, 3]),
        (20, 19, 3, Verdict::OverLimit, [3, 2, 1, 0]),
        (20, 15, 7, Verdict::OverLimit, [7, 2, 4, 0]),
        (10, 27, 3, Verdict::OverLimit, [3, 3, 0, 0]),
        (0, 0, 1, Verdict::OverLimit, [1, 1, 0, 0]),
    ] {
        assert_eq!(split(n, before, cost), (verdict, expected), "limit {n}, {before} + {cost}");
    }
    assert_eq!(NearLimitRatio(0.8).of(u32::MAX), 3_435_973_888, "a product of 32-bit floats");
    assert_eq!(tally(&Finding::Unlimited, &Modes::default()), None);
}

#[test]
fn a_bucket_is_measured_by_its_capacity_and_counts_nothing_that_it_refuses() {
    let bucket = Limit { algorithm: Algorithm::TokenBucket { burst: 50 }, ..limit(10) };
    let split = |before, cost| {
        let charged = Charged { admitted: before + cost <= 50, ..charged(50, before, cost) };
        let finding = Finding::Counted {
            limit: bucket,
            rule: None,
            cost: Hits::new(cost),
            charged: Ok(charged),
            by: By::Store,
        };
        let (_, c) = tally(&finding, &Modes::default()).unwrap();
        [c.total, c.over_limit, c.near_limit, c.within_limit]
    };
    assert_eq!(split(12, 1), [1, 0, 0, 1]);
    assert_eq!(split(40, 2), [2, 0, 2, 2]);
    assert_eq!(split(48, 3), [3, 3, 0, 0], "all of a refused cost is over");
}

#[test]
fn what_global_shadow_mode_spares_is_not_called_refused() {
    let modes = Modes { shadow: true, ..Modes::default() };
    let (verdict, counted) = tally(&counted(None, 1, 1, 1), &modes).unwrap();
    assert_eq!((verdict, counted.over_limit, counted.shadow_mode), (Verdict::Shadow, 1, 0));
}

#[test]
fn shadow_hits_are_over_limit_hits_too() {
    let shadow = rule(true, false);
    let (verdict, counted) = tally(&counted(Some(&shadow), 5, 4, 3), &Modes::default()).unwrap();
    assert_eq!(verdict, Verdict::Shadow);
    assert_eq!((counted.over_limit, counted.shadow_mode, counted.near_limit), (2, 2, 1));
}

/// The reference's `over_limit_with_local_cache`, in shadow mode too.
#[test]
fn what_is_refused_from_memory_is_told_apart() {
    let shadow = rule(true, false);
    for rule in [None, Some(&shadow)] {
        let mut finding = counted(rule, 5, 5, 3);
        for (said_by, from_memory) in [(By::Store, 0), (By::Memo, 3)] {
            if let Finding::Counted { by, .. } = &mut finding {
                *by = said_by;
            }
            let (_, c) = tally(&finding, &Modes::default()).unwrap();
            assert_eq!((c.total, c.over_limit, c.over_limit_with_local_cache), (3, 3, from_memory));
            assert_eq!(c.shadow_mode, if rule.is_some() { 3 } else { 0 });
        }
    }
}
