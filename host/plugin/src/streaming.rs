//! Streaming: output pieces that a plugin sends before its prediction is complete. They are checked against the
//! signature, counted, and passed to the request's [`reply::PieceSink`].

pub(crate) mod reply;

use saggar_tensor::Shape;

use crate::bindings::replies::{Host, Piece as WitPiece};
use crate::call_limits::CallInterrupted;
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::limits::PIECE_BYTES_MAX;
use reply::{OutputPiece, SendPieceError, StreamingReply};

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
