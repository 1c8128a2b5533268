//! Parses the "data" of an input: numbers or texts in arrays, nested like the shape, partly nested or flat, written to
//! dense bytes in one pass without an intermediate tree. The number of elements is checked against the shape once both
//! are known.

use std::fmt;

use saggar_plugin::ModelPort;
use saggar_tensor::DType;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::datatype::OipDatatype;
use super::error::InferError;
use crate::limits::{INFER_BYTES_MAX, JSON_DEPTH_MAX};
use crate::predict::json_number::{JsonNumber, expected_range};
use crate::predict::{nonfinite, text_codec};

/// Dense elements in row-major order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TensorElements {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

/// A collector of parsed elements. Errors are kept here, because serde's errors carry text only.
pub(super) struct ElementCollector<'p> {
    port: &'p ModelPort,
    text_bytes_max: Option<usize>,
    /// Whether strings such as `"NaN"` are accepted for numbers that JSON cannot represent.
    accepts_nonfinite: bool,
    elements: TensorElements,
    depth: usize,
    error: Option<InferError>,
}

impl<'p> ElementCollector<'p> {
    /// Creates a collector for an input of about `count` expected elements.
    pub(super) fn new(port: &'p ModelPort, count: usize, words: bool) -> ElementCollector<'p> {
        let text_bytes_max = port.text_bytes_max();
        let bytes = text_bytes_max.unwrap_or(port.item.dtype.bytes()).saturating_mul(count);
        let elements = TensorElements { bytes: Vec::with_capacity(bytes.min(INFER_BYTES_MAX)), count: 0 };
        ElementCollector { port, text_bytes_max, accepts_nonfinite: words, elements, depth: 0, error: None }
    }

    pub(super) fn finish(self) -> TensorElements {
        self.elements
    }

    pub(super) fn take_error(&mut self) -> Option<InferError> {
        self.error.take()
    }

    fn fail<E: Error>(&mut self, error: InferError) -> E {
        self.error.get_or_insert(error);
        E::custom("refused")
    }

    fn unexpected_element<E: Error>(&mut self, got: impl fmt::Display) -> E {
        let (name, at) = (self.port.name.clone(), self.elements.count);
        let expected = if self.text_bytes_max.is_some() { "a string" } else { expected_range(self.port.item.dtype) };
        self.fail(InferError::Element { name, at, expected, got: got.to_string() })
    }

    fn push_number<E: Error>(&mut self, number: JsonNumber, got: impl fmt::Display) -> Result<(), E> {
        if self.depth == 0 || self.text_bytes_max.is_some() {
            return Err(self.unexpected_element(got));
        }
        if self.elements.bytes.len() >= INFER_BYTES_MAX {
            let name = self.port.name.clone();
            return Err(self.fail(InferError::TooLarge { name }));
        }
        if !number.push_element(self.port.item.dtype, &mut self.elements.bytes) {
            return Err(self.unexpected_element(got));
        }
        self.elements.count += 1;
        Ok(())
    }

    fn push_text<E: Error>(&mut self, bytes_max: usize, text: &str) -> Result<(), E> {
        let name = &self.port.name;
        if self.elements.bytes.len() + bytes_max > INFER_BYTES_MAX {
            let name = name.clone();
            return Err(self.fail(InferError::TooLarge { name }));
        }
        match text_codec::encode_text_item(&format!("{name}[{}]", self.elements.count), bytes_max, text) {
            Ok(item) => {
                self.elements.bytes.extend_from_slice(&item);
                self.elements.count += 1;
                Ok(())
            }
            Err(error) => Err(self.fail(error.into())),
        }
    }

    /// Adds a number that JSON cannot represent.
    fn push_nonfinite<E: Error>(&mut self, value: f64) -> Result<(), E> {
        if self.elements.bytes.len() >= INFER_BYTES_MAX {
            let name = self.port.name.clone();
            return Err(self.fail(InferError::TooLarge { name }));
        }
        match self.port.item.dtype {
            // Half floats cannot be exchanged as JSON.
            DType::F32 => self.elements.bytes.extend_from_slice(&(value as f32).to_le_bytes()),
            _ => return Err(self.unexpected_element(value)),
        }
        self.elements.count += 1;
        Ok(())
    }
}

/// A seed that parses one value into the collector.
pub(super) struct ElementSeed<'f, 'p>(pub(super) &'f mut ElementCollector<'p>);

impl<'de> DeserializeSeed<'de> for ElementSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ElementSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.0.depth == JSON_DEPTH_MAX {
            let name = self.0.port.name.clone();
            return Err(self.0.fail(InferError::TooDeep { name }));
        }
        self.0.depth += 1;
        while seq.next_element_seed(ElementSeed(self.0))?.is_some() {}
        self.0.depth -= 1;
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.0.push_number(JsonNumber::Integer(number.into()), number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.0.push_number(JsonNumber::Integer(number.into()), number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.0.push_number(JsonNumber::Float(number), format_args!("{number:?}"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match (self.0.text_bytes_max, nonfinite::parse_nonfinite(text)) {
            (Some(bytes_max), _) if self.0.depth > 0 => self.0.push_text(bytes_max, text),
            (None, Some(value)) if self.0.accepts_nonfinite && self.0.depth > 0 => self.0.push_nonfinite(value),
            _ => Err(self
                .0
                .unexpected_element(format_args!("the string {:?}", text.chars().take(40).collect::<String>()))),
        }
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        match OipDatatype::from_port(self.0.port) {
            OipDatatype::Bool | OipDatatype::Number(DType::U8) => {
                self.0.push_number(JsonNumber::Integer(truth.into()), truth)
            }
            OipDatatype::Number(_) | OipDatatype::Bytes => Err(self.0.unexpected_element(truth)),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.0.unexpected_element("null"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.0.unexpected_element("an object"))
    }
}
