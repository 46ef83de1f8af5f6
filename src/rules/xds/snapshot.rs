//! All resources of one answer become a rule set, or a list of everything that is wrong with them. Knows nothing of streams.
//!
//! **Invariant:** one resource that is wrong, and none is taken.

use std::sync::Arc;

use prost::Message as _;
use prost_types::Any;
use sha2::{Digest as _, Sha256};

use super::convert;
use crate::{
    pb::{envoy::service::discovery::v3::Resource, ratelimit::config::ratelimit::v3::RateLimitConfig},
    rules::{
        LoadOptions, Loaded, RuleSet,
        reload::{LoadFailure, Reloaded},
        source::Unreadable,
    },
};

/// What is asked for.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// What a resource may be wrapped in.
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// How many resources that cannot be read are named; the others are counted.
const MAX_NAMED: usize = 100;

/// Stands for a set of resources, whatever their order.
pub(super) type Fingerprint = [u8; 32];

pub(super) fn fingerprint(resources: &[Any]) -> Fingerprint {
    let mut sorted: Vec<(&str, &[u8])> =
        resources.iter().map(|any| (any.type_url.as_str(), any.value.as_slice())).collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    for part in sorted.iter().flat_map(|(url, value)| [url.as_bytes(), value]) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Turns resources into rules; each set goes on with the counters of the one before.
#[derive(Debug)]
pub(super) struct Loader {
    options: LoadOptions<'static>,
    in_force: Option<Arc<RuleSet>>,
}

impl Loader {
    pub fn new(options: LoadOptions<'static>) -> Self {
        Self { options, in_force: None }
    }

    pub fn load(&mut self, resources: &[Any]) -> Result<Reloaded, LoadFailure> {
        let (mut configs, unreadable) = read(resources);
        // As files: in the order of their names, so that the same set means the same whatever its order.
        configs.sort_by(|a, b| a.name.cmp(&b.name));
        let files: Vec<_> =
            configs.into_iter().map(|config| (name(&config), convert::file(config))).collect();
        let options = LoadOptions { previous: self.in_force.as_deref(), ..self.options };
        match RuleSet::of_resources(&files, &options) {
            Ok(Loaded { rules, warnings }) if unreadable.is_empty() => {
                let rules = Arc::new(rules);
                self.in_force = Some(Arc::clone(&rules));
                let warnings = warnings.iter().map(ToString::to_string).collect();
                Ok(Reloaded { rules, warnings, n_files: resources.len() })
            }
            outcome => Err(LoadFailure { unreadable, problems: outcome.err(), warnings: Vec::new() }),
        }
    }
}

fn read(resources: &[Any]) -> (Vec<RateLimitConfig>, Vec<Unreadable>) {
    let (mut configs, mut unreadable, mut n_omitted) = (Vec::with_capacity(resources.len()), Vec::new(), 0);
    for (index, resource) in resources.iter().enumerate() {
        match decode(resource) {
            Ok(config) => configs.push(config),
            Err(_) if unreadable.len() == MAX_NAMED => n_omitted += 1,
            Err(message) => {
                let name = format!("resource {} of {}", index + 1, resources.len());
                unreadable.push(Unreadable { name, message });
            }
        }
    }
    if n_omitted > 0 {
        let (name, message) = ("and".to_owned(), format!("{n_omitted} more resources that cannot be read"));
        unreadable.push(Unreadable { name, message });
    }
    (configs, unreadable)
}

fn decode(resource: &Any) -> Result<RateLimitConfig, String> {
    match resource.type_url.as_str() {
        TYPE_URL => RateLimitConfig::decode(resource.value.as_slice())
            .map_err(|error| format!("cannot be read as a RateLimitConfig: {error}")),
        WRAPPER => match Resource::decode(resource.value.as_slice()).map(|wrapper| wrapper.resource) {
            Ok(Some(inner)) if inner.type_url != WRAPPER => decode(&inner),
            Ok(_) => Err("is an envelope with nothing in it".to_owned()),
            Err(error) => Err(format!("cannot be read as a Resource: {error}")),
        },
        other => Err(format!("is of type {other:?}, expected {TYPE_URL}")),
    }
}

/// What messages call a resource.
fn name(config: &RateLimitConfig) -> Arc<str> {
    match (config.name.as_str(), config.domain.as_str()) {
        ("", "") => Arc::from("a resource without a name"),
        ("", domain) => Arc::from(format!("the resource without a name for domain '{domain}'")),
        (name, _) => Arc::from(name),
    }
}

#[cfg(test)]
mod tests;
