//! One step of a conversation, and the answer in the form of a recording.

use std::collections::BTreeMap;
use std::time::Duration;

use ::http::{Request as HttpRequest, header};
use anyhow::{Context, bail};
use futures_util::future::join_all;
use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::answer;
use crate::clock::{self, During};
use crate::http;
use crate::process::LOOK_EVERY;
use crate::redis::Redis;
use crate::scenario::{Act, Content, Descriptor, Limit, Request, Step, Unit};
use crate::server::Server;
use crate::statistics::{self, Statsd};
use crate::wire::{self, UNITS};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// A caller's patience where the scenario names none.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long something that should not happen is given to happen.
const MOMENT: Duration = Duration::from_millis(300);
/// How long a line may take to reach the log.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

pub async fn take(
    step: &Step,
    server: &mut Server,
    redis: Option<&mut Redis>,
    statsd: &Statsd,
) -> anyhow::Result<Value> {
    Ok(match &step.act {
        Act::Request(request) => ask(request, step, server).await?,
        Act::Json(body) => post_json(body, step, server).await?,
        Act::Call(path) => call(path, step, server).await?,
        Act::Get(path) => get(path, step, server).await?,
        Act::Health(name) => check_health(name, server).await,
        Act::Watch(name) => watch(name, server).await?,
        Act::Watched(_) => {
            sleep(MOMENT).await;
            Value::Array(server.watched.lock().map(|seen| seen.clone()).unwrap_or_default())
        }
        Act::Write(files) => {
            for (name, content) in files {
                server.folder().write(name, content, step.atomic)?;
            }
            settled(step).await
        }
        Act::Rename(from, to) => {
            server.folder().rename(from, to)?;
            settled(step).await
        }
        Act::Remove(name) => {
            server.folder().remove(name)?;
            settled(step).await
        }
        Act::Symlink(target, name) => {
            server.folder().link(target, name)?;
            settled(step).await
        }
        Act::Logged(words) => json!(logged(words, server).await),
        Act::Align(unit) => {
            clock::align(UNITS[unit_number(unit)? as usize].0 as f64).await;
            json!("ok")
        }
        Act::Sleep(seconds) => {
            sleep(Duration::from_secs_f64(*seconds)).await;
            json!("ok")
        }
        Act::Alive(_) => {
            sleep(MOMENT).await;
            json!(server.process.is_running())
        }
        Act::Ready(seconds) => json!(server.serving(Duration::from_secs_f64(*seconds)).await),
        Act::Signal(name) => json!(if server.process.signal(signal(name)?)? { "ok" } else { "gone" }),
        Act::Exit(seconds) => match server.process.exit(Duration::from_secs_f64(*seconds)).await? {
            Some(status) => json!(if status.success() { "zero" } else { "not zero" }),
            None => json!("running"),
        },
        Act::Redis(command) => there(redis)?.run(command).await?,
        Act::RedisKeys(what) => there(redis)?.keys(what, step.jitter).await?,
        Act::RedisDown(_) => {
            there(redis)?.down().await?;
            json!("ok")
        }
        Act::RedisUp(_) => {
            there(redis)?.up().await?;
            sleep(Duration::from_secs_f64(step.settle.unwrap_or(2.0))).await;
            json!("ok")
        }
        Act::Statsd(prefixes) => statsd.seen(prefixes, server).await?,
        Act::Metrics(prefixes) => statistics::exposed(prefixes, server).await?,
        Act::Idle(_) => {
            server.idle.push(TcpStream::connect(server.grpc.address()).await?);
            json!("ok")
        }
    })
}

fn there(redis: Option<&mut Redis>) -> anyhow::Result<&mut Redis> {
    redis.context("a step of a scenario without Redis asks for it")
}

async fn settled(step: &Step) -> Value {
    sleep(Duration::from_secs_f64(step.settle.unwrap_or(1.5))).await;
    json!("ok")
}

async fn ask(request: &Request, step: &Step, server: &mut Server) -> anyhow::Result<Value> {
    let message = message(request)?.encode_to_vec();
    let patience = step.timeout.map_or(PATIENCE, Duration::from_secs_f64);
    let times = step.times.unwrap_or(1);
    if let Some(at_once) = step.parallel {
        let mut counts = BTreeMap::<String, usize>::new();
        for first in (0..times).step_by(at_once) {
            let n = at_once.min(times - first);
            let server = &*server;
            for answer in join_all((0..n).map(|_| ask_once(&message, patience, step.any_error, server))).await
            {
                *counts.entry(answer["overall"].as_str().unwrap_or("error").to_owned()).or_default() += 1;
            }
        }
        return Ok(json!(counts));
    }
    let mut answers = Vec::new();
    for _ in 0..times {
        if !server.process.is_running() {
            answers.push(json!({"server": "dead"}));
            continue;
        }
        let answer = ask_once(&message, patience, step.any_error, server).await;
        answers.push(match answer.get("overall") {
            Some(overall) if step.brief => overall.clone(),
            _ => answer,
        });
    }
    Ok(Value::Array(answers))
}

async fn ask_once(message: &[u8], patience: Duration, any_error: bool, server: &Server) -> Value {
    let start = clock::now();
    match server.client.call(SHOULD_RATE_LIMIT, message.to_vec(), patience).await {
        Ok(bytes) => decoded(&bytes, During::since(start)),
        Err(_) if any_error => json!({"error": "any"}),
        Err(status) => json!({"error": answer::status_name(status.code()), "message": status.message()}),
    }
}

