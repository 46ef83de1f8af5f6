//! A rules file's first YAML document as a tree of nodes with their positions. Knows nothing of what a key means.
//!
//! **Invariant:** a tree is at most [`MAX_DEPTH`] deep and, aliases unfolded, at most [`MAX_ALIASED`] nodes larger than
//! what is written: whoever walks it recursively neither overflows the stack nor walks for ever. Aliases share their
//! target.

use std::{collections::HashMap, rc::Rc};

use granit_parser::{
    ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag, options,
};

use super::{
    problem::{At, quoted},
    scalar::{self, Meaning, Scalar},
    text,
};

/// How deep mappings and lists may be nested: 250 levels of descriptors. Walking it takes well under 1 MiB of stack.
pub(crate) const MAX_DEPTH: usize = 512;

/// How many nodes may be written in a file: about 50 MB of rules.
const MAX_NODES: usize = 5_000_000;

/// How many nodes aliases may add to those written; the reference's reader allows about as many.
pub(crate) const MAX_ALIASED: usize = 400_000;

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub at: At,
    /// It carries an `&anchor`.
    pub anchored: bool,
    pub shape: Shape,
    /// Nodes below and including this, aliases unfolded.
    weight: usize,
    /// Levels below and including this.
    height: usize,
}

/// Keys and values in the order written, repeated keys included.
pub(crate) type Mapping = [(Rc<Node>, Rc<Node>)];

#[derive(Debug)]
pub(crate) enum Shape {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Mapping(Vec<(Rc<Node>, Rc<Node>)>),
}

impl Node {
    pub fn scalar(&self) -> Option<&Scalar> {
        if let Shape::Scalar(scalar) = &self.shape { Some(scalar) } else { None }
    }

    pub fn is_null(&self) -> bool {
        self.scalar().is_some_and(|scalar| scalar.meaning == Meaning::Null)
    }

    /// This as a mapping's key, if it is text. A number or a boolean is not, quoted or not quoted makes the difference.
    pub fn key_text(&self) -> Option<&str> {
        self.scalar().filter(|scalar| scalar.meaning == Meaning::Text).map(|scalar| &*scalar.text)
    }

    /// What this is, for a message: the text of a scalar, else its kind.
    pub fn describe(&self) -> String {
        match &self.shape {
            Shape::Scalar(scalar) if scalar.meaning == Meaning::Null => "nothing".to_owned(),
            Shape::Scalar(scalar) => quoted(&scalar.text),
            Shape::List(_) => "a list".to_owned(),
            Shape::Mapping(_) => "a map".to_owned(),
        }
    }
}

/// What a file holds.
#[derive(Debug)]
pub(crate) struct Document {
    /// `None`: nothing but comments.
    pub root: Option<Rc<Node>>,
    /// Where the second document starts and how many follow the first; only the first counts.
    pub ignored: Option<(At, usize)>,
}

/// Why a file is not YAML that can be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub at: At,
    pub found: String,
    pub advice: &'static str,
}

/// Reads the first document of a file.
pub(crate) fn read(bytes: &[u8]) -> Result<Document, Unreadable> {
    let source = text::decode(bytes).map_err(|not_text| Unreadable {
        at: not_text.at,
        found: not_text.found,
        advice: "save the file as UTF-8, or as UTF-16 with a byte order mark",
    })?;
    let forbidden = text::first_forbidden(&source);
    let mut parser = Parser::new_from_str_with_options(&source, parser_options());
    let document = read_first(&mut parser, &source);
    let end = document.as_ref().map_or(usize::MAX, |(_, end)| *end);
    if let Some((offset, c)) = forbidden.filter(|(offset, _)| *offset < end) {
        return Err(Unreadable {
            at: text::end_of(source.get(..offset).unwrap_or_default()),
            found: format!("the character U+{:04X} is not allowed in YAML", u32::from(c)),
            advice: "remove it, or write it as an escape in double quotes",
        });
    }
    let (root, _) = document?;
    Ok(Document { root, ignored: count_others(&mut parser) })
}

