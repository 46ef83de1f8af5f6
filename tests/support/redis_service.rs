//! Tidegate processes in front of a Redis, and callers who ask them as Envoy does.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use crate::grpc::Client;
use crate::port::Port;
use crate::tidegate::Tidegate;
use crate::wire::{CODES, Descriptor, Entry, RateLimitRequest, RateLimitResponse};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub struct Service {
    pub process: Tidegate,
    grpc: Arc<Port>,
}

impl Service {
    /// Starts a process with these rules and this Redis, given by its settings, and waits until it is ready.
    pub async fn start(rules: &str, redis: &[(&str, String)]) -> anyhow::Result<Self> {
        let grpc = Arc::new(Port::reserve()?);
        let redis = redis.iter().map(|(name, value)| (*name, value.as_str()));
        let settings: Vec<_> = [("BACKEND_TYPE", "redis")].into_iter().chain(redis).collect();
        let process = Tidegate::start_with(&grpc, &[rules], &settings).await?;
        Ok(Self { process, grpc })
    }

    /// A caller with a connection of its own.
    pub fn caller(&self) -> anyhow::Result<Caller> {
        Ok(Caller(Client::tcp(self.grpc.number())?))
    }
}

/// The settings of a single Redis at a TCP address.
pub fn single(at: std::net::SocketAddr) -> Vec<(&'static str, String)> {
    vec![("REDIS_SOCKET_TYPE", "tcp".to_owned()), ("REDIS_URL", at.to_string())]
}

/// The settings of a topology of several servers: `cluster`, `ring`, or `sentinel` with the master's name in front.
pub fn several<A: ToString>(kind: &str, servers: impl IntoIterator<Item = A>) -> Vec<(&'static str, String)> {
    let servers: Vec<_> = servers.into_iter().map(|at| at.to_string()).collect();
    vec![
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_TYPE", kind.to_owned()),
        ("REDIS_URL", servers.join(",")),
    ]
}

pub struct Caller(Client);

impl Caller {
    /// One call with a descriptor for each pair of key and value. The overall code, or the status of a call that failed.
    pub async fn ask(&self, domain: &str, pairs: &[(&str, &str)], patience: Duration) -> &'static str {
        let descriptor = |(key, value): &(&str, &str)| Descriptor {
            entries: vec![Entry { key: (*key).to_owned(), value: (*value).to_owned() }],
            ..Descriptor::default()
        };
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: pairs.iter().map(descriptor).collect(),
            hits_addend: 0,
        };
        match self.0.call(SHOULD_RATE_LIMIT, request.encode_to_vec(), patience).await {
            Ok(answer) => match RateLimitResponse::decode(answer) {
                Ok(answer) => {
                    let code = usize::try_from(answer.overall_code).ok();
                    code.and_then(|code| CODES.get(code)).copied().unwrap_or("a code that there is not")
                }
                Err(_) => "no message",
            },
            Err(status) => name_of(status.code()),
        }
    }
}

fn name_of(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Unavailable => "UNAVAILABLE",
        tonic::Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        tonic::Code::Unknown => "UNKNOWN",
        _ => "another status",
    }
}
