//! The messages' codec, with buffers of the size that they have. A request is handed on as its bytes: it is bounded before it
//! is decoded.

use bytes::{Buf, Bytes};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

use crate::pb::RateLimitResponse;

/// What a request's buffer starts with, in bytes: four descriptors of two entries fit; a larger message grows it once.
const REQUEST_BUFFER: usize = 512;

/// What an answer's buffer starts with, in bytes: four statuses with a named limit fit.
const RESPONSE_BUFFER: usize = 256;

/// As tonic's own, whose buffers of 8 KiB each were three quarters of all bytes allocated for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallCodec;

impl Codec for SmallCodec {
    type Encode = RateLimitResponse;
    type Decode = Bytes;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Whole;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(RESPONSE_BUFFER, RESPONSE_BUFFER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        Whole
    }
}

/// The message as it came, not copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole;

impl Decoder for Whole {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(REQUEST_BUFFER, REQUEST_BUFFER)
    }
}
