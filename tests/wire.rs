//! Holds the messages of `proto/` to Envoy's own, on the wire and in both directions: every field set, every enum number.
//! Of what a control plane is asked, only the fields that we have: the others are at their defaults.
//! What the other crate does not have yet is held to bytes written down by hand.
//!
//! No literal of ours uses `..`, and none of theirs but those: a field that either side gains stops this file from compiling.

use std::collections::HashMap;

use bytes::Bytes;
use envoy_types::pb::{
    envoy::{
        config::core::v3 as their_core,
        extensions::common::ratelimit::v3 as their_common,
        service::{discovery::v3 as their_discovery, ratelimit::v3 as theirs},
        r#type::v3::RateLimitUnit as TheirRateLimitUnit,
    },
    google::{protobuf as their_google, rpc as their_rpc},
};
use prost::{Message, Name};
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use tidegate::pb::{
    FILE_DESCRIPTOR_SET, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    RateLimitUnit,
    envoy::{
        config::core::v3::{Node, node::UserAgentVersionType},
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse, Resource},
    },
    google::rpc::Status,
    rate_limit_descriptor::{Entry, RateLimitOverride},
    rate_limit_response::{
        Code, DescriptorStatus, Quota, RateLimit, quota::ExpirationSpecifier, rate_limit::Unit,
    },
    ratelimit::config::ratelimit::v3 as our_rules,
};

fn our_request() -> RateLimitRequest {
    let entry = |key: &'static str, value: &'static str| Entry { key: key.into(), value: value.into() };
    RateLimitRequest {
        domain: "lab".into(),
        descriptors: vec![
            RateLimitDescriptor {
                entries: vec![entry("generic_key", "gold"), entry("app", "")],
                limit: Some(RateLimitOverride { requests_per_unit: 42, unit: 6, unit_multiplier: None }),
                hits_addend: Some(1 << 40),
                is_negative_hits: true,
            },
            RateLimitDescriptor {
                entries: vec![],
                limit: None,
                hits_addend: Some(0),
                is_negative_hits: false,
            },
        ],
        hits_addend: u32::MAX,
    }
}

fn their_request() -> theirs::RateLimitRequest {
    use their_common::rate_limit_descriptor::{Entry, RateLimitOverride};
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    let hits = |value| Some(their_google::UInt64Value { value });
    theirs::RateLimitRequest {
        domain: "lab".into(),
        descriptors: vec![
            their_common::RateLimitDescriptor {
                entries: vec![entry("generic_key", "gold"), entry("app", "")],
                limit: Some(RateLimitOverride { requests_per_unit: 42, unit: 6 }),
                hits_addend: hits(1 << 40),
                is_negative_hits: true,
            },
            their_common::RateLimitDescriptor {
                entries: vec![],
                limit: None,
                hits_addend: hits(0),
                is_negative_hits: false,
            },
        ],
        hits_addend: u32::MAX,
    }
}

fn our_response() -> RateLimitResponse {
    let quota = || Quota {
        requests: 5,
        id: "q".into(),
        expiration_specifier: Some(ExpirationSpecifier::ValidUntil(prost_types::Timestamp {
            seconds: 6,
            nanos: 7,
        })),
    };
    let header = |key: &str| HeaderValue { key: key.into(), value: "1".into(), raw_value: b"\xff".to_vec() };
    let yes = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit {
                name: "per-ip".into(),
                requests_per_unit: 10,
                unit: Unit::Week.into(),
                unit_multiplier: None,
            }),
            limit_remaining: 3,
            duration_until_reset: Some(prost_types::Duration { seconds: 42, nanos: 9 }),
            quota: Some(quota()),
        }],
        response_headers_to_add: vec![header("a")],
        request_headers_to_add: vec![header("b")],
        raw_body: b"slow down".to_vec(),
        dynamic_metadata: Some(prost_types::Struct { fields: [("k".to_owned(), yes)].into() }),
        quota: Some(quota()),
    }
}

