//! Protobuf's text form on one line, as Go prints a message.

use std::{fmt::Write as _, sync::LazyLock};

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MapKey, Value};

use crate::pb;

/// `None` would mean that this binary was built wrongly.
static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).ok());

/// The message, which is of the type with this full name.
pub(super) fn of(message: &impl Message, name: &str) -> String {
    let descriptor = POOL.as_ref().and_then(|pool| pool.get_message_by_name(name));
    let bytes = message.encode_to_vec();
    let message = descriptor.and_then(|descriptor| DynamicMessage::decode(descriptor, bytes.as_slice()).ok());
    message.map(|message| fields(&message)).unwrap_or_default()
}

fn fields(message: &DynamicMessage) -> String {
    let mut text = String::new();
    for (field, value) in message.fields() {
        match value {
            Value::List(values) => values.iter().for_each(|value| one(&mut text, &field, value)),
            Value::Map(entries) => {
                let mut entries: Vec<_> = entries.iter().map(|(key, value)| (map_key(key), value)).collect();
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                for (key, value) in entries {
                    let value = shown(&map_value(&field), value);
                    add(&mut text, field.name(), &format!("{{key:{key} value:{value}}}"));
                }
            }
            value => one(&mut text, &field, value),
        }
    }
    text
}

fn one(text: &mut String, field: &FieldDescriptor, value: &Value) {
    add(text, field.name(), &shown(field, value));
}

fn add(text: &mut String, name: &str, value: &str) {
    let space = if text.is_empty() { "" } else { " " };
    let _ = write!(text, "{space}{name}:{value}");
}

fn shown(field: &FieldDescriptor, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::String(value) => quoted(value.as_bytes()),
        Value::Bytes(value) => quoted(value),
        Value::EnumNumber(number) => {
            let value = field.kind().as_enum().and_then(|kind| kind.get_value(*number));
            value.map_or_else(|| number.to_string(), |value| value.name().to_owned())
        }
        Value::Message(message) => format!("{{{}}}", fields(message)),
        // A field of a field is a message, never a list.
        Value::List(_) | Value::Map(_) => String::new(),
    }
}

/// The field that a map's values are of.
fn map_value(map: &FieldDescriptor) -> FieldDescriptor {
    map.kind().as_message().map_or_else(|| map.clone(), |entry| entry.map_entry_value_field())
}

fn map_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => quoted(key.as_bytes()),
    }
}

/// In quotes, on one line; bytes that are no UTF-8 as `\xNN`.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() => {
                    let _ = write!(text, "\\u{:04x}", u32::from(c));
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{RateLimitResponse, rate_limit_response as response};

    #[test]
    fn an_answer_is_shown_as_go_shows_it() {
        let limit = response::RateLimit {
            name: "a\"b\n".to_owned(),
            requests_per_unit: 5,
            unit: response::rate_limit::Unit::Minute.into(),
            ..response::RateLimit::default()
        };
        let limited = response::DescriptorStatus {
            code: response::Code::OverLimit.into(),
            current_limit: Some(limit),
            duration_until_reset: Some(prost_types::Duration { seconds: 31, nanos: 0 }),
            ..response::DescriptorStatus::default()
        };
        let free = response::DescriptorStatus {
            code: response::Code::Ok.into(),
            limit_remaining: 4,
            ..response::DescriptorStatus::default()
        };
        let number = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(1.5)) };
        let metadata = prost_types::Struct { fields: [("k".to_owned(), number)].into_iter().collect() };
        let answer = RateLimitResponse {
            overall_code: response::Code::OverLimit.into(),
            statuses: vec![limited, free],
            dynamic_metadata: Some(metadata),
            ..RateLimitResponse::default()
        };
        assert_eq!(
            of(&answer, "envoy.service.ratelimit.v3.RateLimitResponse"),
            "overall_code:OVER_LIMIT \
             statuses:{code:OVER_LIMIT current_limit:{requests_per_unit:5 unit:MINUTE name:\"a\\\"b\\n\"} \
             duration_until_reset:{seconds:31}} \
             statuses:{code:OK limit_remaining:4} \
             dynamic_metadata:{fields:{key:\"k\" value:{number_value:1.5}}}"
        );
    }
}
