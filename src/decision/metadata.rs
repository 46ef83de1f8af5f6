//! What Envoy gets as dynamic metadata: an echo of the request, and the metadata of the rules that it passed.

use serde_json::{Map, Value, json};

use crate::{
    descriptor::{Descriptor, Request},
    limit::Limit,
    rules::Metadata,
};

/// The request as it was read, with the merged metadata of `passed` rules.
///
/// The first rule to name a key wins; where both sides are maps they are merged. Nothing of the rules is changed.
pub fn dynamic_metadata<'r>(request: &Request, passed: impl Iterator<Item = &'r Metadata>) -> Metadata {
    let mut echo = Map::new();
    echo.insert("domain".to_owned(), text(&request.domain));
    echo.insert("descriptors".to_owned(), request.descriptors.iter().map(descriptor).collect());
    if request.hits_addend != 0 {
        echo.insert("hitsAddend".to_owned(), request.hits_addend.into());
    }
    let mut merged = Map::new();
    passed.for_each(|metadata| merge(&mut merged, metadata));
    if !merged.is_empty() {
        echo.insert("metadata".to_owned(), Value::Object(merged));
    }
    echo
}

fn descriptor(descriptor: &Descriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries: Vec<_> = entries
        .map(|e| format!("{}={}", String::from_utf8_lossy(&e.key), String::from_utf8_lossy(&e.value)))
        .collect();
    let mut shown = Map::new();
    shown.insert("entries".to_owned(), json!(entries));
    if let Some(limit) = &descriptor.override_limit {
        shown.insert("limit".to_owned(), override_text(limit).into());
    }
    if let Some(hits) = descriptor.hits_addend {
        shown.insert("hitsAddend".to_owned(), hits.into());
    }
    Value::Object(shown)
}

/// In the manner of protobuf's text format, whose blanks are free.
fn override_text(limit: &Limit) -> String {
    let mut text =
        format!("requests_per_unit:{} unit:{}", limit.requests_per_unit, limit.window.unit().name());
    if limit.window.multiplier().get() > 1 {
        text.push_str(&format!(" unit_multiplier:{{value:{}}}", limit.window.multiplier()));
    }
    text
}

fn merge(into: &mut Metadata, from: &Metadata) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (Some(_), _) => {}
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        descriptor::Entry,
        limit::{Algorithm, Cost, Unit, Window},
    };

    fn object(value: Value) -> Metadata {
        let Value::Object(map) = value else { panic!("not an object: {value}") };
        map
    }

    #[test]
    fn the_request_is_echoed_whole() {
        let entry = |key: &'static [u8], value: &'static [u8]| Entry {
            key: Bytes::from_static(key),
            value: Bytes::from_static(value),
        };
        let limit =
            Limit { requests_per_unit: 5, window: Window::of(Unit::Hour), algorithm: Algorithm::FixedWindow };
        let request = Request {
            domain: Bytes::from_static(b"labels"),
            descriptors: vec![
                Descriptor {
                    entries: vec![entry(b"a", b"x=y"), entry(b"b", b"")],
                    cost: Cost::Peek,
                    hits_addend: Some(0),
                    override_limit: Some(limit),
                },
                Descriptor {
                    entries: vec![entry(b"c", b"caf\xe9")],
                    cost: Cost::Peek,
                    hits_addend: None,
                    override_limit: None,
                },
            ],
            hits_addend: 3,
        };
        assert_eq!(
            Value::Object(dynamic_metadata(&request, std::iter::empty())),
            json!({
                "domain": "labels",
                "descriptors": [
                    {"entries": ["a=x=y", "b="], "limit": "requests_per_unit:5 unit:HOUR", "hitsAddend": 0},
                    {"entries": ["c=caf\u{fffd}"]},
                ],
                "hitsAddend": 3,
            })
        );
    }

    #[test]
    fn the_first_rule_wins_and_maps_are_merged() {
        let first = object(json!({"owner": "anna", "nested": {"a": 1}, "list": [1]}));
        let second = object(json!({"owner": "boris", "nested": {"a": 2, "b": 3}, "list": [2], "new": null}));
        let request = Request { domain: Bytes::from_static(b"d"), descriptors: Vec::new(), hits_addend: 0 };
        let echo = dynamic_metadata(&request, [&first, &second].into_iter());
        assert_eq!(
            echo["metadata"],
            json!({"owner": "anna", "nested": {"a": 1, "b": 3}, "list": [1], "new": null})
        );
    }
}
