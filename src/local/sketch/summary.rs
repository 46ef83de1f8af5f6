//! The heaviest keys of a stream: filtered space-saving (Homem and Carvalho, 2010).
//!
//! A heavy key has a counter of its own. All others share cells, by their hash: what is in a cell is at least the weight of
//! each key that falls into it. A key takes the place of the lightest counter once its cell holds an eighth more than that
//! one; its counter begins with what the cell holds, all but its own last call being its error. So a stream of cold keys
//! costs an addition each, and seldom a replacement.
//!
//! **Invariant:** of every key the true weight is at most what its counter, or its cell, holds; and at least the counter less its
//! error. Memory is fixed from the beginning.

use std::sync::Arc;

use hashbrown::HashTable;

use super::{super::SketchKeeps, Seen};
use crate::{key::KeyId, rules::RuleCounters};

/// The longest name that is kept whole; of a longer one its beginning and its end are.
pub const MAX_NAME: usize = 128;

/// How much heavier than the lightest counter a cell must be to take its place. It keeps many keys of about the same weight
/// from taking turns: then one in a hundred and more calls replaces.
const CLEARLY: f64 = 1.125;

#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub n_counters: usize,
    /// A power of two.
    pub n_cells: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Summary {
    size: Size,
    total: f64,
    /// The place of each key that has a counter.
    index: HashTable<u16>,
    /// Of each counter: its weight. By themselves, so that looking for the lightest touches little memory.
    weights: Vec<f64>,
    details: Vec<Details>,
    cells: Box<[f64]>,
    /// No counter is lighter. A lower bound, exact when it was looked for last.
    least: f64,
    /// How often a key took a counter's place.
    pub(super) n_replaced: u64,
}

#[derive(Clone, Debug)]
struct Details {
    id: KeyId,
    error: f64,
    /// Since it has a counter: the weight of its hits, and of its refused calls.
    hits: f64,
    refused: f64,
    rule: Option<Arc<RuleCounters>>,
    name: Name,
}

/// A key that has a counter.
#[derive(Clone, Debug)]
pub struct Listed<'s> {
    pub id: KeyId,
    pub name: String,
    pub rule: Option<&'s Arc<RuleCounters>>,
    /// The most that it can weigh.
    pub weight: f64,
    /// It weighs at most so much less.
    pub error: f64,
    /// The share of its calls that was refused, as far as they were counted one by one.
    pub refused_share: f64,
}

impl Summary {
    pub(super) fn new(size: Size) -> Self {
        Self {
            size,
            total: 0.0,
            // Twice the room: then it never grows, but tidies up in place.
            index: HashTable::with_capacity(2 * size.n_counters),
            weights: Vec::with_capacity(size.n_counters),
            details: Vec::with_capacity(size.n_counters),
            cells: vec![0.0; size.n_cells].into(),
            least: 0.0,
            n_replaced: 0,
        }
    }

    /// Counts one call of this weight.
    pub(super) fn add(&mut self, seen: &Seen<'_>, weight: f64, keeps: SketchKeeps) {
        self.total += weight;
        match self.place_of(seen.key.id()) {
            Some(place) => self.count(place, seen, weight),
            None => self.add_unknown(seen, weight, keeps),
        }
    }

    fn place_of(&self, id: KeyId) -> Option<usize> {
        let is_it =
            |place: &u16| self.details.get(usize::from(*place)).is_some_and(|details| details.id == id);
        self.index.find(id.hash(), is_it).map(|place| usize::from(*place))
    }

    fn count(&mut self, place: usize, seen: &Seen<'_>, weight: f64) {
        if let (Some(sum), Some(details)) = (self.weights.get_mut(place), self.details.get_mut(place)) {
            *sum += weight;
            details.count(seen, weight);
        }
    }

    fn add_unknown(&mut self, seen: &Seen<'_>, weight: f64, keeps: SketchKeeps) {
        let cell_of = self.cell_of(seen.key.id());
        let Some(cell) = self.cells.get_mut(cell_of) else { return };
        *cell += weight;
        let held = *cell;
        if self.has_room() {
            self.push(seen, held, weight, keeps);
        } else if held > self.least * CLEARLY {
            self.replace_lightest(seen, held, weight, keeps);
        }
    }

    #[cold]
    fn push(&mut self, seen: &Seen<'_>, held: f64, weight: f64, keeps: SketchKeeps) {
        self.weights.push(held);
        self.details.push(Details::new(seen, held, weight, keeps));
        self.place(self.details.len() - 1, seen.key.id());
    }

    #[cold]
    fn replace_lightest(&mut self, seen: &Seen<'_>, held: f64, weight: f64, keeps: SketchKeeps) {
        let (place, least) = lightest(&self.weights);
        self.least = least;
        if held <= least * CLEARLY {
            return;
        }
        let (Some(sum), Some(details)) = (self.weights.get_mut(place), self.details.get_mut(place)) else {
            return;
        };
        self.n_replaced += 1;
        let gone = details.id;
        let gone_weighed = std::mem::replace(sum, held);
        details.replace(seen, held, weight, keeps);
        if let Ok(entry) = self.index.find_entry(gone.hash(), |&other| usize::from(other) == place) {
            entry.remove();
        }
        self.place(place, seen.key.id());
        let cell_of = self.cell_of(gone);
        if let Some(cell) = self.cells.get_mut(cell_of) {
            *cell = cell.max(gone_weighed);
        }
    }

    fn place(&mut self, place: usize, id: KeyId) {
        let details = &self.details;
        let hash_of = |place: &u16| details.get(usize::from(*place)).map_or(0, |details| details.id.hash());
        // There are far fewer places than the type holds.
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        self.index.insert_unique(id.hash(), place, hash_of);
    }

