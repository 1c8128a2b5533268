//! The binary tensor extension: dense elements after the JSON, in the order of the inputs or outputs in the JSON.
//!
//! A text is its length in 4 bytes, little-endian, followed by its bytes.

use axum::http::HeaderMap;
use saggar_plugin::ModelPort;

use super::error::InferError;
use super::tensor_data::TensorElements;
use crate::limits::INFER_BYTES_MAX;
use crate::predict::text_codec;

/// The header with the number of bytes of the body that are JSON.
pub(super) const HEADER_LENGTH: &str = "inference-header-content-length";

/// Returns the length of the JSON in the body, or `None` if all of it is JSON.
///
/// # Errors
/// Returns `HeaderLength` if the header is not a number of bytes within the body.
pub(super) fn header_length(headers: &HeaderMap, body: &[u8]) -> Result<Option<usize>, InferError> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    // Digits alone: Rust's `parse` would accept a plus sign too.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let length = text.parse().ok().filter(|&length: &usize| digits && length <= body.len());
    let refuse = || InferError::HeaderLength { bytes_max: body.len(), got: text.chars().take(40).collect() };
    length.map(Some).ok_or_else(refuse)
}

/// A reader of the binary part of a body, which is split among the inputs.
pub(super) struct BinaryInputReader<'b> {
    /// The unread bytes, or `None` if the request does not state where the binary part begins.
    bytes: Option<&'b [u8]>,
}

impl<'b> BinaryInputReader<'b> {
    pub(super) fn new(bytes: Option<&'b [u8]>) -> BinaryInputReader<'b> {
        BinaryInputReader { bytes }
    }

    /// Returns the bytes of the next input.
    ///
    /// # Errors
    /// Returns `NoHeader` if the request has no binary part, and `BinaryShort` if it is too short.
    pub(super) fn take_input(&mut self, name: &str, bytes: u64) -> Result<&'b [u8], InferError> {
        let left = self.bytes.ok_or_else(|| InferError::NoHeader { name: name.to_owned() })?;
        match usize::try_from(bytes).ok().and_then(|length| left.split_at_checked(length)) {
            Some((tensor_bytes, left)) => {
                self.bytes = Some(left);
                Ok(tensor_bytes)
            }
            None => Err(InferError::BinaryShort { name: name.to_owned(), missing: bytes - left.len() as u64 }),
        }
    }

    /// Checks that the inputs used all of the binary part.
    ///
    /// # Errors
    /// Returns `BinaryLeft` if bytes are left.
    pub(super) fn expect_end(self) -> Result<(), InferError> {
        match self.bytes {
            Some(left) if !left.is_empty() => Err(InferError::BinaryLeft { bytes: left.len() }),
            _ => Ok(()),
        }
    }
}

/// Reads `count` elements of a port.
///
/// # Errors
/// Returns `BinarySize`, `Texts` or `TooLarge`, or the errors of decoding texts.
pub(super) fn read_elements(port: &ModelPort, count: usize, bytes: &[u8]) -> Result<TensorElements, InferError> {
    if let Some(bytes_max) = port.text_bytes_max() {
        return read_texts(port, bytes_max, count, bytes);
    }
    let expected = count.saturating_mul(port.item.dtype.bytes());
    if bytes.len() != expected {
        return Err(InferError::BinarySize { name: port.name.clone(), expected, got: bytes.len() });
    }
    Ok(TensorElements { bytes: bytes.to_vec(), count })
}

fn read_texts(
    port: &ModelPort,
    bytes_max: usize,
    count: usize,
    mut bytes: &[u8],
) -> Result<TensorElements, InferError> {
    let refuse = |reason| InferError::Texts { name: port.name.clone(), reason };
    // Each element has at least four bytes, so this bounds the allocation by the bytes received.
    if count > bytes.len() / 4 || count.saturating_mul(bytes_max) > INFER_BYTES_MAX {
        let short = count > bytes.len() / 4;
        return Err(if short {
            refuse("the data has fewer elements than the shape")
        } else {
            InferError::TooLarge { name: port.name.clone() }
        });
    }
    let mut elements = TensorElements { bytes: Vec::with_capacity(count * bytes_max), count };
    for at in 0..count {
        let (length, rest) =
            bytes.split_first_chunk().ok_or_else(|| refuse("the data ends before an element's length"))?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (element, rest) = rest.split_at_checked(length).ok_or_else(|| refuse("the data ends within an element"))?;
        bytes = rest;
        elements.bytes.extend_from_slice(&text_element(port, bytes_max, at, element)?);
    }
    if bytes.is_empty() { Ok(elements) } else { Err(refuse("the data has more elements than the shape")) }
}

/// Returns the item of a text, which is element `at` of its input.
///
/// # Errors
/// Returns `Texts` if it is not UTF-8, or the error of encoding it.
pub(super) fn text_element(
    port: &ModelPort,
    bytes_max: usize,
    at: usize,
    element: &[u8],
) -> Result<Vec<u8>, InferError> {
    let name = || port.name.clone();
    let text = std::str::from_utf8(element);
    let text = text.map_err(|_| InferError::Texts { name: name(), reason: "an element is not UTF-8" })?;
    Ok(text_codec::encode_text_item(&format!("{}[{at}]", port.name), bytes_max, text)?)
}

/// Reads a body without JSON as one item of a model's only input. For a text input, the whole body is the text.
///
/// # Errors
/// Returns `Raw` if the model has several inputs, `BinarySize` if the length does not fit, or the errors of decoding
/// texts.
pub(super) fn read_raw_body<'s>(
    ports: &'s [ModelPort],
    body: &[u8],
) -> Result<(&'s ModelPort, TensorElements), InferError> {
    let [port] = ports else { return Err(InferError::Raw { inputs: ports.len() }) };
    match port.text_bytes_max() {
        Some(bytes_max) => Ok((port, TensorElements { bytes: text_element(port, bytes_max, 0, body)?, count: 1 })),
        None => Ok((port, read_elements(port, port.item.shape.elements(), body)?)),
    }
}

/// Appends the texts of a port's output.
pub(super) fn push_texts(into: &mut Vec<u8>, bytes_max: usize, output: &[u8]) {
    for item in output.chunks_exact(bytes_max) {
        let text = text_codec::text_bytes(item);
        let length = u32::try_from(text.len()).expect("a port's item is smaller than 4 GiB");
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(text);
    }
}

/// Returns the encoded size in bytes of the texts of a port's output.
pub(super) fn texts_wire_bytes(bytes_max: usize, output: &[u8]) -> usize {
    output.chunks_exact(bytes_max).map(|item| 4 + text_codec::text_bytes(item).len()).sum()
}
