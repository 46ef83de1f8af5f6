//! A control plane's message as a rules file would say it. Knows nothing of what is legal: that is checked as for files.
//!
//! **Invariant:** things are numbered in the order in which they stand, so that problems are told in that order.

use prost_types::{ListValue, Struct, Value as ProtoValue, value::Kind};
use serde_json::Value;

use crate::{
    pb::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
    rules::{
        Metadata, metadata,
        problem::At,
        raw::{RawDescriptor, RawFile, RawLimit, Spanned},
    },
};

/// What the resource says.
pub(super) fn file(config: RateLimitConfig) -> RawFile {
    let mut places = Places(0);
    let domain = Spanned { value: config.domain.into_bytes(), at: places.next() };
    RawFile {
        domain: Some(domain),
        charge: None,
        descriptors: places.descriptors(config.descriptors),
        incomplete: false,
    }
}

/// Numbers the things of one resource.
struct Places(u32);

impl Places {
    fn next(&mut self) -> At {
        self.0 = self.0.saturating_add(1);
        At::nth(self.0)
    }

    /// Recursive: messages nest at most 100 levels deep, or they cannot be decoded.
    fn descriptors(&mut self, descriptors: Vec<RateLimitDescriptor>) -> Vec<RawDescriptor> {
        descriptors.into_iter().map(|descriptor| self.descriptor(descriptor)).collect()
    }

    fn descriptor(&mut self, descriptor: RateLimitDescriptor) -> RawDescriptor {
        let at = self.next();
        RawDescriptor {
            key: Some(Spanned { value: descriptor.key.into_bytes(), at }),
            value: descriptor.value.into_bytes(),
            rate_limit: descriptor.rate_limit.map(|policy| self.limit(policy)),
            descriptors: self.descriptors(descriptor.descriptors),
            shadow_mode: descriptor.shadow_mode,
            quota_mode: descriptor.quota_mode,
            detailed_metric: descriptor.detailed_metric,
            metadata: descriptor.metadata.map(object),
            ..RawDescriptor::new(at)
        }
    }

    fn limit(&mut self, policy: RateLimitPolicy) -> RawLimit {
        let at = self.next();
        let replaces = policy.replaces.into_iter();
        RawLimit {
            unit: Some(Spanned { value: unit(policy.unit), at }),
            requests_per_unit: Some(Spanned { value: policy.requests_per_unit, at }),
            unlimited: policy.unlimited,
            name: policy.name,
            replaces: replaces.map(|other| Spanned { value: other.name, at: self.next() }).collect(),
            ..RawLimit::new(at)
        }
    }
}

/// A unit by its name; one that there is not by its number.
fn unit(number: i32) -> String {
    RateLimitUnit::try_from(number).map_or_else(|_| number.to_string(), |unit| unit.as_str_name().to_owned())
}

fn object(object: Struct) -> Metadata {
    object.fields.into_iter().map(|(key, field)| (key, value(field))).collect()
}

fn value(value: ProtoValue) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::NumberValue(double)) => metadata::number(double),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::StructValue(fields)) => Value::Object(object(fields)),
        Some(Kind::ListValue(ListValue { values })) => {
            Value::Array(values.into_iter().map(self::value).collect())
        }
    }
}
