//! Parses the values of one input: nested lists are written to dense bytes. The first list of each level defines the
//! length of all lists of that level.

use saggar_plugin::ModelPort;
use saggar_tensor::DType;
use saggar_tensor::interp::float16;

use super::error::{NestingError, TfsError, excerpt};
use crate::error::ApiError;
use crate::limits::{INPUT_BYTES_MAX, JSON_DEPTH_MAX};
use crate::predict::base64;
use crate::predict::decode::DecodeError;
use crate::predict::json_number::JsonNumber;
use crate::predict::json_tokenizer::{JsonToken, JsonTokenizer};
use crate::predict::text_codec;

/// The values of one input, row after row.
#[derive(Debug)]
pub(super) struct InputValues<'p> {
    pub(super) port: &'p ModelPort,
    /// Dense little-endian elements of all rows.
    pub(super) bytes: Vec<u8>,
    /// The shape of the value read last.
    shape: ListLengths,
    /// The shape that every row must have, known after the first row.
    row: Option<Vec<usize>>,
    /// The number of rows read.
    pub(super) rows: usize,
}

/// The lengths of nested lists, by level, as far as they are known.
#[derive(Clone, Debug, Default)]
struct ListLengths {
    sizes: [usize; JSON_DEPTH_MAX + 1],
    /// Whether each level's length is known. Inner levels are known before outer ones.
    known: [bool; JSON_DEPTH_MAX + 1],
    /// The level of the values, once one was read.
    rank: Option<usize>,
}

