//! Reading request bodies completely, within a size limit, the client's share of memory and a time limit.

pub(crate) mod drain;
pub(crate) mod message_stream;

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use saggar_serving::{MemoryCharge, RequestMemoryBudget};
use saggar_telemetry::RequestTrace;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::buffer_growth::grown_capacity;
use crate::content_encoding::ContentEncoding;
use crate::error::ApiError;
use crate::json_body::{self, JsonBody};
use crate::limits::{
    BODY_BYTES_MAX, BODY_BYTES_PER_SECOND_MIN, BODY_IDLE_MAX, JSON_PARSED_RATIO, PIECE_BYTES_MIN, SMALL_PIECES_MAX,
};
use crate::request_memory::charge_for_request;

/// Reads bodies and charges them to a memory budget.
#[derive(Clone, Debug)]
pub(crate) struct BodyReader {
    memory: RequestMemoryBudget,
    idle_timeout: Duration,
}

/// A complete body and its memory charge.
#[derive(Debug)]
pub(crate) struct BufferedBody {
    pub(crate) bytes: Bytes,
    charge: MemoryCharge,
    /// The observation of its request.
    pub(crate) trace: Option<RequestTrace>,
}

impl BufferedBody {
    /// Acquires the permit to process the body on a blocking thread.
    ///
    /// # Errors
    /// Returns `MemoryFull` if the client's other requests occupy all its threads for too long.
    pub(crate) async fn acquire_thread(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Ok(self.charge.acquire_thread().await?)
    }

    /// Charges memory for this many copies of the body, beside the body itself.
    ///
    /// # Errors
    /// Returns `MemoryFull` and `MemoryShare`.
    pub(crate) async fn charge_copies(&mut self, copies: u64) -> Result<(), ApiError> {
        Ok(self.charge.resize((1 + copies) * self.bytes.len() as u64, None).await?)
    }

    /// Returns an empty charge to the account of the body's client.
    pub(crate) fn new_charge(&self) -> MemoryCharge {
        self.charge.empty_charge()
    }

    /// Decompresses on a blocking thread to at most `bytes_max` bytes.
    async fn decompress(self, coding: ContentEncoding, bytes_max: usize) -> Result<BufferedBody, ApiError> {
        let thread = self.charge.acquire_thread().await?;
        let (mut charge, trace) = (self.new_charge(), self.trace);
        let runtime = Handle::current();
        let bytes = self.bytes;
        let work = move || {
            let _thread = thread;
            let reserve = |bytes: usize| Ok(charge.resize_blocking(bytes as u64, &runtime)?);
            let bytes = coding.decompress(&bytes, bytes_max, reserve)?;
            Ok(BufferedBody { bytes: bytes.into(), charge, trace })
        };
        let expanded = tokio::task::spawn_blocking(work).await;
        expanded.unwrap_or_else(|error| Err(ApiError::Internal { cause: format!("expanding: {error}") }))
    }
}

impl BodyReader {
    /// Creates a reader that charges bodies to `memory`.
    pub(crate) fn new(memory: RequestMemoryBudget) -> BodyReader {
        BodyReader::with_idle_timeout(memory, BODY_IDLE_MAX)
    }

    /// Creates a reader with another maximum time between two bytes.
    pub(crate) fn with_idle_timeout(memory: RequestMemoryBudget, quiet: Duration) -> BodyReader {
        BodyReader { memory, idle_timeout: quiet }
    }

    /// Reads like [`BodyReader::read`] a body that can be compressed: at most `bytes_max` bytes both before and after
    /// decompression, which runs on a blocking thread.
    pub(crate) async fn read_decompressed(
        &self,
        parts: &Parts,
        body: Body,
        bytes_max: usize,
    ) -> Result<BufferedBody, ApiError> {
        let coding = ContentEncoding::from_request_headers(&parts.headers)?;
        let whole = self.read(parts, body, bytes_max).await?;
        match coding {
            Some(coding) => whole.decompress(coding, bytes_max).await,
            None => Ok(whole),
        }
    }

