//! The messages' codec, with buffers of the size that they have.

use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::pb::{RateLimitRequest, RateLimitResponse};

/// What a request's buffer starts with, in bytes: four descriptors of two entries fit; a larger message grows it once.
const REQUEST_BUFFER: usize = 512;

/// What an answer's buffer starts with, in bytes: four statuses with a named limit fit.
const RESPONSE_BUFFER: usize = 256;

/// As tonic's own, whose buffers of 8 KiB each were three quarters of all bytes allocated for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallCodec;

impl Codec for SmallCodec {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = ProstDecoder<RateLimitRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(RESPONSE_BUFFER, RESPONSE_BUFFER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(REQUEST_BUFFER, REQUEST_BUFFER))
    }
}
