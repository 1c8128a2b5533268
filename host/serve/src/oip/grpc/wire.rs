//! Fields of an encoded protocol buffer, read in place. Requests for predictions are read like this, and not decoded
//! into objects: the elements of a tensor go directly into dense bytes of their input's type, and the memory is bounded
//! by the model's signature and not by what a message can expand to.
//!
//! Source: Protocol Buffers, "Encoding".

use crate::oip::error::InferError;

/// The most bytes of a varint.
const VARINT_BYTES_MAX: usize = 10;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WireValue<'b> {
    Varint(u64),
    Fixed64([u8; 8]),
    /// A text, a message, or packed numbers.
    Bytes(&'b [u8]),
    Fixed32([u8; 4]),
}

impl<'b> WireValue<'b> {
    /// Returns the bytes of a text, a message, or packed numbers.
    ///
    /// # Errors
    /// Returns `Syntax` if the field has another form.
    pub(super) fn bytes(self) -> Result<&'b [u8], InferError> {
        if let WireValue::Bytes(bytes) = self { Ok(bytes) } else { Err(malformed()) }
    }

    /// Returns the text.
    ///
    /// # Errors
    /// Returns `Syntax` if the field has another form or is not UTF-8.
    pub(super) fn text(self) -> Result<&'b str, InferError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed())
    }
}

/// The fields of a message that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireReader<'b>(&'b [u8]);

impl<'b> WireReader<'b> {
    /// Creates a reader of a message.
    pub(super) fn new(message: &'b [u8]) -> WireReader<'b> {
        WireReader(message)
    }

    /// Returns the number and the value of the next field, or `None` at the end.
    ///
    /// # Errors
    /// Returns `Syntax` if the message is malformed.
    pub(super) fn next_field(&mut self) -> Result<Option<(u64, WireValue<'b>)>, InferError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let value = match key & 7 {
            0 => WireValue::Varint(self.read_varint()?),
            1 => WireValue::Fixed64(self.read_array()?),
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| malformed())?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
                self.0 = rest;
                WireValue::Bytes(bytes)
            }
            5 => WireValue::Fixed32(self.read_array()?),
            // Groups are not used by these messages.
            _ => return Err(malformed()),
        };
        if key >> 3 == 0 { Err(malformed()) } else { Ok(Some((key >> 3, value))) }
    }

    /// Returns the next of packed varints, or `None` at the end.
    ///
    /// # Errors
    /// Returns `Syntax` if it is malformed.
    pub(super) fn next_varint(&mut self) -> Result<Option<u64>, InferError> {
        if self.0.is_empty() { Ok(None) } else { self.read_varint().map(Some) }
    }

    fn read_varint(&mut self) -> Result<u64, InferError> {
        let mut number = 0;
        for (at, &byte) in self.0.iter().enumerate().take(VARINT_BYTES_MAX) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(malformed())
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], InferError> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*array)
    }
}

/// Returns the error for bytes that are not a message.
pub(super) fn malformed() -> InferError {
    InferError::Syntax { reason: "the message is not a ModelInferRequest".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Option<Vec<(u64, WireValue<'_>)>> {
        let mut reader = WireReader::new(message);
        std::iter::from_fn(|| reader.next_field().transpose()).collect::<Result<_, _>>().ok()
    }

    #[test]
    fn fields_of_every_form_are_read() {
        let message = [0x08, 0x96, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 2, b'h', b'i', 0x25, 1, 2, 3, 4];
        let expected = vec![
            (1, WireValue::Varint(150)),
            (2, WireValue::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
            (3, WireValue::Bytes(b"hi")),
            (4, WireValue::Fixed32([1, 2, 3, 4])),
        ];
        assert_eq!(fields(&message), Some(expected));
        for end in 1..message.len() {
            // Cut between two fields, the message is a shorter one.
            assert_eq!(fields(&message[..end]).is_some(), [3, 12, 16].contains(&end), "{end}");
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let endless = [0xff; 11];
        let cases: [&[u8]; 6] = [&[0x80], &endless, &[0x0b], &[0x00, 1], &[0x0a, 5, 1], &[0x0f, 0]];
        for message in cases {
            assert_eq!(fields(message), None, "{message:x?}");
        }
        let largest = [&[0x08][..], &[0xff; 9], &[1]].concat();
        assert_eq!(fields(&largest), Some(vec![(1, WireValue::Varint(u64::MAX))]));
    }
}
