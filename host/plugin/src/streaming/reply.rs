//! The pieces of a prediction's answer, who receives them, and the prediction that they belong to.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_tensor::Shape;

use crate::host_error::HostError;
use crate::limits::PIECES_MAX;
use crate::model::model_port::ModelPort;
use crate::model::signature::ModelSignature;

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
    pub(super) fn output(&self, name: &str) -> Result<(usize, &ModelPort), HostError> {
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
    pub(super) fn count_piece(&mut self, item: u32) -> Result<usize, HostError> {
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
