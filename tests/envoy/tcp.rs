//! The network filter: connections instead of requests.

use ::http::Request;

use crate::http::Body;
use crate::lab::Lab;

const RULES: &str = "
domain: lab-tcp
descriptors:
- key: listener
  value: under_test
  descriptors:
  - { key: remote_address, value: 127.0.0.1, rate_limit: { unit: hour, requests_per_unit: 2 } }
";

#[tokio::test]
async fn connections_over_the_limit_are_closed() -> anyhow::Result<()> {
    let lab = Lab::start(include_str!("tcp.yaml"), &[RULES]).await?;
    for _ in 0..2 {
        assert_eq!(lab.envoy.get("/").await?.status, 200);
    }
    let third = lab.envoy.send(Request::get("/").body(Body::default())?).await;
    assert!(third.is_err(), "{third:?}");
    assert_eq!(lab.envoy.stat("ratelimit.tcp.ok").await?, 2);
    assert_eq!(lab.envoy.stat("ratelimit.tcp.over_limit").await?, 1);
    assert_eq!(lab.envoy.stat("ratelimit.tcp.error").await?, 0);
    Ok(())
}
