//! How much of a limit is lent to one node at once.

use super::{Algorithm, Hits, Limit, Scale};

/// Of what is left, this share at most: what is lent to a node that then goes away is lost to the others until the window
/// ends, and the less is left, the more that would hurt.
const SHARE: u64 = 16;

/// What a counter that stands at `used` lends of `wanted` hits: at most a sixteenth of what is left, rounded down. So the
/// last fifteen are counted one by one: to lend one hit saves no question.
///
/// A fixed window lends as much of it as that. A sliding window and a token bucket lend all that is wanted or nothing: so a
/// store only compares with a number that was worked out before. The others have a moment for each hit, and lend nothing.
pub fn slice(limit: &Limit, used: Hits, wanted: Hits) -> Hits {
    let most = most_lent(limit, used);
    match limit.algorithm {
        Algorithm::FixedWindow => wanted.min(most),
        Algorithm::SlidingWindow | Algorithm::TokenBucket { .. } if wanted <= most => wanted,
        _ => Hits::ZERO,
    }
}

/// The most that a counter lends that stands at `used`.
pub fn most_lent(limit: &Limit, used: Hits) -> Hits {
    Hits::new(Scale::of(limit).capacity().minus(used).get() / SHARE)
}

/// What must be left for so many hits to be lent all at once.
pub fn room_to_lend(wanted: Hits) -> Hits {
    Hits::new(wanted.get().saturating_mul(SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Unit, Window};

    fn limit(algorithm: Algorithm) -> Limit {
        Limit { requests_per_unit: 1_000, window: Window::of(Unit::Minute), algorithm }
    }

    #[test]
    fn a_sixteenth_of_what_is_left() {
        let limit = limit(Algorithm::FixedWindow);
        let lent = |used, wanted| slice(&limit, Hits::new(used), Hits::new(wanted)).get();
        assert_eq!(lent(0, 1_000), 62);
        assert_eq!(lent(0, 10), 10);
        assert_eq!([lent(984, 9), lent(985, 9), lent(1_000, 9), lent(2_000, 9)], [1, 0, 0, 0]);
    }

    #[test]
    fn all_of_it_or_nothing_where_the_window_moves() {
        let lent =
            |algorithm, used, wanted| slice(&limit(algorithm), Hits::new(used), Hits::new(wanted)).get();
        let sliding = |used, wanted| lent(Algorithm::SlidingWindow, used, wanted);
        assert_eq!([sliding(0, 62), sliding(0, 63), sliding(1_000, 1)], [62, 0, 0]);
        let bucket = |used, wanted| lent(Algorithm::TokenBucket { burst: 160 }, used, wanted);
        assert_eq!([bucket(0, 10), bucket(0, 11), bucket(144, 1), bucket(145, 1)], [10, 0, 1, 0]);
        assert_eq!(lent(Algorithm::SlidingLog, 0, 1), 0);
        assert_eq!(lent(Algorithm::LeakyBucket { burst: 9, max_delay: Default::default() }, 0, 1), 0);
    }

    #[test]
    fn there_is_room_for_what_is_lent() {
        for used in 0..=1_000 {
            for wanted in 1..=70 {
                let fits = used + room_to_lend(Hits::new(wanted)).get() <= 1_000;
                let lent = slice(&limit(Algorithm::SlidingWindow), Hits::new(used), Hits::new(wanted));
                assert_eq!(lent == Hits::new(wanted), fits, "{wanted} at {used}");
            }
        }
    }
}
