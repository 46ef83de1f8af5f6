//! Settings of the reference that ask for what this version does not have. Silence would be a trap.

use super::given::Given;

/// Warned of when they ask for something: without it the answers are the same.
const WARNED: [(&str, &str); 1] = [("TRACING_ENABLED", "this version sends no traces")];

pub(super) fn look(given: &Given, warnings: &mut Vec<String>) {
    for (name, why) in WARNED {
        if let Some(found) = asked_for(given, name) {
            warnings.push(format!("{name}={found}: {why}"));
        }
    }
}

/// What it was set to, unless that is a way to say no.
fn asked_for(given: &Given, name: &str) -> Option<String> {
    let (value, _) = given.value(name)?;
    let value = value.to_string_lossy().into_owned();
    let is_no = ["", "0", "f", "F", "false", "FALSE", "False"].contains(&value.as_str());
    (!is_no).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(name: &'static str, value: &str) -> usize {
        let mut warnings = Vec::new();
        look(&Given::of([(name, value)]), &mut warnings);
        warnings.len()
    }

    #[test]
    fn what_is_only_missed_is_warned_of() {
        assert_eq!(looked("TRACING_ENABLED", "1"), 1);
        assert_eq!(looked("TRACING_ENABLED", "0"), 0);
    }
}
