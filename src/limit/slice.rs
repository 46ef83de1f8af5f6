//! How much of a limit is lent to one node at once.

use super::{Hits, Limit};

/// Of what is left, this share at most: what is lent to a node that then goes away is lost to the others until the window
/// ends, and the less is left, the more that would hurt.
const SHARE: u64 = 16;

/// What a fixed window that stands at `used` lends of `wanted` hits: at most a sixteenth of what is left, rounded down. So the
/// last fifteen are counted one by one: to lend one hit saves no question.
pub fn slice(limit: &Limit, used: Hits, wanted: Hits) -> Hits {
    let left = Hits::new(u64::from(limit.requests_per_unit)).minus(used);
    wanted.min(Hits::new(left.get() / SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Unit, Window};

    #[test]
    fn a_sixteenth_of_what_is_left() {
        let limit = Limit {
            requests_per_unit: 1_000,
            window: Window::of(Unit::Minute),
            algorithm: Algorithm::FixedWindow,
        };
        let lent = |used, wanted| slice(&limit, Hits::new(used), Hits::new(wanted)).get();
        assert_eq!(lent(0, 1_000), 62);
        assert_eq!(lent(0, 10), 10);
        assert_eq!([lent(984, 9), lent(985, 9), lent(1_000, 9), lent(2_000, 9)], [1, 0, 0, 0]);
    }
}
