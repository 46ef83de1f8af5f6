//! The worked examples of the documentation, the corners, and steps of the clock.

use super::*;

const MINUTE: u64 = 60 * SECOND;

/// Charges at `START` plus so many microseconds.
struct Counter {
    limit: Limit,
    state: State,
}

impl Counter {
    fn new(requests: u32, window_secs: u32, algorithm: Algorithm) -> Self {
        let limit = limit(requests, window_secs, algorithm);
        Self { limit, state: State::new(&limit) }
    }

    fn charge(&mut self, at: u64, cost: Cost) -> Charged {
        charge(&mut self.state, &self.limit, START + at, cost)
    }

    /// How many of `n` single hits are admitted.
    fn admits(&mut self, at: u64, n: usize) -> usize {
        (0..n).filter(|_| self.charge(at, hits(1)).admitted).count()
    }
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket { burst: 10 },
    Algorithm::LeakyBucket { burst: 9, max_delay: Duration::from_secs(60) },
];

#[test]
fn a_state_is_small() {
    assert!(size_of::<State>() <= 24, "{}", size_of::<State>());
}

#[test]
fn fixed_window_starts_anew_at_the_border() {
    let mut counter = Counter::new(5, 60, Algorithm::FixedWindow);
    assert_eq!(counter.admits(59 * SECOND, 6), 5);
    assert_eq!(counter.admits(MINUTE, 6), 5);
}

#[test]
fn fixed_window_counts_what_it_refuses() {
    let mut counter = Counter::new(10, 60, Algorithm::FixedWindow);
    assert!(counter.charge(0, hits(7)).admitted);
    let refused = counter.charge(0, hits(6));
    assert_eq!((refused.used_before.get(), refused.used_after.get(), refused.admitted), (7, 13, false));
    assert_eq!(counter.charge(0, Cost::Peek).used_before.get(), 13);
    counter.charge(0, hits(u64::MAX));
    assert_eq!(counter.charge(0, hits(1)).used_after, Hits::MAX);
}

#[test]
fn fixed_window_resets_at_its_end_whatever_the_cost() {
    let mut counter = Counter::new(5, 60, Algorithm::FixedWindow);
    for (at, cost, secs) in
        [(0, Cost::Peek, 60), (59, hits(1), 1), (1, hits(9), 59), (60, hits(1), 60), (61, refund(1), 59)]
    {
        assert_eq!(counter.charge(at * SECOND, cost).reset_after, Duration::from_secs(secs), "at {at}");
    }
}

#[test]
fn a_peek_is_over_only_above_the_limit() {
    let mut counter = Counter::new(5, 60, Algorithm::FixedWindow);
    assert!(counter.charge(0, hits(5)).admitted);
    assert!(counter.charge(0, Cost::Peek).admitted);
    assert!(!counter.charge(0, hits(1)).admitted);
    assert!(!counter.charge(0, Cost::Peek).admitted);
    assert!(counter.charge(0, refund(1)).admitted);
}

#[test]
fn a_number_that_was_changed_counts_on() {
    let mut counter = Counter::new(2, 3600, Algorithm::FixedWindow);
    assert_eq!(counter.admits(0, 5), 2);
    counter.limit.requests_per_unit = 10;
    assert_eq!(counter.charge(0, hits(1)).remaining.get(), 4);
    counter.limit.requests_per_unit = 3;
    let refused = counter.charge(0, hits(1));
    assert_eq!((refused.admitted, refused.remaining), (false, Hits::ZERO));
}

#[test]
fn sliding_window_weighs_the_window_before() {
    let mut counter = Counter::new(100, 60, Algorithm::SlidingWindow);
    assert!(counter.charge(30 * SECOND, hits(80)).admitted);
    // A quarter into the next minute three quarters of the 80 still count.
    let at = MINUTE + 15 * SECOND;
    assert_eq!(counter.charge(at, Cost::Peek).used_before.get(), 60);
    assert!(counter.charge(at, hits(40)).admitted);
    let refused = counter.charge(at, hits(4));
    assert_eq!((refused.admitted, refused.remaining.get()), (false, 0));
    // 80 × (1 − share) has to fall from 60 to 56: share 0.3, three seconds on.
    assert_eq!(refused.reset_after, millis(3_000));
    // The 40 are gone when the next minute is.
    assert_eq!(counter.charge(at, Cost::Peek).reset_after, millis(105_000));
}

