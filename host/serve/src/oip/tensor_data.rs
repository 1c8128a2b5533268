//! The "data" of an input: numbers or texts in arrays, nested like the shape, partly nested or flat. The number of
//! elements is checked against the shape once both are known.

use saggar_plugin::ModelPort;
use saggar_tensor::DType;

use super::datatype::OipDatatype;
use super::error::InferError;
use crate::json_body;
use crate::limits::INFER_BYTES_MAX;
use crate::predict::text_codec;
use crate::tensor_json::{
    ArrayNesting, ElementRules, JsonTokenizer, NumberRules, TensorErrorKind, TensorJsonError, TensorReader,
    TextNotation, expected_range,
};

/// Dense elements in row-major order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TensorElements {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

impl TensorElements {
    /// Reads the elements of an input from the next value. `text` is all of the tokenizer's text, and
    /// `elements_expected` only determines the memory that is allocated at first.
    pub(super) fn read(
        port: &ModelPort,
        elements_expected: usize,
        json: &mut JsonTokenizer<'_>,
        text: &[u8],
    ) -> Result<TensorElements, InferError> {
        let element_bytes = port.text_bytes_max().unwrap_or(port.item.dtype.bytes());
        let mut reader = TensorReader::new(element_rules(port), element_bytes.saturating_mul(elements_expected));
        reader.read(json).map_err(|error| data_error(port, json, text, &error))?;
        Ok(TensorElements { count: reader.elements(), bytes: reader.into_bytes() })
    }
}

fn element_rules(port: &ModelPort) -> ElementRules<'_> {
    ElementRules {
        dtype: port.item.dtype,
        text: port.text_bytes_max().map(|bytes| (TextNotation::String, bytes)),
        classes: &[],
        numbers: NumberRules { whole_floats: true, overflow_is_infinite: false },
        booleans: matches!(OipDatatype::from_port(port), OipDatatype::Bool | OipDatatype::Number(DType::U8)),
        nesting: ArrayNesting::Any,
        bytes_max: INFER_BYTES_MAX,
    }
}

fn data_error(port: &ModelPort, json: &JsonTokenizer<'_>, text: &[u8], error: &TensorJsonError) -> InferError {
    let name = port.name.clone();
    match error.kind {
        TensorErrorKind::Syntax(error) => InferError::Syntax { reason: json_body::describe_syntax_error(text, error) },
        TensorErrorKind::NumberOutOfRange => InferError::Syntax { reason: "number out of range".to_owned() },
        TensorErrorKind::TooDeep => InferError::TooDeep { name },
        TensorErrorKind::TooLarge => InferError::TooLarge { name },
        TensorErrorKind::Text(text) => {
            InferError::Decode(text_codec::text_error(format!("{name}[{}]", error.element), text))
        }
        TensorErrorKind::Element
        | TensorErrorKind::ElementAmongArrays { .. }
        | TensorErrorKind::ArrayAmongElements { .. }
        | TensorErrorKind::Ragged { .. }
        | TensorErrorKind::Base64
        | TensorErrorKind::NotUtf8 { .. } => {
            let is_text = port.text_bytes_max().is_some();
            let expected = if is_text { "a string" } else { expected_range(port.item.dtype) };
            InferError::Element { name, at: error.element, expected, got: error.describe_value(json) }
        }
    }
}