    /// The bits of the hash that the index does not look at first.
    fn cell_of(&self, id: KeyId) -> usize {
        (id.hash() >> 32) as usize & (self.size.n_cells - 1)
    }

    /// Makes all weights smaller, or larger, by a factor.
    pub(super) fn scale(&mut self, factor: f64) {
        self.total *= factor;
        self.least *= factor;
        self.weights.iter_mut().chain(&mut self.cells).for_each(|weight| *weight *= factor);
        for details in &mut self.details {
            details.error *= factor;
            details.hits *= factor;
            details.refused *= factor;
        }
    }

    /// Of a key that has a counter: the least weight of its calls, and of their hits.
    pub(super) fn find(&self, id: KeyId) -> Option<(f64, f64)> {
        let place = self.place_of(id)?;
        let (weight, details) = (self.weights.get(place)?, self.details.get(place)?);
        Some((weight - details.error, details.hits))
    }

    /// The weight of all calls.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// The most that a key can weigh that has no counter here; zero if it has one.
    pub fn most_unlisted(&self, id: KeyId) -> f64 {
        if self.has_room() || self.place_of(id).is_some() {
            return 0.0;
        }
        self.cells.get(self.cell_of(id)).copied().unwrap_or(0.0)
    }

    /// The most that any key can weigh that has no counter here.
    pub fn most_of_any_unlisted(&self) -> f64 {
        if self.has_room() { 0.0 } else { self.cells.iter().copied().fold(0.0, f64::max) }
    }

    /// As long as there is, every key has a counter.
    fn has_room(&self) -> bool {
        self.details.len() < self.size.n_counters
    }

    /// The keys that have a counter, in no order.
    pub fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        self.weights.iter().zip(&self.details).map(|(&weight, details)| Listed {
            id: details.id,
            name: details.name.text(),
            rule: details.rule.as_ref(),
            weight,
            error: details.error,
            refused_share: details.refused / (weight - details.error).max(f64::MIN_POSITIVE),
        })
    }

    /// Its memory, which never changes, without the struct itself.
    pub(super) fn bytes(&self) -> usize {
        self.index.allocation_size()
            + self.weights.capacity() * size_of::<f64>()
            + self.details.capacity() * size_of::<Details>()
            + self.cells.len() * size_of::<f64>()
    }
}

/// The place of the lightest, and what it weighs; infinitely much if there is none. It is what a stream of cold keys costs most,
/// so: one comparison for each, of which most are unrolled.
pub(super) fn lightest(weights: &[f64]) -> (usize, f64) {
    const STEP: usize = 16;
    let least_of =
        |some: &[f64]| some.iter().fold(f64::INFINITY, |one, &other| if other < one { other } else { one });
    let (steps, rest) = weights.as_chunks::<STEP>();
    let each = steps.iter().map(|step| least_of(step)).chain(std::iter::once(least_of(rest)));
    let (step, least) =
        each.enumerate().fold((0, f64::INFINITY), |one, other| if other.1 < one.1 { other } else { one });
    let first = step * STEP;
    let in_step = weights.iter().skip(first).position(|&weight| weight <= least);
    (first + in_step.unwrap_or(0), least)
}

impl Details {
    fn new(seen: &Seen<'_>, held: f64, weight: f64, keeps: SketchKeeps) -> Self {
        let mut details = Self {
            id: seen.key.id(),
            error: 0.0,
            hits: 0.0,
            refused: 0.0,
            rule: None,
            name: Name { length: 0, bytes: [0; MAX_NAME] },
        };
        details.replace(seen, held, weight, keeps);
        details
    }

    fn replace(&mut self, seen: &Seen<'_>, held: f64, weight: f64, keeps: SketchKeeps) {
        (self.id, self.error, self.hits, self.refused) = (seen.key.id(), held - weight, 0.0, 0.0);
        self.rule = seen.rule.cloned();
        let name = if keeps == SketchKeeps::Named { seen.key.as_bytes() } else { &[] };
        self.name.set(name);
        self.count(seen, weight);
    }

    #[expect(clippy::cast_precision_loss, reason = "hits are below 2^53")]
    fn count(&mut self, seen: &Seen<'_>, weight: f64) {
        self.hits += weight * seen.hits as f64;
        if seen.refused {
            self.refused += weight;
        }
    }
}

/// A key's name, whole or with its middle left out. Not cleared when it is shorter than the one before.
#[derive(Clone, Debug)]
struct Name {
    /// Of the whole name, if it fits.
    length: u16,
    bytes: [u8; MAX_NAME],
}

impl Name {
    /// Kept of the beginning, and of the end, of a name that is too long.
    const HALF: usize = MAX_NAME / 2;

    fn set(&mut self, name: &[u8]) {
        self.length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        if let Some(bytes) = self.bytes.get_mut(..name.len()) {
            bytes.copy_from_slice(name);
            return;
        }
        let (begin, end) = self.bytes.split_at_mut(Self::HALF);
        if let (Some((first, _)), Some((_, last))) =
            (name.split_at_checked(Self::HALF), name.split_at_checked(name.len() - Self::HALF))
        {
            begin.copy_from_slice(first);
            end.copy_from_slice(last);
        }
    }

    /// As text that shows what is no text, and does nothing to a terminal.
    fn text(&self) -> String {
        let show = |bytes: &[u8]| -> String {
            let text = String::from_utf8_lossy(bytes);
            text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
        };
        match self.bytes.get(..usize::from(self.length)) {
            Some(whole) => show(whole),
            None => {
                let (begin, end) = self.bytes.split_at(Self::HALF);
                format!("{}…{}", show(begin), show(end))
            }
        }
    }
}
