//! Settings of the reference that ask for what this version does not have. Silence would be a trap: an operator who asked
//! for TLS must not get a port without it.

use super::{
    error::Problem,
    given::{Given, Origin},
};

/// Refused when they ask for something: going on without it would be unsafe.
const REFUSED: [(&str, &str); 1] = [(
    "GRPC_SERVER_USE_TLS",
    "this version does not speak TLS: let a proxy in front of it do so, or unset the variable to serve in the clear",
)];

/// Warned of when they ask for something: without it the answers are the same.
const WARNED: [(&str, &str); 1] = [("TRACING_ENABLED", "this version sends no traces")];

pub(super) fn look(given: &Given, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) {
    for (name, why) in REFUSED {
        if let Some((found, origin)) = asked_for(given, name) {
            let (expected, help) = ("false".to_owned(), Some(why.to_owned()));
            problems.push(Problem { name, origin, found: Some(found), expected, help });
        }
    }
    for (name, why) in WARNED {
        if let Some((found, _)) = asked_for(given, name) {
            warnings.push(format!("{name}={found}: {why}"));
        }
    }
}

/// What it was set to, unless that is a way to say no.
fn asked_for(given: &Given, name: &str) -> Option<(String, Origin)> {
    let (value, origin) = given.value(name)?;
    let value = value.to_string_lossy().into_owned();
    let is_no = ["", "0", "f", "F", "false", "FALSE", "False"].contains(&value.as_str());
    (!is_no).then_some((value, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(name: &'static str, value: &str) -> (usize, usize) {
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        look(&Given::of([(name, value)]), &mut problems, &mut warnings);
        (problems.len(), warnings.len())
    }

    #[test]
    fn who_asks_for_tls_does_not_get_a_clear_port() {
        assert_eq!(looked("GRPC_SERVER_USE_TLS", "true"), (1, 0));
        assert_eq!(looked("GRPC_SERVER_USE_TLS", "whatever"), (1, 0));
        assert_eq!(looked("GRPC_SERVER_USE_TLS", "false"), (0, 0));
    }

    #[test]
    fn what_is_only_missed_is_warned_of() {
        assert_eq!(looked("TRACING_ENABLED", "1"), (0, 1));
        assert_eq!(looked("TRACING_ENABLED", "0"), (0, 0));
    }
}
