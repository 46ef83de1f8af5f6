//! The files of `deploy/`, read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

/// What every manifest calls the image.
pub const IMAGE: &str = concat!("tidegate:", env!("CARGO_PKG_VERSION"));

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

pub fn text(file: &str) -> String {
    fs::read_to_string(folder().join(file)).unwrap_or_else(|error| panic!("deploy/{file}: {error}"))
}

/// Every YAML document of a file.
pub fn documents(file: &str) -> Vec<Value> {
    parsed(&text(file)).unwrap_or_else(|error| panic!("deploy/{file}: {error}"))
}

fn parsed(text: &str) -> Result<Vec<Value>, yaml_serde::Error> {
    yaml_serde::Deserializer::from_str(text).map(Value::deserialize).collect()
}

/// The only document of a YAML text.
pub fn one(text: &str) -> Value {
    let mut all = parsed(text).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The documents of every file for plain Kubernetes.
pub fn kubernetes() -> Vec<(&'static str, Value)> {
    let files = [
        "kubernetes/rules.yaml",
        "kubernetes/redis.yaml",
        "kubernetes/shared.yaml",
        "kubernetes/sidecar.yaml",
    ];
    files.iter().flat_map(|file| documents(file).into_iter().map(|document| (*file, document))).collect()
}

/// A document by its kind and name.
pub fn named(kind: &str, name: &str) -> Value {
    let is_it = |(_, document): &(_, Value)| document["kind"] == kind && document["metadata"]["name"] == name;
    let found = kubernetes().into_iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {kind} is called {name}")).1
}

/// The files in a ConfigMap.
pub fn files(config_map: &str) -> BTreeMap<String, String> {
    let data = named("ConfigMap", config_map)["data"].clone();
    serde_json::from_value(data).unwrap()
}

/// The elements of a list; none of what is missing.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[test]
fn every_file_is_known() {
    let mut found = Vec::new();
    let mut folders = vec![folder()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort_unstable();
    let known = [
        "Dockerfile",
        "assemble",
        "envoy-gateway/values.yaml",
        "envoy.yaml",
        "istio/envoyfilter.yaml",
        "kubernetes/redis.yaml",
        "kubernetes/rules.yaml",
        "kubernetes/shared.yaml",
        "kubernetes/sidecar.yaml",
    ];
    assert_eq!(found, known, "a new file in deploy/ needs a test");
}
