//! The image: what its Dockerfile says, and the root file system that it lays out, run where a container would run it: as
//! nobody, on a file system that cannot be written to, with nothing else in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tidegate::settings::TABLE;

use crate::container::Container;
use crate::documents::{folder, text};

const NAMES: [&str; 4] = ["ratelimit", "ratelimit_client", "ratelimit_config_check", "tidegate"];

fn assembled() -> TempDir {
    let root = TempDir::new().unwrap();
    let mut command = Command::new(folder().join("assemble"));
    let done = command.arg(env!("CARGO_BIN_EXE_tidegate")).arg(root.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    root
}

/// The values of an instruction, stage by stage.
fn instructions<'t>(dockerfile: &'t str, name: &str) -> Vec<&'t str> {
    dockerfile.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

#[test]
fn the_dockerfile_says_what_is_meant() {
    let dockerfile = text("Dockerfile");
    let toolchain = fs::read_to_string(folder().join("../rust-toolchain.toml")).unwrap();
    let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")).unwrap();
    let version = version.trim_end_matches('"').rsplit_once('.').unwrap().0;
    let stages = instructions(&dockerfile, "FROM");
    assert_eq!(stages, [format!("rust:{version}-bookworm AS build").as_str(), "scratch"]);
    assert!(dockerfile.contains("deploy/assemble target/release/tidegate /image"));
    assert_eq!(instructions(&dockerfile, "USER"), ["65532:65532"]);
    assert_eq!(instructions(&dockerfile, "ENTRYPOINT"), ["[\"/bin/tidegate\"]"]);
    let default = |name: &str| TABLE.iter().find(|row| row.name == name).map(|row| (row.default)()).unwrap();
    let ports = ["GRPC_PORT", "PORT", "DEBUG_PORT"].map(default).join(" ");
    let exposed = instructions(&dockerfile, "EXPOSE");
    assert_eq!(exposed, [format!("{ports} {}", default("PROMETHEUS_ADDR").trim_start_matches(':'))]);
}

#[test]
fn there_is_the_program_under_its_four_names_and_nothing_to_run_beside_it() {
    let root = assembled();
    let mut names: Vec<_> = fs::read_dir(root.path().join("bin"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    for name in NAMES.iter().filter(|name| **name != "tidegate") {
        assert_eq!(fs::read_link(root.path().join("bin").join(name)).unwrap(), Path::new("tidegate"));
    }
    for folder in ["usr/bin", "sbin", "usr/sbin"] {
        assert!(!root.path().join(folder).exists());
    }
}

/// Runs the image as a container runtime does, as far as one may without one.
fn contained(root: &Path, program: &str) -> Command {
    let path = root.display();
    let run = format!(
        "mount --bind '{path}' '{path}' && mount -o remount,ro,bind '{path}' && \
         exec chroot --userspec=65532:65532 '{path}' {program}"
    );
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--mount", "/bin/sh", "-c", &run]);
    command
}

#[tokio::test]
async fn it_serves_as_nobody_on_a_file_system_that_is_read_only() -> anyhow::Result<()> {
    let root = assembled();
    let rules = root.path().join("data/ratelimit/config");
    fs::create_dir_all(&rules)?;
    let text = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 1 } }]\n";
    fs::write(rules.join("rules.yaml"), text)?;
    // Of the runtime's making, in any container.
    fs::write(root.path().join("etc/hosts"), "127.0.0.1 localhost\n")?;
    // The image's folders are root's, and readable to all, as in an image.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(root.path(), all)?;

    let settings = [
        ("BACKEND_TYPE", "memory"),
        ("HOST", "localhost"),
        ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("USE_STATSD", "false"),
    ];
    let environment: BTreeMap<_, _> =
        settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "only root may make a root file system of its own, as whoever runs containers does"
    );
    let mut server = Container::run(contained(root.path(), "/bin/ratelimit"), &environment)?;
    server.ready("/healthcheck").await?;
    assert_eq!(server.ask("d", &[("k", "v")]).await?, "OK");
    assert_eq!(server.ask("d", &[("k", "v")]).await?, "OVER_LIMIT");
    server.stop().await
}
