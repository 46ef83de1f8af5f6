//! HTTP/2 frame by frame, for tests that say things which no client library says.

use bytes::{BufMut, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::pb::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// The flag of a PING or SETTINGS frame that answers one.
pub(super) const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    fn write(&self, bytes: &mut BytesMut) {
        bytes.put_uint(self.payload.len() as u64, 3);
        bytes.put_u8(self.kind);
        bytes.put_u8(self.flags);
        bytes.put_u32(self.stream);
        bytes.put_slice(&self.payload);
    }

    /// `None` at the end of the connection.
    pub(super) async fn read(io: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let length = io.read_uint_be(3).await?;
        let (kind, flags) = (io.read_u8().await.ok()?, io.read_u8().await.ok()?);
        let stream = io.read_u32().await.ok()?;
        let mut payload = vec![0; length];
        io.read_exact(&mut payload).await.ok()?;
        Some(Self { kind, flags, stream, payload })
    }
}

trait ReadUint {
    async fn read_uint_be(&mut self, n_bytes: usize) -> Option<usize>;
}

impl<R: AsyncRead + Unpin> ReadUint for R {
    async fn read_uint_be(&mut self, n_bytes: usize) -> Option<usize> {
        let mut number = 0;
        for _ in 0..n_bytes {
            number = number << 8 | usize::from(self.read_u8().await.ok()?);
        }
        Some(number)
    }
}

/// Bytes to be sent, in order.
#[derive(Debug, Default)]
pub(super) struct Script(BytesMut);

impl Script {
    /// Begins with what every client says first.
    pub(super) fn greeting() -> Self {
        Self(BytesMut::from(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..])).frame(SETTINGS, 0, 0, b"")
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Self {
        Frame { kind, flags, stream, payload: payload.to_vec() }.write(&mut self.0);
        self
    }

    /// A whole call of `ShouldRateLimit`, from a client that takes compressed answers.
    pub(super) fn call(self, stream: u32) -> Self {
        let entry = Entry { key: "k".into(), value: "v".into() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let request = RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor], hits_addend: 0 };
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(request.encoded_len() as u32);
        body.put_slice(&request.encode_to_vec());
        let headers = header_block(super::dispatch::SHOULD_RATE_LIMIT);
        self.frame(HEADERS, END_HEADERS, stream, &headers).frame(DATA, END_STREAM, stream, &body)
    }

    /// Takes a call back.
    pub(super) fn reset(self, stream: u32) -> Self {
        const CANCEL: [u8; 4] = [0, 0, 0, 8];
        self.frame(RST_STREAM, 0, stream, &CANCEL)
    }

    /// A call with a header of so many bytes, in frames of at most 16 KiB.
    pub(super) fn call_with_headers(self, stream: u32, n_bytes: usize) -> Self {
        let mut block = header_block(super::dispatch::SHOULD_RATE_LIMIT);
        block.extend_from_slice(b"\x00\x01x\x7f");
        // The rest of a length that begins with 127, seven bits at a time (RFC 7541, section 5.1).
        let mut rest = n_bytes - 127;
        while rest >= 128 {
            block.push(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        block.push(rest as u8);
        block.resize(block.len() + n_bytes, b'x');
        let (first, others) = block.split_at(16 << 10);
        let mut script = self.frame(HEADERS, END_STREAM, stream, first);
        let n_others = others.len().div_ceil(16 << 10);
        for (index, other) in others.chunks(16 << 10).enumerate() {
            let flags = if index + 1 == n_others { END_HEADERS } else { 0 };
            script = script.frame(CONTINUATION, flags, stream, other);
        }
        script
    }
}

/// Indexed `:method: POST` and `:scheme: http`, then literals (RFC 7541, appendix A and section 6.2.2).
fn header_block(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (&b"\x04"[..], path),
        (b"\x0f\x10", "application/grpc"),
        (b"\x00\x02te", "trailers"),
        (b"\x00\x14grpc-accept-encoding", "identity,gzip"),
    ] {
        block.extend_from_slice(name);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend_from_slice(value.as_bytes());
    }
    block
}
