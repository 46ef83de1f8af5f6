//! Which server of a ring a key belongs to: the one with the highest score for it (rendezvous hashing).
//!
//! **Invariant:** the answer hangs on the key and on the servers' names alone, not on their order, their health, or the
//! release of this program; one server more or less moves the keys of that server only.

use xxhash_rust::xxh3::xxh3_64;

use super::mix;

#[derive(Debug)]
pub(super) struct Ring {
    /// Hash of each server's name.
    seeds: Vec<u64>,
}

impl Ring {
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self { seeds: names.map(|name| xxh3_64(name.as_bytes())).collect() }
    }

    /// The place of the key's server among the names; 0 if there are none.
    pub fn place(&self, key: &[u8]) -> usize {
        let hash = xxh3_64(key);
        let scores = self.seeds.iter().map(|seed| mix(hash ^ seed));
        scores.enumerate().max_by_key(|(_, score)| *score).map_or(0, |(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["redis-a:6379", "redis-b:6379", "redis-c:6379", "redis-d:6379"];

    fn owner<'a>(names: &[&'a str], key: &str) -> &'a str {
        names[Ring::new(names.iter().copied()).place(key.as_bytes())]
    }

    #[test]
    fn keys_stay_where_they_are_for_ever() {
        let owners = ["shop|user=1|60s", "shop|user=2|60s", "api|ip=10.0.0.1|1s", "api|ip=10.0.0.2|1s"]
            .map(|key| owner(&NAMES[..3], key));
        assert_eq!(owners, [NAMES[2], NAMES[0], NAMES[2], NAMES[0]]);
    }

    #[test]
    fn a_server_more_takes_its_share_and_moves_nothing_else() {
        let n_keys = 10_000;
        let mut moved = 0;
        for n in 0..n_keys {
            let key = format!("shop|user={n}|60s");
            let (before, after) = (owner(&NAMES[..3], &key), owner(&NAMES, &key));
            if before != after {
                assert_eq!(after, NAMES[3]);
                moved += 1;
            }
        }
        assert!((2_300..2_700).contains(&moved), "{moved} of {n_keys} moved");
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let mut backwards = NAMES;
        backwards.reverse();
        for n in 0..1_000 {
            let key = format!("shop|user={n}|60s");
            assert_eq!(owner(&NAMES, &key), owner(&backwards, &key));
        }
    }

    #[test]
    fn every_server_has_about_as_many_keys() {
        let ring = Ring::new(NAMES.into_iter());
        let mut counts = [0; NAMES.len()];
        (0..10_000).for_each(|n| counts[ring.place(format!("api|ip={n}|1s").as_bytes())] += 1);
        assert!(counts.iter().all(|count| (2_300..2_700).contains(count)), "{counts:?}");
    }
}
