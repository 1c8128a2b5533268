//! A text as elements: its UTF-8 bytes, padded with zeros.

/// A text that its elements cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextItemError {
    /// The problem with it.
    pub(crate) reason: &'static str,
    /// Its length in bytes.
    pub(crate) bytes: usize,
    /// The maximum length in bytes.
    pub(crate) bytes_max: usize,
}

/// Appends `text` as an item of `bytes_max` bytes.
///
/// # Errors
/// Returns an error if the text is longer, or contains a zero byte, which would be read as its end.
pub(crate) fn push_text_item(text: &str, bytes_max: usize, into: &mut Vec<u8>) -> Result<(), TextItemError> {
    let bytes = text.len();
    if bytes > bytes_max {
        return Err(TextItemError { reason: "is too long", bytes, bytes_max });
    }
    if text.contains('\0') {
        return Err(TextItemError { reason: "has a zero byte (U+0000), which would end it", bytes, bytes_max });
    }
    into.extend_from_slice(text.as_bytes());
    into.resize(into.len() + bytes_max - bytes, 0);
    Ok(())
}
