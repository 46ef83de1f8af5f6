//! Any bytes as a request: they are read or refused, and what was read is what the limiter may rely on.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tidegate::{
    limit::{Cost, Hits, Window},
    pb::RateLimitRequest,
    rls::request::decode,
};

fuzz_target!(|data: &[u8]| {
    let message = Bytes::copy_from_slice(data);
    let Ok(sent) = RateLimitRequest::decode(message.clone()) else { return };
    let n_entries: Vec<_> = sent.descriptors.iter().map(|descriptor| descriptor.entries.len()).collect();
    let Ok(request) = decode(message.clone()) else { return };

    assert!(!request.domain.is_empty());
    assert!(!request.descriptors.is_empty());
    assert!(request.descriptors.iter().map(|descriptor| descriptor.entries.len()).eq(n_entries));
    for descriptor in &request.descriptors {
        match descriptor.cost {
            Cost::Peek => {}
            Cost::Charge(hits) | Cost::Refund(hits) => assert!(hits > Hits::ZERO && hits <= Hits::MAX),
        }
        if let Some(limit) = descriptor.override_limit {
            assert!((1..=Window::MAX_SECS).contains(&limit.window.secs()));
        }
        for part in descriptor.entries.iter().flat_map(|entry| [&entry.key, &entry.value]) {
            assert!(part.is_empty() || message.as_ptr_range().contains(&part.as_ptr()), "copied");
        }
    }
});