fn their_response() -> theirs::RateLimitResponse {
    use theirs::rate_limit_response::{DescriptorStatus, Quota, RateLimit, quota::ExpirationSpecifier};
    let quota = || Quota {
        requests: 5,
        id: "q".into(),
        expiration_specifier: Some(ExpirationSpecifier::ValidUntil(their_google::Timestamp {
            seconds: 6,
            nanos: 7,
        })),
    };
    let header = |key: &str| their_core::HeaderValue {
        key: key.into(),
        value: "1".into(),
        raw_value: b"\xff".to_vec(),
    };
    let yes = their_google::Value { kind: Some(their_google::value::Kind::BoolValue(true)) };
    theirs::RateLimitResponse {
        overall_code: 2,
        statuses: vec![DescriptorStatus {
            code: 1,
            current_limit: Some(RateLimit { name: "per-ip".into(), requests_per_unit: 10, unit: 7 }),
            limit_remaining: 3,
            duration_until_reset: Some(their_google::Duration { seconds: 42, nanos: 9 }),
            quota: Some(quota()),
        }],
        response_headers_to_add: vec![header("a")],
        request_headers_to_add: vec![header("b")],
        raw_body: b"slow down".to_vec(),
        dynamic_metadata: Some(their_google::Struct { fields: HashMap::from([("k".to_owned(), yes)]) }),
        quota: Some(quota()),
    }
}

#[test]
fn requests_are_the_same_bytes() {
    let bytes = their_request().encode_to_vec();
    assert_eq!(our_request().encode_to_vec(), bytes);
    assert_eq!(RateLimitRequest::decode(&*bytes).unwrap(), our_request());
    assert_eq!(theirs::RateLimitRequest::decode(&*our_request().encode_to_vec()).unwrap(), their_request());
}

#[test]
fn responses_are_the_same_bytes() {
    let bytes = their_response().encode_to_vec();
    assert_eq!(our_response().encode_to_vec(), bytes);
    assert_eq!(RateLimitResponse::decode(&*bytes).unwrap(), our_response());
    assert_eq!(
        theirs::RateLimitResponse::decode(&*our_response().encode_to_vec()).unwrap(),
        their_response()
    );
}

#[test]
fn enum_numbers_and_names_are_the_same() {
    use theirs::rate_limit_response::{Code as TheirCode, rate_limit::Unit as TheirUnit};
    for number in -1..20 {
        let ours = Unit::try_from(number).ok().map(|unit| unit.as_str_name());
        assert_eq!(ours, TheirUnit::try_from(number).ok().map(|unit| unit.as_str_name()), "{number}");
        let ours = Code::try_from(number).ok().map(|code| code.as_str_name());
        assert_eq!(ours, TheirCode::try_from(number).ok().map(|code| code.as_str_name()), "{number}");
        let ours = RateLimitUnit::try_from(number).ok().map(|unit| unit.as_str_name());
        assert_eq!(
            ours,
            TheirRateLimitUnit::try_from(number).ok().map(|unit| unit.as_str_name()),
            "{number}"
        );
    }
}

#[test]
fn the_multiplier_is_field_3_of_an_override_and_field_4_of_a_limit() {
    let ours = RateLimitOverride { requests_per_unit: 7, unit: 2, unit_multiplier: Some(300) };
    let bytes = b"\x08\x07\x10\x02\x1a\x03\x08\xac\x02";
    assert_eq!(ours.encode_to_vec(), bytes);
    assert_eq!(RateLimitOverride::decode(&bytes[..]).unwrap(), ours);

    let ours = RateLimit { name: "n".into(), requests_per_unit: 7, unit: 2, unit_multiplier: Some(300) };
    let bytes = b"\x1a\x01n\x08\x07\x10\x02\x22\x03\x08\xac\x02";
    assert_eq!(RateLimit::decode(&bytes[..]).unwrap(), ours);
    assert_eq!(RateLimit::decode(&*ours.encode_to_vec()).unwrap(), ours);
    assert_eq!(ours.encoded_len(), bytes.len());
}

