//! Texts that refer to what a pattern matched: `$1`, `${1}`. Pure.

use regex::Captures;

/// The text with each reference replaced. One that `part` knows nothing of stays as it is written; what is put in is not
/// looked at again.
pub(super) fn filled<'p>(template: &str, part: impl Fn(usize) -> Option<&'p str>) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let (number, n_bytes) = reference(after);
        match number.parse().ok().and_then(&part) {
            Some(found) => {
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

/// What a group of an expression matched, nothing if it took no part; `None` if there is no such group.
pub(super) fn group<'t>(groups: &Captures<'t>, number: usize) -> Option<&'t str> {
    (number < groups.len()).then(|| groups.get(number).map_or("", |found| found.as_str()))
}

/// The number after a dollar, which may stand in braces, and the bytes that it takes.
fn reference(after: &str) -> (&str, usize) {
    match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        Some((number, _)) => (number, number.len() + 2),
        None => {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            (after.get(..end).unwrap_or_default(), end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_take_all_their_digits_and_what_is_put_in_is_left_alone() {
        let parts = ["whole", "a$2", "b"];
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
            assert_eq!(filled(template, |number| parts.get(number).copied()), text, "{template}");
        }
    }
}
