//! The values of one input in rows: the element rules of TensorFlow Serving and its errors.

use saggar_plugin::ModelPort;
use saggar_tensor::DType;

use super::error::{NestingError, TfsError, excerpt};
use crate::error::ApiError;
use crate::limits::INPUT_BYTES_MAX;
use crate::predict::decode::DecodeError;
use crate::predict::text_codec;
use crate::tensor_json::{
    ArrayNesting, ElementRules, JsonTokenizer, NumberRules, TensorErrorKind, TensorJsonError, TensorReader,
    TextNotation,
};

/// The values of one input, row after row.
#[derive(Debug)]
pub(super) struct InputValues<'p> {
    pub(super) port: &'p ModelPort,
    reader: TensorReader<'p>,
    /// The shape that every row must have, known after the first row.
    row: Option<Vec<usize>>,
    /// The number of rows read.
    pub(super) rows: usize,
}

impl<'p> InputValues<'p> {
    pub(super) fn new(port: &'p ModelPort) -> InputValues<'p> {
        let reader = TensorReader::new(element_rules(port), port.item.bytes());
        InputValues { port, reader, row: None, rows: 0 }
    }

    /// Reads a value with all its lists and returns its shape. A text is a list of the bytes that hold it.
    pub(super) fn read(&mut self, json: &mut JsonTokenizer<'_>) -> Result<Vec<usize>, ApiError> {
        self.read_value(json)?;
        Ok(self.reader.dims().collect())
    }

    /// Reads a value as the next row, which must have the shape of the rows before.
    pub(super) fn read_row(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), ApiError> {
        self.read_value(json)?;
        match &self.row {
            None => self.row = Some(self.reader.dims().collect()),
            Some(row) if self.reader.dims().eq(row.iter().copied()) => {}
            Some(row) => {
                let dims: Vec<usize> = self.reader.dims().collect();
                let (expected, got) = (row.iter().product::<usize>(), dims.iter().product::<usize>());
                return Err(if expected == got {
                    TfsError::Row { expected: format!("shape {}", format_dims(row)), got: format_dims(&dims) }
                } else {
                    TfsError::Row { expected: format!("tensor size: {expected}"), got: got.to_string() }
                }
                .into());
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn read_value(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), ApiError> {
        self.reader.read(json).map_err(|error| value_error(self.port, json, &error))
    }

    /// Returns the shape of each row, or `None` if there are no rows.
    pub(super) fn row_shape(&self) -> Option<&[usize]> {
        self.row.as_deref()
    }

    /// Returns the dense little-endian elements of all rows.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.reader.into_bytes()
    }
}

/// A number beyond a float's range becomes infinite, and one too small for it zero. Integer types accept no fractions,
/// and no numbers written as fractions or with an exponent. There is no boolean type; models declare booleans as bytes.
fn element_rules(port: &ModelPort) -> ElementRules<'_> {
    ElementRules {
        dtype: port.item.dtype,
        text: port.text_bytes_max().map(|bytes| (TextNotation::StringOrBase64, bytes)),
        classes: &[],
        numbers: NumberRules { whole_floats: false, overflow_is_infinite: true },
        booleans: port.item.dtype == DType::U8,
        nesting: ArrayNesting::Rectangular,
        bytes_max: INPUT_BYTES_MAX,
    }
}

fn value_error(port: &ModelPort, json: &JsonTokenizer<'_>, error: &TensorJsonError) -> ApiError {
    let name = || port.name.clone();
    match error.kind {
        TensorErrorKind::Syntax(error) => TfsError::from(error).into(),
        TensorErrorKind::Element | TensorErrorKind::NumberOutOfRange => {
            match json.at_value(error.offset).skip_value() {
                Ok(value) if port.text_bytes_max().is_some() => TfsError::bad_text(value).into(),
                Ok(value) => TfsError::bad_type(value, port.item.dtype).into(),
                Err(error) => TfsError::from(error).into(),
            }
        }
        TensorErrorKind::ElementAmongArrays { level, rank } => match json.at_value(error.offset).skip_value() {
            Ok(value) => {
                TfsError::Nesting(NestingError::Value { value: excerpt(value), level: level + 1, rank }).into()
            }
            Err(error) => TfsError::from(error).into(),
        },
        TensorErrorKind::ArrayAmongElements { level, rank } => {
            TfsError::Nesting(NestingError::List { level, rank }).into()
        }
        TensorErrorKind::Ragged { level, expected, got: size } => {
            TfsError::Nesting(NestingError::Size { size, level, expected }).into()
        }
        TensorErrorKind::TooDeep => DecodeError::TooDeep { place: name() }.into(),
        TensorErrorKind::TooLarge => DecodeError::TooLarge { name: name() }.into(),
        TensorErrorKind::Text(error) => text_codec::text_error(name(), error).into(),
        TensorErrorKind::Base64 => TfsError::Base64.into(),
        TensorErrorKind::NotUtf8 { bytes } => {
            let (expected, got) = ("a text in UTF-8".to_owned(), format!("{bytes} bytes that are not"));
            DecodeError::Unexpected { place: name(), expected, got }.into()
        }
    }
}

fn format_dims(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", dims.join(","))
}
