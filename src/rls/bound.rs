//! Bounds a request by its bytes, before anything is made of them: a few megabytes of empty descriptors and entries would
//! become a hundred.
//!
//! **Invariant:** costs no allocation, and no more than one pass over what is too much. Knows of the message that descriptors
//! are its field 2 and entries theirs 1, and leaves what is malformed to whoever decodes it.

use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::request::{MAX_DESCRIPTORS, MAX_ENTRIES, RequestError};

const DESCRIPTORS: u32 = 2;
const ENTRIES: u32 = 1;

/// The fewest bytes that a descriptor or an entry takes: its key and its length. A message of fewer than so many for each
/// needs no look.
const SMALLEST: usize = 2;

/// Errors: more descriptors than [`MAX_DESCRIPTORS`], or more entries in all of them than [`MAX_ENTRIES`].
pub(super) fn check(message: &[u8]) -> Result<(), RequestError> {
    if message.len() <= SMALLEST * MAX_DESCRIPTORS {
        return Ok(());
    }
    let (mut n_descriptors, mut n_entries) = (0, 0);
    for descriptor in (Fields { left: message, number: DESCRIPTORS }) {
        n_descriptors += 1;
        n_entries += Fields { left: descriptor, number: ENTRIES }.take(MAX_ENTRIES + 1).count();
        if n_descriptors > MAX_DESCRIPTORS {
            return Err(RequestError::TooManyDescriptors);
        }
        if n_entries > MAX_ENTRIES {
            return Err(RequestError::TooManyEntries);
        }
    }
    Ok(())
}

/// The contents of the fields with a number and a length. Ends where the message does, or where it is malformed.
struct Fields<'m> {
    left: &'m [u8],
    number: u32,
}

impl<'m> Iterator for Fields<'m> {
    type Item = &'m [u8];

    fn next(&mut self) -> Option<&'m [u8]> {
        while self.left.has_remaining() {
            let (number, kind) = decode_key(&mut self.left).ok()?;
            let n_bytes = match kind {
                WireType::Varint => {
                    decode_varint(&mut self.left).ok()?;
                    0
                }
                WireType::ThirtyTwoBit => 4,
                WireType::SixtyFourBit => 8,
                WireType::LengthDelimited => usize::try_from(decode_varint(&mut self.left).ok()?).ok()?,
                // What is between these keys is looked at as if they were not there: at most too much is counted.
                WireType::StartGroup | WireType::EndGroup => 0,
            };
            let (contents, rest) = self.left.split_at_checked(n_bytes)?;
            self.left = rest;
            if number == self.number && kind == WireType::LengthDelimited {
                return Some(contents);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::pb::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry};

    fn message(n_descriptors: usize, n_entries_each: usize) -> Vec<u8> {
        let descriptor = RateLimitDescriptor {
            entries: vec![Entry::default(); n_entries_each],
            ..RateLimitDescriptor::default()
        };
        RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor; n_descriptors], hits_addend: 7 }
            .encode_to_vec()
    }

    #[test]
    fn what_a_request_may_have_passes() {
        for (n_descriptors, n_entries_each) in [(1, 2), (MAX_DESCRIPTORS, 10), (1, MAX_ENTRIES)] {
            assert_eq!(check(&message(n_descriptors, n_entries_each)), Ok(()));
        }
    }

    #[test]
    fn one_more_does_not() {
        assert_eq!(check(&message(MAX_DESCRIPTORS + 1, 0)), Err(RequestError::TooManyDescriptors));
        assert_eq!(check(&message(1, MAX_ENTRIES + 1)), Err(RequestError::TooManyEntries));
        assert_eq!(check(&message(MAX_DESCRIPTORS, 11)), Err(RequestError::TooManyEntries));
    }

    #[test]
    fn other_fields_are_passed_over_and_do_not_hide_what_follows() {
        let mut others = Vec::new();
        others.extend_from_slice(b"\x78\x80\x01");
        others.extend_from_slice(b"\x7d1234");
        others.extend_from_slice(b"\x7912345678");
        others.extend_from_slice(b"\x7a\x04\x12\x00\x12\x00");
        others.extend_from_slice(b"\x7b\x7c");
        let passes = [others.clone(), message(MAX_DESCRIPTORS, 0), others.clone()].concat();
        assert_eq!(check(&passes), Ok(()));
        let refused = [others, message(MAX_DESCRIPTORS + 1, 0)].concat();
        assert_eq!(check(&refused), Err(RequestError::TooManyDescriptors));
    }

    #[test]
    fn whatever_is_malformed_ends_the_look() {
        let long = message(MAX_DESCRIPTORS, 10);
        for end in [
            &b"\x12"[..],
            b"\x12\xff\xff\xff\xff\x0f",
            b"\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(check(&[&long, end].concat()), Ok(()));
        }
    }
}
