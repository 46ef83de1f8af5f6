//! The first look at a file's whole tree: every key is known, every list holds maps, no value is a number with a
//! fraction. The reference makes these checks without regard to levels, and so does this; what stands under `metadata` is
//! free.

use super::{
    keys::{self, Origin},
    pairs::{Pair, Pairs},
    problem::{Path, Report, nearest, quoted},
    raw::label,
    scalar::{Meaning, Scalar},
    tree::{Mapping, Node, Shape},
};

/// Reports what is wrong with the mapping and everything below it.
pub(crate) fn vet(mapping: &Mapping, path: &Path<'_>, report: &mut Report) {
    let Pairs { pairs, unmergeable } = Pairs::of(mapping);
    for node in unmergeable {
        let found = format!("error loading config file: {} cannot be merged by <<", node.describe());
        report.problem(node.at, path, found, "only a map can, or a list of maps");
    }
    for pair in &pairs {
        let Some(key) = pair.key.key_text() else {
            not_text(pair.key, path, report);
            continue;
        };
        match keys::find(key).map(|known| known.origin) {
            None => unknown(key, pair, path, report),
            Some(Origin::Later) => later(key, pair, path, report),
            // Of a repeated key the reference sees the last value only; metadata is free-form.
            Some(_) if pair.superseded || key == "metadata" => {}
            Some(_) => value(pair.value, &path.key(key), report),
        }
    }
}

fn value(node: &Node, path: &Path<'_>, report: &mut Report) {
    match &node.shape {
        Shape::Mapping(mapping) => vet(mapping, path, report),
        Shape::List(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Shape::Mapping(mapping) = &item.shape {
                    vet(mapping, &path.descriptor(index, &label(mapping)), report);
                } else {
                    let found = format!(
                        "config error, yaml file contains list of type other than map: {}",
                        item.describe()
                    );
                    report.problem(item.at, &path.item(index), found, as_a_map(item, path));
                }
            }
        }
        Shape::Scalar(scalar) => number(node, scalar, path, report),
    }
}

/// How to write an item that is no map.
fn as_a_map(item: &Node, path: &Path<'_>) -> String {
    match (path.last_key(), item.scalar()) {
        (Some("replaces"), Some(name)) => format!("write {}", quoted(&format!("- name: {}", name.text))),
        (Some("replaces"), None) => "write '- name: …' for each item".to_owned(),
        _ => "write '- key: …' for each item".to_owned(),
    }
}

fn number(node: &Node, scalar: &Scalar, path: &Path<'_>, report: &mut Report) {
    let is_digits = || scalar.text.bytes().all(|byte| byte.is_ascii_digit());
    let (what, advice) = match scalar.meaning {
        Meaning::Float(_) if scalar.text.starts_with('0') && is_digits() => (
            "reads as a float: a number that begins with 0 is octal, and this has an 8 or 9".to_owned(),
            "put it in quotes if it is text, or leave out the 0",
        ),
        Meaning::Float(_) => {
            ("reads as a float".to_owned(), "put it in quotes if it is text, or write a whole number")
        }
        Meaning::Uint(_) => (format!("is a number above {}", i64::MAX), "put it in quotes if it is text"),
        _ => return,
    };
    let found = format!("error checking config: {} {what}", quoted(&scalar.text));
    report.problem(node.at, path, found, advice);
}

fn not_text(key: &Node, path: &Path<'_>, report: &mut Report) {
    let found = format!("config error, key is not of type string: {}", key.describe());
    let advice = match key.scalar().map(|scalar| &scalar.meaning) {
        Some(Meaning::Bool(_)) => "YAML reads this word as a boolean; no key here is called so",
        _ => "keys are words, as in 'key: value'",
    };
    report.problem(key.at, path, found, advice);
}

fn unknown(key: &str, pair: &Pair<'_>, path: &Path<'_>, report: &mut Report) {
    let meant = if report.is_full() { None } else { nearest(key, keys::names()).or_else(|| longer(key)) };
    let advice = match meant {
        Some(name) => format!("did you mean '{name}'?"),
        None if pair.value.anchored => "put the &anchor where the value is used first".to_owned(),
        None => "see the list of keys in docs/rules.md".to_owned(),
    };
    report.problem(pair.key.at, path, format!("config error, unknown key {}", quoted(key)), advice);
}

/// The only name that begins with this word: `shadow` for `shadow_mode`.
fn longer(key: &str) -> Option<&'static str> {
    let begins = |name: &&str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('_'));
    let mut names = keys::names().filter(begins);
    names.next().filter(|_| names.next().is_none())
}

fn later(key: &str, pair: &Pair<'_>, path: &Path<'_>, report: &mut Report) {
    let found = format!("config error, key '{key}' is described and not built yet");
    report.problem(pair.key.at, path, found, "remove it: this version would not act on it");
}