/// As Envoy 1.40 sends it for `generic_key` and `app`, with an explicit `hits_addend: 0` and an unknown field added.
#[test]
fn a_request_off_the_wire_keeps_the_difference_between_zero_and_absent() {
    let envoys = b"\x0a\x03lab\x12\x22\x0a\x13\x0a\x0bgeneric_key\x12\x04gold\x0a\x0b\x0a\x03app\x12\x04shop";
    let request = RateLimitRequest::decode(&envoys[..]).unwrap();
    assert_eq!(request.descriptors[0].entries[1], Entry { key: "app".into(), value: "shop".into() });
    assert_eq!(request.descriptors[0].hits_addend, None);

    let peek = b"\x0a\x01d\x12\x02\x1a\x00\xa0\x06\x2a";
    assert_eq!(RateLimitRequest::decode(&peek[..]).unwrap().descriptors[0].hits_addend, Some(0));
}

#[test]
fn what_is_not_utf_8_is_read_and_is_a_slice_of_the_message() {
    let entry = Entry { key: Bytes::from_static(b"k\xff"), value: Bytes::from_static(b"caf\xe9") };
    let sent = RateLimitRequest {
        domain: Bytes::from_static(b"d\xc3\x28"),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        }],
        hits_addend: 0,
    };
    let message = Bytes::from(sent.encode_to_vec());
    assert!(theirs::RateLimitRequest::decode(message.clone()).is_err());

    let read = RateLimitRequest::decode(message.clone()).unwrap();
    assert_eq!(read, sent);
    let entry = &read.descriptors[0].entries[0];
    for slice in [&read.domain, &entry.key, &entry.value] {
        assert!(message.as_ptr_range().contains(&slice.as_ptr()), "{slice:?} was copied");
    }
}

