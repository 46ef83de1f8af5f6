//! Envoy speaks to the server by mutual TLS while certificates and authorities on both sides are replaced under load.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::authority::{Authority, Pair};
use crate::lab::Envoy;
use crate::load::{CALLS, Load, RULES, check, envoy};
use crate::port::Port;
use crate::process::LOOK_EVERY;
use crate::tidegate::Tidegate;

const SERVER: &str = "rls.example";
const CLIENT: &str = "envoy.example";

/// Far longer than any step takes.
const STEP: Duration = Duration::from_secs(60);

/// A Secret as the kubelet mounts it: files behind `..data`, which is swapped.
struct Secret {
    dir: TempDir,
    version: u32,
}

impl Secret {
    fn new(pair: &Pair, trusted: &str) -> anyhow::Result<Self> {
        let mut secret = Self { dir: TempDir::new()?, version: 0 };
        secret.put(pair, trusted)?;
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(name), secret.dir.path().join(name))?;
        }
        Ok(secret)
    }

    fn put(&mut self, pair: &Pair, trusted: &str) -> anyhow::Result<()> {
        self.version += 1;
        let version = format!("..{}", self.version);
        let new = self.dir.path().join(&version);
        fs::create_dir(&new)?;
        fs::write(new.join("tls.crt"), &pair.certificate)?;
        fs::write(new.join("tls.key"), &pair.key)?;
        fs::write(new.join("ca.crt"), trusted)?;
        let (link, data) = (self.dir.path().join("..data_tmp"), self.dir.path().join("..data"));
        symlink(version, &link)?;
        Ok(fs::rename(link, data)?)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// For Envoy: what it shows and trusts, read anew whenever `..data` is swapped.
    fn transport_socket(&self) -> anyhow::Result<String> {
        let dir = self.dir.path().display();
        let secret = |name: &str, content: &str| {
            format!(
                "resources:\n- {{ \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, \
                 name: {name}, {content} }}\n"
            )
        };
        let watched = format!("watched_directory: {{ path: {dir} }}");
        let shown = format!(
            "tls_certificate: {{ certificate_chain: {{ filename: {dir}/tls.crt }}, private_key: {{ filename: \
             {dir}/tls.key }}, {watched} }}"
        );
        let trusted = format!(
            "validation_context: {{ trusted_ca: {{ filename: {dir}/ca.crt }}, match_typed_subject_alt_names: [ {{ \
             san_type: DNS, matcher: {{ exact: {SERVER} }} }} ], {watched} }}"
        );
        fs::write(self.dir.path().join("shown.yaml"), secret("shown", &shown))?;
        fs::write(self.dir.path().join("trusted.yaml"), secret("trusted", &trusted))?;
        let sds = |name: &str| {
            format!(
                "{{ name: {name}, sds_config: {{ resource_api_version: V3, path_config_source: {{ path: \
                 {dir}/{name}.yaml }} }} }}"
            )
        };
        Ok(format!(
            "transport_socket: {{ name: envoy.transport_sockets.tls, typed_config: {{ \"@type\": \
             type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {{ \
             alpn_protocols: [ h2 ], tls_params: {{ tls_minimum_protocol_version: TLSv1_3, \
             tls_maximum_protocol_version: TLSv1_3 }}, tls_certificate_sds_secret_configs: [ {} ], \
             validation_context_sds_secret_config: {} }} }} }}",
            sds("shown"),
            sds("trusted")
        ))
    }
}

/// A server and an Envoy, each with its own files.
struct Sides {
    server_files: Secret,
    envoy_files: Secret,
    server: Tidegate,
    envoy: Envoy,
    _port: Arc<Port>,
}

/// How often Envoy has taken a new certificate or new authorities.
const TAKEN: &str = "cluster.rls.client_ssl_socket_factory.ssl_context_update_by_sds";

impl Sides {
    async fn start(server_files: Secret, envoy_files: Secret) -> anyhow::Result<Self> {
        let port = Arc::new(Port::reserve()?);
        let (certificate, key, ca) =
            (server_files.path("tls.crt"), server_files.path("tls.key"), server_files.path("ca.crt"));
        let settings = [
            ("GRPC_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_TLS_CERT", &certificate),
            ("GRPC_SERVER_TLS_KEY", &key),
            ("GRPC_CLIENT_TLS_CACERT", &ca),
            ("GRPC_CLIENT_TLS_SAN", CLIENT),
            // So that each step is seen by connections that were made under it.
            ("GRPC_MAX_CONNECTION_AGE", "100ms"),
        ];
        let server = Tidegate::start_with(&port, &[RULES], &settings).await?;
        let envoy = envoy("", &envoy_files.transport_socket()?, std::slice::from_ref(&port)).await?;
        Ok(Self { server_files, envoy_files, server, envoy, _port: port })
    }

