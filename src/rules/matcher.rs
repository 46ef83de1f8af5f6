//! Finds the rule for a descriptor. Knows nothing of files, limits or counters.
//!
//! At each level the exact value comes first, then the first declared pattern that matches, then the rule without a value;
//! once chosen there is no second try. The number of entries must agree with the depth of the rule.
//!
//! **Invariant:** a key is compared whole and stars mean something in values only: no value of one key reaches a rule of
//! another.

use std::{collections::BTreeMap, hash::BuildHasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{Lookup, Match, Rule, pattern::Patterns};
use crate::descriptor::Entry;

/// The number of a node in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

/// All rules of all domains. Two tables: one for exact values, one for everything else.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Domains and descriptors, in the order of declaration.
    nodes: Vec<Node>,
    groups: Vec<Group>,
    domains: HashTable<NodeId>,
    exact: HashTable<NodeId>,
    others: HashTable<u32>,
    /// Seeded for each tree.
    hasher: RandomState,
}

/// A descriptor of the rules file; or a domain, whose key is its name.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None`: a domain.
    pub parent: Option<NodeId>,
    pub key: Box<[u8]>,
    /// `None`: any value.
    pub value: Option<Box<[u8]>>,
    /// All values that its pattern matches share one counter.
    pub shares: bool,
    /// `value_to_metric`: statistics name the value that it matched.
    pub shows_value: bool,
    pub rule: Option<Rule>,
}

/// Why a node was chosen for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Exact,
    Pattern,
    Any,
}

/// One entry's step from a node to its child.
#[derive(Debug)]
pub(crate) struct Step<'r> {
    id: NodeId,
    pub node: &'r Node,
    pub via: Via,
}

/// The children of one node that have one key and are not found by their exact value.
#[derive(Debug)]
struct Group {
    parent: NodeId,
    key: Box<[u8]>,
    patterns: Patterns<NodeId>,
    /// The child without a value.
    any: Option<NodeId>,
}

impl Tree {
    pub fn lookup(&self, domain: &[u8], entries: &[Entry]) -> Lookup<'_> {
        let Some(mut at) = self.domain(domain) else { return Lookup::UnknownDomain };
        let mut rule = None;
        let mut shared = SmallVec::new();
        for (index, entry) in entries.iter().enumerate() {
            let Some(step) = self.step(at, entry) else { return Lookup::NoRule };
            if let Some(pattern) = step.shared_pattern() {
                shared.resize(entries.len(), None);
                if let Some(slot) = shared.get_mut(index) {
                    *slot = Some(pattern);
                }
            }
            rule = step.node.rule.as_ref();
            at = step.id;
        }
        rule.map_or(Lookup::NoRule, |rule| Lookup::Found(Match { rule, shared }))
    }

    /// The way that a descriptor takes, one step for each entry; `None` if it ends before.
    pub fn walk(&self, domain: &[u8], entries: &[Entry]) -> Option<Vec<Step<'_>>> {
        let mut at = self.domain(domain)?;
        let step = |entry| {
            let step = self.step(at, entry)?;
            at = step.id;
            Some(step)
        };
        entries.iter().map(step).collect()
    }

    pub fn has_domain(&self, name: &[u8]) -> bool {
        self.domain(name).is_some()
    }

    /// In the order of declaration.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.nodes.iter().filter_map(|node| node.rule.as_ref())
    }

    pub fn n_domains(&self) -> usize {
        self.domains.len()
    }

    /// The node of a domain, made if there is none yet.
    pub fn add_domain(&mut self, name: &[u8]) -> NodeId {
        self.domain(name).unwrap_or_else(|| {
            let id = self.add(Node::root(name));
            let hash_of =
                |id: &NodeId| self.hasher.hash_one(self.nodes.get(id.0 as usize).map(|node| &*node.key));
            self.domains.insert_unique(hash_of(&id), id, hash_of);
            id
        })
    }

    /// Adds a node; the caller knows that its parent has none of this key and value yet.
    pub fn add(&mut self, node: Node) -> NodeId {
        // A file holds fewer values than that.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    /// Builds the tables, once all nodes are there.
    pub fn index(&mut self) {
        #[derive(Default)]
        struct Members<'n> {
            patterns: Vec<(&'n [u8], NodeId)>,
            any: Option<NodeId>,
        }
        let Self { nodes, groups, exact, others, hasher, .. } = self;
        let hash_of = |id: &NodeId| {
            let node = nodes.get(id.0 as usize);
            hasher.hash_one(node.map(|node| (node.parent, &*node.key, node.value.as_deref())))
        };
        let mut grouped: BTreeMap<(NodeId, &[u8]), Members<'_>> = BTreeMap::new();
        for (id, node) in (0..).map(NodeId).zip(nodes.iter()) {
            let Some(parent) = node.parent else { continue };
            match &node.value {
                Some(value) => {
                    exact.insert_unique(hash_of(&id), id, hash_of);
                    if value.contains(&b'*') {
                        grouped.entry((parent, &node.key)).or_default().patterns.push((value, id));
                    }
                }
                None => grouped.entry((parent, &node.key)).or_default().any = Some(id),
            }
        }
        *groups = grouped
            .into_iter()
            .map(|((parent, key), Members { patterns, any })| Group {
                parent,
                key: key.into(),
                patterns: Patterns::new(patterns),
                any,
            })
            .collect();
        let hash_of = |number: &u32| {
            let group = groups.get(*number as usize);
            hasher.hash_one(group.map(|group| (group.parent, &*group.key)))
        };
        for (number, _) in (0..).zip(groups.iter()) {
            others.insert_unique(hash_of(&number), number, hash_of);
        }
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    fn domain(&self, name: &[u8]) -> Option<NodeId> {
        let is_it = |id: &NodeId| self.node(*id).is_some_and(|node| *node.key == *name);
        self.domains.find(self.hasher.hash_one(Some(name)), is_it).copied()
    }

    /// Where an entry leads from a node.
    fn step(&self, parent: NodeId, entry: &Entry) -> Option<Step<'_>> {
        let (key, value): (&[u8], &[u8]) = (&entry.key, &entry.value);
        let hash = self.hasher.hash_one(Some((Some(parent), key, Some(value))));
        let is_it = |id: &NodeId| {
            let node = self.node(*id);
            node.is_some_and(|node| {
                node.parent == Some(parent) && *node.key == *key && node.value.as_deref() == Some(value)
            })
        };
        if let Some(id) = self.exact.find(hash, is_it) {
            return self.step_to(*id, Via::Exact);
        }
        let is_it = |number: &u32| {
            let group = self.groups.get(*number as usize);
            group.is_some_and(|group| group.parent == parent && *group.key == *key)
        };
        let number = self.others.find(self.hasher.hash_one(Some((parent, key))), is_it)?;
        let group = self.groups.get(*number as usize)?;
        match group.patterns.find(value) {
            Some(id) => self.step_to(id, Via::Pattern),
            None => self.step_to(group.any?, Via::Any),
        }
    }

    fn step_to(&self, id: NodeId, via: Via) -> Option<Step<'_>> {
        Some(Step { id, node: self.node(id)?, via })
    }
}

impl Node {
    /// A domain.
    pub fn root(name: &[u8]) -> Self {
        Self { parent: None, key: name.into(), value: None, shares: false, shows_value: false, rule: None }
    }
}

impl<'r> Step<'r> {
    /// The pattern that the entry's counter is shared under.
    pub fn shared_pattern(&self) -> Option<&'r [u8]> {
        if self.via == Via::Pattern && self.node.shares { self.node.value.as_deref() } else { None }
    }
}
