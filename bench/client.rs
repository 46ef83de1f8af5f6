//! One HTTP/2 connection for gRPC calls, as light as the `h2` crate is: the client shares the cores with the server.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Uri, Version, header};
use tokio::net::TcpStream;

pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The overall code that an answer is to have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Ok,
    OverLimit,
}

impl Expect {
    /// The field `overall_code`, with which every answer begins behind the prefix of its frame.
    fn field(self) -> [u8; 2] {
        match self {
            Self::Ok => [8, 1],
            Self::OverLimit => [8, 2],
        }
    }
}

#[derive(Clone)]
pub struct Client {
    sender: SendRequest<Bytes>,
    uri: Uri,
}

impl Client {
    pub async fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            h2::client::Builder::new().initial_connection_window_size(1 << 24).handshake(stream).await?;
        tokio::spawn(connection);
        let uri = Uri::builder().scheme("http").authority(to.to_string()).path_and_query(PATH).build()?;
        Ok(Self { sender, uri })
    }

    /// Sends one frame; fails unless the answer is what is expected.
    pub async fn call(&self, frame: Bytes, expect: Expect) -> anyhow::Result<()> {
        let request = Request::post(self.uri.clone())
            .version(Version::HTTP_2)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(())?;
        let (answer, mut stream) = self.sender.clone().ready().await?.send_request(request, false)?;
        stream.send_data(frame, true)?;
        let mut body = answer.await?.into_body();
        let message = body.data().await.context("no message")??;
        body.flow_control().release_capacity(message.len())?;
        let trailers = body.trailers().await?.context("no trailers")?;
        let status = trailers.get("grpc-status").context("no status")?;
        ensure!(status == "0", "status {status:?}");
        let answer = message.get(5..).unwrap_or_default();
        ensure!(answer.starts_with(&expect.field()), "answer {message:?}");
        Ok(())
    }
}
