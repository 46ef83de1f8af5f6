//! What `/healthcheck?verbose` says of Redis while health does not hang on it.

use std::time::Duration;

use anyhow::ensure;

use crate::redis::server::{Kind, Server};
use crate::redis::wait::eventually;
use crate::redis_service::{Service, single};

const RULES: &str = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 9}}]\n";
const AT_LAST: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_redis_that_is_away_is_named_and_takes_no_traffic_away() -> anyhow::Result<()> {
    let redis = Server::start(Kind::Redis7).await?;
    let service = Service::start(RULES, &single(redis.address())).await?;
    let says = async |line: &dyn Fn(&str) -> bool| {
        eventually(AT_LAST, async || {
            let answer = service.process.get("/healthcheck?verbose").await?;
            ensure!(answer.status == 200 && answer.body.ends_with("\nOK"), "{answer:?}");
            ensure!(answer.body.lines().any(line), "{}", answer.body);
            Ok(())
        })
        .await
    };
    says(&|line| line == "[+] store: in use").await?;
    redis.kill().await?;
    let begins = format!("[!] store: {} is not connected (", redis.address());
    says(&|line| line.starts_with(&begins) && line.ends_with("): rules take their on_store_failure")).await?;
    redis.launch().await?;
    says(&|line| line == "[+] store: in use").await
}