impl<'p> InputValues<'p> {
    pub(super) fn new(port: &'p ModelPort) -> InputValues<'p> {
        let bytes = Vec::with_capacity(port.item.bytes().min(INPUT_BYTES_MAX));
        InputValues { port, bytes, shape: ListLengths::default(), row: None, rows: 0 }
    }

    /// Reads a value with all its lists and returns its shape. A text is a list of the bytes that hold it.
    pub(super) fn read(&mut self, json: &mut JsonTokenizer<'_>) -> Result<Vec<usize>, ApiError> {
        self.shape = ListLengths::default();
        self.read_value(json, 0)?;
        let rank = self.shape.rank.unwrap_or(0);
        let mut dims = self.shape.sizes[..rank].to_vec();
        dims.extend(self.port.text_bytes_max());
        Ok(dims)
    }

    /// Reads a value as the next row, which must have the shape of the rows before.
    pub(super) fn read_row(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), ApiError> {
        let dims = self.read(json)?;
        match &self.row {
            None => self.row = Some(dims),
            Some(row) if *row == dims => {}
            Some(row) => {
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

    /// Returns the shape of each row, or `None` if there are no rows.
    pub(super) fn row_shape(&self) -> Option<&[usize]> {
        self.row.as_deref()
    }

    /// Reads the value at `level`, up to the maximum depth of an input.
    fn read_value(&mut self, json: &mut JsonTokenizer<'_>, level: usize) -> Result<(), ApiError> {
        if json.peek() != Some(b'[') {
            return self.read_leaf(json, level);
        }
        if let Some(rank) = self.shape.rank.filter(|&rank| level >= rank) {
            return Err(TfsError::Nesting(NestingError::List { level, rank }).into());
        }
        if level == JSON_DEPTH_MAX {
            return Err(DecodeError::TooDeep { place: self.port.name.clone() }.into());
        }
        json.next_token().map_err(TfsError::from)?;
        let mut size = 0;
        while json.next_element().map_err(TfsError::from)? {
            self.read_value(json, level + 1)?;
            size += 1;
        }
        let ListLengths { sizes, known, rank } = &mut self.shape;
        rank.get_or_insert(level + 1);
        if known[level] && sizes[level] != size {
            return Err(TfsError::Nesting(NestingError::Size { size, level, expected: sizes[level] }).into());
        }
        (sizes[level], known[level]) = (size, true);
        Ok(())
    }

    #[inline]
    fn read_leaf(&mut self, json: &mut JsonTokenizer<'_>, level: usize) -> Result<(), ApiError> {
        match self.shape.rank {
            None => self.shape.rank = Some(level),
            Some(rank) if rank == level => {}
            Some(rank) => {
                let value = excerpt(json.skip_value().map_err(TfsError::from)?);
                return Err(TfsError::Nesting(NestingError::Value { value, level: level + 1, rank }).into());
            }
        }
        if self.bytes.len() >= INPUT_BYTES_MAX {
            return Err(DecodeError::TooLarge { name: self.port.name.clone() }.into());
        }
        if let Some(bytes_max) = self.port.text_bytes_max() {
            return self.read_text(json, bytes_max);
        }
        json.peek();
        let (start, from) = (*json, json.offset());
        let number = match json.next_token().map_err(TfsError::from)? {
            JsonToken::Number(number) => number,
            // There is no boolean type here; models declare booleans as bytes.
            JsonToken::Bool(truth) if self.port.item.dtype == DType::U8 => JsonNumber::Integer(truth.into()),
            _ => {
                *json = start;
                let value = json.skip_value().map_err(TfsError::from)?;
                return Err(TfsError::bad_type(value, self.port.item.dtype).into());
            }
        };
        if push_number(number, self.port.item.dtype, &mut self.bytes) {
            return Ok(());
        }
        Err(TfsError::bad_type(json.bytes_since(from), self.port.item.dtype).into())
    }

    /// Reads a string, or `{"b64": ...}`.
    fn read_text(&mut self, json: &mut JsonTokenizer<'_>, bytes_max: usize) -> Result<(), ApiError> {
        if self.bytes.len() + bytes_max > INPUT_BYTES_MAX {
            return Err(DecodeError::TooLarge { name: self.port.name.clone() }.into());
        }
        let name = self.port.name.clone();
        if let Some(bytes) = read_base64_object(json)? {
            let Ok(text) = std::str::from_utf8(&bytes) else {
                let (expected, got) = ("a text in UTF-8".to_owned(), format!("{} bytes that are not", bytes.len()));
                return Err(DecodeError::Unexpected { place: name, expected, got }.into());
            };
            self.bytes.extend(text_codec::encode_text_item(&name, bytes_max, text)?);
            return Ok(());
        }
        let start = *json;
        if let JsonToken::String(text) = json.next_token().map_err(TfsError::from)? {
            self.bytes.extend(text_codec::encode_text_item(&name, bytes_max, &text)?);
            return Ok(());
        }
        *json = start;
        Err(TfsError::bad_text(json.skip_value().map_err(TfsError::from)?).into())
    }
}

/// Reads the bytes of `{"b64": "..."}`. If something else comes next, reads nothing and returns `None`.
pub(super) fn read_base64_object(json: &mut JsonTokenizer<'_>) -> Result<Option<Vec<u8>>, TfsError> {
    let mut ahead = *json;
    if ahead.peek() != Some(b'{') {
        return Ok(None);
    }
    ahead.next_token()?;
    if ahead.next_key()?.as_deref() != Some("b64") {
        return Ok(None);
    }
    let JsonToken::String(text) = ahead.next_token()? else { return Ok(None) };
    if ahead.next_key()?.is_some() {
        return Ok(None);
    }
    *json = ahead;
    base64::decode(&text).map(Some).ok_or(TfsError::Base64)
}

/// Appends a number as an element. A number beyond a float's range becomes infinite, and one too small for it zero.
/// Integer types accept no fractions, and no numbers written as fractions or with an exponent.
#[inline]
fn push_number(number: JsonNumber, dtype: DType, bytes: &mut Vec<u8>) -> bool {
    let float = || match number {
        JsonNumber::Integer(number) => number as f64,
        JsonNumber::Float(number) => number,
    };
    match (dtype, number) {
        (DType::F32, _) => bytes.extend_from_slice(&(float() as f32).to_le_bytes()),
        (DType::F16, _) => bytes.extend_from_slice(&float16::to_bits(float()).to_le_bytes()),
        (_, JsonNumber::Float(_)) => return false,
        (dtype, whole) => return whole.push_element(dtype, bytes),
    }
    true
}

fn format_dims(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", dims.join(","))
}