fn parser_options() -> Options {
    let mut options = options! {
        // Our own bound is checked first and says more.
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    };
    options.set_emit_comments(false);
    options
}

type Events<'s> = Parser<'s, StrInput<'s>>;

/// The first document's root, and the byte offset of its end.
fn read_first(parser: &mut Events<'_>, source: &str) -> Result<(Option<Rc<Node>>, usize), Unreadable> {
    let mut builder = Builder::default();
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| unreadable(&error, source))?;
        if matches!(event, Event::DocumentEnd) {
            return Ok((builder.root, span.start.byte_offset().unwrap_or(usize::MAX)));
        }
        builder.take(event, &span)?;
    }
    Ok((None, source.len()))
}

/// The documents after the first that hold anything, as far as they can be read.
fn count_others(parser: &mut Events<'_>) -> Option<(At, usize)> {
    let mut others: Option<(At, usize)> = None;
    let mut start = None;
    let mut count = |start: Option<At>| {
        if let Some(start) = start {
            let (first, n) = others.unwrap_or((start, 0));
            others = Some((first, n + 1));
        }
    };
    while let Some(next) = parser.next_event() {
        match next {
            Ok((Event::DocumentStart(..), span)) => start = Some(at(&span)),
            Ok((Event::Scalar(..), span)) if span.is_empty() => start = None,
            Ok(_) => count(start.take()),
            Err(_) => {
                count(start);
                break;
            }
        }
    }
    others
}

/// Builds the tree. Its stack is as deep as the tree, so that the bound on depth is a bound on it.
#[derive(Default)]
struct Builder {
    root: Option<Rc<Node>>,
    open: Vec<Open>,
    /// The finished nodes that an alias can mean, by the parser's number for the anchor.
    anchors: HashMap<usize, Rc<Node>>,
    n_nodes: usize,
}

