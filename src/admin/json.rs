//! `/json`: a call of `ShouldRateLimit` in protobuf's JSON form, for people, scripts and callers without gRPC.
//!
//! Knows nothing of rules: the JSON becomes the same bytes that gRPC would have brought, and goes the same way.

use std::sync::LazyLock;

use axum::{
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use tokio::sync::Semaphore;

use super::Admin;
use crate::{
    decision::{Answer, Code},
    descriptor::Request,
    pb, rls,
    store::Budget,
};

/// The largest body, in bytes: far above any request that a person or a script writes, and read in a few milliseconds.
pub(super) const MAX_BODY: usize = 256 << 10;

/// Bodies that are read at once: the largest takes some 20 MB while it is.
static READERS: Semaphore = Semaphore::const_new(4);

/// The descriptors that JSON is read and written by; `None` would mean that this binary was built wrongly.
static MESSAGES: LazyLock<Option<(MessageDescriptor, MessageDescriptor)>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).ok()?;
    let message = |name| pool.get_message_by_name(name);
    Some((
        message("envoy.service.ratelimit.v3.RateLimitRequest")?,
        message("envoy.service.ratelimit.v3.RateLimitResponse")?,
    ))
});

/// Why a body got no decision.
#[derive(Debug, thiserror::Error)]
enum JsonError {
    #[error("the body is not a RateLimitRequest in protobuf's JSON form: {0}")]
    Body(#[from] serde_json::Error),
    #[error(transparent)]
    Request(#[from] rls::request::UnreadableError),
    #[error(transparent)]
    Decide(#[from] crate::limiter::DecideError),
    #[error("the answer could not be written as JSON")]
    Internal,
}

/// 200 when the request is let through, 429 when it is not, each with the answer as JSON.
pub(super) async fn handle(State(admin): State<Admin>, body: Bytes) -> Response {
    match answer(&admin, body).await {
        Ok((code, json)) => {
            let status = if code == Code::OverLimit { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err(error) => {
            let status = match error {
                JsonError::Body(_) | JsonError::Request(_) => StatusCode::BAD_REQUEST,
                JsonError::Decide(_) => StatusCode::SERVICE_UNAVAILABLE,
                JsonError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, format!("{error}\n")).into_response()
        }
    }
}

async fn answer(admin: &Admin, body: Bytes) -> Result<(Code, Vec<u8>), JsonError> {
    let (request, response) = MESSAGES.as_ref().ok_or(JsonError::Internal)?;
    let turn = READERS.acquire().await.map_err(|_| JsonError::Internal)?;
    // Off the runtime that health checks and signals are waiting on.
    let request =
        tokio::task::spawn_blocking(move || read(request, &body)).await.map_err(|_| JsonError::Internal)?;
    drop(turn);
    let request = request.inspect_err(|error| {
        if matches!(error, JsonError::Request(_)) {
            admin.metrics.invalid_json();
        }
    })?;
    let answer = admin.limiter.decide(&request, Budget::of(admin.budget)).await?;
    let code = answer.overall;
    Ok((code, write(response, answer)?))
}

fn read(request: &MessageDescriptor, body: &[u8]) -> Result<Request, JsonError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let message = DynamicMessage::deserialize(request.clone(), &mut json)?;
    json.end()?;
    Ok(rls::request::decode(Bytes::from(message.encode_to_vec()))?)
}

fn write(response: &MessageDescriptor, answer: Answer) -> Result<Vec<u8>, JsonError> {
    let message = rls::response::write(answer).encode_to_vec();
    let message = DynamicMessage::decode(response.clone(), &*message).map_err(|_| JsonError::Internal)?;
    Ok(serde_json::to_vec(&message)?)
}
