//! One HTTP/2 connection for gRPC calls, as light as the `h2` crate is: the client shares the cores with the server.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Uri, Version, header};
use tokio::net::TcpStream;

pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The field `overall_code` with the value `OK`, as every answer begins behind the prefix of its frame.
const OK: &[u8] = &[8, 1];

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

    /// Sends one frame; fails unless the answer is `OK` in every sense.
    pub async fn call(&self, frame: Bytes) -> anyhow::Result<()> {
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
        ensure!(message.get(5..).is_some_and(|message| message.starts_with(OK)), "answer {message:?}");
        Ok(())
    }
}
