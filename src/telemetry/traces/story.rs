//! What a span says: the attributes of a call and of the store's part, and how each ended.
//!
//! **Invariant:** bounded, whatever a client sends: a text is cut, and of many descriptors the first are told.

use http::HeaderMap;
use opentelemetry::{Array, KeyValue, Value, trace::Status};

use super::{Charges, StoreKind};
use crate::{
    decision::{self, Answer, Code},
    descriptor::{Descriptor, Request},
};

/// The longest text, in bytes before what is not UTF-8 is replaced.
const MAX_TEXT: usize = 1_024;

/// The most descriptors that are told.
const MAX_DESCRIPTORS: usize = 32;

/// The gRPC code of a call whose caller has gone.
const CANCELLED: i64 = 1;

/// gRPC codes for which it is the server's fault (OpenTelemetry, "Semantic conventions for gRPC"): UNKNOWN,
/// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
const OUR_FAULT: [i64; 6] = [2, 4, 12, 13, 14, 15];

/// What is known of a call so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    attributes: Vec<KeyValue>,
    /// The gRPC code and its message.
    end: Option<(i64, String)>,
}

impl Story {
    /// The domain and the request have the reference's names.
    pub fn asked(&mut self, request: &Request) {
        let shown: Vec<_> = request.descriptors.iter().take(MAX_DESCRIPTORS).map(descriptor).collect();
        self.attributes.extend([
            KeyValue::new("domain", text(&request.domain)),
            KeyValue::new("request string", text(shown.join("; ").as_bytes())),
        ]);
    }

    pub fn answered(&mut self, answer: &Answer) {
        let verdicts = answer.statuses.iter().take(MAX_DESCRIPTORS).map(|one| verdict(one).into()).collect();
        self.attributes.extend([
            KeyValue::new("ratelimit.code", code(answer.overall)),
            KeyValue::new("ratelimit.verdicts", Value::Array(Array::String(verdicts))),
        ]);
    }

    /// What stands in the headers of an answer; the status of a good one comes in its trailers, so there is none.
    pub fn ends(&mut self, headers: &HeaderMap) {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let code = text("grpc-status").and_then(|code| code.parse().ok()).unwrap_or(0);
        self.end = Some((code, text("grpc-message").unwrap_or_default().to_owned()));
    }

    /// The whole story: attributes and status of the server's span.
    pub fn told(self) -> (Vec<KeyValue>, Status) {
        let (code, message) = self.end.unwrap_or((CANCELLED, String::new()));
        let mut attributes = self.attributes;
        attributes.extend([
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", "envoy.service.ratelimit.v3.RateLimitService"),
            KeyValue::new("rpc.method", "ShouldRateLimit"),
            KeyValue::new("rpc.grpc.status_code", code),
        ]);
        let status = if OUR_FAULT.contains(&code) { Status::error(message) } else { Status::Unset };
        (attributes, status)
    }
}

/// The attributes of the store's part. The two lengths have the reference's names.
pub(super) fn of_store(store: StoreKind, n: Charges) -> Vec<KeyValue> {
    let main = n.all.saturating_sub(n.per_second);
    let lengths = [
        KeyValue::new("pipeline length", number(main)),
        KeyValue::new("perSecondPipeline length", number(n.per_second)),
    ];
    let system = (store == StoreKind::Redis).then(|| KeyValue::new("db.system", "redis"));
    lengths.into_iter().chain(system).collect()
}

pub(super) fn of_failures(n_failed: Option<usize>) -> Status {
    match n_failed {
        Some(0) => Status::Unset,
        Some(n) => Status::error(format!("{n} counters could not be charged")),
        None => Status::error("given up before the store answered"),
    }
}

/// `key=value,key=value`.
fn descriptor(descriptor: &Descriptor) -> String {
    let entries = descriptor.entries.iter().take(MAX_DESCRIPTORS);
    let pairs = entries.map(|entry| format!("{}={}", text(&entry.key), text(&entry.value)));
    text(pairs.collect::<Vec<_>>().join(",").as_bytes())
}

/// `OVER_LIMIT 5/minute, 0 left`; the code alone where nothing is limited.
fn verdict(status: &decision::Status) -> String {
    let code = code(status.code);
    match &status.limit {
        None => code.to_owned(),
        Some(current) => format!("{code} {}, {} left", current.limit, status.remaining),
    }
}

fn code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.len().min(MAX_TEXT);
    let mut text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
    if end < bytes.len() {
        text.push('…');
    }
    text
}

fn number(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
