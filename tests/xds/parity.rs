//! The same rules by file and by control plane are the same rules.

use std::path::Path;

use tidegate::{
    pb::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
    },
    rules::{LoadOptions, RuleFile, RuleSet},
};
use yaml_serde::Value;

use crate::{
    control_plane::{ControlPlane, any},
    followed::{Followed, options},
};

/// What Envoy Gateway writes, and whatever else says nothing that a resource cannot.
const FILES: [&str; 7] = [
    "03-contour-guide.yaml",
    "04-envoy-gateway-distinct-header.yaml",
    "05-envoy-gateway-headers-and-cidr.yaml",
    "07-envoy-gateway-long-units-shadow.yaml",
    "11-replaces-tenant-override.yaml",
    "12-wildcard-routes.yaml",
    "14-quota-mode-token-budget.yaml",
];

#[tokio::test]
async fn a_resource_means_what_its_file_means() {
    let plane = ControlPlane::start().await;
    for name in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real-configs").join(name);
        let bytes = std::fs::read(path).unwrap();
        let resource = config(&yaml_serde::from_slice(&bytes).unwrap());
        let file = RuleFile { name: name.to_owned(), bytes };
        let by_file = RuleSet::load(&[file], &LoadOptions::default()).unwrap().rules;
        plane.send(name, vec![any(&resource)]);
        let mut followed = Followed::start(options(plane.server())).await;
        assert_eq!(followed.rules().await, by_file.dump(), "{name}");
        assert!(!by_file.is_empty(), "{name}");
    }
}

fn config(root: &Value) -> RateLimitConfig {
    RateLimitConfig {
        name: text(root, "domain"),
        domain: text(root, "domain"),
        descriptors: items(root, "descriptors").iter().map(descriptor).collect(),
    }
}

fn descriptor(map: &Value) -> RateLimitDescriptor {
    RateLimitDescriptor {
        key: text(map, "key"),
        value: text(map, "value"),
        rate_limit: map.get("rate_limit").filter(|limit| !limit.is_null()).map(policy),
        descriptors: items(map, "descriptors").iter().map(descriptor).collect(),
        shadow_mode: flag(map, "shadow_mode"),
        detailed_metric: flag(map, "detailed_metric"),
        quota_mode: flag(map, "quota_mode"),
        metadata: None,
    }
}

fn policy(map: &Value) -> RateLimitPolicy {
    let unit = text(map, "unit").to_ascii_uppercase();
    RateLimitPolicy {
        unit: RateLimitUnit::from_str_name(&unit).unwrap_or_default().into(),
        requests_per_unit: map
            .get("requests_per_unit")
            .map_or(0, |n| n.as_u64().unwrap().try_into().unwrap()),
        unlimited: flag(map, "unlimited"),
        name: text(map, "name"),
        replaces: items(map, "replaces")
            .iter()
            .map(|other| RateLimitReplace { name: text(other, "name") })
            .collect(),
    }
}

fn text(map: &Value, key: &str) -> String {
    match map.get(key) {
        None => String::new(),
        Some(value) => value.as_str().unwrap_or_else(|| panic!("{key} is no text: {value:?}")).to_owned(),
    }
}

fn flag(map: &Value, key: &str) -> bool {
    map.get(key).is_some_and(|value| value.as_bool().unwrap())
}

fn items(map: &Value, key: &str) -> Vec<Value> {
    map.get(key).and_then(Value::as_sequence).cloned().unwrap_or_default()
}