/// A list or mapping whose end has not come yet; a mapping's children are its keys and values in turn.
struct Open {
    at: At,
    anchor: usize,
    is_mapping: bool,
    children: Vec<Rc<Node>>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Unreadable> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(&text, style, anchor, tag.as_deref(), span)
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::SequenceStart(_, anchor, _) => self.start(anchor, false, span),
            Event::MappingStart(_, anchor, _) => self.start(anchor, true, span),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
    ) -> Result<(), Unreadable> {
        let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
        // A lone `!` asks for no resolution by YAML 1.2 and for the plain one by the reference's reader.
        let (plain, tag) = match tag.as_deref() {
            Some("!") => (true, None),
            tag => (style == ScalarStyle::Plain, tag),
        };
        let meaning = scalar::resolve(text, plain, tag).map_err(|found| Unreadable {
            at: at(span),
            found,
            advice: "change the value or its tag",
        })?;
        let shape = Shape::Scalar(Scalar { text: text.into(), meaning, plain: plain && tag.is_none() });
        self.count(span)?;
        self.add(Rc::new(Node { at: at(span), anchored: anchor != 0, shape, weight: 1, height: 1 }), anchor);
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: &Span) -> Result<(), Unreadable> {
        let Some(target) = self.anchors.get(&anchor).map(Rc::clone) else {
            let found = "this alias stands inside of its own anchor".to_owned();
            return Err(Unreadable { at: at(span), found, advice: "write out what it stands for" });
        };
        if self.open.len() + target.height > MAX_DEPTH {
            return Err(too_deep(at(span)));
        }
        self.add(target, 0);
        Ok(())
    }

    fn start(&mut self, anchor: usize, is_mapping: bool, span: &Span) -> Result<(), Unreadable> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(at(span)));
        }
        self.count(span)?;
        self.open.push(Open { at: at(span), anchor, is_mapping, children: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Unreadable> {
        let Some(Open { at, anchor, is_mapping, children }) = self.open.pop() else { return Ok(()) };
        let weight = children.iter().fold(1_usize, |sum, child| sum.saturating_add(child.weight));
        if weight > self.n_nodes.saturating_add(MAX_ALIASED) {
            let found = format!("the aliases in here unfold to more than {MAX_ALIASED} values");
            return Err(Unreadable { at, found, advice: "use fewer aliases of aliases" });
        }
        let height = 1 + children.iter().map(|child| child.height).max().unwrap_or(0);
        let shape = if is_mapping { Shape::Mapping(pair_up(children)) } else { Shape::List(children) };
        self.add(Rc::new(Node { at, anchored: anchor != 0, shape, weight, height }), anchor);
        Ok(())
    }

    fn add(&mut self, node: Rc<Node>, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.open.last_mut() {
            Some(open) => open.children.push(node),
            None => self.root = Some(node),
        }
    }

    fn count(&mut self, span: &Span) -> Result<(), Unreadable> {
        self.n_nodes += 1;
        if self.n_nodes <= MAX_NODES {
            return Ok(());
        }
        let found = format!("the file holds more than {MAX_NODES} values");
        Err(Unreadable { at: at(span), found, advice: "split it" })
    }
}

fn pair_up(children: Vec<Rc<Node>>) -> Vec<(Rc<Node>, Rc<Node>)> {
    let mut pairs = Vec::with_capacity(children.len() / 2);
    let mut children = children.into_iter();
    while let (Some(key), Some(value)) = (children.next(), children.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn too_deep(at: At) -> Unreadable {
    let found = format!("maps and lists are nested more than {MAX_DEPTH} deep");
    Unreadable { at, found, advice: "a descriptor takes two levels: use fewer" }
}

fn at(span: &Span) -> At {
    from_marker(&span.start)
}

/// The parser counts lines from 1 and columns from 0.
fn from_marker(marker: &Marker) -> At {
    let fit = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    At { line: fit(marker.line()), column: fit(marker.col().saturating_add(1)) }
}

fn unreadable(error: &ScanError, source: &str) -> Unreadable {
    let marker = error.marker();
    let position = from_marker(marker);
    let rest = marker.byte_offset().and_then(|offset| source.get(offset..)).unwrap_or_default();
    let word: &str = rest.split([' ', '\t', '\r', '\n', ',', ']', '}']).next().unwrap_or_default();
    let (found, advice) = match error.kind() {
        ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName if rest.starts_with('*') => (
            format!("{} is an alias in YAML, and there is no such anchor before it", quoted(word)),
            "put a value that begins with * in quotes",
        ),
        ErrorKind::UnexpectedCharacter { character } => (
            format!("a value cannot begin with {}", quoted(&character.to_string())),
            "put the value in quotes",
        ),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => {
            let at = tab_in_indentation(source, rest).unwrap_or(position);
            return Unreadable {
                at,
                found: "a tab is not allowed here".to_owned(),
                advice: "indent with spaces",
            };
        }
        ErrorKind::MappingValueNotAllowed => {
            (error.info(), "put a value that holds a colon in quotes, and check the indentation of this line")
        }
        ErrorKind::RecursionLimitExceeded => return too_deep(position),
        _ => (error.info(), ""),
    };
    Unreadable { at: position, found, advice }
}

/// The first tab from `rest` on, a tail of `source`, that stands where a line is indented.
fn tab_in_indentation(source: &str, rest: &str) -> Option<At> {
    let from = source.len().checked_sub(rest.len())?;
    let mut line_start = source.get(..from)?.rfind('\n').map_or(0, |newline| newline + 1);
    for line in source.get(line_start..)?.split_inclusive('\n') {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line.get(..indentation)?.find('\t') {
            return Some(text::end_of(source.get(..line_start + tab)?));
        }
        line_start += line.len();
    }
    None
}

#[cfg(test)]
mod tests;
