//! A mapping as the reference's reader goes through it: in the order written, `<<` unfolded where it stands, so that what
//! comes later counts. Knows nothing of what a key means.

use foldhash::{HashMap, HashMapExt};

use super::tree::{Mapping, Node, Shape};

/// A key and its value.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'t> {
    pub key: &'t Node,
    pub value: &'t Node,
    /// It came in by `<<`.
    pub merged: bool,
    /// A later pair has the same key.
    pub superseded: bool,
    /// The latest pair before this that was written out and has the same key.
    pub repeats: Option<&'t Node>,
}

/// The pairs of a mapping, and the values of `<<` that cannot be merged.
pub(crate) struct Pairs<'t> {
    pub pairs: Vec<Pair<'t>>,
    pub unmergeable: Vec<&'t Node>,
}

impl<'t> Pairs<'t> {
    pub fn of(mapping: &'t Mapping) -> Self {
        let mut all = Self { pairs: Vec::with_capacity(mapping.len()), unmergeable: Vec::new() };
        all.add(mapping, false);
        all.link_repeats();
        all
    }

    fn add(&mut self, mapping: &'t Mapping, merged: bool) {
        for (key, value) in mapping {
            if is_merge(key) {
                self.merge(value);
            } else {
                self.pairs.push(Pair { key, value, merged, superseded: false, repeats: None });
            }
        }
    }

    fn merge(&mut self, value: &'t Node) {
        match &value.shape {
            Shape::Mapping(mapping) => self.add(mapping, true),
            // The first of a list counts most, so it comes last.
            Shape::List(list) => {
                for item in list.iter().rev() {
                    match &item.shape {
                        Shape::Mapping(mapping) => self.add(mapping, true),
                        _ => self.unmergeable.push(item),
                    }
                }
            }
            Shape::Scalar(_) => self.unmergeable.push(value),
        }
    }

    fn link_repeats(&mut self) {
        let mut written: HashMap<&str, &Node> = HashMap::with_capacity(self.pairs.len());
        for pair in &mut self.pairs {
            let Some(text) = pair.key.key_text() else { continue };
            pair.repeats = written.get(text).copied();
            if !pair.merged {
                written.insert(text, pair.key);
            }
        }
        let mut later = foldhash::HashSet::default();
        for pair in self.pairs.iter_mut().rev() {
            pair.superseded = pair.key.key_text().is_some_and(|text| !later.insert(text));
        }
    }
}

fn is_merge(key: &Node) -> bool {
    key.scalar().is_some_and(|scalar| scalar.plain && &*scalar.text == "<<")
}
