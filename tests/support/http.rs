//! A plain HTTP/1.1 client: any method with any body, header values as bytes, no redirects, no retries.

use std::net::SocketAddr;

use anyhow::Context;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub type Body = Full<Bytes>;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    /// The value of a header, several joined by a semicolon; empty when there is none.
    pub fn header(&self, name: &str) -> String {
        let values = self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        values.collect::<Vec<_>>().join("; ")
    }
}

/// One connection, kept open between requests.
pub struct Client {
    to: SocketAddr,
    sender: SendRequest<Body>,
}

impl Client {
    pub async fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(to).await.with_context(|| format!("cannot connect to {to}"))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { to, sender })
    }

    /// Sends `request`, whose URI is a path, and reads the whole answer.
    pub async fn send(&mut self, mut request: Request<Body>) -> anyhow::Result<Answer> {
        let host = self.to.to_string().parse()?;
        request.headers_mut().entry(http::header::HOST).or_insert(host);
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

/// Sends one request on a connection of its own.
pub async fn send(to: SocketAddr, request: Request<Body>) -> anyhow::Result<Answer> {
    Client::connect(to).await?.send(request).await
}
