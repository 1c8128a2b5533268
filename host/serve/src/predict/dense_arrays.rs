//! Reads nested JSON arrays of numbers or texts into dense bytes in one pass, without an intermediate tree.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::decode::{DecodeError, PredictionInput};
use super::json_number::{JsonNumber, expected_range};
use super::text_codec;
use crate::limits::{INPUT_BYTES_MAX, JSON_DEPTH_MAX};
use saggar_plugin::ModelPort as Port;

/// One input while its value is read. The error is stored here, because serde's errors contain only text.
pub(super) struct DenseArrayReader<'p> {
    port: &'p Port,
    /// Indices of the current position.
    path: Vec<usize>,
    /// The length of the arrays at each depth, once one has ended.
    dims: Vec<usize>,
    /// Whether each depth has a length. Lengths are set from the innermost array outward.
    has_length: [bool; JSON_DEPTH_MAX],
    /// The depth of the numbers, once one was read.
    depth: Option<usize>,
    bytes: Vec<u8>,
    error: Option<DecodeError>,
}

impl<'p> DenseArrayReader<'p> {
    pub(super) fn new(port: &'p Port) -> DenseArrayReader<'p> {
        DenseArrayReader {
            port,
            path: Vec::new(),
            dims: vec![0; JSON_DEPTH_MAX],
            has_length: [false; JSON_DEPTH_MAX],
            depth: None,
            bytes: Vec::with_capacity(port.item.bytes().min(INPUT_BYTES_MAX)),
            error: None,
        }
    }

    /// Takes the error, if there was one.
    pub(super) fn take_error(&mut self) -> Option<DecodeError> {
        self.error.take()
    }

    /// Returns the current position, such as `image[3][2]`.
    pub(super) fn current_place(&self) -> String {
        let indices: String = self.path.iter().map(|index| format!("[{index}]")).collect();
        format!("{}{indices}", self.port.name)
    }

    /// Returns the input if the value has the item's shape or is a batch of items.
    pub(super) fn finish(self) -> Result<PredictionInput, DecodeError> {
        let rank = self.has_length.iter().take_while(|&&set| set).count();
        match (PredictionInput::new(self.port, &self.dims[..rank], self.bytes), self.port.text_bytes_max()) {
            (Err(DecodeError::Shape { name, got, .. }), Some(bytes_max)) => {
                let expected = format!("a string of at most {bytes_max} bytes, or an array of strings for a batch");
                let got =
                    if got.is_empty() { "a number; put it in quotes".to_owned() } else { format!("shape {got:?}") };
                Err(DecodeError::Unexpected { place: name, expected, got })
            }
            (input, _) => input,
        }
    }

    fn set_error(&mut self, error: DecodeError) -> bool {
        self.error.get_or_insert(error);
        false
    }

    fn unexpected(&mut self, expected: impl Into<String>, got: impl Into<String>) -> bool {
        let (place, expected, got) = (self.current_place(), expected.into(), got.into());
        self.set_error(DecodeError::Unexpected { place, expected, got })
    }

    fn push_number(&mut self, number: JsonNumber, got: impl std::fmt::Display) -> bool {
        let depth = self.path.len();
        if self.depth.is_some_and(|expected| expected != depth) || self.has_length.get(depth) == Some(&true) {
            return self.unexpected("an array, as beside it", got.to_string());
        }
        self.depth = Some(depth);
        if self.bytes.len() >= INPUT_BYTES_MAX {
            let name = self.port.name.clone();
            return self.set_error(DecodeError::TooLarge { name });
        }
        number.push_element(self.port.item.dtype, &mut self.bytes)
            || self.unexpected(expected_range(self.port.item.dtype), got.to_string())
    }

    /// Appends a string as the innermost array of a port whose texts have at most `bytes_max` bytes.
    fn push_text(&mut self, bytes_max: usize, text: &str) -> bool {
        if self.depth.is_some_and(|numbers| numbers == self.path.len()) {
            return self.unexpected("a number, as beside it", "a string");
        }
        if self.bytes.len() + bytes_max > INPUT_BYTES_MAX {
            let name = self.port.name.clone();
            return self.set_error(DecodeError::TooLarge { name });
        }
        match text_codec::encode_text_item(&self.current_place(), bytes_max, text) {
            Ok(item) if self.open_array() => {
                self.depth = Some(self.path.len());
                self.path.pop();
                self.path.push(bytes_max);
                self.bytes.extend(item);
                self.close_array()
            }
            Ok(_) => false,
            Err(error) => self.set_error(error),
        }
    }

    fn open_array(&mut self) -> bool {
        let depth = self.path.len();
        if depth == JSON_DEPTH_MAX {
            let place = self.current_place();
            return self.set_error(DecodeError::TooDeep { place });
        }
        if self.depth.is_some_and(|numbers| numbers <= depth) {
            return self.unexpected("a number, as beside it", "an array");
        }
        self.path.push(0);
        true
    }

    fn close_array(&mut self) -> bool {
        let length = self.path.pop().unwrap_or(0);
        let depth = self.path.len();
        if self.has_length[depth] && self.dims[depth] != length {
            let (place, expected) = (self.current_place(), self.dims[depth]);
            return self.set_error(DecodeError::Ragged { place, expected, got: length });
        }
        self.has_length[depth] = true;
        self.dims[depth] = length;
        true
    }
}

/// Reads one value into the reader.
pub(super) struct DenseValueSeed<'d, 'p>(pub(super) &'d mut DenseArrayReader<'p>);

impl DenseValueSeed<'_, '_> {
    /// Aborts the parse if `ok` is false. The error is in [`DenseArrayReader`].
    fn ok_or_abort<E: Error>(ok: bool) -> Result<(), E> {
        if ok { Ok(()) } else { Err(E::custom("refused")) }
    }
}

impl<'de> DeserializeSeed<'de> for DenseValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DenseValueSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number or an array of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        Self::ok_or_abort(self.0.open_array())?;
        while seq.next_element_seed(DenseValueSeed(self.0))?.is_some() {
            if let Some(index) = self.0.path.last_mut() {
                *index += 1;
            }
        }
        Self::ok_or_abort(self.0.close_array())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        Self::ok_or_abort(self.0.push_number(JsonNumber::Integer(number.into()), number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        Self::ok_or_abort(self.0.push_number(JsonNumber::Integer(number.into()), number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        Self::ok_or_abort(self.0.push_number(JsonNumber::Float(number), format_args!("{number:?}")))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        Self::ok_or_abort(self.0.push_number(JsonNumber::Integer(truth.into()), truth))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if let Some(bytes_max) = self.0.port.text_bytes_max() {
            return Self::ok_or_abort(self.0.push_text(bytes_max, text));
        }
        let class = |class: &String| class == text;
        if let Some(index) = self.0.port.classes.iter().position(class).filter(|_| is_class(self.0.port)) {
            return Self::ok_or_abort(self.0.push_number(JsonNumber::Integer(index as i128), text));
        }
        let shown: String = text.chars().take(40).collect();
        Self::ok_or_abort(self.0.unexpected("a number", format!("the string {shown:?}")))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Self::ok_or_abort(self.0.unexpected("a number", "null"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Self::ok_or_abort(self.0.unexpected("a number or an array of numbers", "an object"))
    }
}

fn is_class(port: &Port) -> bool {
    port.semantics.as_deref() == Some("class")
}
