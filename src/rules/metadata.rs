//! A rule's `metadata`, from YAML to what Envoy gets back: numbers become doubles, keys become text.

use super::{
    Metadata,
    pairs::Pairs,
    problem::{At, Path, Report},
    scalar::{Meaning, Scalar},
    tree::{Node, Shape},
};

use serde_json::{Number, Value};

/// Adds what is in `node` to `metadata`; null takes it away.
pub(crate) fn read(metadata: &mut Option<Metadata>, node: &Node, path: &Path<'_>, report: &mut Report) {
    match &node.shape {
        Shape::Mapping(_) => {
            let Some(Value::Object(read)) = convert(node, path, report) else { return };
            metadata.get_or_insert_default().extend(read);
        }
        _ if node.is_null() => *metadata = None,
        _ => {
            let found = format!("error loading config file: metadata is {}", node.describe());
            report.problem(node.at, path, found, "expected a map");
        }
    }
}

fn convert(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<Value> {
    match &node.shape {
        Shape::Scalar(scalar) => self::scalar(scalar, node.at, path, report),
        Shape::List(items) => {
            let items =
                items.iter().enumerate().map(|(index, item)| convert(item, &path.item(index), report));
            items.collect::<Option<_>>().map(Value::Array)
        }
        Shape::Mapping(mapping) => {
            let Pairs { pairs, unmergeable } = Pairs::of(mapping);
            for node in unmergeable {
                refuse(node.at, &format!("{} cannot be merged by <<", node.describe()), path, report);
            }
            let mut object = Metadata::new();
            for pair in pairs {
                let Some(key) = key(pair.key, path, report) else { continue };
                let value = convert(pair.value, &path.key(&key), report)?;
                object.insert(key, value);
            }
            Some(Value::Object(object))
        }
    }
}

fn key(node: &Node, path: &Path<'_>, report: &mut Report) -> Option<String> {
    let key = node.scalar().map(|scalar| String::from_utf8(scalar.bytes().to_vec()));
    match key {
        Some(Ok(key)) => return Some(key),
        Some(Err(_)) => refuse(node.at, "a key is not valid UTF-8", path, report),
        None => refuse(node.at, &format!("a key is {}", node.describe()), path, report),
    }
    None
}

fn scalar(scalar: &Scalar, at: At, path: &Path<'_>, report: &mut Report) -> Option<Value> {
    #[expect(clippy::cast_precision_loss, reason = "Envoy's Struct knows no other number than a double")]
    let double = match &scalar.meaning {
        Meaning::Null => return Some(Value::Null),
        Meaning::Bool(value) => return Some(Value::Bool(*value)),
        Meaning::Text => return Some(Value::from(&*scalar.text)),
        Meaning::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => return Some(Value::from(text)),
            Err(_) => {
                refuse(at, "a !!binary value is not valid UTF-8", path, report);
                return None;
            }
        },
        Meaning::Int(n) => *n as f64,
        Meaning::Uint(n) => *n as f64,
        Meaning::Float(n) => *n,
    };
    Some(number(double))
}

/// A double as JSON's mapping of protobuf writes it.
pub(crate) fn number(double: f64) -> Value {
    Number::from_f64(double).map_or_else(|| Value::from(not_finite(double)), Value::Number)
}

/// How JSON's mapping of protobuf writes a double that JSON has no number for.
fn not_finite(double: f64) -> &'static str {
    if double.is_nan() {
        "NaN"
    } else if double > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn refuse(at: At, what: &str, path: &Path<'_>, report: &mut Report) {
    report.problem(at, path, format!("error parsing metadata: {what}"), "metadata must be JSON at heart");
}
