//! Whether an answer is the recorded one, or fits what the scenario wants instead. Pure.

use serde_json::Value;

use crate::scenario::Scenario;

/// The differences that count, as text for a person; none when the conversations agree.
pub fn differences(scenario: &Scenario, kept: &Value, got: &Value) -> Vec<String> {
    let steps = |of: &Value| of["steps"].as_array().cloned().unwrap_or_default();
    let (kept_steps, got_steps) = (steps(kept), steps(got));
    if kept_steps.len() != got_steps.len() {
        return vec![format!(
            "the recording has {} steps, the scenario {}",
            kept_steps.len(),
            got_steps.len()
        )];
    }
    let mut found = Vec::new();
    if kept["up"] != got["up"] && !scenario.up_is_free {
        found.push(format!("up: wanted {}, got {}", kept["up"], got["up"]));
    }
    for (i, ((step, kept), got)) in scenario.steps.iter().zip(&kept_steps).zip(&got_steps).enumerate() {
        let (wanted, same) = match &step.want {
            Some(want) => (want, fits(want, got)),
            None => (kept, step.free || equal(kept, got)),
        };
        if !same {
            found.push(format!("step {i}:\n    wanted {wanted}\n    got    {got}"));
        }
    }
    found
}

/// Does the answer hold all that is wanted? An object may hold more than is named (and a name with null must be absent),
/// a list is compared item by item, `{any: [...]}` is one of these, `"*"` anything.
fn fits(want: &Value, got: &Value) -> bool {
    match want {
        Value::String(anything) if anything == "*" => true,
        Value::Object(map) => match (map.len(), map.get("any")) {
            (1, Some(Value::Array(choices))) => choices.iter().any(|choice| fits(choice, got)),
            _ => got.as_object().is_some_and(|got| {
                map.iter().all(|(key, want)| match got.get(key) {
                    Some(value) => !want.is_null() && fits(want, value),
                    None => want.is_null(),
                })
            }),
        },
        Value::Array(items) => got.as_array().is_some_and(|got| {
            items.len() == got.len() && items.iter().zip(got).all(|(want, got)| fits(want, got))
        }),
        plain => equal(plain, got),
    }
}

/// Numbers are equal when they are worth the same, as in JSON, which knows no difference between 2 and 2.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}
