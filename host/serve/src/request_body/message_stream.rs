//! Bodies that are streams of messages, each with its length before it, as in gRPC: a byte that says whether the
//! message is compressed, its length in 4 bytes, big-endian, and the message.
//!
//! Memory is charged as a message arrives, not for its announced length. Between messages a client can wait as long as
//! it likes. Within a message the minimum rate of bodies applies.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::request::Parts;
use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use saggar_serving::MemoryCharge;
use saggar_telemetry::RequestTrace;
use tokio::time::{timeout, timeout_at};

use super::{BodyRateGuard, BodyReader, BufferedBody};
use crate::buffer_growth::grown_capacity;
use crate::content_encoding::ContentEncoding;
use crate::error::ApiError;
use crate::limits::{PIECE_BYTES_MIN, SMALL_PIECES_MAX};
use crate::request_memory::charge_for_request;

/// The bytes before each message.
pub(crate) const MESSAGE_PREFIX_BYTES: usize = 5;

/// The messages of a request.
pub(crate) struct MessageStream {
    body: BodyDataStream,
    /// Received bytes that belong to the next message or to later ones.
    rest: Bytes,
    coding: Option<ContentEncoding>,
    bytes_max: usize,
    idle_timeout: Duration,
    charge: MemoryCharge,
    trace: Option<RequestTrace>,
}

/// The arrival of one message.
struct MessageArrival {
    pace: BodyRateGuard,
    pieces: usize,
    bytes: usize,
}

impl BodyReader {
    /// Returns the messages of a body, of at most `bytes_max` bytes each before and after decompression. `coding` is
    /// the encoding of those that are compressed.
    pub(crate) fn messages(
        &self,
        parts: &Parts,
        body: Body,
        coding: Option<ContentEncoding>,
        bytes_max: usize,
    ) -> MessageStream {
        MessageStream {
            body: body.into_data_stream(),
            rest: Bytes::new(),
            coding,
            bytes_max,
            idle_timeout: self.idle_timeout,
            charge: charge_for_request(&self.memory, &parts.extensions),
            trace: parts.extensions.get::<RequestTrace>().cloned(),
        }
    }
}

impl MessageStream {
    /// Returns the only message of the stream, once the client has ended it.
    ///
    /// # Errors
    /// Returns the errors of [`MessageStream::next`], `BodyQuiet` if the message or the end does not arrive in time, and
    /// `BodyBroken` if the stream has no message or several.
    pub(crate) async fn read_single(mut self) -> Result<BufferedBody, ApiError> {
        self.has_more_in_time().await?;
        let message = self.next().await?.ok_or_else(|| broken("the stream has no message"))?;
        if self.has_more_in_time().await? {
            return Err(broken("the stream has more than one message"));
        }
        Ok(message)
    }

    /// Returns the next message, or `None` at the end of the stream.
    ///
    /// # Errors
    /// Returns `TooLarge`, `BodyBroken`, `BodyQuiet`, `BodyPieces`, `MemoryFull` or `MemoryShare`. The stream cannot be
    /// read further after an error.
    pub(crate) async fn next(&mut self) -> Result<Option<BufferedBody>, ApiError> {
        if !self.has_more().await? {
            return Ok(None);
        }
        let mut arrival =
            MessageArrival { pace: BodyRateGuard::new(self.idle_timeout), pieces: 0, bytes: self.rest.len() };
        let mut prefix = [0; MESSAGE_PREFIX_BYTES];
        let mut filled = 0;
        while filled < MESSAGE_PREFIX_BYTES {
            self.receive(&mut arrival).await?;
            let count = self.rest.len().min(MESSAGE_PREFIX_BYTES - filled);
            self.rest.copy_to_slice(&mut prefix[filled..filled + count]);
            filled += count;
        }
        let [compressed, length @ ..] = prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            return Err(ApiError::TooLarge { bytes_max: self.bytes_max });
        }
        let message = self.read_message(length, &mut arrival).await?;
        match (compressed, self.coding) {
            (0, _) => Ok(Some(message)),
            (1, Some(coding)) => message.decompress(coding, self.bytes_max).await.map(Some),
            (1, None) => Err(broken("a message is compressed, and grpc-encoding names no encoding")),
            _ => Err(broken("a message begins with neither 0 nor 1")),
        }
    }

    async fn read_message(&mut self, length: usize, arrival: &mut MessageArrival) -> Result<BufferedBody, ApiError> {
        let mut charge = self.charge.empty_charge();
        if self.rest.len() >= length {
            charge.resize(length as u64, None).await?;
            return Ok(BufferedBody { bytes: self.rest.split_to(length), charge, trace: self.trace.clone() });
        }
        let mut bytes = BytesMut::new();
        while bytes.len() < length {
            self.receive(arrival).await?;
            let piece = self.rest.split_to(self.rest.len().min(length - bytes.len()));
            let filled = bytes.len() + piece.len();
            if filled > bytes.capacity() {
                let capacity = grown_capacity(bytes.capacity(), filled, length);
                charge.resize(capacity as u64, None).await?;
                bytes.reserve(capacity - bytes.len());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(BufferedBody { bytes: bytes.freeze(), charge, trace: self.trace.clone() })
    }

    /// Waits until bytes of a message that has begun are here.
    async fn receive(&mut self, arrival: &mut MessageArrival) -> Result<(), ApiError> {
        if !self.rest.is_empty() {
            return Ok(());
        }
        let more = timeout_at(arrival.pace.deadline(), self.has_more()).await;
        if !more.map_err(|_| self.quiet_error())?? {
            return Err(broken("the stream ends within a message"));
        }
        arrival.pieces += 1;
        arrival.bytes += self.rest.len();
        if arrival.pieces > SMALL_PIECES_MAX && arrival.bytes / arrival.pieces < PIECE_BYTES_MIN {
            return Err(ApiError::BodyPieces { pieces: arrival.pieces, bytes: arrival.bytes });
        }
        arrival.pace.record_arrival(self.rest.len())
    }

    /// Waits for further bytes, however long that takes. Returns whether there are any.
    async fn has_more(&mut self) -> Result<bool, ApiError> {
        while self.rest.is_empty() {
            match self.body.next().await {
                None => return Ok(false),
                Some(Err(error)) => return Err(ApiError::BodyBroken { reason: error.to_string() }),
                Some(Ok(piece)) => self.rest = piece,
            }
        }
        Ok(true)
    }

    async fn has_more_in_time(&mut self) -> Result<bool, ApiError> {
        let more = timeout(self.idle_timeout, self.has_more()).await;
        more.map_err(|_| self.quiet_error())?
    }

    fn quiet_error(&self) -> ApiError {
        ApiError::BodyQuiet { quiet: self.idle_timeout }
    }
}

fn broken(reason: &str) -> ApiError {
    ApiError::BodyBroken { reason: reason.to_owned() }
}
