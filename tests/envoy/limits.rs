//! What the client is told when it is, and when it is not, over its limit.

use std::sync::Arc;

use crate::lab::{Envoy, Lab};
use crate::port::Port;
use crate::tidegate::Tidegate;

#[tokio::test]
async fn calls_pass_until_the_limit_and_are_told_when_to_come_back() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    for left in ["2", "1", "0"] {
        let answer = lab.envoy.get("/three").await?;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, "eleven char");
        assert_eq!(answer.header("x-ratelimit-limit"), "3, 3;w=3600");
        assert_eq!(answer.header("x-ratelimit-remaining"), left);
        let reset: u64 = answer.header("x-ratelimit-reset").parse()?;
        assert!((1..=3600).contains(&reset), "{reset}");
    }
    let refused = lab.envoy.get("/three").await?;
    assert_eq!((refused.status, refused.body.as_str()), (429, ""));
    assert_eq!(refused.header("x-envoy-ratelimited"), "true");
    assert_eq!(refused.header("x-ratelimit-remaining"), "0");
    assert_eq!(refused.header("retry-after"), refused.header("x-ratelimit-reset"));
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.ok").await?, 3);
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.over_limit").await?, 1);
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.error").await?, 0);
    Ok(())
}

#[tokio::test]
async fn each_stage_asks_for_itself() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    assert_eq!(lab.envoy.get("/two-stages").await?.status, 200);
    let refused = lab.envoy.get("/two-stages").await?;
    assert_eq!(refused.status, 503, "stage 1 has a limit of 1 and a status of its own");
    assert_eq!(refused.header("x-stage"), "one");
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.ok").await?, 2);
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.stage1.over_limit").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_limit_over_several_units_is_shown_with_its_whole_window() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    let answer = lab.envoy.get("/five-minutes").await?;
    assert_eq!(answer.header("x-ratelimit-limit"), "100, 100;w=300");
    Ok(())
}

#[tokio::test]
async fn limits_that_envoy_brings_along_replace_those_of_the_rules() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    let answer = lab.envoy.get("/override").await?;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-ratelimit-limit"), "7, 42;w=3600, 7;w=60");
    assert_eq!(answer.header("x-ratelimit-remaining"), "6");
    Ok(())
}

#[tokio::test]
async fn without_a_server_a_call_is_an_error_and_counted_as_one() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    assert_eq!(lab.envoy.get("/three").await?.status, 200);
    lab.tidegate.stop().await?;
    assert_eq!(lab.envoy.get("/three").await?.status, 500);
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.error").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_socket_file_serves_as_a_port_does() -> anyhow::Result<()> {
    let folder = tempfile::TempDir::new()?;
    let path = folder.path().join("grpc.sock").to_string_lossy().into_owned();
    let port = Arc::new(Port::reserve()?);
    let rules =
        "{domain: lab, descriptors: [{key: generic_key, rate_limit: {unit: hour, requests_per_unit: 1}}]}";
    let _tidegate = Tidegate::start_with(&port, &[rules], &[("GRPC_UDS", &path)]).await?;
    let endpoint = format!("{{ endpoint: {{ address: {{ pipe: {{ path: \"{path}\" }} }} }} }}");
    let marks = [("@health_checks@", ""), ("@endpoints@", &endpoint), ("@transport_socket@", "")];
    let envoy = Envoy::start(include_str!("restart.yaml"), &marks).await?;
    assert_eq!(envoy.get("/").await?.status, 200);
    assert_eq!(envoy.get("/").await?.status, 429);
    Ok(())
}
