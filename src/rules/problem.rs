//! What is wrong with the rules files, said so that a person can act on it. Knows nothing of YAML and nothing of what a
//! rule means.
//!
//! **Invariant:** one problem is one line, whatever the file holds: what is quoted from it is escaped and cut.

use std::{cmp::Ordering, fmt, sync::Arc};

/// The most problems, and the most warnings, that one load keeps; the others are counted.
const MAX_KEPT: usize = 1_000;

/// How much of a file's name, a full key or a way through the file a message gives, in characters.
const MAX_NAME: usize = 400;

/// How much of a value a message quotes, in characters.
const MAX_QUOTED: usize = 80;

/// A position in a file, in characters, both from 1. In a resource, which has no lines: line 0, and in the place of the column
/// how many things come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub line: u32,
    pub column: u32,
}

impl At {
    pub const START: Self = Self { line: 1, column: 1 };

    /// The `n`-th thing of a resource.
    pub const fn nth(n: u32) -> Self {
        Self { line: 0, column: n }
    }
}

/// One thing that is wrong (or, as a warning, odd) in a rules file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Or the control plane's resource.
    pub file: Arc<str>,
    /// From 1; 0 in a resource, which has no lines.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// The way to it through the file, as in `descriptors[2].rate_limit.unit`; empty at the root.
    pub path: String,
    /// The rule that it is in, by full key, as in `shop.PATH_/login`; empty outside of a rule.
    pub rule: String,
    /// What was found.
    pub found: String,
    /// What was expected or what to do; may be empty.
    pub advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", one_line(&self.file))?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.found)?;
        if !self.advice.is_empty() {
            write!(f, ": {}", self.advice)?;
        }
        match (self.path.is_empty(), self.rule.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => write!(f, " (at {})", self.path),
            (true, false) => write!(f, " (rule {})", self.rule),
            (false, false) => write!(f, " (at {}, rule {})", self.path, self.rule),
        }
    }
}

/// Everything that is wrong with a set of files, in the order of the files and of their lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    found: Vec<Problem>,
    n_omitted: usize,
    warnings: Vec<Problem>,
}

impl Problems {
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.found.iter()
    }

    /// What is odd beside it without being wrong, in the same order.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// How many there were in all; above 1,000 not all of them are kept.
    pub fn total(&self) -> usize {
        self.found.len() + self.n_omitted
    }
}

impl<'p> IntoIterator for &'p Problems {
    type Item = &'p Problem;
    type IntoIter = std::slice::Iter<'p, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One line for each problem.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        if self.n_omitted > 0 {
            write!(f, "\nand {} more", self.n_omitted)?;
        }
        Ok(())
    }
}

/// Where a reader of the tree stands. Lives on the stack; turned into text only when there is something to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
    /// What this adds to the rule's full key: the domain, or a descriptor's `key_value`.
    label: &'a str,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    pub fn root(domain: &'a str) -> Self {
        Self { parent: None, step: Step::Root, label: domain }
    }

    pub fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key), label: "" }
    }

    pub fn item(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Item(index), label: "" }
    }

    pub fn descriptor(&'a self, index: usize, label: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Item(index), label }
    }

    /// The key of the file that this is the value of.
    pub fn last_key(&self) -> Option<&'a str> {
        match self.step {
            Step::Key(key) => Some(key),
            Step::Root | Step::Item(_) => None,
        }
    }

    /// The full key of the rule here: empty unless the path leads into a descriptor that has a key.
    pub fn full_key(&self) -> String {
        let labels: Vec<&str> =
            self.steps().iter().map(|path| path.label).filter(|label| !label.is_empty()).collect();
        match labels.as_slice() {
            [] | [_] => String::new(),
            labels => one_line(&labels.join(".")),
        }
    }

    fn steps(&self) -> Vec<&Path<'a>> {
        let mut steps: Vec<&Path<'a>> = std::iter::successors(Some(self), |path| path.parent).collect();
        steps.reverse();
        steps
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for path in self.steps() {
            match path.step {
                Step::Root => continue,
                Step::Item(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "{}{}", if first { "" } else { "." }, escaped(key, MAX_QUOTED))?,
            }
            first = false;
        }
        Ok(())
    }
}

/// Collects what is found, over all files.
#[derive(Debug)]
pub(crate) struct Report {
    file: Arc<str>,
    problems: Kept,
    warnings: Kept,
}

#[derive(Debug, Default)]
struct Kept {
    found: Vec<Problem>,
    n_omitted: usize,
}

impl Report {
    pub fn new() -> Self {
        Self { file: Arc::from(""), problems: Kept::default(), warnings: Kept::default() }
    }

    /// What comes next is about this file.
    pub fn enter(&mut self, file: &Arc<str>) {
        self.file = Arc::clone(file);
    }

    pub fn problem(&mut self, at: At, path: &Path<'_>, found: impl Into<String>, advice: impl Into<String>) {
        let file = Arc::clone(&self.file);
        self.problems.push(|| say(file, at, path, found.into(), advice.into()));
    }

    pub fn warning(&mut self, at: At, path: &Path<'_>, found: impl Into<String>, advice: impl Into<String>) {
        let file = Arc::clone(&self.file);
        self.warnings.push(|| say(file, at, path, found.into(), advice.into()));
    }

    /// Whether a further problem would only be counted.
    pub fn is_full(&self) -> bool {
        self.problems.found.len() >= MAX_KEPT
    }

    /// The warnings if there was no problem, else the problems with the warnings in them.
    pub fn finish(self) -> Result<Vec<Problem>, Problems> {
        let Kept { found, n_omitted } = self.problems.sorted();
        let warnings = self.warnings.sorted().found;
        if found.is_empty() { Ok(warnings) } else { Err(Problems { found, n_omitted, warnings }) }
    }
}

impl Kept {
    fn push(&mut self, problem: impl FnOnce() -> Problem) {
        if self.found.len() < MAX_KEPT {
            self.found.push(problem());
        } else {
            self.n_omitted += 1;
        }
    }

    /// In the order of the files and lines. What was found twice, because an alias leads to it too, is said once.
    fn sorted(mut self) -> Self {
        self.found.sort_by(|a, b| place(a).cmp(&place(b)));
        self.found.dedup_by(|b, a| place(a) == place(b));
        self
    }
}

fn place(problem: &Problem) -> (&str, u32, u32, &str) {
    (&problem.file, problem.line, problem.column, &problem.found)
}

fn say(file: Arc<str>, at: At, path: &Path<'_>, found: String, advice: String) -> Problem {
    Problem {
        file,
        line: at.line,
        column: at.column,
        path: last_of(path.to_string(), MAX_NAME),
        rule: path.full_key(),
        found,
        advice,
    }
}

/// The end of a text, cut to `max` characters.
fn last_of(text: String, max: usize) -> String {
    match text.char_indices().rev().nth(max) {
        Some((cut, c)) => format!("…{}", text.get(cut + c.len_utf8()..).unwrap_or_default()),
        None => text,
    }
}

/// `text` in single quotes, on one line, cut to a length that a message can carry.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", escaped(text, MAX_QUOTED))
}

/// A name on one line, cut to a length that a message can carry.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, MAX_NAME)
}

fn escaped(text: &str, max: usize) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == max {
            out.push('…');
            break;
        }
        match c {
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// The candidate that `word` was probably meant to be, if one is near enough to be worth naming.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower: String = word.chars().take(MAX_QUOTED).collect::<String>().to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by(|(a, x), (b, y)| a.cmp(b).then(Ordering::Equal).then(x.cmp(y)))
        .map(|(_, candidate)| candidate)
}

/// `a, b or c`.
pub(crate) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}
