//! What is said to Envoy, validated by a real one, and held against the manifests.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::settings::TABLE;

use crate::documents::{documents, files, list, named, one, string, text};
use crate::kubernetes::Ours;

/// Fails unless Envoy takes this configuration.
fn validate(configuration: &str) {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/envoy");
    assert!(binary.exists(), "no Envoy at {}: `scripts/fetch envoy` brings it", binary.display());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("envoy.yaml");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(binary);
    let done =
        command.args(["--mode", "validate", "--log-level", "warning", "-c"]).arg(file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Every value below this one, with the name that it has.
fn walk<'v>(value: &'v Value, each: &mut impl FnMut(&str, &'v Value)) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            each(name, value);
            walk(value, each);
        }),
        Value::Array(values) => values.iter().for_each(|value| walk(value, each)),
        _ => {}
    }
}

/// All values of a name.
fn all<'v>(value: &'v Value, name: &str) -> Vec<&'v Value> {
    let mut found = Vec::new();
    walk(value, &mut |known, value| {
        if known == name {
            found.push(value);
        }
    });
    found
}

/// The address of a cluster's only endpoint.
fn endpoint<'v>(bootstrap: &'v Value, cluster: &str) -> &'v Value {
    let clusters = list(&bootstrap["static_resources"]["clusters"]);
    let cluster = clusters.iter().find(|known| known["name"] == cluster).unwrap();
    all(cluster, "address")[0]
}

fn asks_for_shop(configuration: &Value) {
    assert_eq!(all(configuration, "domain"), [&json!("shop")], "the domain of the rules");
}

#[test]
fn the_first_example_is_valid_and_asks_the_default_port() {
    validate(&text("envoy.yaml"));
    let bootstrap = documents("envoy.yaml").remove(0);
    asks_for_shop(&bootstrap);
    let port = endpoint(&bootstrap, "tidegate")["socket_address"]["port_value"].to_string();
    assert_eq!(port, (TABLE.iter().find(|row| row.name == "GRPC_PORT").unwrap().default)());
}

#[test]
fn the_sidecars_envoy_is_valid_and_asks_the_socket_beside_it() {
    let bootstrap = &files("shop-envoy")["envoy.yaml"];
    validate(bootstrap);
    let bootstrap = one(bootstrap);
    asks_for_shop(&bootstrap);
    let ours = Ours::servers().find(|ours| ours.environment().contains_key("GRPC_UDS")).unwrap();
    let path = ours.environment()["GRPC_UDS"].clone();
    assert_eq!(endpoint(&bootstrap, "tidegate")["pipe"]["path"], path);

    let envoy = list(&ours.pod["containers"]).iter().find(|container| container["name"] == "envoy").unwrap();
    let at = |container: &Value| {
        let mounts = list(&container["volumeMounts"]).iter();
        let folder = Path::new(&path).parent().unwrap().to_str().unwrap();
        mounts.filter(|mount| mount["mountPath"] == folder).map(|mount| mount["name"].clone()).next().unwrap()
    };
    assert_eq!(at(envoy), at(&ours.container), "both see the socket in the same volume");
    let listener = &bootstrap["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"];
    assert_eq!(list(&envoy["ports"])[0]["containerPort"], *listener);
}

/// Istio puts the patches into what it has made itself; here that is the least that Envoy takes.
#[test]
fn the_envoy_filter_is_valid_once_it_is_put_in_its_place() {
    let filter = documents("istio/envoyfilter.yaml").remove(0);
    let patch = |to: &str| {
        let patches = list(&filter["spec"]["configPatches"]);
        let patch = patches.iter().find(|patch| patch["applyTo"] == to);
        patch.unwrap_or_else(|| panic!("no patch of {to}"))["patch"].clone()
    };
    let (http_filter, virtual_host) = (patch("HTTP_FILTER"), patch("VIRTUAL_HOST"));
    assert_eq!(
        (&http_filter["operation"], &virtual_host["operation"]),
        (&json!("INSERT_BEFORE"), &json!("MERGE"))
    );
    asks_for_shop(&http_filter);

    let cluster = all(&http_filter, "cluster_name")[0];
    validate(&gateway(&http_filter["value"], &virtual_host["value"], string(cluster)).to_string());

    let service = named("Service", "tidegate");
    let names_service = |port: &Value| {
        *cluster == format!("outbound|{}||tidegate.default.svc.cluster.local", port["port"])
            && string(&port["name"]).starts_with("grpc")
    };
    assert!(list(&service["spec"]["ports"]).iter().any(names_service), "{cluster}");
}

/// A gateway with one route, a filter before its router, and what is merged into its virtual host.
fn gateway(http_filter: &Value, merged: &Value, cluster: &str) -> Value {
    let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let router = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    let mut host = json!({"name": "any", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]});
    host.as_object_mut().unwrap().extend(merged.as_object().unwrap().clone());
    let typed_config = json!({
        "@type": manager,
        "stat_prefix": "gateway",
        "http_filters": [http_filter, {"name": "envoy.filters.http.router", "typed_config": router}],
        "route_config": {"virtual_hosts": [host]},
    });
    json!({"static_resources": {
        "listeners": [{
            "name": "gateway",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 8080}},
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.http_connection_manager", "typed_config": typed_config},
            ]}],
        }],
        "clusters": [{"name": cluster, "type": "STATIC", "load_assignment": {"cluster_name": cluster, "endpoints": []}}],
    }})
}
