//! A gRPC client that sends and receives bytes, so that a test can say anything on the wire and sees what came back.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::bytes::{Buf, BufMut, Bytes};
use tokio::net::UnixStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status, Streaming};

pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects at the first call, and again when a connection is lost.
    pub fn tcp(port: u16) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect_lazy();
        Ok(Self { channel })
    }

    /// As [`Client::tcp`], on a Unix socket.
    pub fn unix(path: PathBuf) -> anyhow::Result<Self> {
        let connect = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://unix.socket").connect_with_connector_lazy(connect);
        Ok(Self { channel })
    }

    /// A client of a connection that somebody else makes.
    pub fn over(channel: Channel) -> Self {
        Self { channel }
    }

    /// One unary call, given up after `timeout`, which the server is told as well.
    pub async fn call(&self, path: &str, message: Vec<u8>, timeout: Duration) -> Result<Bytes, Status> {
        let mut request = Request::new(Bytes::from(message));
        request.set_timeout(timeout);
        let call = async {
            let mut client = self.ready().await?;
            client.unary(request, as_path(path)?, Raw).await
        };
        match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("the caller gave up")),
        }
    }

    /// A call that is answered by a stream.
    pub async fn stream(&self, path: &str, message: Vec<u8>) -> Result<Streaming<Bytes>, Status> {
        let mut client = self.ready().await?;
        let request = Request::new(Bytes::from(message));
        client.server_streaming(request, as_path(path)?, Raw).await.map(tonic::Response::into_inner)
    }

    async fn ready(&self) -> Result<tonic::client::Grpc<Channel>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(client)
    }
}

fn as_path(path: &str) -> Result<http::uri::PathAndQuery, Status> {
    path.parse().map_err(|_| Status::internal(format!("{path} is no path")))
}

/// Messages as they are on the wire.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
