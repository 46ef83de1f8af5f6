//! What is said to a control plane: which version is in force, which answer is meant. Pure.
//!
//! **Invariants:** a version is one that was accepted; a nonce is of this stream; the node is in every request.

use std::collections::BTreeMap;

use prost_types::{Struct, Value, value::Kind};

use super::snapshot::TYPE_URL;
use crate::pb::{
    envoy::{
        config::core::v3::{Node as ProtoNode, node::UserAgentVersionType},
        service::discovery::v3::DiscoveryRequest,
    },
    google::rpc::Status,
};

/// How long a reason may be, in bytes: it ends in somebody's log.
const MAX_REASON: usize = 32 << 10;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Session {
    node: ProtoNode,
    /// The version in force; empty until there is one.
    accepted: String,
}

impl Session {
    pub fn new(node: &Node) -> Self {
        let text = |text: &String| Value { kind: Some(Kind::StringValue(text.clone())) };
        let fields = node.metadata.iter().map(|(key, value)| (key.clone(), text(value))).collect();
        let node = ProtoNode {
            id: node.id.clone(),
            metadata: Some(Struct { fields }),
            user_agent_name: "tidegate".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
        };
        Self { node, accepted: String::new() }
    }

    /// The first request of a stream. It names no version: a control plane that was restarted may have begun to count anew,
    /// and would take another snapshot of the same number for the one that is in force here.
    pub fn first(&self) -> DiscoveryRequest {
        self.request(String::new(), String::new(), None)
    }

    /// What is in force from now on.
    pub fn accept(&mut self, version: &str) {
        version.clone_into(&mut self.accepted);
    }

    /// The answer to a response that was accepted.
    pub fn ack(&self, nonce: &str) -> DiscoveryRequest {
        self.request(self.accepted.clone(), nonce.to_owned(), None)
    }

    /// The answer to a response that was refused: the version before stays.
    pub fn nack(&self, nonce: &str, why: &str) -> DiscoveryRequest {
        let status = Status { code: INVALID_ARGUMENT, message: cut(why), details: Vec::new() };
        self.request(self.accepted.clone(), nonce.to_owned(), Some(status))
    }

    fn request(
        &self,
        version_info: String,
        response_nonce: String,
        error_detail: Option<Status>,
    ) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info,
            node: Some(self.node.clone()),
            resource_names: Vec::new(),
            type_url: TYPE_URL.to_owned(),
            response_nonce,
            error_detail,
        }
    }
}

const INVALID_ARGUMENT: i32 = 3;

/// As many whole lines as fit, and how many did not.
fn cut(text: &str) -> String {
    if text.len() <= MAX_REASON {
        return text.to_owned();
    }
    let whole = text.floor_char_boundary(MAX_REASON);
    let (kept, _) = text.split_at(text.get(..whole).and_then(|text| text.rfind('\n')).unwrap_or(whole));
    let n_left = text.lines().count() - kept.lines().count();
    format!("{kept}\nand {n_left} more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_who_was_configured_and_metadata_is_text() {
        let metadata = [("zone".to_owned(), "a".to_owned())].into();
        let request = Session::new(&Node { id: "envoy-ratelimit".to_owned(), metadata }).first();
        let node = request.node.unwrap();
        assert_eq!(node.id, "envoy-ratelimit");
        let kinds: Vec<_> = node.metadata.unwrap().fields.into_values().map(|value| value.kind).collect();
        assert_eq!(kinds, [Some(Kind::StringValue("a".to_owned()))]);
        assert_eq!((request.type_url.as_str(), request.resource_names.len()), (TYPE_URL, 0));
    }

    #[test]
    fn a_refusal_repeats_the_version_in_force() {
        let mut session = Session::new(&Node::default());
        let said = |request: DiscoveryRequest| {
            (request.version_info, request.response_nonce, request.error_detail.map(|error| error.message))
        };
        let words = |version: &str, nonce: &str, why: Option<&str>| {
            (version.to_owned(), nonce.to_owned(), why.map(str::to_owned))
        };
        assert_eq!(said(session.nack("n1", "bad")), words("", "n1", Some("bad")));
        session.accept("7");
        assert_eq!(said(session.ack("n2")), words("7", "n2", None));
        assert_eq!(said(session.nack("n3", "bad")), words("7", "n3", Some("bad")));
        assert_eq!(said(session.first()), words("", "", None), "another stream");
    }

    #[test]
    fn a_long_reason_is_cut_between_lines() {
        let line = "é".repeat(500);
        let text = vec![line.as_str(); 100].join("\n");
        let short = cut(&text);
        assert!(short.len() <= MAX_REASON + 20);
        assert_eq!(short.lines().filter(|found| *found == line).count(), 32);
        assert!(short.ends_with("\nand 68 more"), "{}", &short[short.len() - 40..]);
        assert_eq!(cut("short"), "short");
    }
}
