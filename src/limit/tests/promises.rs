//! What a caller may rely on, whatever the algorithm: resets are honest, what remains can be had, refunds give back.

use super::*;

/// The most that one charge can ever get.
fn whole(limit: &Limit) -> u64 {
    match limit.algorithm {
        Algorithm::LeakyBucket { .. } => u64::from(limit.requests_per_unit),
        _ => Scale::of(limit).capacity().get(),
    }
}

fn any_limits() -> impl Strategy<Value = Limit> {
    let numbers = prop_oneof![Just(0), 1_u32..10, any::<u32>(), Just(u32::MAX)];
    let secs = prop_oneof![Just(1), Just(60), 1_u32..=3_153_600_000, Just(3_153_600_000)];
    let delays = prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        any::<u32>().prop_map(|n| Duration::from_micros(u64::from(n)))
    ];
    (numbers.clone(), secs, numbers, delays, 0..5).prop_map(|(requests, secs, burst, max_delay, n)| {
        let algorithm = match n {
            0 => Algorithm::FixedWindow,
            1 => Algorithm::SlidingWindow,
            2 => Algorithm::SlidingLog,
            3 => Algorithm::TokenBucket { burst },
            _ => Algorithm::LeakyBucket { burst, max_delay },
        };
        limit(requests, secs, algorithm)
    })
}

