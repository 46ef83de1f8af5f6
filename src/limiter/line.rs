//! What the log says of a request at `debug`: who asked, by which rule each descriptor was decided, and how.
//!
//! **Invariant:** bounded, whatever a request holds; entries are written as in a counter's key, so that none can pass for another.

use crate::{
    decision::{Answer, Finding, Status},
    descriptor::{Descriptor, Request},
    key,
};

/// The most of a line's text, in bytes, less its last descriptor: far more than a request of Envoy's takes.
const MAX_TEXT: usize = 4 << 10;

/// Writes the line, if anybody wants it: costs nothing unless it is asked for.
pub(super) fn log(request: &Request, findings: &[Finding<'_>], answer: &Answer) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let decided = decided(request, findings, &answer.statuses);
        tracing::debug!(domain = %request.domain.escape_ascii(), answer = ?answer.overall, decided, "decided");
    }
}

/// One part for each descriptor, in their order.
fn decided(request: &Request, findings: &[Finding<'_>], statuses: &[Status]) -> String {
    let all = request.descriptors.iter().zip(findings).zip(statuses);
    let mut text = String::new();
    for (n, ((descriptor, finding), status)) in all.enumerate() {
        if text.len() > MAX_TEXT {
            text += &format!("; … and {} more", request.descriptors.len() - n);
            break;
        }
        if n > 0 {
            text += "; ";
        }
        text += &one(descriptor, finding, status);
    }
    text
}

fn one(descriptor: &Descriptor, finding: &Finding<'_>, status: &Status) -> String {
    let entries = descriptor.entries.iter().map(|entry| (&entry.key[..], &entry.value[..]));
    let who = key::readable(entries, MAX_TEXT);
    match finding {
        Finding::NoRule => format!("{who}: no rule"),
        Finding::Unlimited => format!("{who}: unlimited"),
        Finding::Counted { rule, limit, .. } => {
            let rule = rule.map_or("(from the request)", |rule| &rule.full_key);
            format!("{who}: {rule} {limit}: {:?}, {} left", status.code, status.remaining)
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{decision::Code, descriptor::Entry, limit::Cost};

    fn line(descriptors: impl IntoIterator<Item = Vec<(Bytes, Bytes)>>) -> String {
        let descriptor = |entries: Vec<(Bytes, Bytes)>| Descriptor {
            entries: entries.into_iter().map(|(key, value)| Entry { key, value }).collect(),
            cost: Cost::Peek,
            hits_addend: None,
            override_limit: None,
        };
        let descriptors: Vec<_> = descriptors.into_iter().map(descriptor).collect();
        let request = Request { domain: "d".into(), descriptors, hits_addend: 0 };
        let findings: Vec<_> = request.descriptors.iter().map(|_| Finding::NoRule).collect();
        let answer = crate::decision::decide(&findings, &crate::decision::Modes::default()).unwrap();
        assert_eq!(answer.overall, Code::Ok);
        decided(&request, &findings, &answer.statuses)
    }

    #[test]
    fn it_names_every_entry_and_none_can_pass_for_another() {
        let plain = line([vec![("plan".into(), "é".into()), ("user".into(), "7".into())], vec![]]);
        assert_eq!(plain, "plan=é|user=7: no rule; : no rule");
        let value = b"7: no rule; user=8\n\"\\\xff|x".as_slice();
        let hostile = line([vec![("user".into(), value.into())]]);
        assert_eq!(hostile, "user=7: no rule; user%3D8%0A\"\\%FF%7Cx: no rule");
    }

    #[test]
    fn it_is_bounded_in_descriptors_entries_and_bytes() {
        let entry = |n: usize| (Bytes::from(format!("key{n}")), Bytes::from(vec![0xFF; n % 200]));
        let many = line((0..10_000).map(|n| vec![entry(n)]));
        assert!(many.len() < 2 * MAX_TEXT && many.ends_with(" more"), "{}", many.len());
        let deep = line([(0..10_000).map(entry).collect()]);
        assert!(deep.len() < 2 * MAX_TEXT && deep.contains('…'), "{}", deep.len());
        let long = line([vec![(vec![b'k'; 1 << 20].into(), vec![b'v'; 1 << 20].into())]]);
        assert!(long.len() < 200 && long.starts_with("%h"), "{}", long.len());
    }
}
