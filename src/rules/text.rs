//! The bytes of a rules file as text: UTF-8 with or without a byte order mark, UTF-16 with one. Knows nothing of YAML.

use std::borrow::Cow;

use super::problem::At;

/// Why bytes are no text, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotText {
    pub at: At,
    pub found: String,
}

/// The text of a file, without its byte order mark.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, NotText> {
    match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes).map(Cow::Owned),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes).map(Cow::Owned),
        [0xEF, 0xBB, 0xBF, rest @ ..] => utf8(rest).map(Cow::Borrowed),
        _ => utf8(bytes).map(Cow::Borrowed),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, NotText> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (good, bad) = bytes.split_at(error.valid_up_to());
        let found = format!("byte 0x{:02X} is not valid UTF-8", bad.first().copied().unwrap_or_default());
        NotText { at: end_of(&String::from_utf8_lossy(good)), found }
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, NotText> {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(c) => text.push(c),
            Err(_) => {
                return Err(NotText {
                    at: end_of(&text),
                    found: "half of a UTF-16 surrogate pair".to_owned(),
                });
            }
        }
    }
    if odd.is_empty() {
        Ok(text)
    } else {
        Err(NotText { at: end_of(&text), found: "half of a UTF-16 character".to_owned() })
    }
}

/// The first character that YAML 1.1 does not allow in a file, and its byte offset.
pub(crate) fn first_forbidden(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, c)| {
        !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{A0}'..='\u{FEFE}' | '\u{FF00}'..='\u{FFFD}' | '\u{10000}'..)
    })
}

/// The position right after `text`.
pub(crate) fn end_of(text: &str) -> At {
    let line_start = text.rfind('\n').map_or(0, |newline| newline + 1);
    let n_lines = text.bytes().filter(|byte| *byte == b'\n').count();
    let n_columns = text.get(line_start..).map_or(0, |line| line.chars().count());
    let from_1 = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
    At { line: from_1(n_lines), column: from_1(n_columns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_in_four_encodings() {
        let text = "domain: é🙂\n";
        let units: Vec<u16> = "\u{FEFF}".encode_utf16().chain(text.encode_utf16()).collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        let marked = [b"\xEF\xBB\xBF", text.as_bytes()].concat();
        for bytes in [text.as_bytes(), &marked, &little, &big] {
            assert_eq!(decode(bytes).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_place() {
        let at = |bytes: &[u8]| decode(bytes).unwrap_err().at;
        assert_eq!(at(b"a: b\nc: \xFFd\n"), At { line: 2, column: 4 });
        assert_eq!(at(b"\xFF\xFEa\0\n\0x"), At { line: 2, column: 1 });
        assert_eq!(at(b"\xFE\xFF\0a\xD8\0"), At { line: 1, column: 2 });
    }

    #[test]
    fn control_characters_are_found() {
        assert_eq!(first_forbidden("a\tb\r\nc\u{85}é🙂"), None);
        assert_eq!(first_forbidden("ab\u{7}"), Some((2, '\u{7}')));
        assert_eq!(first_forbidden("a\u{FEFF}"), Some((1, '\u{FEFF}')));
    }
}
