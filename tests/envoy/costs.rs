//! What one request charges: numbers, formats and filter state, looks, refunds, and what is only known at its end.

use std::time::Duration;

use ::http::Request;
use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::http::Body;
use crate::lab::Lab;
use crate::process::LOOK_EVERY;

/// The status and what Envoy says is left.
async fn left(lab: &Lab, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<(u16, String)> {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    let answer = lab.envoy.send(request.body(Body::default())?).await?;
    Ok((answer.status, answer.header("x-ratelimit-remaining")))
}

fn ok(left: &str) -> (u16, String) {
    (200, left.to_owned())
}

#[tokio::test]
async fn a_cost_is_a_number_a_format_or_filter_state() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    for after in ["7", "4", "1"] {
        assert_eq!(left(&lab, "/cost/number", &[]).await?, ok(after));
    }
    assert_eq!(left(&lab, "/cost/number", &[]).await?.0, 429);

    assert_eq!(left(&lab, "/cost/format", &[("x-tokens", "4")]).await?, ok("6"));
    assert_eq!(
        left(&lab, "/cost/format", &[]).await?,
        ok(""),
        "without its cost, Envoy drops the descriptor"
    );
    assert_eq!(left(&lab, "/cost/format", &[("x-tokens", "1")]).await?, ok("5"));

    assert_eq!(left(&lab, "/cost/state", &[("x-hits", "5")]).await?, ok("5"));
    assert_eq!(left(&lab, "/cost/state", &[]).await?, ok("4"));
    Ok(())
}

#[tokio::test]
async fn a_look_charges_nothing_and_a_refund_gives_back() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    assert_eq!(left(&lab, "/cost/peek", &[]).await?, ok("10"));
    assert_eq!(left(&lab, "/cost/charge", &[]).await?, ok("4"));
    assert_eq!(left(&lab, "/cost/peek", &[]).await?, ok("4"));
    assert_eq!(left(&lab, "/cost/refund", &[]).await?, ok("8"));
    assert_eq!(left(&lab, "/cost/refund", &[]).await?, ok("10"), "no more comes back than was charged");
    assert_eq!(left(&lab, "/cost/peek", &[]).await?, ok("10"));
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.error").await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_is_known_at_the_end_of_a_request_is_charged_then() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    assert_eq!(left(&lab, "/done/charge", &[]).await?, ok("1000"), "the check itself is a look");
    until_left(&lab, "989").await?;
    assert_eq!(left(&lab, "/done/refund", &[]).await?, ok("989"));
    until_left(&lab, "994").await?;
    Ok(())
}

/// Envoy charges after it has answered, and counts that nowhere: look until it shows.
async fn until_left(lab: &Lab, expected: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let now = left(lab, "/done/look", &[]).await?;
        if now == ok(expected) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{now:?} is left, not {expected}");
        sleep(LOOK_EVERY).await;
    }
}
