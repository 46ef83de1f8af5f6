//! Reads Envoy's message: what it leaves out is filled in, what it may not say is refused. Knows nothing of the rules.
//!
//! Bounds: a message has at most 4 MiB, and so many descriptors and entries as are said below; what is read shares its buffer.
//! No key or value is refused, whatever its length or bytes: an error is an open door at Envoy's default.

use std::num::NonZeroU32;

use bytes::Bytes;
use prost::Message as _;

use super::bound;
use crate::{
    descriptor::{Descriptor, Entry, Request},
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    pb::{
        RateLimitDescriptor, RateLimitRequest,
        rate_limit_descriptor::{self as wire, RateLimitOverride},
    },
};

/// The most descriptors of a request. How many there are is said by the configuration of an Envoy, never by its clients, so that
/// this bound is no way around a limit; real ones send a handful.
pub const MAX_DESCRIPTORS: usize = 1_000;

/// The most entries of a request, those of all its descriptors together. As above; a level of rules is an entry, and real ones
/// have a handful.
pub const MAX_ENTRIES: usize = 10_000;

/// What a request may not say. The caller's fault, all of it: `INVALID_ARGUMENT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("rate limit domain must not be empty")]
    NoDomain,
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("too many descriptors: expected at most {MAX_DESCRIPTORS}")]
    TooManyDescriptors,
    #[error("too many entries: expected at most {MAX_ENTRIES} in all descriptors")]
    TooManyEntries,
    #[error("descriptors[{descriptor}].limit.unit is {found}, expected one of {}", units())]
    OverrideUnit { descriptor: usize, found: i32 },
    #[error("descriptors[{descriptor}].limit.unit_multiplier is 0, expected at least 1 (absent means 1)")]
    OverrideMultiplier { descriptor: usize },
}

/// Why bytes are no request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnreadableError {
    #[error("{0}")]
    Malformed(#[from] prost::DecodeError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Reads a message, whose buffer is kept by what was read. What is too much is refused before it is decoded.
pub fn decode(message: Bytes) -> Result<Request, UnreadableError> {
    bound::check(&message)?;
    Ok(read(RateLimitRequest::decode(message)?)?)
}

/// Turns the message into what is decided. The entries keep their allocations.
pub fn read(message: RateLimitRequest) -> Result<Request, RequestError> {
    if message.domain.is_empty() {
        return Err(RequestError::NoDomain);
    }
    if message.descriptors.is_empty() {
        return Err(RequestError::NoDescriptors);
    }
    let default_hits = u64::from(message.hits_addend.max(1));
    let descriptors = message
        .descriptors
        .into_iter()
        .enumerate()
        .map(|(index, descriptor)| read_descriptor(index, descriptor, default_hits))
        .collect::<Result<_, _>>()?;
    Ok(Request { domain: message.domain, descriptors, hits_addend: message.hits_addend })
}

fn read_descriptor(
    index: usize,
    message: RateLimitDescriptor,
    default_hits: u64,
) -> Result<Descriptor, RequestError> {
    let hits = Hits::new(message.hits_addend.unwrap_or(default_hits));
    Ok(Descriptor {
        entries: message.entries.into_iter().map(|wire::Entry { key, value }| Entry { key, value }).collect(),
        cost: if message.is_negative_hits { Cost::refund(hits) } else { Cost::charge(hits) },
        hits_addend: message.hits_addend,
        override_limit: message.limit.map(|limit| read_override(index, limit)).transpose()?,
    })
}

fn read_override(descriptor: usize, message: RateLimitOverride) -> Result<Limit, RequestError> {
    let unit = unit_of(message.unit).ok_or(RequestError::OverrideUnit { descriptor, found: message.unit })?;
    let multiplier = NonZeroU32::new(message.unit_multiplier.unwrap_or(1))
        .ok_or(RequestError::OverrideMultiplier { descriptor })?;
    Ok(Limit {
        requests_per_unit: message.requests_per_unit,
        window: longest_window(unit, multiplier),
        algorithm: Algorithm::FixedWindow,
    })
}

/// The numbers of `envoy.type.v3.RateLimitUnit`, and of a week in the answers: the reference takes it, too.
const UNITS: [(i32, Unit); 7] = [
    (1, Unit::Second),
    (2, Unit::Minute),
    (3, Unit::Hour),
    (4, Unit::Day),
    (5, Unit::Month),
    (6, Unit::Year),
    (7, Unit::Week),
];

fn unit_of(number: i32) -> Option<Unit> {
    UNITS.iter().find(|(known, _)| *known == number).map(|(_, unit)| *unit)
}

/// `SECOND (1), MINUTE (2), …`
fn units() -> String {
    UNITS.map(|(number, unit)| format!("{} ({number})", unit.name())).join(", ")
}

/// The window asked for, or the longest whole multiple of its unit that there is.
fn longest_window(unit: Unit, multiplier: NonZeroU32) -> Window {
    Window::new(unit, multiplier).unwrap_or_else(|| {
        let longest = u32::try_from(Window::MAX_SECS / u64::from(unit.secs())).unwrap_or(u32::MAX);
        NonZeroU32::new(longest).and_then(|longest| Window::new(unit, longest)).unwrap_or(Window::of(unit))
    })
}

#[cfg(test)]
mod tests;
