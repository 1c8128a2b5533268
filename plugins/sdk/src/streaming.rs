//! Streaming: sends pieces of an answer to the client before the rest is known.
//!
//! Pieces do not replace the answer: a predictor must still return its whole outputs. If the client does not stream,
//! pieces are checked and dropped.

use crate::bindings::replies::{self as raw, Piece};
use crate::call_site::AtCallSite;
use crate::error::Result;
use crate::tensor::Tensor;

/// Sends a piece of the output `output` of item `item`, an index in the batch from 0: little-endian elements of the
/// output's data type. A piece of a text can end within a character.
///
/// Blocks while the client reads slowly.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f() -> Result<()> {
/// for word in ["to ", "be ", "or "] {
///     emit("text", 0, word.as_bytes())?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Host` with the code `cancelled` if the answer is no longer needed; return this error from the predictor.
/// Returns `Host` with another code if the output or item does not exist, if the piece ends within an element or is too
/// large, if there are too many pieces, or outside of a prediction.
#[track_caller]
pub fn emit(output: &str, item: u32, piece: &[u8]) -> Result<()> {
    raw::emit(output, item, &Piece::Bytes(piece.to_vec())).at_caller()
}

/// Sends a piece as [`emit`] does, from a tensor of the output's data type. The client receives it in the tensor's
/// shape.
///
/// # Errors
/// As [`emit`]. Also returns `Host` if the tensor has another data type, or the work that produces it failed.
#[track_caller]
pub fn emit_tensor(output: &str, item: u32, piece: &Tensor) -> Result<()> {
    raw::emit(output, item, &Piece::Tensor(&piece.0)).at_caller()
}
