//! Each algorithm against its definition, computed the long way: from the list of all that was admitted, or in exact
//! fractions.

use super::*;

/// A step back from which on all that was counted can be taken as bogus; smaller ones are as likely.
const FAR: i64 = 20_000_000;

/// The window that a hit at `now` belongs to, given that of the last one: a later window is held, one further ahead is
/// forgotten (`None`).
fn attributed(now: u64, length: u64, latest: u64) -> (u64, bool) {
    let n = now / length;
    if latest > n + 1 { (n, true) } else { (n.max(latest), false) }
}

proptest! {
    #[test]
    fn fixed_window_counts_each_window(limit in limits_of(Just(Algorithm::FixedWindow)), history in histories(FAR)) {
        let (length, most) = (limit.window.micros(), u64::from(limit.requests_per_unit));
        let (mut state, mut now) = (State::new(&limit), START);
        // The window that counts, all that was sent in it, and what of it was admitted.
        let (mut window, mut sent, mut admitted) = (0, 0_u64, 0_u64);
        for step in history {
            now = now.saturating_add_signed(step.micros);
            let (belongs, _) = attributed(now, length, if sent == 0 { 0 } else { window });
            if belongs != window {
                (window, sent, admitted) = (belongs, 0, 0);
            }
            let charged = charge(&mut state, &limit, now, step.cost);
            prop_assert_eq!(charged.used_before.get(), sent);
            match step.cost {
                Cost::Charge(n) => {
                    sent = Hits::new(sent).plus(n).get();
                    admitted += if charged.admitted { n.get() } else { 0 };
                }
                Cost::Refund(n) => {
                    sent = sent.saturating_sub(n.get());
                    admitted = admitted.saturating_sub(n.get());
                }
                Cost::Peek => {}
            }
            prop_assert_eq!(charged.admitted, sent <= most);
            prop_assert_eq!(charged.used_after.get(), sent);
            prop_assert_eq!(charged.remaining.get(), most.saturating_sub(sent));
            prop_assert_eq!(charged.reset_after.as_micros(), u128::from((window + 1) * length - now));
            prop_assert!(admitted <= most, "{} of {}", admitted, most);
        }
    }

    #[test]
    fn sliding_window_keeps_to_its_estimate(limit in limits_of(Just(Algorithm::SlidingWindow)), history in histories(FAR)) {
        let (length, most) = (limit.window.micros(), u64::from(limit.requests_per_unit));
        let (mut state, mut now) = (State::new(&limit), START);
        // What was admitted, by window; and the window that the counter was last seen in.
        let mut counts: Vec<(u64, u64)> = Vec::new();
        let mut stands = 0;
        for step in history {
            now = now.saturating_add_signed(step.micros);
            counts.retain(|&(window, n)| n > 0 && window + 1 >= stands);
            if counts.is_empty() {
                stands = 0;
            }
            let (window, forgets) = attributed(now, length, stands);
            if forgets {
                counts.clear();
            }
            stands = window;
            let of = |counts: &[(u64, u64)], w: u64| counts.iter().filter(|c| c.0 == w).map(|c| c.1).sum::<u64>();
            let (current, previous) = (of(&counts, window), of(&counts, window - 1));
            // In units of 1 / length hits.
            let left = length - now.saturating_sub(window * length).min(length);
            let exact = u128::from(current) * u128::from(length) + u128::from(previous) * u128::from(left);
            let charged = charge(&mut state, &limit, now, step.cost);
            let bound = u128::from(most) * u128::from(length);
            // Rounding costs less than one hit and a millionth.
            let rounding = u128::from(length) + u128::from(previous * length / 1_000_000);
            match step.cost {
                Cost::Charge(n) => {
                    let with = exact + u128::from(n.get()) * u128::from(length);
                    // Never more than the fractions allow.
                    prop_assert!(!charged.admitted || with <= bound);
                    prop_assert!(charged.admitted || with + rounding > bound);
                    if charged.admitted {
                        counts.push((window, n.get()));
                        prop_assert!(of(&counts, window) <= most);
                    }
                }
                Cost::Refund(n) => {
                    let mut n = n.get();
                    for w in [window, window - 1] {
                        for count in counts.iter_mut().filter(|count| count.0 == w) {
                            let taken = count.1.min(n);
                            count.1 -= taken;
                            n -= taken;
                        }
                    }
                }
                // After a step back the counts of two windows can weigh more than the limit.
                Cost::Peek => prop_assert!(charged.admitted || exact + rounding > bound),
            }
        }
    }

    #[test]
    fn sliding_window_lets_less_than_twice_through(
        limit in limits_of(Just(Algorithm::SlidingWindow)),
        gaps in vec(prop_oneof![Just(0_u64), 0_u64..300_000, 0_u64..4_000_000], 0..80),
    ) {
        let (mut state, mut now) = (State::new(&limit), START);
        let mut admitted: Vec<u64> = Vec::new();
        for gap in gaps {
            now += gap;
            if charge(&mut state, &limit, now, hits(1)).admitted {
                admitted.push(now);
                let trailing = admitted.iter().filter(|&&at| at + limit.window.micros() > now).count();
                prop_assert!(trailing < 2 * limit.requests_per_unit as usize);
            }
        }
    }

    #[test]
    fn sliding_log_is_the_trailing_window(limit in limits_of(Just(Algorithm::SlidingLog)), history in histories(FAR)) {
        let (length, most) = (limit.window.micros(), u64::from(limit.requests_per_unit));
        let (mut state, mut now) = (State::new(&limit), START);
        // The moment of every hit that was admitted and not given back.
        let mut all: Vec<u64> = Vec::new();
        for step in history {
            now = now.saturating_add_signed(step.micros);
            let newest = all.last().copied().unwrap_or(0);
            if newest > now + length {
                all.clear();
            }
            let moment = now.max(all.last().copied().unwrap_or(0));
            all.retain(|&at| at + length > moment);
            let charged = charge(&mut state, &limit, now, step.cost);
            prop_assert_eq!(charged.used_before.get(), all.len() as u64);
            match step.cost {
                Cost::Charge(n) => {
                    prop_assert_eq!(charged.admitted, all.len() as u64 + n.get() <= most);
                    if charged.admitted {
                        all.extend((0..n.get()).map(|_| moment));
                    }
                }
                Cost::Refund(n) => all.truncate(all.len().saturating_sub(usize::try_from(n.get()).unwrap())),
                Cost::Peek => prop_assert!(charged.admitted),
            }
            prop_assert_eq!(charged.remaining.get(), most - all.len() as u64);
        }
    }

    #[test]
    fn token_bucket_is_a_bucket_of_tokens(limit in limits_of(token_buckets()), history in histories(FAR)) {
        let Algorithm::TokenBucket { burst } = limit.algorithm else { unreachable!() };
        let (length, rate) = (i128::from(limit.window.micros()), i128::from(limit.requests_per_unit));
        let full = i128::from(burst) * length;
        let (mut state, mut now) = (State::new(&limit), START);
        // In units of 1 / length tokens. The strict one loses tokens when the clock steps back, unless it is full; the
        // definition's never does.
        let (mut strict, mut defined) = (full, full);
        for step in history {
            now = now.saturating_add_signed(step.micros);
            strict = if strict < full { (strict + i128::from(step.micros) * rate).clamp(0, full) } else { full };
            defined = (defined + i128::from(step.micros.max(0)) * rate).min(full);
            let charged = charge(&mut state, &limit, now, step.cost);
            prop_assert_eq!(i128::from(charged.used_before.get()), i128::from(burst) - strict / length);
            match step.cost {
                Cost::Charge(n) => {
                    let cost = i128::from(n.get()) * length;
                    prop_assert_eq!(charged.admitted, cost <= strict);
                    if charged.admitted {
                        prop_assert!(cost <= defined);
                        strict -= cost;
                        defined -= cost;
                    }
                }
                Cost::Refund(n) => {
                    let given = i128::from(n.get()) * length;
                    strict = (strict + given).min(full);
                    defined = (defined + given).min(full);
                }
                Cost::Peek => prop_assert!(charged.admitted),
            }
            prop_assert_eq!(i128::from(charged.remaining.get()), strict / length);
        }
    }

    #[test]
    fn leaky_bucket_gives_out_slots(
        limit in limits_of(leaky_buckets()),
        history in histories(FAR),
        max_wait in prop_oneof![Just(u64::MAX), 0_u64..500_000],
    ) {
        let Algorithm::LeakyBucket { burst, max_delay } = limit.algorithm else { unreachable!() };
        let (length, rate) = (u128::from(limit.window.micros()), u128::from(limit.requests_per_unit));
        let capacity = u128::from(limit.requests_per_unit.max(burst + 1));
        let (mut state, mut now) = (State::new(&limit), START);
        // The next free slot, and the moment of the last step, in units of 1 / rate microseconds.
        let (mut free, mut last) = (0_u128, 0_u128);
        for step in history {
            now = now.saturating_add_signed(step.micros);
            let present = u128::from(now) * rate;
            free = if free > last { free.clamp(present, present + capacity * length) } else { present };
            last = present;
            let wait = free - present;
            let charged = state.charge(&limit, UnixMicros::new(now), step.cost, Duration::from_micros(max_wait));
            match step.cost {
                Cost::Charge(n) => {
                    let n = u128::from(n.get());
                    let in_queue = (u128::from(burst) + 1).saturating_sub(n) * length;
                    let patience = u128::from(max_wait).min(max_delay.as_micros()) * rate;
                    prop_assert_eq!(charged.admitted, n <= rate && wait <= in_queue && wait <= patience);
                    if charged.admitted {
                        prop_assert_eq!(charged.delay.as_micros(), wait.div_ceil(rate));
                        free += n * length;
                    }
                }
                Cost::Refund(n) => free = free.saturating_sub(u128::from(n.get()) * length).max(present),
                Cost::Peek => prop_assert!(charged.admitted),
            }
            if !matches!(step.cost, Cost::Charge(_)) || !charged.admitted {
                prop_assert_eq!(charged.delay, Duration::ZERO);
            }
        }
    }

    /// What the definition promises to the upstream, without the oracle's way of counting.
    #[test]
    fn leaky_bucket_spaces_what_it_lets_out(limit in limits_of(leaky_buckets()), gaps in vec(0_u64..400_000, 0..60)) {
        let Algorithm::LeakyBucket { burst, max_delay } = limit.algorithm else { unreachable!() };
        let (mut state, mut now) = (State::new(&limit), START);
        let mut released: Vec<u64> = Vec::new();
        for gap in gaps {
            now += gap;
            let charged = charge(&mut state, &limit, now, hits(1));
            if charged.admitted {
                prop_assert!(charged.delay <= max_delay);
                released.push(now + u64::try_from(charged.delay.as_micros()).unwrap());
                prop_assert!(released.iter().filter(|&&at| at > now).count() <= burst as usize);
            }
        }
        // Released moments are rounded up, each by less than a microsecond.
        let spacing = limit.window.micros() / u64::from(limit.requests_per_unit);
        prop_assert!(released.windows(2).all(|two| two[1] + 1 >= two[0] + spacing));
    }

    #[test]
    fn a_queue_as_deep_as_the_delay_holds_never_decides(
        limit in limits_of(leaky_buckets()), gaps in vec(0_u64..400_000, 0..60),
    ) {
        let Algorithm::LeakyBucket { max_delay, .. } = limit.algorithm else { unreachable!() };
        let held = queue_within(max_delay, limit.requests_per_unit, limit.window);
        let with = |burst| Limit { algorithm: Algorithm::LeakyBucket { burst, max_delay }, ..limit };
        let (deep, held) = (with(u32::MAX), with(held));
        let (mut unbound, mut bound, mut now) = (State::new(&deep), State::new(&held), START);
        for gap in gaps {
            now += gap;
            let (one, other) = (charge(&mut unbound, &deep, now, hits(1)), charge(&mut bound, &held, now, hits(1)));
            prop_assert_eq!((one.admitted, one.delay), (other.admitted, other.delay));
        }
    }
}
