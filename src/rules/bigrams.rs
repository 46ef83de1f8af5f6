//! A quick no to many searches in one text: the pairs of neighbouring bytes that the text has, noted once, against the pairs
//! that each thing searched for needs.
//!
//! **Invariant:** a no is right; a yes has to be looked at.

use std::collections::BTreeMap;

/// How many pairs are looked at for one thing.
const N_NEEDED: usize = 4;

/// A pair that every text is taken to have.
const ALWAYS: u16 = 0;

/// The pairs in a text. 8 KiB, meant for the stack.
pub(crate) struct Bigrams([u64; 1 << 10]);

/// Pairs that a text must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed([u16; N_NEEDED]);

impl Bigrams {
    /// Takes time in proportion to the text.
    pub fn of(text: &[u8]) -> Self {
        let mut bits = Self([0; 1 << 10]);
        bits.add(ALWAYS);
        pairs(text).for_each(|pair| bits.add(pair));
        bits
    }

    pub fn has_all(&self, needed: Needed) -> bool {
        needed.0.into_iter().all(|pair| self.word(pair) >> (pair & 63) & 1 == 1)
    }

    fn add(&mut self, pair: u16) {
        if let Some(word) = self.0.get_mut(usize::from(pair >> 6)) {
            *word |= 1 << (pair & 63);
        }
    }

    fn word(&self, pair: u16) -> u64 {
        self.0.get(usize::from(pair >> 6)).copied().unwrap_or(u64::MAX)
    }
}

/// For each of several things the pairs by which it is told from the others best: those that the fewest of them have.
///
/// A thing is given by its pieces, each of which a text must hold. Shape: one element for each, in the same order.
pub(crate) fn tell_apart(things: &[Vec<&[u8]>]) -> Box<[Needed]> {
    let all: Vec<Vec<u16>> = things.iter().map(|pieces| distinct(pieces)).collect();
    let mut n_things: BTreeMap<u16, usize> = BTreeMap::new();
    for pair in all.iter().flatten() {
        *n_things.entry(*pair).or_default() += 1;
    }
    let choose = |mut pairs: Vec<u16>| {
        pairs.sort_by_key(|pair| n_things.get(pair));
        let mut rarest = pairs.into_iter();
        Needed(std::array::from_fn(|_| rarest.next().unwrap_or(ALWAYS)))
    };
    all.into_iter().map(choose).collect()
}

fn distinct(pieces: &[&[u8]]) -> Vec<u16> {
    let mut all: Vec<u16> = pieces.iter().flat_map(|piece| pairs(piece)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn pairs(text: &[u8]) -> impl Iterator<Item = u16> {
    text.array_windows().map(|pair: &[u8; 2]| u16::from_be_bytes(*pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_its_own_pairs_and_no_others() {
        let things = [vec![b"item-1".as_slice(), b"x"], vec![b"item-2"], vec![b"q"], vec![]];
        let [one, two, q, nothing] = *tell_apart(&things) else { panic!("one for each") };
        let has = |text: &[u8], needed| Bigrams::of(text).has_all(needed);
        assert!(has(b"an item-1 here", one) && !has(b"an item-1 here", two));
        assert!(has(b"", q) && has(b"", nothing) && !has(b"", one));
        assert!(
            has(b"\xFF\xFF", tell_apart(&[vec![b"\xFF\xFF".as_slice()]])[0])
                && !has(b"\xFF\xFE", tell_apart(&[vec![b"\xFF\xFF".as_slice()]])[0])
        );
    }
}
