//! What a caller asks: a domain, and descriptors made of entries. Bytes throughout: Envoy passes invalid UTF-8 on, and
//! what does not decode must be limited like anything else. Knows nothing of the wire.

use bytes::Bytes;

use crate::limit::{Cost, Limit};

/// One (key, value) pair. Both are slices of the message that they came in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub key: Bytes,
    pub value: Bytes,
}

/// One thing to be checked: its entries in the order sent, what it costs, and the limit that the caller sent along, if any.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    pub entries: Vec<Entry>,
    pub cost: Cost,
    /// The descriptor's own `hits_addend`, if it was sent: what `cost` was made of, kept for dynamic metadata.
    pub hits_addend: Option<u64>,
    /// `RateLimitDescriptor.limit`: replaces the rules for this descriptor.
    pub override_limit: Option<Limit>,
}

/// One call of `ShouldRateLimit`, read and checked: the domain is not empty and there is at least one descriptor.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub domain: Bytes,
    pub descriptors: Vec<Descriptor>,
    /// The request's `hits_addend` as sent; zero when it was not. Kept for dynamic metadata.
    pub hits_addend: u32,
}