    /// Reads the whole body of at most `bytes_max` bytes. A longer one is refused as soon as that is known, if
    /// announced before its first byte. Memory is charged as the body arrives, not for the announced length.
    pub(crate) async fn read(&self, parts: &Parts, body: Body, bytes_max: usize) -> Result<BufferedBody, ApiError> {
        let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let mut stream = body.into_data_stream();
        if announced.is_some_and(|length: u64| length > bytes_max as u64) {
            return Err(ApiError::TooLarge { bytes_max });
        }
        let length_max = announced.map_or(bytes_max, |length| usize::try_from(length).unwrap_or(bytes_max));
        let mut charge = charge_for_request(&self.memory, &parts.extensions);
        let trace = parts.extensions.get::<RequestTrace>().cloned();
        let mut bytes = BytesMut::new();
        let mut pace = BodyRateGuard::new(self.idle_timeout);
        let mut pieces = 0;
        loop {
            let piece = timeout_at(pace.deadline(), stream.next()).await;
            let piece = match piece.map_err(|_| ApiError::BodyQuiet { quiet: self.idle_timeout })? {
                None => return Ok(BufferedBody { bytes: bytes.freeze(), charge, trace }),
                Some(Err(error)) => return Err(ApiError::BodyBroken { reason: error.to_string() }),
                Some(Ok(piece)) => piece,
            };
            let length = bytes.len() + piece.len();
            if length > bytes_max {
                return Err(ApiError::TooLarge { bytes_max });
            }
            if length > bytes.capacity() {
                let capacity = grown_capacity(bytes.capacity(), length, length_max);
                charge.resize(capacity as u64, None).await?;
                bytes.reserve(capacity - bytes.len());
            }
            bytes.extend_from_slice(&piece);
            pieces += 1;
            if pieces > SMALL_PIECES_MAX && bytes.len() / pieces < PIECE_BYTES_MIN {
                return Err(ApiError::BodyPieces { pieces, bytes: bytes.len() });
            }
            pace.record_arrival(piece.len())?;
        }
    }

    /// Reads the body as JSON of type `T`.
    pub(crate) async fn read_json<T: JsonBody>(&self, request: Request) -> Result<T, ApiError> {
        let (parts, body) = request.into_parts();
        let whole = self.read(&parts, body, BODY_BYTES_MAX).await?;
        parse_charged(&whole).await
    }

    /// Reads like [`BodyReader::read_json`]. Returns the default if the body is empty or has only white space.
    pub(crate) async fn read_json_unless_blank<T: JsonBody + Default>(&self, request: Request) -> Result<T, ApiError> {
        let (parts, body) = request.into_parts();
        let whole = self.read(&parts, body, BODY_BYTES_MAX).await?;
        if whole.bytes.iter().all(u8::is_ascii_whitespace) { Ok(T::default()) } else { parse_charged(&whole).await }
    }

    /// Reads like [`BodyReader::read_json`]. Returns the default if the request has no body.
    pub(crate) async fn read_json_or_default<T: JsonBody + Default>(&self, request: Request) -> Result<T, ApiError> {
        if request.body().is_end_stream() { Ok(T::default()) } else { self.read_json(request).await }
    }
}

/// Parses a body, with the memory of its values charged meanwhile.
async fn parse_charged<T: JsonBody>(whole: &BufferedBody) -> Result<T, ApiError> {
    let mut parsed = whole.new_charge();
    parsed.resize(JSON_PARSED_RATIO * whole.bytes.len() as u64, None).await?;
    json_body::parse_body(&whole.bytes)
}

/// Enforces the minimum rate of a body: some byte within each idle timeout, and on average
/// [`BODY_BYTES_PER_SECOND_MIN`] over each such period.
struct BodyRateGuard {
    idle_timeout: Duration,
    latest: Instant,
    window_end: Instant,
    window_bytes: usize,
}

impl BodyRateGuard {
    fn new(quiet: Duration) -> BodyRateGuard {
        let latest = Instant::now() + quiet;
        BodyRateGuard { idle_timeout: quiet, latest, window_end: latest, window_bytes: 0 }
    }

    /// Returns the time by which the next byte must arrive, so that a client that sends a byte now and then cannot hold
    /// its memory forever.
    fn deadline(&self) -> Instant {
        self.latest
    }

    fn record_arrival(&mut self, bytes: usize) -> Result<(), ApiError> {
        let now = Instant::now();
        self.window_bytes += bytes;
        self.latest = now + self.idle_timeout;
        if now < self.window_end {
            return Ok(());
        }
        if (self.window_bytes as f64) < self.idle_timeout.as_secs_f64() * BODY_BYTES_PER_SECOND_MIN as f64 {
            return Err(ApiError::BodyQuiet { quiet: self.idle_timeout });
        }
        (self.window_end, self.window_bytes) = (now + self.idle_timeout, 0);
        Ok(())
    }
}
