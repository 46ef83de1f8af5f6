//! The Redis of a scenario: started as the scenario says, looked into and shown as the recordings show it.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::clock;
use crate::scenario::{Keys, Prepare, Scenario};
use crate::servers::resp::Reply;
use crate::servers::server::{Kind, Server, Setup};
use crate::wire::UNITS;

/// How far a key's time to live may be below the unit that it is one of, in seconds.
const LATE: f64 = 5.0;

pub struct Redis(Server);

impl Redis {
    /// A server with these arguments; it runs unless the scenario begins without it.
    pub async fn start(scenario: &Scenario) -> anyhow::Result<Self> {
        let server = setup(&scenario.redis_args)?.prepare()?;
        if scenario.redis_at_start {
            server.launch().await?;
        }
        for step in &scenario.redis_setup {
            match step {
                Prepare::Wait(seconds) => sleep(Duration::from_secs_f64(*seconds)).await,
                Prepare::Command(command) => server.call(command).await?.ok()?,
            }
        }
        Ok(Self(server))
    }

    pub fn port(&self) -> u16 {
        self.0.address().port()
    }

    pub async fn down(&mut self) -> anyhow::Result<()> {
        self.0.kill().await
    }

    pub async fn up(&mut self) -> anyhow::Result<()> {
        self.0.launch().await
    }

    /// Runs a command; `<day>` in it stands for the beginning of the day, and so on.
    pub async fn run(&self, command: &[String]) -> anyhow::Result<Value> {
        let now = clock::now().floor() as u64;
        let filled: Vec<String> = command
            .iter()
            .map(|word| {
                UNITS.iter().filter(|(seconds, _)| *seconds > 0).fold(
                    word.clone(),
                    |word, (seconds, unit)| {
                        let start = now / seconds * seconds;
                        word.replace(&format!("<{}>", unit.to_lowercase()), &start.to_string())
                    },
                )
            })
            .collect();
        Ok(shown(self.0.call(&filled).await?))
    }

    /// The keys, sorted, with what is asked of them. `jitter`: seconds that a time to live may be above its unit.
    pub async fn keys(&self, what: &Keys, jitter: f64) -> anyhow::Result<Value> {
        let mut keys = Vec::new();
        for key in self.0.call(&["KEYS", "*"]).await?.list()? {
            let key = key.text()?;
            let name = windowless(&key);
            let seen = match what {
                Keys::Names(_) => json!(name),
                Keys::With(what) if what == "values" => {
                    json!([name, shown(self.0.call(&["GET", &key]).await?)])
                }
                Keys::With(_) => {
                    json!([name, lifetime(self.0.call(&["TTL", &key]).await?.number()?, jitter)])
                }
            };
            keys.push((name, seen));
        }
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(keys.into_iter().map(|(_, seen)| seen).collect())
    }
}

/// `--name value value` is a line of the configuration; two of them are the test's own business.
fn setup(args: &[String]) -> anyhow::Result<Setup> {
    let mut setup = Setup::new(Kind::Redis7);
    let mut rest = args;
    while let Some((name, after)) = rest.split_first() {
        let name = name.strip_prefix("--").context("an argument of redis-server begins with --")?;
        let n_values = after.iter().take_while(|value| !value.starts_with("--")).count();
        let (values, after) = after.split_at(n_values);
        setup = match name {
            "requirepass" => setup.password(&values.join(" ")),
            "cluster-enabled" => setup.cluster(),
            _ => setup.line(format!("{name} {}", values.join(" "))),
        };
        rest = after;
    }
    Ok(setup)
}

fn windowless(key: &str) -> String {
    match key.rsplit_once('_') {
        Some((name, window)) if !window.is_empty() && window.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{name}_<window>")
        }
        _ => key.to_owned(),
    }
}

/// The unit that a time to live is one of, or the time itself.
fn lifetime(seconds: i64, jitter: f64) -> Value {
    let fits = |length: u64| {
        let (length, seconds) = (length as f64, seconds as f64);
        length > 0.0 && seconds >= 0.0 && (length - LATE..=length + jitter).contains(&seconds)
    };
    let unit = UNITS.iter().find(|(length, _)| fits(*length));
    unit.map_or(json!(seconds), |(_, name)| json!(name.to_lowercase()))
}

fn shown(reply: Reply) -> Value {
    match reply {
        Reply::Nil => Value::Null,
        Reply::Text(text) => json!(text),
        Reply::Number(number) => json!(number),
        Reply::Error(error) => json!(format!("ERR {error}")),
        Reply::List(list) => list.into_iter().map(shown).collect(),
    }
}
