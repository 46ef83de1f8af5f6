//! Writes the answer as Envoy's message. Decides nothing.
//!
//! **Invariant:** one status per status of the answer, in its order; a header's value is a decimal number, so that nothing a
//! client sent can reach one (Envoy copies them as they are, line breaks included).

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{
    decision::{Answer, Code, CurrentLimit, Status, whole_seconds},
    limit::Unit,
    pb::{
        HeaderValue, RateLimitResponse,
        rate_limit_response::{self as wire, RateLimit, rate_limit},
    },
};

pub fn write(answer: Answer) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code(answer.overall).into(),
        statuses: answer.statuses.into_iter().map(status).collect(),
        response_headers_to_add: answer.headers.iter().map(|(name, value)| header(name, *value)).collect(),
        dynamic_metadata: answer.dynamic_metadata.map(object),
        ..RateLimitResponse::default()
    }
}

fn code(code: Code) -> wire::Code {
    match code {
        Code::Ok => wire::Code::Ok,
        Code::OverLimit => wire::Code::OverLimit,
    }
}

fn status(status: Status) -> wire::DescriptorStatus {
    wire::DescriptorStatus {
        code: code(status.code).into(),
        current_limit: status.limit.map(current_limit),
        limit_remaining: status.remaining,
        duration_until_reset: status.reset_after.map(seconds),
        quota: None,
    }
}

fn current_limit(CurrentLimit { limit, name }: CurrentLimit) -> RateLimit {
    let multiplier = limit.window.multiplier().get();
    RateLimit {
        name: name.as_deref().unwrap_or_default().to_owned(),
        requests_per_unit: limit.requests_per_unit,
        unit: unit(limit.window.unit()).into(),
        unit_multiplier: (multiplier != 1).then_some(multiplier),
    }
}

fn unit(unit: Unit) -> rate_limit::Unit {
    match unit {
        Unit::Second => rate_limit::Unit::Second,
        Unit::Minute => rate_limit::Unit::Minute,
        Unit::Hour => rate_limit::Unit::Hour,
        Unit::Day => rate_limit::Unit::Day,
        Unit::Week => rate_limit::Unit::Week,
        Unit::Month => rate_limit::Unit::Month,
        Unit::Year => rate_limit::Unit::Year,
    }
}

fn seconds(span: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: i64::try_from(whole_seconds(span)).unwrap_or(i64::MAX), nanos: 0 }
}

fn header(name: &str, value: u64) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value: itoa::Buffer::new().format(value).to_owned(),
        ..HeaderValue::default()
    }
}

fn object(map: Map<String, Value>) -> prost_types::Struct {
    prost_types::Struct { fields: map.into_iter().map(|(key, inner)| (key, value(inner))).collect() }
}

fn value(value: Value) -> prost_types::Value {
    use prost_types::value::Kind;
    prost_types::Value {
        kind: Some(match value {
            Value::Null => Kind::NullValue(prost_types::NullValue::NullValue.into()),
            Value::Bool(bool) => Kind::BoolValue(bool),
            Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => Kind::StringValue(text),
            Value::Array(items) => Kind::ListValue(prost_types::ListValue {
                values: items.into_iter().map(self::value).collect(),
            }),
            Value::Object(map) => Kind::StructValue(object(map)),
        }),
    }
}

#[cfg(test)]
mod tests;
