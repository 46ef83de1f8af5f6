//! Answers as the recordings keep them. Pure.

use prost_types::value::Kind;
use prost_types::{Struct, Value as ProtoValue};
use serde_json::{Map, Value, json};
use tonic::Code;

use crate::clock::During;
use crate::wire::{CODES, DescriptorStatus, Header, RateLimitResponse, UNITS};

/// A response, with what points at the end of a window shown as that.
pub fn plain(response: &RateLimitResponse, during: During) -> Value {
    let statuses: Vec<Value> = response.statuses.iter().map(|status| plain_status(status, during)).collect();
    let mut out = json!({"overall": code(response.overall_code), "statuses": statuses});
    let units: Vec<i32> =
        response.statuses.iter().filter_map(|status| Some(status.current_limit.as_ref()?.unit)).collect();
    if !response.response_headers_to_add.is_empty() {
        out["response_headers"] = headers(&response.response_headers_to_add, |header| {
            let ends_window = header.key.contains("eset")
                && header
                    .value
                    .parse()
                    .is_ok_and(|reset| units.iter().any(|&unit| during.ends_window(reset, unit)));
            if ends_window { "window end" } else { &header.value }
        });
    }
    if !response.request_headers_to_add.is_empty() {
        out["request_headers"] = headers(&response.request_headers_to_add, |header| &header.value);
    }
    if let Some(metadata) = &response.dynamic_metadata {
        out["metadata"] = object(metadata);
    }
    out
}

fn plain_status(status: &DescriptorStatus, during: During) -> Value {
    let mut out = json!({"code": code(status.code)});
    let unit = status.current_limit.as_ref().map(|limit| limit.unit);
    if let Some(limit) = &status.current_limit {
        out["limit"] = json!([limit.requests_per_unit, unit_name(limit.unit)]);
        if let (false, Some(parts)) = (limit.name.is_empty(), out["limit"].as_array_mut()) {
            parts.push(json!(limit.name));
        }
    }
    if status.limit_remaining > 0 {
        out["remaining"] = json!(status.limit_remaining);
    }
    if let Some(reset) = &status.duration_until_reset {
        let ends_window = unit.is_some_and(|unit| during.ends_window(reset.seconds, unit));
        out["reset"] = if ends_window { json!("window end") } else { json!(reset.seconds) };
    }
    out
}

fn headers<'a>(headers: &'a [Header], value: impl Fn(&'a Header) -> &'a str) -> Value {
    headers.iter().map(|header| json!([header.key, value(header)])).collect()
}

fn code(number: i32) -> Value {
    usize::try_from(number)
        .ok()
        .and_then(|number| CODES.get(number))
        .map_or(json!(number), |name| json!(name))
}

fn unit_name(number: i32) -> Value {
    usize::try_from(number)
        .ok()
        .and_then(|number| UNITS.get(number))
        .map_or(json!(number), |(_, name)| json!(name))
}

fn object(map: &Struct) -> Value {
    Value::Object(map.fields.iter().map(|(key, value)| (key.clone(), any(value))).collect::<Map<_, _>>())
}

fn any(value: &ProtoValue) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => json!(flag),
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::ListValue(list)) => list.values.iter().map(any).collect(),
        Some(Kind::StructValue(map)) => object(map),
    }
}

/// The serving status in the bytes of a health answer.
pub fn health(message: &[u8]) -> Value {
    match message {
        [] => json!("UNKNOWN"),
        [8, 1] => json!("SERVING"),
        [8, 2] => json!("NOT_SERVING"),
        [8, 3] => json!("SERVICE_UNKNOWN"),
        other => json!(hex(other)),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a gRPC status code, as the protocol spells it.
pub fn status_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
