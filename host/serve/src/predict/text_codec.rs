//! Encoding of texts as inputs and outputs: UTF-8 in the elements of a `text` port, padded with zeros.

use super::decode::DecodeError;
use crate::tensor_json::{self, TextItemError};

/// Returns an item of `bytes_max` bytes that holds `text`. `place` is the position for errors.
///
/// # Errors
/// Returns `Text` if the text is longer, or contains a zero byte, which would be read as its end.
pub(crate) fn encode_text_item(place: &str, bytes_max: usize, text: &str) -> Result<Vec<u8>, DecodeError> {
    let mut item = Vec::with_capacity(bytes_max);
    match tensor_json::push_text_item(text, bytes_max, &mut item) {
        Ok(()) => Ok(item),
        Err(error) => Err(text_error(place.to_owned(), error)),
    }
}

/// Returns the error for a text at `place`.
pub(crate) fn text_error(place: String, error: TextItemError) -> DecodeError {
    let TextItemError { reason, bytes, bytes_max } = error;
    DecodeError::Text { place, reason, bytes, bytes_max }
}

/// Returns the text in an item, without the zeros at its end. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn decode_text_item(item: &[u8]) -> String {
    String::from_utf8_lossy(text_bytes(item)).into_owned()
}

/// Returns the unmodified bytes of the text that [`decode_text_item`] decodes.
pub(crate) fn text_bytes(item: &[u8]) -> &[u8] {
    let length = item.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &item[..length]
}

/// Decodes a text that arrives in chunks, which can end within a character.
#[derive(Debug, Default)]
pub(crate) struct Utf8StreamDecoder {
    /// The first bytes of an incomplete character: at most 3.
    incomplete: Vec<u8>,
}

impl Utf8StreamDecoder {
    /// Returns the complete characters up to the end of this chunk. Invalid UTF-8 becomes U+FFFD.
    pub(crate) fn decode_piece(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.incomplete);
        bytes.extend_from_slice(piece);
        let whole = bytes.len() - incomplete_suffix_length(&bytes);
        self.incomplete = bytes.split_off(whole);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the remaining bytes at the end of the text.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.incomplete)).into_owned()
    }
}

/// Returns the number of bytes at the end that start a character which further bytes could complete.
fn incomplete_suffix_length(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    let could_go_on = std::str::from_utf8(invalid).err().is_some_and(|error| error.error_len().is_none());
    if could_go_on { invalid.len() } else { 0 }
}

/// Decodes the `%41` escapes of a path. Returns `None` if an escape is truncated or the bytes are not UTF-8.
pub(super) fn percent_decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_item_is_padded_with_zeros() {
        assert_eq!(encode_text_item("x", 6, "né").unwrap(), *b"n\xc3\xa9\0\0\0");
        assert_eq!(encode_text_item("x", 3, "abc").unwrap(), *b"abc");
        assert_eq!(encode_text_item("x", 2, "").unwrap(), [0, 0]);
        let long = "prompt: the text of 3 bytes is too long; at most 2 bytes of UTF-8 are taken";
        assert_eq!(encode_text_item("prompt", 2, "né").unwrap_err().to_string(), long);
        let zero = encode_text_item("x[1]", 8, "a\0b").unwrap_err().to_string();
        assert!(zero.starts_with("x[1]: the text of 3 bytes has a zero byte (U+0000), which would end it"), "{zero}");
    }

    #[test]
    fn decoding_a_text_item_removes_the_padding() {
        let check = |item: &[u8], expected: &str| assert_eq!(decode_text_item(item), expected);
        check(b"To be\0\0", "To be");
        check(b"a\0b\0", "a\0b");
        check(&[0; 4], "");
        check(b"a\xffb\xc3\0", "a\u{fffd}b\u{fffd}");
    }

    /// However a text is split, its chunks decode to the same text as the whole.
    #[test]
    fn streamed_text_is_split_only_between_characters() {
        for text in
            [&b"plain"[..], "né – 😀!".as_bytes(), b"\xff\xc3(\xe2\x82", b"\xf0\x9f\xf0\x9f\x98\x80", b"\xed\xa0\x80"]
        {
            for cut in 0..=text.len() {
                for second in cut..=text.len() {
                    let mut pieces = Utf8StreamDecoder::default();
                    let parts = [&text[..cut], &text[cut..second], &text[second..]];
                    let mut whole: String = parts.map(|part| pieces.decode_piece(part)).concat();
                    whole.push_str(&pieces.finish());
                    assert_eq!(whole, String::from_utf8_lossy(text), "{text:x?} cut at {cut} and {second}");
                }
            }
        }
        let mut pieces = Utf8StreamDecoder::default();
        assert_eq!([pieces.decode_piece(b"a\xe2\x82"), pieces.decode_piece(b"\xac"), pieces.finish()], ["a", "€", ""]);
    }
}
