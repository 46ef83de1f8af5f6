//! Makes the `:authority` of calls on a unix socket one that the HTTP/2 library takes.
//!
//! gRPC's C core (Python, C++, Ruby, …) names the path of the socket there, percent-encoded, and the library takes no `%` in a
//! host: it would refuse every call. Nobody here reads the authority, so each `%` in it becomes a `-` before the library sees
//! it. **Invariant:** nothing else is changed, and no length.

/// The bytes that a client says before its first frame.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// RFC 9113: the length of a frame's header, the type HEADERS, and two of its flags.
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// RFC 7541, appendix A: the index of `:authority`. The C core writes the name out all the same.
const AUTHORITY: u8 = 1;
const AUTHORITY_NAME: &[u8] = b":authority";

/// Follows the bytes that a client sends, however they are cut.
#[derive(Debug)]
pub(super) struct Rewriter(State);

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes mean nothing here.
    Skip(usize),
    /// So many of a frame's header were seen.
    Frame { seen: usize, length: usize, kind: u8, flags: u8 },
    /// In a block of headers, with so much of its frame left.
    Block { left: usize, at: Field },
}

/// Where in a block of headers (RFC 7541, 6).
#[derive(Clone, Copy, Debug)]
enum Field {
    /// Padding and priority, before the first field.
    Before(usize),
    Start,
    /// In a number of several bytes, and what comes after it.
    Number(After),
    Length(Text),
    LongLength {
        text: Text,
        coded: bool,
        shift: u32,
        so_far: usize,
    },
    Text {
        text: Text,
        coded: bool,
        left: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum After {
    Field,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    /// So many of its bytes are those of `:authority`, if all were.
    Name(Option<usize>),
    Value,
    AuthorityValue,
}

impl Text {
    const NAME: Self = Self::Name(Some(0));

    /// What follows the byte of a name.
    fn then(self, byte: u8) -> Self {
        match self {
            Self::Name(Some(seen)) if AUTHORITY_NAME.get(seen) == Some(&byte) => Self::Name(Some(seen + 1)),
            Self::Name(_) => Self::Name(None),
            value => value,
        }
    }
}

impl Rewriter {
    pub(super) fn new() -> Self {
        Self(State::Skip(PREFACE))
    }

    /// Takes the next bytes of the connection.
    pub(super) fn pass(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.after(byte);
        }
    }
}

impl State {
    const NEXT_FRAME: Self = Self::Frame { seen: 0, length: 0, kind: 0, flags: 0 };

    fn after(self, byte: &mut u8) -> Self {
        match self {
            Self::Skip(left) if left > 1 => Self::Skip(left - 1),
            Self::Skip(_) => Self::NEXT_FRAME,
            Self::Frame { seen, length, kind, flags } => {
                let (length, kind, flags) = match seen {
                    0..=2 => (length << 8 | usize::from(*byte), kind, flags),
                    3 => (length, *byte, flags),
                    4 => (length, kind, *byte),
                    _ => (length, kind, flags),
                };
                if seen + 1 < FRAME_HEADER {
                    Self::Frame { seen: seen + 1, length, kind, flags }
                } else {
                    Self::payload(length, kind, flags)
                }
            }
            Self::Block { left, at } => {
                let at = at.after(byte);
                if left > 1 { Self::Block { left: left - 1, at } } else { Self::NEXT_FRAME }
            }
        }
    }

