//! Texts that refer to what a pattern matched: `$1`, `${1}`. Pure. Each kind of pattern has its own rules, which are those of the
//! program that its files were written for; what is put in is never looked at again.

use regex::Captures;

/// A text of a glob, by the rules of `statsd_exporter`: a reference takes all letters, digits, `_` and `$` that follow, and is
/// nothing unless it is the number of a star.
pub(super) fn with_stars(template: &str, stars: &[&str]) -> String {
    filled(template, |after| {
        let (inner, in_brace) = after.strip_prefix('{').map_or((after, 0), |inner| (inner, 1));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let end = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
        let (name, rest) = inner.split_at(end);
        let star = || name.parse::<usize>().ok()?.checked_sub(1).and_then(|i| stars.get(i)).copied();
        let closing = usize::from(rest.starts_with('}'));
        (!name.is_empty()).then(|| (star().unwrap_or_default(), in_brace + name.len() + closing))
    })
}

/// A text of an expression, by the rules of Go's `Regexp.Expand`, which `statsd_exporter` uses: a reference takes all letters,
/// digits and `_` that follow, is the group of that number or name, nothing if there is none, and `$$` is a dollar.
pub(super) fn expanded(template: &str, groups: &Captures<'_>) -> String {
    let mut text = String::with_capacity(template.len());
    groups.expand(template, &mut text);
    text
}

/// A text of a mogrifier, by the rules of the reference: a reference is a number, in braces or not, and stays as it is written if
/// there is no such group.
pub(super) fn with_numbers(template: &str, groups: &Captures<'_>) -> String {
    filled(template, |after| {
        let (number, n_bytes) = number(after);
        let group: usize = number.parse().ok()?;
        let found = groups.get(group).map_or("", |found| found.as_str());
        (group < groups.len()).then_some((found, n_bytes))
    })
}

/// The number after a dollar, which may stand in braces, and the bytes that it takes.
fn number(after: &str) -> (&str, usize) {
    match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        Some((number, _)) => (number, number.len() + 2),
        None => {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            (after.get(..end).unwrap_or_default(), end)
        }
    }
}

/// The text with each reference replaced. `part` is given what follows a dollar, and says what to put in and how many bytes
/// that is for; nothing if the dollar is just a dollar.
fn filled<'p>(template: &str, part: impl Fn(&str) -> Option<(&'p str, usize)>) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        match part(after) {
            Some((found, n_bytes)) => {
                text.push_str(found);
                rest = after.get(n_bytes..).unwrap_or_default();
            }
            None => {
                text.push('$');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn a_mogrifiers_references_take_all_their_digits_and_what_is_put_in_is_left_alone() {
        let expression = Regex::new("^(a..)(b)$").unwrap();
        let groups = expression.captures("a$2b").unwrap();
        for (template, text) in [
            ("$1x", "a$2x"),
            ("${1}0", "a$20"),
            ("$10", "$10"),
            ("$2$1", "ba$2"),
            ("$", "$"),
            ("$$2", "$b"),
            ("${x}", "${x}"),
            ("${2", "${2"),
            ("ü$2ü", "übü"),
        ] {
            assert_eq!(with_numbers(template, &groups), text, "{template}");
        }
    }

    #[test]
    fn an_expressions_references_are_gos() {
        let expression = Regex::new("^(?P<name>a..)(b)(c)?$").unwrap();
        let groups = expression.captures("a$2b").unwrap();
        for (template, text) in [
            ("$1-$2", "a$2-b"),
            ("$name-${name}", "a$2-a$2"),
            ("$9|${9}|$nobody", "||"),
            ("$1_x|${1}_x", "|a$2_x"),
            ("$$1", "$1"),
            ("$3", ""),
            ("$0", "a$2b"),
            ("$|$-", "$|$-"),
        ] {
            assert_eq!(expanded(template, &groups), text, "{template}");
        }
    }

    #[test]
    fn a_globs_references_are_stars_or_nothing() {
        for (template, text) in [
            ("$1-$2", "a$2-b"),
            ("${1}0", "a$20"),
            ("$5|${5}|$0", "||"),
            ("$1_x|${name}|$$1", "||"),
            ("${2", "b"),
            ("$|$-|${}", "$|$-|${}"),
        ] {
            assert_eq!(with_stars(template, &["a$2", "b"]), text, "{template}");
        }
    }
}
