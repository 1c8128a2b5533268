//! Reading bodies: whole, within a maximum, and never waiting for long.

pub(crate) mod unread;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::coding::Coding;
use crate::error::ApiError;
use crate::limits::{
    BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_BYTES_PER_SECOND_MIN, BODY_QUIET_MAX, EXPANDED_BYTES_MAX, PIECE_BYTES_MIN,
    PIECES_ANY_MAX,
};

/// Bytes that one permit of [`Bodies`] stands for.
const PERMIT_BYTES: usize = 64 << 10;

/// The memory that all bodies share.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    /// For bytes as they arrive.
    arrived: Arc<Semaphore>,
    /// For what compressed bodies become. A budget of its own: who waits for it holds one of the other kind already.
    expanded: Arc<Semaphore>,
    quiet: Duration,
}

/// A body and its share of memory.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(crate) fn new() -> Bodies {
        Bodies::with_quiet(BODY_QUIET_MAX)
    }

    /// With another time that a body may go without a byte arriving.
    pub(crate) fn with_quiet(quiet: Duration) -> Bodies {
        let budget = |bytes| Arc::new(Semaphore::new(bytes / PERMIT_BYTES));
        Bodies { arrived: budget(BODIES_BYTES_MAX), expanded: budget(EXPANDED_BYTES_MAX), quiet }
    }

    /// As [`Bodies::read`], for a body that may be compressed: at most `bytes_max` bytes before and after. It is expanded
    /// on a thread that may take long.
    pub(crate) async fn read_coded(
        &self,
        headers: &HeaderMap,
        body: Body,
        bytes_max: usize,
    ) -> Result<Whole, ApiError> {
        let coding = Coding::of_body(headers)?;
        let Whole { bytes, _share } = self.read(headers, body, bytes_max).await?;
        let Some(coding) = coding else { return Ok(Whole { bytes, _share }) };
        let permits = |bytes: usize| bytes.div_ceil(PERMIT_BYTES);
        let most = u32::try_from(permits(bytes_max)).unwrap_or(u32::MAX);
        let mut share = Arc::clone(&self.expanded).acquire_many_owned(most).await.ok();
        let expanded = tokio::task::spawn_blocking(move || coding.expand(&bytes, bytes_max)).await;
        let bytes = expanded.map_err(|error| ApiError::Internal { cause: format!("expanding: {error}") })??;
        // What it did not need is given back.
        let spare = permits(bytes_max).saturating_sub(permits(bytes.len()));
        drop(share.as_mut().and_then(|share| share.split(spare)));
        Ok(Whole { bytes: bytes.into(), _share: share })
    }

    /// The whole body, if it has at most `bytes_max`. A longer one is refused as soon as that is known, at best before
    /// its first byte.
    pub(crate) async fn read(&self, headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Whole, ApiError> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let mut stream = body.into_data_stream();
        if announced.is_some_and(|length: u64| length > bytes_max as u64) {
            return Err(ApiError::TooLarge { bytes_max });
        }
        let room = announced.map_or(bytes_max, |length| usize::try_from(length).unwrap_or(bytes_max));
        let mut share = None;
        if room > PERMIT_BYTES {
            let permits = u32::try_from(room.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
            share = Arc::clone(&self.arrived).acquire_many_owned(permits).await.ok();
        }
        let mut bytes = BytesMut::with_capacity(room.min(PERMIT_BYTES));
        // A client that sends a byte now and then must not hold its share of memory for ever.
        let end = Instant::now() + self.quiet + Duration::from_secs((room / BODY_BYTES_PER_SECOND_MIN) as u64);
        let mut pieces = 0;
        loop {
            let until = end.min(Instant::now() + self.quiet);
            let piece = timeout_at(until, stream.next()).await;
            match piece.map_err(|_| ApiError::BodyQuiet { quiet: self.quiet })? {
                None => return Ok(Whole { bytes: bytes.freeze(), _share: share }),
                Some(Err(error)) => return Err(ApiError::BodyBroken { reason: error.to_string() }),
                Some(Ok(piece)) if bytes.len() + piece.len() > bytes_max => {
                    return Err(ApiError::TooLarge { bytes_max });
                }
                Some(Ok(piece)) => bytes.extend_from_slice(&piece),
            }
            pieces += 1;
            if pieces > PIECES_ANY_MAX && bytes.len() / pieces < PIECE_BYTES_MIN {
                return Err(ApiError::BodyPieces { pieces, bytes: bytes.len() });
            }
        }
    }

    /// The body as JSON of a known form.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: Request) -> Result<T, ApiError> {
        let (parts, body) = request.into_parts();
        let whole = self.read(&parts.headers, body, BODY_BYTES_MAX).await?;
        serde_json::from_slice(&whole.bytes).map_err(|error| ApiError::Json { reason: error.to_string() })
    }

    /// As [`Bodies::json`]; a request without a body says nothing in particular.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(&self, request: Request) -> Result<T, ApiError> {
        if request.body().is_end_stream() { Ok(T::default()) } else { self.json(request).await }
    }
}
