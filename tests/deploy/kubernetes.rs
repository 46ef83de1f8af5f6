//! What the manifests for Kubernetes say, held against the table of settings and against each other.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tidegate::rules::{LoadOptions, RuleFile, RuleSet};
use tidegate::settings::{Given, GrpcListener, Settings, TABLE};

use crate::documents::{IMAGE, documents, files, folder, kubernetes, list, named, string};

/// A container of ours, and the pod that it is in.
pub struct Ours {
    pub container: Value,
    pub pod: Value,
}

impl Ours {
    /// Every container of our image, those that come first included.
    pub fn all() -> Vec<Self> {
        let of_pod = |(_, document): (_, Value)| {
            let pod = document["spec"]["template"]["spec"].clone();
            let containers = list(&pod["initContainers"]).iter().chain(list(&pod["containers"]));
            let ours = containers.filter(|container| string(&container["image"]).starts_with("tidegate"));
            ours.map(|container| Self { container: container.clone(), pod: pod.clone() }).collect::<Vec<_>>()
        };
        let all: Vec<_> = kubernetes().into_iter().flat_map(of_pod).collect();
        assert_eq!(all.len(), 4, "a server and a check, shared and beside Envoy");
        all
    }

    /// Those that serve.
    pub fn servers() -> impl Iterator<Item = Self> {
        Self::all().into_iter().filter(|ours| ours.container["name"] == "tidegate")
    }

    pub fn environment(&self) -> BTreeMap<String, String> {
        environment(&self.container["env"])
    }

    pub fn settings(&self) -> Settings {
        let environment = self.environment();
        let given = environment
            .iter()
            .fold(Given::of([]), |given, (name, value)| given.with_flag(known(name), value.as_str()));
        Settings::read(&given).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The ConfigMap that is mounted at a path.
    pub fn config_map_at(&self, path: &str) -> String {
        let mounts = list(&self.container["volumeMounts"]);
        let mount = mounts.iter().find(|mount| mount["mountPath"] == path);
        let mount = mount.unwrap_or_else(|| panic!("nothing is mounted at {path}"));
        assert!(mount.get("subPath").is_none(), "a subPath never changes");
        let volumes = list(&self.pod["volumes"]);
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        string(&volume["configMap"]["name"]).to_owned()
    }

    /// The number that a port is known by, here or by its number.
    fn port(&self, port: &Value) -> u64 {
        port.as_u64().unwrap_or_else(|| {
            let ports = list(&self.container["ports"]);
            let named = ports.iter().find(|known| known["name"] == *port);
            named.unwrap_or_else(|| panic!("no port is called {port}"))["containerPort"].as_u64().unwrap()
        })
    }

    /// The number of each port, by the name that the manifests give it.
    fn listens(&self) -> BTreeMap<&'static str, u64> {
        let settings = self.settings();
        let mut listens = BTreeMap::from([("http", settings.http.port), ("debug", settings.debug.port)]);
        if let GrpcListener::Tcp(endpoint) = settings.grpc {
            listens.insert("grpc", endpoint.port);
        }
        listens.into_iter().map(|(name, port)| (name, u64::from(port))).collect()
    }
}

/// The variables of a container as a map.
pub fn environment(env: &Value) -> BTreeMap<String, String> {
    list(env).iter().map(|one| (string(&one["name"]).to_owned(), string(&one["value"]).to_owned())).collect()
}

/// The name of a setting, which there must be.
pub fn known(name: &str) -> &'static str {
    TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name} is no setting")).name
}

#[test]
fn every_variable_is_a_setting_and_none_is_odd() {
    for ours in Ours::servers() {
        assert_eq!(ours.settings().warnings, [] as [&str; 0]);
    }
}

#[test]
fn the_image_is_this_version_everywhere() {
    for ours in Ours::all() {
        assert_eq!(ours.container["image"], IMAGE);
    }
    let gateway = documents("envoy-gateway/values.yaml").remove(0);
    let deployment =
        &gateway["config"]["envoyGateway"]["provider"]["kubernetes"]["rateLimitDeployment"]["container"];
    assert_eq!(deployment["image"], IMAGE);
    environment(&deployment["env"]).keys().for_each(|name| _ = known(name));
}

