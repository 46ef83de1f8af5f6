//! Manifests that bring rules in a ConfigMap.

use rustix::process::Signal;

use crate::pod::{Env, Volumes};

/// Istio's `samples/ratelimit/rate-limit-service.yaml`.
const ISTIO: Env = &[
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "@redis@"),
    ("USE_STATSD", "false"),
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("HOST", "::"),
    ("GRPC_HOST", "::"),
];

/// The task on istio.io, as it was for years: what to watch is left at its default, and one file is mounted by `subPath`.
const ISTIO_OLD: Env = &[
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "@redis@"),
    ("USE_STATSD", "false"),
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
];

/// Contour's `examples/ratelimit/02-ratelimit.yaml`.
const CONTOUR: Env = &[
    ("USE_STATSD", "false"),
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "@redis@"),
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
];

/// kgateway's end-to-end tests: dot files are left out, and what is watched is left at its default.
const KGATEWAY: Env = &[
    ("LOG_LEVEL", "debug"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "@redis@"),
    ("USE_STATSD", "false"),
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
];

/// Limits per year, so that no window ends within a test.
fn product_page(page: u32, others: u32) -> String {
    format!(
        "domain: productpage-ratelimit\ndescriptors:\n\
         - key: PATH\n  value: /productpage\n  rate_limit: {{ unit: year, requests_per_unit: {page} }}\n\
         - key: PATH\n  rate_limit: {{ unit: year, requests_per_unit: {others} }}\n"
    )
}

const PAGE: &[(&str, &str)] = &[("PATH", "/productpage")];
const DOMAIN: &str = "productpage-ratelimit";

#[tokio::test]
async fn istios_sample() -> anyhow::Result<()> {
    let volumes = Volumes::new()?;
    let mut config = volumes.config("config.yaml", &product_page(1, 100))?;
    let mut pod = volumes.start(ISTIO).await?;
    // It has no probes; Istio's own proxy asks by HTTP whether the program is there.
    assert_eq!(pod.container.ready("/healthcheck").await?.body, "OK");
    assert_eq!(pod.n_let_through(DOMAIN, PAGE).await?, 1);
    assert_eq!(pod.n_let_through(DOMAIN, &[("PATH", "/reviews")]).await?, 100);
    let counters = pod.redis.call(&["KEYS", &format!("{DOMAIN}*")]).await?.list()?;
    assert_eq!(counters.len(), 2, "one for each path: {counters:?}");

    config.swap(&[("config.yaml", product_page(3, 50))])?;
    pod.comes_to_limit(DOMAIN, "PATH", 50).await?;
    // The counter of before goes on: two calls are spent.
    assert_eq!(pod.n_let_through(DOMAIN, PAGE).await?, 1);
    pod.container.stop().await
}

#[tokio::test]
async fn istios_older_task() -> anyhow::Result<()> {
    let volumes = Volumes::new()?;
    std::fs::create_dir_all(volumes.at("/data/ratelimit/config"))?;
    std::fs::write(volumes.at("/data/ratelimit/config/config.yaml"), product_page(2, 100))?;
    let mut pod = volumes.start(ISTIO_OLD).await?;
    assert_eq!(pod.container.ready("/healthcheck").await?.body, "OK");
    assert_eq!(pod.n_let_through(DOMAIN, PAGE).await?, 2);
    // A `subPath` never changes, so there is no swap to follow.
    pod.container.stop().await
}

#[tokio::test]
async fn contours_example() -> anyhow::Result<()> {
    let rules = |n: u32| {
        format!(
            "domain: contour\ndescriptors:\n\
             - key: generic_key\n  value: vhostgeneric\n  rate_limit: {{ unit: year, requests_per_unit: {n} }}\n\
             - key: remote_address\n  rate_limit: {{ unit: year, requests_per_unit: {n} }}\n"
        )
    };
    let volumes = Volumes::new()?;
    let mut config = volumes.config("ratelimit-config.yaml", &rules(2))?;
    let mut pod = volumes.start(CONTOUR).await?;
    // Its liveness probe.
    assert_eq!(pod.container.ready("/healthcheck").await?.body, "OK");
    assert_eq!(pod.n_let_through("contour", &[("generic_key", "vhostgeneric")]).await?, 2);
    config.swap(&[("ratelimit-config.yaml", rules(7))])?;
    pod.comes_to_limit("contour", "remote_address", 7).await?;
    assert_eq!(pod.container.probe("/healthcheck").await?.status, 200);
    pod.container.stop().await
}

/// With `RUNTIME_WATCH_ROOT` at its default neither the reference nor this program follows a change below the root: a new
/// pod has it, and here SIGHUP, which would have ended the reference.
#[tokio::test]
async fn kgateways_tests() -> anyhow::Result<()> {
    let rules = |n: u32| {
        format!(
            "domain: api-gateway\ndescriptors:\n\
             - key: remote_address\n  rate_limit: {{ unit: year, requests_per_unit: {n} }}\n"
        )
    };
    let volumes = Volumes::new()?;
    let mut config = volumes.config("config.yaml", &rules(1))?;
    let mut pod = volumes.start(KGATEWAY).await?;
    assert_eq!(pod.container.ready("/healthcheck").await?.body, "OK");
    assert_eq!(pod.n_let_through("api-gateway", &[("remote_address", "10.0.0.1")]).await?, 1);
    config.swap(&[("config.yaml", rules(5))])?;
    pod.container.signal(Signal::HUP)?;
    pod.comes_to_limit("api-gateway", "remote_address", 5).await?;
    pod.container.stop().await
}

/// The trap of a liveness probe on `/healthcheck`: while the first rules are bad it fails, and says why; once the ConfigMap is
/// mended it passes, without a restart.
#[tokio::test]
async fn a_bad_configmap_at_the_first_start() -> anyhow::Result<()> {
    let volumes = Volumes::new()?;
    let mut config =
        volumes.config("config.yaml", "domain: productpage-ratelimit\ndescriptors: [{ kye: PATH }]\n")?;
    let mut pod = volumes.start(ISTIO).await?;
    let refused = crate::redis::wait::eventually(std::time::Duration::from_secs(30), async || {
        let answer = pod.container.probe("/healthcheck").await?;
        anyhow::ensure!(answer.body.contains("kye"), "{answer:?}");
        Ok(answer)
    });
    assert_eq!(refused.await?.status, 500);
    config.swap(&[("config.yaml", product_page(1, 100))])?;
    pod.container.ready("/healthcheck").await?;
    assert_eq!(pod.n_let_through(DOMAIN, PAGE).await?, 1);
    pod.container.stop().await
}
