//! Streaming: output pieces that a plugin sends before its prediction is complete. They are checked against the
//! signature, counted, and passed to the request's [`PieceSink`].

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_tensor::Shape;

use crate::bindings::replies::{Host, Piece as WitPiece};
use crate::host_error::HostError;
use crate::instance_state::{CallInterrupted, InstanceRole, InstanceState};
use crate::limits::{PIECE_BYTES_MAX, PIECES_MAX};
use crate::model::{ModelPort, ModelSignature};

/// A part of an output that the plugin sends before the rest of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPiece {
    /// Index of the output in the signature, from 0.
    pub output: usize,
    /// Index of the item in the request's batch, from 0.
    pub item: usize,
    /// The shape that the plugin gave; one dimension if it sent bytes.
    pub shape: Shape,
    /// Dense little-endian elements of the output's data type.
    pub bytes: Vec<u8>,
}

/// Reasons why a sink refuses a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPieceError {
    /// The client no longer waits for the answer.
    Gone,
    /// The sink had no room for the piece before the deadline.
    Late,
}

/// A receiver of the pieces of one prediction.
pub trait PieceSink: Debug + Send + Sync {
    /// Accepts the next piece. Called from the thread that predicts, in the order in which the plugin sends. It can
    /// block, but not past `until`.
    ///
    /// # Errors
    /// `Gone` if the client no longer waits: the plugin then gets the error `cancelled`. `Late` if there was no room
    /// before `until`.
    fn send_piece(&self, piece: OutputPiece, until: Instant) -> Result<(), SendPieceError>;

    /// Returns whether the client no longer waits for the answer. A plugin that returns an error then has not failed.
    fn is_gone(&self) -> bool;
}

/// The streaming state of the prediction that an instance computes.
pub(crate) struct StreamingReply {
    pub(crate) signature: Arc<ModelSignature>,
    /// `None` if the client wants no pieces. They are checked anyway, so that a plugin behaves the same in both cases.
    pub(crate) sink: Option<Arc<dyn PieceSink>>,
    /// Index in the request of the first item of this call's batch.
    pub(crate) start: usize,
    /// Items of the padded batch, followed by how many of them are not padding.
    pub(crate) size: usize,
    pub(crate) count: usize,
    /// The deadline of the call, followed by the time that the call was given in total.
    pub(crate) until: Instant,
    pub(crate) limit: Duration,
    /// Pieces sent so far.
    pub(crate) pieces: usize,
}

impl StreamingReply {
    /// Returns the output with this name and its index.
    fn output(&self, name: &str) -> Result<(usize, &ModelPort), HostError> {
        let outputs = &self.signature.outputs;
        let found = outputs.iter().enumerate().find(|(_, port)| port.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = outputs.iter().map(|port| port.name.as_str()).collect();
            let name: String = name.chars().take(80).collect();
            HostError::invalid_at(name, format!("the model has no such output: there are {}", known.join(", ")))
        })
    }

    /// Counts a piece and returns its item's index. Refuses a piece past [`PIECES_MAX`] or for an item outside the
    /// batch.
    fn count_piece(&mut self, item: u32) -> Result<usize, HostError> {
        let item = item as usize;
        if item >= self.size {
            return Err(HostError::invalid(format!("there is no item {item} in a batch of {}", self.size)));
        }
        if self.pieces >= PIECES_MAX {
            let message = format!("a prediction sends at most {PIECES_MAX} pieces; put more into each");
            return Err(HostError::out_of_memory(message));
        }
        self.pieces += 1;
        Ok(item)
    }
}

/// Refuses a piece of more than [`PIECE_BYTES_MAX`] bytes.
fn check_piece_bytes(name: &str, bytes: usize) -> Result<(), HostError> {
    if bytes <= PIECE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{name}: a piece has at most {PIECE_BYTES_MAX} bytes, not {bytes}; send it in several");
    Err(HostError::out_of_memory(message))
}

fn no_prediction_error() -> HostError {
    HostError::unsupported("pieces are sent during `predict` alone: there is no prediction to answer here")
}

impl InstanceState {
    /// Sets the prediction that further pieces belong to; `None` while no prediction runs.
    pub(crate) fn set_reply(&mut self, next: Option<StreamingReply>) {
        if let InstanceRole::Predict { reply, .. } = &mut self.role {
            *reply = next;
        }
    }

    fn reply(&mut self) -> Result<&mut StreamingReply, HostError> {
        match &mut self.role {
            InstanceRole::Predict { reply: Some(reply), .. } => Ok(reply),
            InstanceRole::Predict { reply: None, .. } | InstanceRole::Train(_) => Err(no_prediction_error()),
        }
    }
}

impl Host for InstanceState {
    fn emit(&mut self, name: String, item: u32, piece: WitPiece) -> Result<(), HostError> {
        self.record_host_call();
        let reply = self.reply()?;
        let item = reply.count_piece(item)?;
        let (output, port) = reply.output(&name)?;
        let dtype = port.item.dtype;
        let sink = reply.sink.clone().filter(|_| item < reply.count);
        let (place, until, limit) = (reply.start + item, reply.until, reply.limit);
        let (shape, bytes) = match piece {
            WitPiece::Tensor(tensor) => {
                let buffer = &self.table.get(&tensor)?.buffer;
                let given = buffer.descriptor();
                if given.dtype != dtype {
                    return Err(HostError::invalid_at(name, format!("the output is {dtype}, not {}", given.dtype)));
                }
                check_piece_bytes(&name, given.bytes())?;
                // The download waits for the device. Skip it if there is no sink to receive the piece.
                let bytes = match &sink {
                    Some(_) => self.backend.read_cancellable(buffer, self.cancel_token())?,
                    None => Vec::new(),
                };
                (given.shape.clone(), bytes)
            }
            WitPiece::Bytes(bytes) => {
                check_piece_bytes(&name, bytes.len())?;
                let (size, length) = (dtype.bytes(), bytes.len());
                if !length.is_multiple_of(size) {
                    let message = format!("{length} bytes are no whole number of {dtype}, which has {size} bytes");
                    return Err(HostError::invalid_at(name, message));
                }
                (Shape::new([length / size])?, bytes)
            }
        };
        let Some(sink) = sink else { return Ok(()) };
        match sink.send_piece(OutputPiece { output, item: place, shape, bytes }, until) {
            Ok(()) => Ok(()),
            Err(SendPieceError::Gone) => Err(HostError::cancelled()),
            Err(SendPieceError::Late) => Err(HostError::Trap(CallInterrupted::Deadline { limit }.into())),
        }
    }
}