#[test]
fn every_port_is_one_that_the_container_listens_on() {
    for ours in Ours::servers() {
        let listens = ours.listens();
        let named: BTreeMap<_, _> = list(&ours.container["ports"])
            .iter()
            .map(|port| (string(&port["name"]), port["containerPort"].as_u64().unwrap()))
            .collect();
        assert_eq!(named, listens);
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            for kind in ["httpGet", "tcpSocket", "grpc"] {
                if let Some(probe) = ours.container[probe].get(kind) {
                    let port = ours.port(&probe["port"]);
                    let expected: &[&str] = if kind == "httpGet" { &["http", "debug"] } else { &["grpc"] };
                    assert!(expected.iter().any(|name| listens.get(name) == Some(&port)), "{probe}");
                }
            }
        }
    }
}

#[test]
fn the_service_and_the_scraper_find_their_ports() {
    let deployment = named("Deployment", "tidegate");
    let template = &deployment["spec"]["template"];
    let ours = Ours::servers().find(|ours| ours.pod == template["spec"]).unwrap();
    let annotations = &template["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/port"], ours.listens()["debug"].to_string());
    assert_eq!(annotations["prometheus.io/path"], "/metrics");

    let service = named("Service", "tidegate");
    assert_eq!(service["spec"]["selector"], template["metadata"]["labels"]);
    for port in list(&service["spec"]["ports"]) {
        assert_eq!(port["port"].as_u64(), Some(ours.port(&port["targetPort"])));
    }
    for selector in
        [&deployment["spec"]["selector"], &named("PodDisruptionBudget", "tidegate")["spec"]["selector"]]
    {
        assert_eq!(selector["matchLabels"], template["metadata"]["labels"]);
    }
    let redis = named("Service", "redis");
    let address = format!("redis:{}", list(&redis["spec"]["ports"])[0]["port"]);
    assert_eq!(ours.environment()["REDIS_URL"], address);
}

#[test]
fn a_pod_has_the_time_to_drain_and_no_rights() {
    for ours in Ours::servers() {
        let sleep = ours.container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or(0);
        let grace = ours.pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        // A second for pages, four for Redis, five for the last spans.
        let stop = Duration::from_secs(sleep + 1 + 4 + 5) + ours.settings().drain_timeout;
        assert!(Duration::from_secs(grace) > stop, "{grace} s is not more than {stop:?}");
        assert_eq!(ours.pod["enableServiceLinks"], false);
        assert_eq!(ours.pod["automountServiceAccountToken"], false);
        let security = &ours.pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true);
        assert_eq!(security["runAsUser"], 65532);
        assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
    }
    for ours in Ours::all() {
        let security = &ours.container["securityContext"];
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]));
    }
}

#[test]
fn the_rules_load_without_a_warning() {
    for ours in Ours::servers() {
        let rules = files(&ours.config_map_at(&ours.environment()["RULES"]));
        let files: Vec<_> =
            rules.into_iter().map(|(name, text)| RuleFile { name, bytes: text.into_bytes() }).collect();
        let loaded =
            RuleSet::load(&files, &LoadOptions::default()).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert!(loaded.rules.has_domain(b"shop"));
    }
}

/// The YAML blocks of the page that are rules.
#[test]
fn the_rules_of_the_page_on_migrating_load() {
    let page = std::fs::read_to_string(folder().join("../docs/migrating.md")).unwrap();
    let blocks: Vec<_> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let rules: Vec<_> = blocks.iter().filter(|block| block.starts_with("domain:")).collect();
    assert_eq!(rules.len(), 1);
    let file = RuleFile { name: "migrating.md".to_owned(), bytes: rules[0].as_bytes().to_vec() };
    RuleSet::load(&[file], &LoadOptions::default()).unwrap_or_else(|problems| panic!("{problems}"));
}
