//! Chunks that a plugin sends early, encoded for the client and queued until the client has read them.
//!
//! While the queue is full the plugin waits, until its deadline. When the client disconnects, the plugin is notified.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use saggar_plugin::{ModelPort, OutputPiece, PieceSink, SendPieceError};
use saggar_serving::{LiveVersion, PredictionCall};
use saggar_tensor::Shape;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::time::timeout_at;

use super::text_codec::Utf8StreamDecoder;

/// Encodes chunks in the form of a protocol. `item` is the item's number, or `None` without a batch dimension.
pub(crate) trait PieceEncoder: Debug + Send + Sync + 'static {
    /// An encoded chunk.
    type EncodedPiece: Debug + Send + 'static;

    /// Encodes elements, which have the shape that the plugin passed.
    fn encode_elements(&self, port: &ModelPort, item: Option<usize>, shape: &Shape, bytes: &[u8])
    -> Self::EncodedPiece;

    /// Encodes a part of a text.
    fn encode_text(&self, port: &ModelPort, item: Option<usize>, text: &str) -> Self::EncodedPiece;
}

/// A sink that encodes and queues chunks, on the thread that predicts.
#[derive(Debug)]
pub(crate) struct EncodedPieceSink<E: PieceEncoder> {
    serving: Arc<LiveVersion>,
    /// The requested batch size, or `None` for one item without a batch dimension.
    items: Option<usize>,
    /// The deadline of the whole response.
    until: Instant,
    /// Incomplete characters at the end of chunks, by output and item.
    texts: Mutex<BTreeMap<(usize, usize), Utf8StreamDecoder>>,
    encoder: E,
    queue: mpsc::Sender<E::EncodedPiece>,
    runtime: Handle,
}

impl<E: PieceEncoder> EncodedPieceSink<E> {
    /// Creates the sink of a call. Call it in the runtime that reads the queue.
    pub(crate) fn new(
        call: &PredictionCall,
        items: Option<usize>,
        encoder: E,
        queue: mpsc::Sender<E::EncodedPiece>,
    ) -> EncodedPieceSink<E> {
        EncodedPieceSink {
            serving: Arc::clone(call.live_version()),
            items,
            until: call.deadline().until(),
            texts: Mutex::default(),
            encoder,
            queue,
            runtime: Handle::current(),
        }
    }

    /// Returns the item number as clients see it, or `None` without a batch dimension.
    fn client_item_number(&self, item: usize) -> Option<usize> {
        self.items.map(|_| item)
    }

    /// Queues a chunk. Waits for space in the queue until `until`.
    fn queue_piece(&self, piece: E::EncodedPiece, until: Instant) -> Result<(), SendPieceError> {
        match self.queue.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(SendPieceError::Gone),
            Err(TrySendError::Full(piece)) => {
                let left = until.saturating_duration_since(Instant::now());
                match self.runtime.block_on(self.queue.send_timeout(piece, left)) {
                    Ok(()) => Ok(()),
                    Err(SendTimeoutError::Closed(_)) => Err(SendPieceError::Gone),
                    Err(SendTimeoutError::Timeout(_)) => Err(SendPieceError::Late),
                }
            }
        }
    }

    /// Sends the rest of texts that ended within a character.
    pub(crate) async fn send_remaining_text(&self) {
        let texts = std::mem::take(&mut *self.texts.lock());
        let outputs = &self.serving.predictor().signature().outputs;
        for ((output, item), mut pieces) in texts {
            let rest = pieces.finish();
            let Some(port) = outputs.get(output).filter(|_| !rest.is_empty()) else { continue };
            let piece = self.encoder.encode_text(port, self.client_item_number(item), &rest);
            if timeout_at(self.until.into(), self.queue.send(piece)).await.is_err() {
                // The final response contains it too.
                return;
            }
        }
    }
}

impl<E: PieceEncoder> PieceSink for EncodedPieceSink<E> {
    fn send_piece(&self, piece: OutputPiece, until: Instant) -> Result<(), SendPieceError> {
        if self.queue.is_closed() {
            return Err(SendPieceError::Gone);
        }
        let OutputPiece { output, item, shape, bytes } = piece;
        let Some(port) = self.serving.predictor().signature().outputs.get(output) else { return Ok(()) };
        let number = self.client_item_number(item);
        if port.text_bytes_max().is_none() {
            return self.queue_piece(self.encoder.encode_elements(port, number, &shape, &bytes), until);
        }
        let mut texts = self.texts.lock();
        let text = texts.entry((output, item)).or_default().decode_piece(&bytes);
        drop(texts);
        if text.is_empty() {
            return Ok(());
        }
        self.queue_piece(self.encoder.encode_text(port, number, &text), until)
    }

    fn is_gone(&self) -> bool {
        self.queue.is_closed()
    }
}
