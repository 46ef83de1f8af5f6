//! Every way in which Envoy builds descriptors, each found by the one rule of its shape.

use ::http::Request;

use crate::http::{Answer, Body};
use crate::lab::Lab;

/// The names of the rules that decided, as Envoy lists them in `x-ratelimit-limit`.
fn rules(answer: &Answer) -> Vec<String> {
    let header = answer.header("x-ratelimit-limit");
    let names = header.split("name=\"").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn rules_for(lab: &Lab, path: &str, headers: Headers<'_>) -> anyhow::Result<Vec<String>> {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    let answer = lab.envoy.send(request.body(Body::default())?).await?;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    Ok(rules(&answer))
}

#[tokio::test]
async fn each_action_is_limited_by_the_rule_of_its_shape() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    let user = ("x-user-id", "ann");
    let cases: [(&str, Headers<'_>, &[&str]); 20] = [
        ("/generic", &[], &["generic"]),
        ("/header", &[user], &["user", "path", "service"]),
        ("/header", &[("x-tier", "gold")], &["path", "service-and-tier"]),
        ("/header", &[("x-tier", "unheard of")], &["path"]),
        ("/address", &[], &["address", "address-24", "address-32", "net"]),
        ("/match", &[("user-agent", "Mobile")], &["mobile"]),
        ("/match", &[("user-agent", "Desk")], &["desktop"]),
        ("/query?api_key=a%20b&debug=1", &[], &["query", "query-match"]),
        ("/metadata", &[("x-plan", "pro")], &["plan-pro", "tier", "kept"]),
        ("/metadata", &[], &["plan-free", "tier", "kept"]),
        ("/cluster", &[], &["clusters"]),
        ("/cel", &[], &["cel"]),
        ("/vhost", &[], &["vhost"]),
        ("/vhost-include", &[], &["route", "vhost"]),
        ("/disabled", &[], &["alive"]),
        ("/opt-out", &[], &["shown"]),
        ("/two-stages", &[], &["stage0"]),
        ("/none", &[], &[]),
        ("/direct", &[], &[]),
        ("/query", &[], &[]),
    ];
    for (path, headers, expected) in cases {
        assert_eq!(rules_for(&lab, path, headers).await?, expected, "{path} {headers:?}");
    }
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.error").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_header_that_is_not_utf8_is_limited_like_any_other() -> anyhow::Result<()> {
    let lab = Lab::http().await?;
    let with_user = |value: &'static [u8]| {
        let value = ::http::HeaderValue::from_bytes(value).unwrap();
        Request::get("/header").header("x-user-id", value).body(Body::default()).unwrap()
    };
    for left in [2, 1, 0] {
        let answer = lab.envoy.send(with_user(b"caf\xe9")).await?;
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, left.to_string()));
    }
    assert_eq!(lab.envoy.send(with_user(b"caf\xe9")).await?.status, 429);
    assert_eq!(lab.envoy.send(with_user(b"caf\xe8")).await?.status, 200, "another byte is another value");
    assert_eq!(
        lab.envoy.send(with_user("caf\u{fffd}".as_bytes())).await?.status,
        200,
        "so is the replacement character"
    );
    assert_eq!(lab.envoy.stat("cluster.loop.ratelimit.error").await?, 0);
    Ok(())
}
