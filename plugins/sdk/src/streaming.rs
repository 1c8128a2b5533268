//! Pieces of an answer that go to the client before the rest of it is known.
//!
//! They run ahead of the answer and replace nothing of it: a predictor returns its outputs whole as ever. Where the client
//! waits for the whole answer alone, they are checked and dropped.

use crate::bindings::replies::{self as raw, Piece};
use crate::error::Result;
use crate::tensor::Tensor;

/// Sends a piece of an output of item `item` of the batch, from 0: little-endian elements of the output's data type. A
/// text may be cut anywhere, even within a character.
///
/// Waits while the client is slow.
///
/// # Errors
/// `Host`: with the code `cancelled` where nobody waits for the answer any more, which is best passed on; with others for
/// an output or item that there is not, half an element, too large a piece, too many, or where nothing is predicted.
pub fn emit(output: &str, item: u32, piece: &[u8]) -> Result<()> {
    Ok(raw::emit(output, item, &Piece::Bytes(piece.to_vec()))?)
}

/// Sends a piece as [`emit`] does, from a tensor of the output's data type: the client gets it in the tensor's shape.
///
/// # Errors
/// As [`emit`]; where it is of another data type, or the work that produces it failed.
pub fn emit_tensor(output: &str, item: u32, piece: &Tensor) -> Result<()> {
    Ok(raw::emit(output, item, &Piece::Tensor(&piece.0))?)
}