#[test]
fn sliding_window_refunds_the_newer_hits_first() {
    let mut counter = Counter::new(10, 60, Algorithm::SlidingWindow);
    counter.charge(0, hits(8));
    counter.charge(MINUTE, hits(2));
    let refunded = counter.charge(MINUTE + 30 * SECOND, refund(4));
    assert_eq!((refunded.used_before.get(), refunded.used_after.get()), (6, 3));
}

#[test]
fn sliding_log_frees_each_hit_a_window_later() {
    let mut counter = Counter::new(3, 60, Algorithm::SlidingLog);
    for at in [0, 10, 20] {
        assert!(counter.charge(at * SECOND, hits(1)).admitted);
    }
    assert_eq!(counter.charge(30 * SECOND, hits(1)).reset_after, millis(30_000));
    assert_eq!(counter.charge(30 * SECOND, hits(2)).reset_after, millis(40_000));
    assert!(!counter.charge(MINUTE - 1, hits(1)).admitted);
    assert!(counter.charge(MINUTE, hits(1)).admitted);
}

#[test]
fn sliding_log_keeps_no_more_than_its_bound() {
    let mut counter = Counter::new(u32::MAX, 60, Algorithm::SlidingLog);
    let admitted = (0..12_000).filter(|at| counter.charge(*at, hits(1)).admitted).count();
    assert_eq!(admitted, MAX_LOG_HITS as usize);
}

#[test]
fn token_bucket_allows_a_burst_and_then_the_rate() {
    let mut counter = Counter::new(60, 60, Algorithm::TokenBucket { burst: 10 });
    assert_eq!(counter.admits(0, 20), 10);
    let refused = counter.charge(0, hits(3));
    assert_eq!(
        (refused.used_before.get(), refused.used_after.get(), refused.reset_after),
        (10, 13, millis(3_000))
    );
    assert_eq!(counter.admits(2_500_000, 20), 2);
    // Half a token is there: the other half takes half a second, and nine more nine.
    assert_eq!(counter.charge(2_500_000, Cost::Peek).reset_after, millis(9_500));
    assert_eq!(counter.charge(2_500_000, hits(1)).reset_after, millis(500));
    assert_eq!(counter.charge(2_500_000, hits(11)).reset_after, millis(60_000));
}

