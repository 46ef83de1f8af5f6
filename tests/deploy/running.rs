//! The containers of the manifests, run: their commands, their probes, their rules.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::configmap::ConfigMap;
use crate::container::{Container, ask, code};
use crate::documents::{files, list, string};
use crate::grpc::Client;
use crate::kubernetes::Ours;
use crate::redis::server::{Kind, Server};

fn mounted(ours: &Ours, path: &str, volumes: &TempDir) -> ConfigMap {
    let files: Vec<_> = files(&ours.config_map_at(path)).into_iter().collect();
    ConfigMap::mount(&volumes.path().join(path.trim_start_matches('/')), &files).unwrap()
}

#[test]
fn the_rules_pass_the_check_that_comes_first() {
    for ours in Ours::all().iter().filter(|ours| ours.container["name"] == "check") {
        let volumes = TempDir::new().unwrap();
        let [program, arguments @ .., path] = list(&ours.container["command"]) else { panic!("no command") };
        assert_eq!(program, "/bin/tidegate");
        let mut config = mounted(ours, string(path), &volumes);
        let check = || {
            let path = volumes.path().join(string(path).trim_start_matches('/'));
            let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
            let done = command.args(arguments.iter().map(string)).arg(path).output().unwrap();
            (done.status.code(), String::from_utf8(done.stdout).unwrap())
        };
        let (status, said) = check();
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("1 file, 1 domain"), "read once, not once for each link: {said}");
        config.swap(&[("shop.yaml", "domain: ''\n")]).unwrap();
        assert_eq!(check().0, Some(1));
    }
}

#[tokio::test]
async fn the_servers_answer_and_their_probes_pass() -> anyhow::Result<()> {
    let redis = Server::start(Kind::Redis7).await?;
    for ours in Ours::servers() {
        let volumes = TempDir::new()?;
        let mut environment = ours.environment();
        let _config = mounted(&ours, &environment["RULES"], &volumes);
        let rules = volumes.path().join(environment["RULES"].trim_start_matches('/'));
        environment.insert("RULES".to_owned(), rules.to_string_lossy().into_owned());
        if environment.contains_key("REDIS_URL") {
            environment.insert("REDIS_URL".to_owned(), redis.address().to_string());
        }
        let socket = volumes.path().join("grpc.sock");
        let at_socket = environment.get_mut("GRPC_UDS").map(|path| {
            assert!(Path::new(path).is_absolute());
            *path = socket.to_string_lossy().into_owned();
        });

        let mut server = Container::start(Path::new(env!("CARGO_BIN_EXE_tidegate")), &environment)?;
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            if let Some(path) = ours.container[probe]["httpGet"]["path"].as_str() {
                server.ready(path).await?;
            }
        }
        assert!(server.debug("/metrics").await?.body.contains("tidegate_"));
        let client =
            if at_socket.is_some() { Client::unix(socket)? } else { Client::tcp(server.grpc.number())? };
        let mut n = 0;
        while code(&ask(&client, "shop", &[("remote_address", "10.0.0.1")]).await?) == "OK" {
            n += 1;
            anyhow::ensure!(n < 1_000, "nobody limits this");
        }
        // The burst, and what has refilled meanwhile.
        assert!(n >= 50, "{n}");
        server.stop().await?;
    }
    Ok(())
}
