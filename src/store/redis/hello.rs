//! The first words on a new connection: can it be written to, what does the server know, what is this user refused, what
//! time is it there.
//!
//! What a counter needs at the least is asked first (`INCRBY`, `EXPIRE`), and what only a real server knows afterwards: a
//! proxy that closes the connection at a script is told apart from a server that is down.

use std::time::Duration;

use redis::{Pipeline, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout};

use super::{
    batch::Abilities,
    config::KeyStyle,
    reply::Said,
    script::{CHARGE, CHECK},
    shard::{Eviction, Shard},
};
use crate::clock::{Clock, UnixMicros};

/// The probe key is gone after so long.
const PROBE_SECS: u64 = 60;

/// What to say, and to whom.
#[derive(Debug)]
pub(super) struct Hello<'a> {
    pub keys: KeyStyle,
    /// A node of a cluster answers for some keys only, and says so.
    pub in_cluster: bool,
    pub probe_key: &'a [u8],
    pub patience: Duration,
}

impl Hello<'_> {
    pub async fn say(
        &self,
        connection: &mut MultiplexedConnection,
        shard: &Shard,
        clock: &Clock,
    ) -> Result<Abilities, String> {
        if self.keys == KeyStyle::Envoyproxy {
            self.ping(connection).await?;
            return Ok(Abilities { expire_nx: false, scripts: true });
        }
        self.write(connection).await?;
        if shard.is_plain_only() {
            return Ok(Abilities { expire_nx: false, scripts: false });
        }
        match self.look_around(connection, shard, clock).await {
            Ok(abilities) => Ok(abilities),
            Err(why) => {
                shard.set_plain_only();
                Err(format!(
                    "{why} at TIME and SCRIPT LOAD, having answered INCRBY: a proxy that knows no scripts (twemproxy, \
                     Envoy's redis_proxy)? only plain charges of fixed_window work through it"
                ))
            }
        }
    }

    async fn ping(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("PING");
        match self.ask(connection, &pipeline).await?.first() {
            Some(Value::ServerError(error)) => Err(refusal(&text_of(error))),
            _ => Ok(()),
        }
    }

    /// The pair that counts. A replica, a full server, a wrong user fail here.
    async fn write(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INCRBY").arg(self.probe_key).arg(0);
        pipeline.cmd("EXPIRE").arg(self.probe_key).arg(PROBE_SECS);
        let replies = self.ask(connection, &pipeline).await?;
        let mut denied = Vec::new();
        for (name, reply) in ["INCRBY", "EXPIRE"].into_iter().zip(&replies) {
            let Value::ServerError(error) = reply else { continue };
            match Said::of(error) {
                Said::Moved(_) | Said::Ask(_) if self.in_cluster => {}
                Said::Moved(_) => {
                    return Err("this is a node of a Redis Cluster: set REDIS_TYPE=cluster".to_owned());
                }
                Said::Denied if error.code() == "NOPERM" => denied.push(name),
                _ => return Err(refusal(&text_of(error))),
            }
        }
        if denied.is_empty() { Ok(()) } else { Err(format!("this user may not use {}", denied.join(", "))) }
    }

    /// Everything that is not needed for a plain charge. An error: the connection is lost.
    async fn look_around(
        &self,
        connection: &mut MultiplexedConnection,
        shard: &Shard,
        clock: &Clock,
    ) -> Result<Abilities, String> {
        sample(connection, shard, clock, self.patience).await?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("EXPIRE").arg(self.probe_key).arg(PROBE_SECS).arg("NX");
        pipeline.cmd("SCRIPT").arg("LOAD").arg(CHARGE);
        pipeline.cmd("EVAL").arg(CHECK).arg(1).arg(self.probe_key);
        pipeline.cmd("INFO").arg("memory");
        let replies = self.ask(connection, &pipeline).await?;
        let [expire, load, check, info] = replies.as_slice() else {
            return Err("the server sends no replies".to_owned());
        };
        let mut warnings = missing_commands(load, check);
        let eviction = eviction(info);
        shard.set_eviction(eviction);
        if eviction == Eviction::DeletesLiveCounters {
            warnings.push(
                "maxmemory-policy deletes live counters when memory is full, and limits then admit more than they say: \
                 set it to noeviction"
                    .to_owned(),
            );
        }
        shard.set_warnings(warnings);
        Ok(Abilities { expire_nx: knows_nx(expire), scripts: true })
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, String> {
        match timeout(self.patience, connection.send_packed_commands(pipeline, 0, pipeline.len())).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => Err(closed(&error)),
            Err(_) => Err(format!("the server is silent for {:?}", self.patience)),
        }
    }
}