#[test]
fn leaky_bucket_holds_each_hit_until_its_slot() {
    let mut counter = Counter::new(100, 1, Algorithm::LeakyBucket { burst: 2, max_delay: millis(30) });
    let delays: Vec<_> = (0..4).map(|_| counter.charge(0, hits(1))).collect();
    assert_eq!(delays.iter().map(|c| c.admitted).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(
        delays.iter().map(|c| c.delay).collect::<Vec<_>>(),
        [millis(0), millis(10), millis(20), millis(0)]
    );
    assert_eq!(delays.iter().map(|c| c.remaining.get()).collect::<Vec<_>>(), [2, 1, 0, 0]);
    assert_eq!(delays[3].reset_after, millis(10));
    assert_eq!(counter.charge(15_000, hits(1)).delay, millis(15));
}

#[test]
fn leaky_bucket_without_delay_is_strict_spacing() {
    let mut counter = Counter::new(10, 1, Algorithm::LeakyBucket { burst: 0, max_delay: Duration::ZERO });
    assert_eq!(counter.admits(0, 3), 1);
    assert_eq!(counter.admits(99_999, 3), 0);
    assert_eq!(counter.admits(100_000, 3), 1);
    // A cost of four is let in when nothing is in front of it, and takes four slots.
    assert!(counter.charge(200_000, hits(4)).admitted);
    assert_eq!(counter.charge(200_000, hits(1)).reset_after, millis(400));
}

#[test]
fn leaky_bucket_waits_no_longer_than_its_caller_can() {
    let mut counter = Counter::new(100, 1, Algorithm::LeakyBucket { burst: 9, max_delay: millis(90) });
    counter.charge(0, hits(2));
    let now = UnixMicros::new(START);
    let mut with = |wait| counter.state.charge(&counter.limit, now, hits(1), wait);
    let refused = with(millis(13));
    assert_eq!((refused.admitted, refused.reset_after), (false, millis(7)));
    assert_eq!((with(millis(20)).delay, with(millis(90)).delay), (millis(20), millis(30)));
}

#[test]
fn a_delay_holds_so_many_hits() {
    let second = Window::of(Unit::Second);
    // At 15 ms one can wait for 2 ms and one for 12.
    for (delay, requests, held) in
        [(0, 100, 0), (1, 100, 1), (10, 100, 1), (15, 100, 2), (15, 0, 0), (1_000, u32::MAX, u32::MAX)]
    {
        assert_eq!(queue_within(millis(delay), requests, second), held, "{delay} ms of {requests}");
    }
    assert_eq!(queue_within(Duration::MAX, 1, second), u32::MAX);
}

#[test]
fn very_high_and_very_low_rates_are_exact() {
    for requests in [1_000_000, u32::MAX] {
        let mut counter = Counter::new(requests, 1, Algorithm::TokenBucket { burst: requests });
        assert!(counter.charge(0, hits(u64::from(requests))).admitted);
        assert!(!counter.charge(0, hits(1)).admitted);
        // In a hundred steps of a microsecond, exactly the tokens of 100 microseconds.
        let tokens: u64 = (1..=100)
            .map(|at| {
                let there = counter.charge(at, Cost::Peek).remaining.get();
                counter.charge(at, hits(there));
                there
            })
            .sum();
        assert_eq!(tokens, u64::from(requests) * 100 / SECOND);
    }
    let mut rare = Counter::new(1, 3_153_600_000, Algorithm::TokenBucket { burst: u32::MAX });
    assert_eq!(rare.admits(0, 3), 1);
    assert!(!rare.charge(3_153_600_000 * SECOND - 1, hits(1)).admitted);
    assert!(rare.charge(3_153_600_000 * SECOND, hits(1)).admitted);
}

#[test]
fn nothing_is_allowed_by_a_limit_of_zero() {
    for algorithm in ALGORITHMS {
        let mut counter = Counter::new(0, 60, algorithm);
        let peeked = counter.charge(0, Cost::Peek);
        assert_eq!((peeked.admitted, peeked.remaining), (true, Hits::ZERO), "{algorithm:?}");
        let refused = counter.charge(0, hits(1));
        assert_eq!((refused.admitted, refused.remaining), (false, Hits::ZERO), "{algorithm:?}");
        assert_eq!((refused.reset_after, refused.used_after.get()), (millis(60_000), 1), "{algorithm:?}");
        counter.charge(0, refund(1));
        assert!(counter.state.is_empty(), "{algorithm:?}");
    }
}

#[test]
fn a_cost_above_the_limit_never_fits_and_costs_nothing() {
    for algorithm in &ALGORITHMS[1..] {
        let mut counter = Counter::new(10, 60, *algorithm);
        let refused = counter.charge(7 * SECOND, hits(11));
        assert_eq!((refused.admitted, refused.reset_after), (false, millis(60_000)), "{algorithm:?}");
        assert!(counter.charge(7 * SECOND, hits(10)).admitted, "{algorithm:?}");
    }
}

#[test]
fn a_clock_that_steps_back_within_a_window_finds_the_counter_again() {
    for algorithm in ALGORITHMS {
        let mut counter = Counter::new(10, 60, algorithm);
        assert!(counter.charge(MINUTE + SECOND, hits(10)).admitted);
        assert_eq!(counter.admits(59 * SECOND, 1), 0, "{algorithm:?}");
        assert_eq!(counter.admits(2 * SECOND, 1), 0, "{algorithm:?}");
        // Forward again: the buckets take that for time that passed, the others know better.
        let refilled = usize::from(!ALGORITHMS[..3].contains(&algorithm));
        assert_eq!(counter.admits(MINUTE + SECOND, 1), refilled, "{algorithm:?}");
    }
}

#[test]
fn a_clock_that_steps_back_far_is_held_for_a_window_at_most() {
    for algorithm in ALGORITHMS {
        let mut counter = Counter::new(10, 60, algorithm);
        counter.charge(1_000 * MINUTE, hits(10));
        counter.admits(0, 1);
        assert!(counter.charge(MINUTE, hits(1)).admitted, "{algorithm:?}");
    }
}

#[test]
fn a_counter_of_another_algorithm_starts_afresh() {
    let mut counter = Counter::new(10, 60, Algorithm::FixedWindow);
    counter.charge(0, hits(10));
    counter.limit.algorithm = Algorithm::SlidingLog;
    assert_eq!(counter.charge(0, hits(1)).used_before, Hits::ZERO);
}

#[test]
fn a_debt_is_clamped_to_one_full_bucket_of_a_new_number() {
    let mut counter = Counter::new(1, 60, Algorithm::TokenBucket { burst: 10 });
    assert_eq!(counter.admits(0, 11), 10);
    counter.limit.requests_per_unit = 60;
    assert_eq!(counter.charge(0, Cost::Peek).reset_after, millis(10_000));
    assert!(counter.charge(SECOND, hits(1)).admitted);
}