    fn payload(length: usize, kind: u8, flags: u8) -> Self {
        match (length, kind) {
            (0, _) => Self::NEXT_FRAME,
            (left, HEADERS) => {
                let before = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
                Self::Block { left, at: if before > 0 { Field::Before(before) } else { Field::Start } }
            }
            (left, _) => Self::Skip(left),
        }
    }
}

impl Field {
    fn after(self, byte: &mut u8) -> Self {
        match self {
            Self::Before(left) if left > 1 => Self::Before(left - 1),
            Self::Before(_) => Self::Start,
            Self::Start => Self::begun_by(*byte),
            Self::Number(_) if *byte & 0x80 != 0 => self,
            Self::Number(After::Field) => Self::Start,
            Self::Number(After::Value) => Self::Length(Text::Value),
            Self::Length(text) => match (*byte & 0x80 != 0, usize::from(*byte & 0x7f)) {
                (coded, 0x7f) => Self::LongLength { text, coded, shift: 0, so_far: 0x7f },
                (coded, left) => Self::text(text, coded, left),
            },
            Self::LongLength { text, coded, shift, so_far } => {
                let more = usize::from(*byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
                let so_far = so_far.saturating_add(more);
                if *byte & 0x80 != 0 {
                    Self::LongLength { text, coded, shift: shift.saturating_add(7), so_far }
                } else {
                    Self::text(text, coded, so_far)
                }
            }
            Self::Text { text, coded, left } => {
                if text == Text::AuthorityValue && !coded && *byte == b'%' {
                    *byte = b'-';
                }
                Self::text(text.then(*byte), coded, left - 1)
            }
        }
    }

    /// A field by its first byte: indexed, a literal (kept or not), or a new size of the table.
    fn begun_by(byte: u8) -> Self {
        let literal = |index: u8, several: u8| match index {
            0 => Self::Length(Text::NAME),
            AUTHORITY => Self::Length(Text::AuthorityValue),
            index if index == several => Self::Number(After::Value),
            _ => Self::Length(Text::Value),
        };
        let number =
            |rest: u8, several: u8| if rest == several { Self::Number(After::Field) } else { Self::Start };
        match byte.leading_zeros() {
            0 => number(byte & 0x7f, 0x7f),
            1 => literal(byte & 0x3f, 0x3f),
            2 => number(byte & 0x1f, 0x1f),
            _ => literal(byte & 0x0f, 0x0f),
        }
    }

    fn text(text: Text, coded: bool, left: usize) -> Self {
        match (left, text) {
            (0, Text::Name(Some(seen))) if seen == AUTHORITY_NAME.len() => Self::Length(Text::AuthorityValue),
            (0, Text::Name(_)) => Self::Length(Text::Value),
            (0, Text::Value | Text::AuthorityValue) => Self::Start,
            (left, text) => Self::Text { text, coded, left },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn field(first: &[u8], value: &[u8]) -> Vec<u8> {
        [first, &[u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// What comes out, whole and byte by byte.
    fn passed(sent: &[u8]) -> Vec<u8> {
        let (mut whole, mut bytewise) = (sent.to_vec(), sent.to_vec());
        Rewriter::new().pass(&mut whole);
        let mut rewriter = Rewriter::new();
        bytewise.iter_mut().for_each(|byte| rewriter.pass(std::slice::from_mut(byte)));
        assert_eq!(whole, bytewise);
        whole
    }

    #[test]
    fn only_the_authority_loses_its_percents() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let block = |authority: &[u8]| {
            let fields = [
                vec![0x83, 0x86],
                field(&[0x44], b"/a%2Fb"),
                field(&[0x41], authority),
                [vec![0x40, 3], b"x%y".to_vec(), field(&[], b"100%")].concat(),
                vec![0x3f, 0x21, 0xff, 0x01],
                field(&[0x0f, 0x10], b"%"),
                field(&[0x01], authority),
                [&[0x40][..], &field(&[], b":authority"), &field(&[], authority)].concat(),
                [&[0x40][..], &field(&[], b":authorit"), &field(&[], b"%")].concat(),
            ];
            fields.concat()
        };
        let sent = |authority: &[u8]| {
            let padded = [&[2, 0, 0, 0, 0, 9][..], &block(authority), &[0, 0]].concat();
            [
                preface.to_vec(),
                frame(4, 0, &[]),
                frame(1, 4, &block(authority)),
                frame(0, 1, b"A\x05%%%%%"),
                frame(1, 4 | PADDED | PRIORITY, &padded),
            ]
            .concat()
        };
        assert_eq!(passed(&sent(b"tmp%2Frl.sock")), sent(b"tmp-2Frl.sock"));
        assert_eq!(passed(&sent(b"localhost")), sent(b"localhost"));
    }

    #[test]
    fn a_long_authority_and_a_coded_one() {
        let long = [vec![b'a'; 200], b"%".to_vec()].concat();
        let block = |value: &[u8]| [&[0x41, 0x7f, 0x4a][..], value].concat();
        let sent = |value: &[u8]| [vec![0; PREFACE], frame(1, 4, &block(value))].concat();
        assert_eq!(passed(&sent(&long)), sent(&[vec![b'a'; 200], b"-".to_vec()].concat()));
        let coded = [vec![0; PREFACE], frame(1, 4, &[0x41, 0x82, b'%', b'%'])].concat();
        assert_eq!(passed(&coded), coded);
    }
}