/// Reads the server's clock. An error: the connection is lost or silent. A server that does not tell is not asked again
/// before the next connection.
pub(super) async fn sample(
    connection: &mut MultiplexedConnection,
    shard: &Shard,
    clock: &Clock,
    patience: Duration,
) -> Result<(), String> {
    let (asked, began) = (clock.now(), Instant::now());
    let reply = timeout(patience, connection.send_packed_command(&redis::cmd("TIME"))).await;
    let reply = reply
        .map_err(|_| format!("the server is silent for {patience:?}"))?
        .map_err(|error| closed(&error))?;
    if let Some(reading) = reading(&reply) {
        shard.clock.sample(asked, began.elapsed(), reading);
    }
    Ok(())
}

/// How a connection ended. Under TLS 1.3 this is where a client learns that its certificate is not wanted.
fn closed(error: &redis::RedisError) -> String {
    format!("the server closed the connection ({error})")
}

fn reading(reply: &Value) -> Option<UnixMicros> {
    let Value::Array(parts) = reply else { return None };
    let part = |n: usize| match parts.get(n) {
        Some(Value::BulkString(digits)) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let (seconds, micros) = (part(0)?, part(1)?);
    Some(UnixMicros::new(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

/// Before Redis 7 this is a wrong number of arguments.
fn knows_nx(reply: &Value) -> bool {
    match reply {
        Value::ServerError(error) => matches!(Said::of(error), Said::Moved(_) | Said::Ask(_)),
        _ => true,
    }
}

/// The warnings for commands that this user may not use, all in one.
fn missing_commands(load: &Value, check: &Value) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    let denied =
        |reply: &Value| matches!(reply, Value::ServerError(error) if Said::of(error) == Said::Denied);
    if denied(load) {
        missing.push("SCRIPT LOAD".to_owned());
    }
    match check {
        Value::Array(names) => missing.extend(names.iter().filter_map(|name| match name {
            Value::BulkString(name) => Some(String::from_utf8_lossy(name).into_owned()),
            _ => None,
        })),
        reply if denied(reply) => missing.push("EVAL".to_owned()),
        _ => {}
    }
    if missing.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "this user may not use {}: only plain charges of fixed_window are sure to work",
        missing.join(", ")
    )]
}

fn eviction(info: &Value) -> Eviction {
    let text = match info {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => return Eviction::Unknown,
    };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    match (field("maxmemory"), field("maxmemory_policy")) {
        (Some("0"), _) | (_, Some("noeviction")) => Eviction::Keeps,
        // The counters all have an expiry, so the `volatile-` policies find them too.
        (_, Some(_)) => Eviction::DeletesLiveCounters,
        _ => Eviction::Unknown,
    }
}

/// Why there is no use in this connection.
fn refusal(said: &str) -> String {
    match said.split_whitespace().next() {
        Some("NOAUTH") => "the server wants a password, and none is configured: set REDIS_AUTH, or REDIS_PERSECOND_AUTH for limits per second"
            .to_owned(),
        Some("READONLY") => "this is a replica: it takes no writes".to_owned(),
        _ => format!("the server says {said}"),
    }
}

fn text_of(error: &redis::ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_policy_that_can_reach_a_counter_is_told() {
        let info = |text: &str| eviction(&Value::BulkString(text.as_bytes().to_vec()));
        assert_eq!(info("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), Eviction::Keeps);
        assert_eq!(info("maxmemory:5\r\nmaxmemory_policy:noeviction\r\n"), Eviction::Keeps);
        assert_eq!(info("maxmemory:5\r\nmaxmemory_policy:allkeys-lru\r\n"), Eviction::DeletesLiveCounters);
        assert_eq!(info("maxmemory:5\r\nmaxmemory_policy:volatile-ttl\r\n"), Eviction::DeletesLiveCounters);
        assert_eq!(info("# Memory\r\n"), Eviction::Unknown);
        assert_eq!(eviction(&Value::Nil), Eviction::Unknown);
    }

    #[test]
    fn a_reading_of_the_clock_is_seconds_and_microseconds() {
        let part = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let reply = Value::Array(vec![part("1700000000"), part("5")]);
        assert_eq!(reading(&reply), Some(UnixMicros::new(1_700_000_000_000_005)));
        assert_eq!(reading(&Value::Array(vec![part("x"), part("5")])), None);
        assert_eq!(reading(&Value::Nil), None);
    }
}