proptest! {
    #[test]
    fn a_refused_cost_fits_after_the_reset_and_not_before(
        limit in small_limits(),
        history in histories(1_000_000),
        cost in 1_u64..12,
        max_wait in prop_oneof![Just(Duration::MAX), (0_u64..500_000).prop_map(Duration::from_micros)],
    ) {
        let (mut state, now) = after(&limit, &history);
        let at = |micros: u128, state: &mut State| {
            let moment = UnixMicros::new(now + u64::try_from(micros).unwrap());
            state.charge(&limit, moment, hits(cost), max_wait)
        };
        let refused = at(0, &mut state);
        if refused.admitted {
            return Ok(());
        }
        let reset = refused.reset_after.as_micros();
        prop_assert!(reset > 0);
        let fits = cost <= whole(&limit);
        prop_assert!(!at(reset - 1, &mut state.clone()).admitted);
        prop_assert_eq!(at(reset, &mut state.clone()).admitted, fits);
        if !fits && limit.algorithm != Algorithm::FixedWindow {
            prop_assert_eq!(refused.reset_after, limit.window.length());
        }
    }

    #[test]
    fn after_the_reset_of_an_admitted_cost_the_counter_is_as_new(
        limit in small_limits(), history in histories(1_000_000), cost in costs(),
    ) {
        let (mut state, now) = after(&limit, &history);
        let charged = charge(&mut state, &limit, now, cost);
        if !charged.admitted {
            return Ok(());
        }
        let (scale, end) = (Scale::of(&limit), now + u64::try_from(charged.reset_after.as_micros()).unwrap());
        prop_assert_eq!(state.used(scale, UnixMicros::new(end)), Hits::ZERO);
        if state.is_empty() {
            prop_assert_eq!(charged.used_after, Hits::ZERO);
            prop_assert_eq!(state.expires_at(scale), UnixMicros::new(0));
        } else {
            prop_assert!(charged.reset_after > Duration::ZERO);
            prop_assert_eq!(state.expires_at(scale).get(), end);
            prop_assert!(state.used(scale, UnixMicros::new(end - 1)) > Hits::ZERO);
        }
    }

    #[test]
    fn what_remains_can_be_had_and_not_one_more(limit in small_limits(), history in histories(1_000_000)) {
        let (mut state, now) = after(&limit, &history);
        let remaining = charge(&mut state, &limit, now, Cost::Peek).remaining.get();
        if matches!(limit.algorithm, Algorithm::LeakyBucket { .. }) {
            for _ in 0..remaining {
                prop_assert!(charge(&mut state, &limit, now, hits(1)).admitted);
            }
            if remaining < u64::from(limit.requests_per_unit) {
                prop_assert!(!charge(&mut state, &limit, now, hits(1)).admitted);
            }
        } else {
            prop_assert!(!charge(&mut state.clone(), &limit, now, hits(remaining + 1)).admitted);
            if remaining > 0 {
                let all = charge(&mut state, &limit, now, hits(remaining));
                prop_assert!(all.admitted);
                prop_assert_eq!(all.remaining, Hits::ZERO);
            }
        }
    }

    #[test]
    fn what_remains_only_shrinks_while_time_stands_still(
        limit in small_limits(), history in histories(1_000_000), charges in vec(1_u64..4, 0..20),
    ) {
        let (mut state, now) = after(&limit, &history);
        let mut before = charge(&mut state, &limit, now, Cost::Peek).remaining;
        for cost in charges {
            let charged = charge(&mut state, &limit, now, hits(cost));
            prop_assert!(charged.remaining <= before);
            prop_assert!(charged.used_after >= charged.used_before.plus(Hits::new(cost)));
            before = charged.remaining;
        }
    }

    #[test]
    fn a_refund_undoes_its_charge_and_a_peek_does_nothing(
        limit in small_limits(), history in histories(1_000_000), cost in 1_u64..5,
    ) {
        let (mut state, now) = after(&limit, &history);
        let peeked = charge(&mut state, &limit, now, Cost::Peek);
        prop_assert_eq!(charge(&mut state, &limit, now, Cost::Peek), peeked);
        if charge(&mut state, &limit, now, hits(cost)).admitted {
            let refunded = charge(&mut state, &limit, now, refund(cost));
            prop_assert!(refunded.admitted);
            prop_assert_eq!((refunded.used_after, refunded.remaining), (peeked.used_after, peeked.remaining));
        }
        let emptied = charge(&mut state, &limit, now, refund(u64::MAX));
        prop_assert_eq!(emptied.used_after, Hits::ZERO);
        prop_assert!(state.is_empty());
        prop_assert_eq!(charge(&mut state, &limit, now, Cost::Peek).used_before, Hits::ZERO);
    }

    /// Nothing overflows (the test build would panic), whatever the numbers; and the moments stay below 2^53.
    #[test]
    fn every_limit_can_be_charged_at_every_moment(
        mut limits in vec(any_limits(), 1..3),
        charges in vec((0_u64..1 << 53, prop_oneof![costs(), any::<u64>().prop_map(hits), any::<u64>().prop_map(refund)], any::<u32>()), 1..30),
    ) {
        let mut state = State::new(&limits[0]);
        // The last one is charged near one moment, as real ones are.
        limits.push(limits[0]);
        for (n, (at, cost, wait)) in charges.into_iter().enumerate() {
            let limit = &limits[n % limits.len()];
            let at = if n % 2 == 0 { START + at % 1_000_000 } else { at };
            let charged = state.charge(limit, UnixMicros::new(at), cost, Duration::from_micros(u64::from(wait)));
            let most = whole(limit);
            prop_assert!(charged.remaining.get() <= most);
            if limit.requests_per_unit == 0 {
                prop_assert!(!charged.admitted || cost.hits() == Hits::ZERO);
            }
            if charged.admitted {
                prop_assert!(cost.hits().get() <= most);
            }
            let scale = Scale::of(limit);
            prop_assert!(state.used(scale, UnixMicros::new(at)) <= scale.capacity());
            if at == START {
                prop_assert!(state.expires_at(scale).get() < 1 << 53);
            }
        }
    }

    #[test]
    fn a_changed_limit_counts_on(
        before in small_limits(), history in histories(0), requests in 0_u32..30,
    ) {
        let (mut state, now) = after(&before, &history);
        let used = state.used(Scale::of(&before), UnixMicros::new(now));
        let changed = Limit { requests_per_unit: requests, ..before };
        let peeked = charge(&mut state, &changed, now, Cost::Peek);
        match before.algorithm {
            // A fixed window may have counted more than `used`, which ends at the capacity.
            Algorithm::FixedWindow => prop_assert!(peeked.used_before >= used),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => prop_assert_eq!(peeked.used_before, used),
            Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } => {
                prop_assert!(peeked.used_before <= Scale::of(&changed).capacity());
            }
        }
        prop_assert!(peeked.remaining.get() <= whole(&changed));
    }
}