    async fn server_takes(&mut self, load: &mut Load, pair: &Pair, trusted: &str) -> anyhow::Result<()> {
        let series = r#"tidegate_tls_reloads_total{result="ok"}"#;
        let before = self.server.metric(series).await?;
        self.server_files.put(pair, trusted)?;
        let taken = async {
            let deadline = Instant::now() + STEP;
            while self.server.metric(series).await? <= before {
                ensure!(Instant::now() < deadline, "the server does not take its files");
                sleep(LOOK_EVERY).await;
            }
            Ok(())
        };
        load.during(taken).await?;
        load.during(self.new_connections()).await
    }

    async fn envoy_takes(&mut self, load: &mut Load, pair: &Pair, trusted: &str) -> anyhow::Result<()> {
        let before = self.envoy.stat(TAKEN).await?;
        self.envoy_files.put(pair, trusted)?;
        load.during(self.envoy.until_stat(TAKEN, before + 1)).await?;
        load.during(self.new_connections()).await
    }

    /// Waits until each of Envoy's threads has made a connection since.
    async fn new_connections(&self) -> anyhow::Result<()> {
        let before = self.envoy.stat("cluster.rls.ssl.handshake").await?;
        self.envoy.until_stat("cluster.rls.ssl.handshake", before + 2).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_authorities_are_replaced_without_a_failed_call() -> anyhow::Result<()> {
    let (old, new) = (Authority::new("old")?, Authority::new("new")?);
    let both = old.pem() + &new.pem();
    let (server, client) = (old.server(&[SERVER])?, old.client(&[CLIENT])?);
    let (new_server, new_client) = (new.server(&[SERVER])?, new.client(&[CLIENT])?);
    let server_files = Secret::new(&server, &old.pem())?;
    let envoy_files = Secret::new(&client, &old.pem())?;
    let mut sides = Sides::start(server_files, envoy_files).await?;

    let mut load = Load::start(&sides.envoy).await?;
    load.passes(CALLS).await?;
    sides.server_takes(&mut load, &server, &both).await?;
    sides.envoy_takes(&mut load, &client, &both).await?;
    sides.server_takes(&mut load, &new_server, &both).await?;
    sides.envoy_takes(&mut load, &new_client, &both).await?;
    sides.server_takes(&mut load, &new_server, &new.pem()).await?;
    sides.envoy_takes(&mut load, &new_client, &new.pem()).await?;
    load.passes(CALLS).await?;
    check(&sides.envoy, load.end().await?).await?;

    for stat in
        ["ssl.connection_error", "ssl.fail_verify_error", "ssl.fail_verify_san", "upstream_cx_connect_fail"]
    {
        let name = format!("cluster.rls.{stat}");
        assert_eq!(sides.envoy.stat(&name).await?, 0, "{name}");
    }
    let refused = sides.server.metric(r#"tidegate_tls_handshakes_total{result="refused"}"#).await?;
    let expiry = sides.server.metric("tidegate_tls_certificate_expiry_timestamp_seconds").await?;
    ensure!(refused < 0.5 && expiry > 1e9, "{refused} refused, expires at {expiry}");
    sides.server.stop().await.context("the server ends well")
}

#[tokio::test]
async fn an_envoy_that_is_not_trusted_fails_its_calls() -> anyhow::Result<()> {
    let (ours, other) = (Authority::new("ours")?, Authority::new("other")?);
    for client in [other.client(&[CLIENT])?, ours.client(&["another.example"])?] {
        let server_files = Secret::new(&ours.server(&[SERVER])?, &ours.pem())?;
        let sides = Sides::start(server_files, Secret::new(&client, &ours.pem())?).await?;
        assert_eq!(sides.envoy.get("/").await?.status, 500);
        assert_eq!(sides.envoy.stat("cluster.loop.ratelimit.error").await?, 1);
    }
    Ok(())
}
