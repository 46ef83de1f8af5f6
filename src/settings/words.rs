//! The kinds of values that are one of a few words.

use super::value::Value;
use crate::{
    rules::Posture,
    store::redis::config::{KeyStyle, SocketType, TopologyKind},
};

/// Where rules come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    File,
    GrpcXdsSotw,
}

/// Which store counts. `Auto`: chosen, see `settings::store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendType {
    Auto,
    Redis,
    Memory,
    Memcache,
}

/// How statsd is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdProtocol {
    Tcp,
    Udp,
}

/// The least severe lines that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Panic,
    Fatal,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How spans are sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    Http,
    Grpc,
}

/// Makes a value of an enum: the words that mean each variant, the first of them the one that is shown.
macro_rules! words {
    ($type:ident, $read_as:expr, $expected:literal; $($variant:ident: $shown:literal $(| $word:literal)*),+) => {
        impl Value for $type {
            const KIND: &'static str = "word";

            fn parse(text: &str) -> Option<Self> {
                let read_as: fn(&str) -> String = $read_as;
                match read_as(text).as_str() {
                    $($shown $(| $word)* => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn expected() -> String {
                $expected.to_owned()
            }

            fn show(&self) -> String {
                match self {
                    $(Self::$variant => $shown,)+
                }
                .to_owned()
            }
        }
    };
}

words! {
    ConfigType, str::to_owned, "FILE or GRPC_XDS_SOTW (capitals count)";
    File: "FILE", GrpcXdsSotw: "GRPC_XDS_SOTW"
}

words! {
    BackendType, str::to_owned, "redis or memory";
    Auto: "", Redis: "redis", Memory: "memory", Memcache: "memcache"
}

words! {
    OtlpProtocol, str::to_owned, "http or grpc";
    Http: "http" | "", Grpc: "grpc"
}

words! {
    LogLevel, str::to_ascii_uppercase, "panic, fatal, error, warn, warning, info, debug or trace, in any case";
    Panic: "PANIC", Fatal: "FATAL", Error: "ERROR", Warn: "WARN" | "WARNING", Info: "INFO", Debug: "DEBUG", Trace: "TRACE"
}

words! {
    Posture, str::to_owned, "error, allow, deny or local";
    Error: "error", Allow: "allow", Deny: "deny", Local: "local"
}

words! {
    SocketType, str::to_ascii_lowercase, "unix or tcp";
    Unix: "unix", Tcp: "tcp"
}

words! {
    StatsdProtocol, str::to_ascii_lowercase, "tcp or udp";
    Tcp: "tcp", Udp: "udp"
}

words! {
    TopologyKind, str::to_ascii_lowercase, "single, sentinel, cluster or ring, in any case";
    Single: "single", Sentinel: "sentinel", Cluster: "cluster", Ring: "ring"
}

words! {
    KeyStyle, str::to_owned, "tidegate or envoyproxy";
    Tidegate: "tidegate", Envoyproxy: "envoyproxy"
}

/// How a log line looks. As in the reference, any word but `json` means text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Value for LogFormat {
    const KIND: &'static str = "word";

    fn parse(text: &str) -> Option<Self> {
        Some(if text.eq_ignore_ascii_case("json") { Self::Json } else { Self::Text })
    }

    fn expected() -> String {
        "text or json".to_owned()
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
        .to_owned()
    }
}
