//! Values with stars: `*` stands for any run of bytes, none included, anywhere and repeatedly; there is no escape.
//!
//! **Invariant:** matching takes time linear in the value, whatever the pattern: the pieces between stars are looked for
//! once, each at its first place after the one before.

use std::collections::BTreeMap;

use memchr::memmem::Finder;

use super::bigrams::{self, Bigrams, Needed};

/// So many patterns that begin alike are looked at one by one.
const FEW: usize = 8;

/// The pieces of a pattern after its first.
#[derive(Debug)]
struct Tail {
    middles: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

impl Tail {
    /// Whether what follows the first piece matches.
    fn matches(&self, rest: &[u8]) -> bool {
        let Some(mut rest) = rest.strip_suffix(&*self.last) else { return false };
        for middle in &self.middles {
            let Some(after) = middle.find(rest).and_then(|at| rest.get(at + middle.needle().len()..)) else {
                return false;
            };
            rest = after;
        }
        true
    }

    fn pieces(&self) -> Vec<&[u8]> {
        self.middles.iter().map(Finder::needle).chain([&*self.last]).collect()
    }
}

/// Splits a pattern into its first piece and its tail. `None` without a star.
fn split(pattern: &[u8]) -> Option<(&[u8], Tail)> {
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let (first, last) = (pieces.next()?, pieces.next_back()?);
    let middles =
        pieces.filter(|piece| !piece.is_empty()).map(|piece| Finder::new(piece).into_owned()).collect();
    Some((first, Tail { middles, last: last.into() }))
}

/// Patterns in the order of their declaration, found by what they begin with.
///
/// Sorted by first piece. Every first piece that a value begins with is a prefix of the greatest one that is not greater
/// than the value, and each knows its longest proper prefix: so one binary search and a walk up visit every pattern that can
/// match, however many there are that begin otherwise. Many that begin alike are told apart by their [`Bigrams`].
#[derive(Debug)]
pub(crate) struct Patterns<T> {
    starts: Box<[Start<T>]>,
}

/// The patterns with one first piece.
#[derive(Debug)]
struct Start<T> {
    first: Box<[u8]>,
    /// The start whose first piece is the longest proper prefix of this one's.
    parent: Option<usize>,
    /// In the order of declaration.
    patterns: Vec<Pattern<T>>,
    /// One for each pattern if they are many, else none.
    needed: Box<[Needed]>,
}

#[derive(Debug)]
struct Pattern<T> {
    /// Its place in the declaration.
    order: usize,
    tail: Tail,
    target: T,
}

impl<T: Copy> Patterns<T> {
    /// Patterns in the order of declaration. What has no star is not a pattern and is left out.
    pub fn new<'p>(patterns: impl IntoIterator<Item = (&'p [u8], T)>) -> Self {
        let mut by_first: BTreeMap<&[u8], Vec<Pattern<T>>> = BTreeMap::new();
        for (order, (pattern, target)) in patterns.into_iter().enumerate() {
            if let Some((first, tail)) = split(pattern) {
                by_first.entry(first).or_default().push(Pattern { order, tail, target });
            }
        }
        let mut starts: Vec<Start<T>> = Vec::with_capacity(by_first.len());
        for (first, patterns) in by_first {
            let mut parent = starts.len().checked_sub(1);
            while let Some(start) =
                parent.and_then(|parent| starts.get(parent)).filter(|start| !first.starts_with(&start.first))
            {
                parent = start.parent;
            }
            starts.push(Start::new(first, parent, patterns));
        }
        Self { starts: starts.into() }
    }

    /// What the first declared pattern that matches stands for.
    pub fn find(&self, value: &[u8]) -> Option<T> {
        let mut found: Option<&Pattern<T>> = None;
        let mut next = self.starts.partition_point(|start| *start.first <= *value).checked_sub(1);
        while let Some(start) = next.and_then(|next| self.starts.get(next)) {
            if let Some(rest) = value.strip_prefix(&*start.first) {
                found = start.find(rest, found.map_or(usize::MAX, |found| found.order)).or(found);
            }
            next = start.parent;
        }
        found.map(|pattern| pattern.target)
    }
}

impl<T> Start<T> {
    fn new(first: &[u8], parent: Option<usize>, patterns: Vec<Pattern<T>>) -> Self {
        let needed = if patterns.len() > FEW {
            bigrams::tell_apart(&patterns.iter().map(|pattern| pattern.tail.pieces()).collect::<Vec<_>>())
        } else {
            Box::default()
        };
        Self { first: first.into(), parent, patterns, needed }
    }

    /// The first pattern declared before `end` that matches the rest of a value.
    fn find(&self, rest: &[u8], end: usize) -> Option<&Pattern<T>> {
        let matches = |pattern: &&Pattern<T>| pattern.tail.matches(rest);
        let in_time = |pattern: &&Pattern<T>| pattern.order < end;
        if self.needed.is_empty() {
            return self.patterns.iter().take_while(in_time).find(matches);
        }
        let bigrams = Bigrams::of(rest);
        let possible = self.needed.iter().zip(&self.patterns).filter(|(needed, _)| bigrams.has_all(**needed));
        possible.map(|(_, pattern)| pattern).take_while(in_time).find(matches)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, written down.
    fn naive(pattern: &[u8], value: &[u8]) -> bool {
        match (pattern, value) {
            ([], []) => true,
            ([b'*', pattern @ ..], _) => {
                naive(pattern, value)
                    || matches!(value, [_, value @ ..] if naive(&[b"*", pattern].concat(), value))
            }
            ([p, pattern @ ..], [v, value @ ..]) => p == v && naive(pattern, value),
            _ => false,
        }
    }

    fn matches(pattern: &str, value: &str) -> bool {
        Patterns::new([(pattern.as_bytes(), ())]).find(value.as_bytes()).is_some()
    }

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, value) in [
            ("a*", "a"),
            ("*", ""),
            ("*b", "ab"),
            ("a*b*c", "a-b-c"),
            ("bar*b", "barb"),
            ("*a*", "xay"),
            ("**", "x"),
            ("/v1/*", "/v1/"),
        ] {
            assert!(matches(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [
            ("a*a", "a"),
            ("a*", "b"),
            ("*b", "ba"),
            ("ab*bc", "abc"),
            ("*.x", "x"),
            ("A*", "a"),
            ("/v1/*", "/v1"),
            ("a", "a"),
        ] {
            assert!(!matches(pattern, value), "{pattern} {value}");
        }
    }

    #[test]
    fn a_crafted_pattern_on_a_crafted_value_returns() {
        let pattern = "*a".repeat(1_000) + "*b";
        assert!(!matches(&pattern, &"a".repeat(100_000)));
        assert!(matches(&pattern, &("a".repeat(100_000) + "b")));
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &value), pattern.contains('*') && naive(pattern.as_bytes(), value.as_bytes()));
        }

        #[test]
        fn the_first_declared_of_many_wins(patterns in prop::collection::vec("[ab*]{0,5}", 0..60), value in "[ab]{0,6}") {
            let all = Patterns::new(patterns.iter().map(String::as_bytes).zip(0..));
            let expected = patterns.iter().position(|p| p.contains('*') && naive(p.as_bytes(), value.as_bytes()));
            prop_assert_eq!(all.find(value.as_bytes()), expected);
        }
    }
}
