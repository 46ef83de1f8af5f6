//! What a scenario file says. Knows its words and their defaults; nothing of servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub why: String,
    /// Text by path, relative to the folder of the rules.
    #[serde(default)]
    pub files: BTreeMap<String, Content>,
    /// Files to copy into the folder of the rules, relative to the scenario.
    #[serde(default)]
    pub files_from: Vec<PathBuf>,
    /// Target and name of each link.
    #[serde(default)]
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// On top of the settings that every server gets; none takes one of these away.
    #[serde(default)]
    pub env: BTreeMap<String, Option<Content>>,
    /// Seconds that the steps take.
    #[serde(default = "eight")]
    pub needs: f64,
    /// Seconds that the server may take to open its ports.
    #[serde(default = "fifteen")]
    pub start_wait: f64,
    #[serde(default)]
    pub up_is_free: bool,
    /// Arguments of `redis-server`.
    #[serde(default)]
    pub redis_args: Vec<String>,
    #[serde(default = "yes")]
    pub redis_at_start: bool,
    #[serde(default)]
    pub redis_setup: Vec<Prepare>,
    /// How many servers there are, all with the same Redis.
    #[serde(default = "one")]
    pub copies: usize,
    /// Where statistics go, if anywhere.
    pub stats: Option<Sink>,
    #[serde(default)]
    pub steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sink {
    Statsd,
    Prometheus,
}

/// What is done to a Redis before the server starts.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Prepare {
    Wait(f64),
    Command(Vec<String>),
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

fn eight() -> f64 {
    8.0
}

fn fifteen() -> f64 {
    15.0
}

#[derive(Deserialize)]
pub struct Step {
    #[serde(flatten)]
    pub act: Act,
    pub times: Option<usize>,
    pub parallel: Option<usize>,
    #[serde(default)]
    pub brief: bool,
    #[serde(default)]
    pub any_error: bool,
    /// The caller's deadline in seconds.
    pub timeout: Option<f64>,
    pub method: Option<String>,
    pub port: Option<String>,
    /// What is sent to `call`, in base64: the `!!binary` before it is for readers that heed it.
    #[serde(default, deserialize_with = "base64")]
    pub body: Vec<u8>,
    /// Seconds that a change of files is given to be noticed.
    pub settle: Option<f64>,
    #[serde(default)]
    pub atomic: bool,
    #[serde(default)]
    pub even_if_down: bool,
    #[serde(default)]
    pub free: bool,
    /// The server that is meant, from 1.
    #[serde(default = "one")]
    pub copy: usize,
    /// Seconds that a key may live longer than its unit.
    #[serde(default)]
    pub jitter: f64,
    pub want: Option<Value>,
}

fn base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    BASE64_STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// What one step does; the fields of [`Step`] say how.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    Request(Request),
    Json(Value),
    Call(String),
    Get(String),
    Health(String),
    Watch(String),
    Watched(IgnoredAny),
    Write(BTreeMap<String, Content>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Symlink(PathBuf, PathBuf),
    Logged(Vec<String>),
    Align(String),
    Sleep(f64),
    Alive(IgnoredAny),
    Ready(f64),
    Signal(String),
    Exit(f64),
    Idle(IgnoredAny),
    Statsd(Vec<String>),
    Metrics(Vec<String>),
    Redis(Vec<String>),
    #[serde(rename = "redis_keys")]
    RedisKeys(Keys),
    #[serde(rename = "redis_down")]
    RedisDown(IgnoredAny),
    #[serde(rename = "redis_up")]
    RedisUp(IgnoredAny),
}

/// What of the keys is looked at: their names, or with these their `values` or `ttl`.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Keys {
    With(String),
    Names(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    #[serde(default)]
    pub domain: String,
    #[serde(default)]
    pub descriptors: Vec<Descriptor>,
    #[serde(default)]
    pub hits_addend: u32,
}

#[derive(Deserialize)]
#[serde(from = "DescriptorForm")]
pub struct Descriptor {
    pub entries: Vec<(Content, Content)>,
    pub limit: Option<Limit>,
    pub hits: Option<u64>,
    pub negative: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum DescriptorForm {
    Entries(Vec<(Content, Content)>),
    Whole {
        #[serde(default)]
        entries: Vec<(Content, Content)>,
        limit: Option<Limit>,
        hits: Option<u64>,
        #[serde(default)]
        negative: bool,
    },
}

impl From<DescriptorForm> for Descriptor {
    fn from(form: DescriptorForm) -> Self {
        match form {
            DescriptorForm::Entries(entries) => Self { entries, limit: None, hits: None, negative: false },
            DescriptorForm::Whole { entries, limit, hits, negative } => {
                Self { entries, limit, hits, negative }
            }
        }
    }
}

/// Number, unit and multiplier that a request brings along.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Limit {
    Plain(u32, Unit),
    Multiplied(u32, Unit, u32),
}

/// A unit by its name, or any number where its name should be.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Unit {
    Number(i32),
    Name(String),
}

/// Text as it stands, or a list of pieces, each text or `[text, times]`.
pub struct Content(pub String);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        text(&value)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("{value} is neither text nor pieces of it")))
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(pieces) => pieces.iter().map(piece).collect(),
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

fn piece(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(text), Value::Number(times)] => {
                Some(text.repeat(usize::try_from(times.as_u64()?).ok()?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether a scenario needs a Redis: what it says of one, and what only makes sense beside one, as a cache of refusals.
pub fn needs_redis(scenario: &Value) -> bool {
    let steps = scenario["steps"].as_array().into_iter().flatten();
    let words = steps.chain([scenario]).filter_map(Value::as_object).flat_map(Map::keys);
    let settings = scenario["env"].as_object().into_iter().flat_map(Map::keys);
    words.into_iter().any(|word| word.starts_with("redis") || word == "copies")
        || settings.into_iter().any(|name| name.starts_with("REDIS") || name == "LOCAL_CACHE_SIZE_IN_BYTES")
}

/// Reads a scenario as JSON, so that it and the recordings are values of one kind.
pub fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path)?;
    let yaml = yaml_serde::from_str(&text).with_context(|| path.display().to_string())?;
    as_json(yaml).with_context(|| path.display().to_string())
}

fn as_json(yaml: yaml_serde::Value) -> anyhow::Result<Value> {
    Ok(match yaml {
        yaml_serde::Value::Sequence(items) => {
            Value::Array(items.into_iter().map(as_json).collect::<anyhow::Result<_>>()?)
        }
        yaml_serde::Value::Mapping(map) => {
            let mut object = Map::new();
            for (key, value) in map {
                let yaml_serde::Value::String(key) = key else { bail!("{key:?} is no name") };
                object.insert(key, as_json(value)?);
            }
            Value::Object(object)
        }
        yaml_serde::Value::Tagged(tagged) => bail!("unknown tag {}", tagged.tag),
        plain => serde_json::to_value(plain)?,
    })
}
