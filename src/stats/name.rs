//! Names in statistics as the reference writes them: parts joined by dots, and what would break a line or a label replaced.
//!
//! **Invariant:** no part of a name holds a control character, `:` or `|`, whatever a client sent; a dot within a part is
//! told from one between two parts.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

use crate::rules::StatKey;

/// Stands for a dot within a part as long as names are looked at part by part. Never in a cleaned part otherwise.
pub(super) const INNER_DOT: char = '\u{1f}';

/// An IPv4 address, or what looks like one.
static ADDRESS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}").ok());

/// The parts of a rule's name, cleaned, joined by dots, those within a part hidden.
pub(super) fn hidden(key: &StatKey) -> String {
    let mut name = String::with_capacity(key.len());
    for (i, part) in key.parts().enumerate() {
        if i > 0 {
            name.push('.');
        }
        name.push_str(&clean(part).replace('.', INNER_DOT.encode_utf8(&mut [0; 4])));
    }
    name
}

/// The name with all its dots, as it is written.
pub(super) fn plain(hidden: &str) -> Cow<'_, str> {
    if hidden.contains(INNER_DOT) {
        Cow::Owned(hidden.replace(INNER_DOT, "."))
    } else {
        Cow::Borrowed(hidden)
    }
}

/// One part: colons, pipes and the dots of an IPv4 address become underscores, as in the reference. Control characters do
/// too, and what would read as a tag (`.__`).
fn clean(part: &[u8]) -> String {
    let text = String::from_utf8_lossy(part);
    let has_three_dots = text.bytes().filter(|byte| *byte == b'.').count() >= 3;
    let text = match ADDRESS.as_ref().filter(|_| has_three_dots) {
        Some(address) => Cow::Owned(address.replace_all(&text, underscored).into_owned()),
        None => text,
    };
    let text: String =
        text.chars().map(|c| if c == ':' || c == '|' || c.is_control() { '_' } else { c }).collect();
    if text.contains(".__") { text.replace(".__", "___") } else { text }
}

fn underscored(found: &Captures<'_>) -> String {
    found.get(0).map(|address| address.as_str().replace('.', "_")).unwrap_or_default()
}

/// A value of a tag: as a part, and without dots and commas, which end it for some receivers.
pub(super) fn clean_tag(text: &str) -> String {
    text.chars().map(|c| if ".:|,#".contains(c) || c.is_control() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_a_name_is_replaced_and_nothing_else() {
        for (part, cleaned) in [
            ("path_/a/1.2.3.4/b", "path_/a/1_2_3_4/b"),
            ("v1234.5.6.7", "v1234_5_6_7"),
            ("net_10.20.30.0/24", "net_10_20_30_0/24"),
            ("2001:db8::1", "2001_db8__1"),
            ("eu|west", "eu_west"),
            ("a.b.c", "a.b.c"),
            ("a.b.c.d 1.2.3", "a.b.c.d 1.2.3"),
            ("x\ninjected:1|c\r\0\u{1f}\u{85}", "x_injected_1_c____"),
            ("a.__admin=1", "a___admin=1"),
            ("# @ , ü", "# @ , ü"),
        ] {
            assert_eq!(clean(part.as_bytes()), cleaned);
        }
        assert_eq!(clean(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_dot_within_a_part_is_hidden() {
        let mut key = StatKey::domain(b"api.example.test");
        key.level(b"grpc.method", Some(b"/a.b/C"));
        let hidden = hidden(&key);
        assert_eq!(hidden.split('.').count(), 2);
        assert_eq!(plain(&hidden), "api.example.test.grpc.method_/a.b/C");
    }
}