fn decoded(bytes: &[u8], during: During) -> Value {
    match wire::RateLimitResponse::decode(bytes) {
        Ok(response) => answer::plain(&response, during),
        Err(error) => json!({"undecodable": error.to_string(), "bytes": answer::hex(bytes)}),
    }
}

fn message(request: &Request) -> anyhow::Result<wire::RateLimitRequest> {
    Ok(wire::RateLimitRequest {
        domain: request.domain.clone(),
        descriptors: request.descriptors.iter().map(descriptor).collect::<anyhow::Result<_>>()?,
        hits_addend: request.hits_addend,
    })
}

fn descriptor(descriptor: &Descriptor) -> anyhow::Result<wire::Descriptor> {
    let entries = descriptor.entries.iter();
    Ok(wire::Descriptor {
        entries: entries
            .map(|(key, value)| wire::Entry { key: key.0.clone(), value: value.0.clone() })
            .collect(),
        limit: descriptor.limit.as_ref().map(limit).transpose()?,
        hits_addend: descriptor.hits,
        is_negative_hits: descriptor.negative,
    })
}

fn limit(limit: &Limit) -> anyhow::Result<wire::Override> {
    let (&requests_per_unit, unit, unit_multiplier) = match limit {
        Limit::Plain(number, unit) => (number, unit, None),
        Limit::Multiplied(number, unit, times) => (number, unit, Some(*times)),
    };
    let unit = match unit {
        Unit::Number(number) => *number,
        Unit::Name(name) => unit_number(name)?,
    };
    Ok(wire::Override { requests_per_unit, unit, unit_multiplier })
}

fn unit_number(name: &str) -> anyhow::Result<i32> {
    let position = UNITS.iter().position(|(_, unit)| unit.eq_ignore_ascii_case(name));
    Ok(i32::try_from(position.with_context(|| format!("{name} is no unit"))?)?)
}

async fn call(path: &str, step: &Step, server: &Server) -> anyhow::Result<Value> {
    let start = clock::now();
    Ok(match server.client.call(path, step.body.clone(), Duration::from_secs(3)).await {
        Ok(bytes) if path.ends_with("/ShouldRateLimit") => decoded(&bytes, During::since(start)),
        Ok(bytes) => json!(answer::hex(&bytes)),
        Err(status) => json!(answer::status_name(status.code())),
    })
}

/// The words of an error are each server's own: of one, only the status is kept.
async fn post_json(body: &Value, step: &Step, server: &Server) -> anyhow::Result<Value> {
    let body = match body {
        Value::Object(map) => serde_json::to_string(map)?,
        text => serde_json::from_value::<Content>(text.clone())?.0,
    };
    let method = step.method.as_deref().unwrap_or("POST");
    let request = HttpRequest::builder().method(method).uri("/json").body(http::Body::from(body))?;
    let answer = http::send(server.http.address(), request).await?;
    if answer.status >= 400 && answer.status != 429 {
        return Ok(json!([answer.status]));
    }
    let body = serde_json::from_str(&answer.body).map_or(json!(answer.body), without_times);
    Ok(json!([answer.status, answer.header(header::CONTENT_TYPE.as_str()), body]))
}

fn without_times(mut answer: Value) -> Value {
    for status in answer.get_mut("statuses").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(reset) = status.get_mut("durationUntilReset") {
            *reset = json!("*");
        }
    }
    for header in answer.get_mut("responseHeadersToAdd").and_then(Value::as_array_mut).into_iter().flatten() {
        if header["key"].as_str().is_some_and(|key| key.contains("eset")) {
            header["value"] = json!("*");
        }
    }
    answer
}

async fn get(path: &str, step: &Step, server: &Server) -> anyhow::Result<Value> {
    let port = if step.port.as_deref() == Some("debug") { &server.debug } else { &server.http };
    let answer = http::send(port.address(), HttpRequest::get(path).body(http::Body::default())?).await?;
    if answer.status >= 400 {
        return Ok(json!([answer.status]));
    }
    let mut lines: Vec<&str> = answer.body.lines().collect();
    lines.sort_unstable();
    Ok(json!([answer.status, lines]))
}

/// A `HealthCheckRequest` for this service.
fn health_request(name: &str) -> Vec<u8> {
    #[derive(Clone, PartialEq, Message)]
    struct HealthCheckRequest {
        #[prost(string, tag = "1")]
        service: String,
    }
    HealthCheckRequest { service: name.to_owned() }.encode_to_vec()
}

async fn check_health(name: &str, server: &Server) -> Value {
    match server.client.call(HEALTH_CHECK, health_request(name), Duration::from_secs(3)).await {
        Ok(message) => answer::health(&message),
        Err(status) => json!(answer::status_name(status.code())),
    }
}

async fn watch(name: &str, server: &Server) -> anyhow::Result<Value> {
    let mut stream = server.client.stream(HEALTH_WATCH, health_request(name)).await?;
    let seen = server.watched.clone();
    tokio::spawn(async move {
        while let Ok(Some(message)) = stream.message().await {
            if let Ok(mut seen) = seen.lock() {
                seen.push(answer::health(&message));
            }
        }
    });
    sleep(MOMENT).await;
    Ok(json!("ok"))
}

/// Has the server printed a line that holds all of these words?
async fn logged(words: &[String], server: &Server) -> bool {
    let deadline = Instant::now() + LOG_PATIENCE;
    loop {
        let output = server.process.output();
        if output.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK_EVERY).await;
    }
}

fn signal(name: &str) -> anyhow::Result<Signal> {
    Ok(match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        _ => bail!("no signal {name}"),
    })
}