#[test]
fn names_are_envoys_and_reflection_shows_text() {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let names: Vec<_> = files
        .file
        .iter()
        .flat_map(|file| {
            file.message_type.iter().map(|message| format!("{}.{}", file.package(), message.name()))
        })
        .collect();
    for name in [
        theirs::RateLimitRequest::full_name(),
        theirs::RateLimitResponse::full_name(),
        their_common::RateLimitDescriptor::full_name(),
        their_core::HeaderValue::full_name(),
    ] {
        assert!(names.contains(&name), "{name}");
    }
    let message = |name: &str| -> &DescriptorProto {
        let mut messages = files.file.iter().flat_map(|file| &file.message_type);
        messages.find(|message| message.name() == name).unwrap()
    };
    let domain = &message("RateLimitRequest").field[0];
    assert_eq!((domain.name(), domain.r#type()), ("domain", Type::String));
    let entry = &message("RateLimitDescriptor").nested_type[0];
    assert!(entry.field.iter().all(|field| field.r#type() == Type::String));
}

#[test]
fn what_a_control_plane_is_asked_is_the_same_bytes() {
    let text = |text: &str| prost_types::value::Kind::StringValue(text.to_owned());
    let value = prost_types::Value { kind: Some(text("a")) };
    let ours = DiscoveryRequest {
        version_info: "7".into(),
        node: Some(Node {
            id: "node".into(),
            metadata: Some(prost_types::Struct { fields: [("zone".to_owned(), value)].into() }),
            user_agent_name: "tidegate".into(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion("1".into())),
        }),
        resource_names: vec!["name".into()],
        type_url: "type".into(),
        response_nonce: "nonce".into(),
        error_detail: Some(Status {
            code: 3,
            message: "why".into(),
            details: vec![prost_types::Any { type_url: "t".into(), value: b"v".to_vec() }],
        }),
    };
    let value = their_google::Value { kind: Some(their_google::value::Kind::StringValue("a".into())) };
    let theirs = their_discovery::DiscoveryRequest {
        version_info: "7".into(),
        node: Some(their_core::Node {
            id: "node".into(),
            metadata: Some(their_google::Struct { fields: HashMap::from([("zone".to_owned(), value)]) }),
            user_agent_name: "tidegate".into(),
            user_agent_version_type: Some(their_core::node::UserAgentVersionType::UserAgentVersion(
                "1".into(),
            )),
            ..their_core::Node::default()
        }),
        resource_names: vec!["name".into()],
        type_url: "type".into(),
        response_nonce: "nonce".into(),
        error_detail: Some(their_rpc::Status {
            code: 3,
            message: "why".into(),
            details: vec![their_google::Any { type_url: "t".into(), value: b"v".to_vec() }],
        }),
        ..their_discovery::DiscoveryRequest::default()
    };
    let theirs = theirs.encode_to_vec();
    assert_eq!(DiscoveryRequest::decode(&*theirs).unwrap(), ours);
    assert_eq!(ours.encode_to_vec(), theirs);
}

#[test]
fn what_a_control_plane_answers_is_the_same_bytes() {
    let ours = DiscoveryResponse {
        version_info: "7".into(),
        resources: vec![prost_types::Any { type_url: "t".into(), value: b"v".to_vec() }],
        type_url: "type".into(),
        nonce: "nonce".into(),
    };
    let any = || their_google::Any { type_url: "t".into(), value: b"v".to_vec() };
    let theirs = their_discovery::DiscoveryResponse {
        version_info: "7".into(),
        resources: vec![any()],
        type_url: "type".into(),
        nonce: "nonce".into(),
        ..their_discovery::DiscoveryResponse::default()
    };
    assert_eq!(DiscoveryResponse::decode(&*theirs.encode_to_vec()).unwrap(), ours);

    let ours = Resource {
        name: "name".into(),
        version: "1".into(),
        resource: Some(prost_types::Any { type_url: "t".into(), value: b"v".to_vec() }),
    };
    let theirs = their_discovery::Resource {
        name: "name".into(),
        version: "1".into(),
        resource: Some(any()),
        ..their_discovery::Resource::default()
    };
    assert_eq!(Resource::decode(&*theirs.encode_to_vec()).unwrap(), ours);
}

/// The other crate does not have these: field numbers as the reference's API gives them.
#[test]
fn rules_have_the_references_numbers() {
    use our_rules::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit};
    let policy = RateLimitPolicy {
        unit: RateLimitUnit::Week.into(),
        requests_per_unit: 5,
        unlimited: true,
        name: "n".into(),
        replaces: vec![RateLimitReplace { name: "r".into() }],
    };
    let descriptor = RateLimitDescriptor {
        key: "k".into(),
        value: "v".into(),
        rate_limit: Some(policy),
        descriptors: vec![RateLimitDescriptor { key: "c".into(), ..RateLimitDescriptor::default() }],
        shadow_mode: true,
        detailed_metric: true,
        quota_mode: true,
        metadata: Some(prost_types::Struct::default()),
    };
    let config = RateLimitConfig { name: "x".into(), domain: "d".into(), descriptors: vec![descriptor] };
    let bytes = b"\x0a\x01x\x12\x01d\x1a\x23\x0a\x01k\x12\x01v\x1a\x0e\x08\x07\x10\x05\x18\x01\x22\x01n\x2a\x03\x0a\x01r\
        \x22\x03\x0a\x01c\x28\x01\x30\x01\x38\x01\x42\x00";
    assert_eq!(config.encode_to_vec(), bytes);
    assert_eq!(RateLimitConfig::decode(&bytes[..]).unwrap(), config);
    let names = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
    for (number, name) in (0..).zip(names) {
        assert_eq!(RateLimitUnit::try_from(number).unwrap().as_str_name(), name);
    }
}
