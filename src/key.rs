//! The name of a counter: `domain|key=value|key=value|<shape>`, with the configured prefix in front.
//!
//! `| = % { }`, ASCII controls and bytes that are not UTF-8 are written `%XX`; a component of more than 128 bytes is
//! `%h` and its SHA-256 in hex. The shape is the window in seconds, and the algorithm if it is not fixed_window: `60s`,
//! `60s:token_bucket`; a role other than "enforced" would follow in the same way. The limit's number is not in it: a changed
//! number goes on counting. A share pattern stands where the value would; so a value that reads like the pattern counts
//! with it, as in the reference.
//!
//! **Invariant:** injective: two different (domain, entries, limit shape) never share a counter. Every separator is a
//! reserved byte that no component contains, and escaping can be undone; `h` is no hex digit.

use std::{
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::limit::{Algorithm, Limit};

/// The longest component that is written out.
const MAX_COMPONENT: usize = 128;

/// A counter's name and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterKey {
    bytes: SmallVec<[u8; 128]>,
    id: KeyId,
}

/// 128 bits that stand for a key in this process: seeded at its start, different in every process.
///
/// Half of them are SipHash, which nobody who does not know the seed can make collide: with a million keys, one attempt
/// in 10^13 hits another counter, and it would have to hit the other half too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId {
    sip: u64,
    fold: u64,
}

impl KeyId {
    /// The half to spread keys by.
    pub fn hash(self) -> u64 {
        self.sip
    }

    /// Both halves.
    pub fn halves(self) -> [u64; 2] {
        [self.sip, self.fold]
    }
}

impl CounterKey {
    /// The key of one limit for these entries. A value is what was sent, or the pattern that its counter is shared under.
    ///
    /// Does not allocate up to 128 bytes. Length: at most three times that of the components, each counted up to 128 bytes.
    pub fn new<'a>(
        prefix: &[u8],
        domain: &[u8],
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        limit: &Limit,
    ) -> Self {
        let mut bytes = SmallVec::new();
        bytes.extend_from_slice(prefix);
        push_component(&mut bytes, domain);
        for (key, value) in entries {
            bytes.push(b'|');
            push_component(&mut bytes, key);
            bytes.push(b'=');
            push_component(&mut bytes, value);
        }
        bytes.push(b'|');
        push_shape(&mut bytes, limit);
        let id = id_of(&bytes);
        Self { bytes, id }
    }

    /// The reference's own key up to the start of the window, which the store appends: `PREFIX DOMAIN_KEY_VALUE_…_`,
    /// byte for byte. Not injective, as the reference's is not.
    pub fn envoyproxy<'a>(
        prefix: &[u8],
        domain: &[u8],
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Self {
        let mut bytes = SmallVec::from_slice(prefix);
        for part in std::iter::once(domain).chain(entries.flat_map(|(key, value)| [key, value])) {
            bytes.extend_from_slice(part);
            bytes.push(b'_');
        }
        let id = id_of(&bytes);
        Self { bytes, id }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Seeded: differs from process to process.
    pub fn hash(&self) -> u64 {
        self.id.hash()
    }

    /// What to compare instead of the bytes.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

/// Entries as they stand in a key, and as injective: `key=value|key=value`. Those after the first `most` bytes are only counted.
pub(crate) fn readable<'a>(
    entries: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
    most: usize,
) -> String {
    let (mut out, n_entries) = (SmallVec::new(), entries.len());
    for (n, (key, value)) in entries.enumerate() {
        if n > 0 {
            out.push(b'|');
        }
        if out.len() > most {
            out.extend_from_slice(format!("… and {} more", n_entries - n).as_bytes());
            break;
        }
        push_component(&mut out, key);
        out.push(b'=');
        push_component(&mut out, value);
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn id_of(bytes: &[u8]) -> KeyId {
    static SEEDS: LazyLock<(RandomState, foldhash::quality::RandomState)> = LazyLock::new(Default::default);
    let (sip, fold) = &*SEEDS;
    KeyId { sip: sip.hash_one(Raw(bytes)), fold: fold.hash_one(Raw(bytes)) }
}

/// Bytes hashed as they are, without their length, in one piece.
struct Raw<'a>(&'a [u8]);

impl std::hash::Hash for Raw<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

fn push_shape(out: &mut SmallVec<[u8; 128]>, limit: &Limit) {
    out.extend_from_slice(itoa::Buffer::new().format(limit.window.secs()).as_bytes());
    out.push(b's');
    if limit.algorithm != Algorithm::FixedWindow {
        out.push(b':');
        out.extend_from_slice(limit.algorithm.name().as_bytes());
    }
}

fn push_component(out: &mut SmallVec<[u8; 128]>, component: &[u8]) {
    if component.len() > MAX_COMPONENT {
        push_hashed(out, component);
    } else if is_plain(component) {
        out.extend_from_slice(component);
    } else {
        push_escaped(out, component);
    }
}

#[cold]
fn push_hashed(out: &mut SmallVec<[u8; 128]>, component: &[u8]) {
    out.extend_from_slice(b"%h");
    Sha256::digest(component).iter().for_each(|&byte| push_hex(out, byte));
}

#[cold]
fn push_escaped(out: &mut SmallVec<[u8; 128]>, component: &[u8]) {
    for chunk in component.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            if is_reserved(byte) { push_percent(out, byte) } else { out.push(byte) }
        }
        chunk.invalid().iter().for_each(|&byte| push_percent(out, byte));
    }
}

const fn is_reserved(byte: u8) -> bool {
    matches!(byte, b'|' | b'=' | b'%' | b'{' | b'}') || byte.is_ascii_control()
}

/// Whether this is nothing but ASCII that stands for itself. Looks at every byte, without a branch for each: nearly every
/// component is plain, and this is most of what a key costs.
fn is_plain(component: &[u8]) -> bool {
    #[expect(clippy::indexing_slicing, reason = "128 of 256 elements, when compiled")]
    const SPECIAL: [bool; 256] = {
        let mut special = [true; 256];
        let mut byte = 0;
        while byte < 128 {
            special[byte as usize] = is_reserved(byte);
            byte += 1;
        }
        special
    };
    #[expect(clippy::indexing_slicing, reason = "256 elements, one for each byte")]
    let any = component.iter().fold(false, |any, &byte| any | SPECIAL[usize::from(byte)]);
    !any
}

fn push_percent(out: &mut SmallVec<[u8; 128]>, byte: u8) {
    out.push(b'%');
    push_hex(out, byte);
}

fn push_hex(out: &mut SmallVec<[u8; 128]>, byte: u8) {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'A' + (nibble - 10) };
    out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests;
