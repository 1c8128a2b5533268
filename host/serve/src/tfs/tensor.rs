//! One input while its values are read: nested lists of values as dense bytes. The first list of each level says how long
//! all of that level are.

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

/// Values of one input, row after row.
#[derive(Debug)]
pub(super) struct InputValues<'p> {
    pub(super) port: &'p ModelPort,
    /// Dense little-endian elements of all rows.
    pub(super) bytes: Vec<u8>,
    /// The shape of the last value that was read.
    shape: ListLengths,
    /// The shape that every row has, once there is one.
    row: Option<Vec<usize>>,
    /// How many rows were read.
    pub(super) rows: usize,
}

/// The lengths of nested lists, by level, as far as they are known.
#[derive(Clone, Debug, Default)]
struct ListLengths {
    sizes: [usize; JSON_DEPTH_MAX + 1],
    /// Levels whose length is known count from the inside, so each is marked.
    known: [bool; JSON_DEPTH_MAX + 1],
    /// The level at which values stand, once one was read.
    rank: Option<usize>,
}

impl<'p> InputValues<'p> {
    pub(super) fn new(port: &'p ModelPort) -> InputValues<'p> {
        let bytes = Vec::with_capacity(port.item.bytes().min(INPUT_BYTES_MAX));
        InputValues { port, bytes, shape: ListLengths::default(), row: None, rows: 0 }
    }

    /// Reads a value with all its lists; gives its shape. A text counts as the bytes it is held in.
    pub(super) fn read(&mut self, json: &mut JsonTokenizer<'_>) -> Result<Vec<usize>, ApiError> {
        self.shape = ListLengths::default();
        self.read_value(json, 0)?;
        let rank = self.shape.rank.unwrap_or(0);
        let mut dims = self.shape.sizes[..rank].to_vec();
        dims.extend(self.port.text_bytes_max());
        Ok(dims)
    }

    /// Reads a value as the next row, which must have the shape of those before.
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

    /// The shape of each row; none where there is no row.
    pub(super) fn row_shape(&self) -> Option<&[usize]> {
        self.row.as_deref()
    }

    /// The value at `level`; as deep as an input can be, and no deeper.
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
            // There is no type of truth values here; those that take them are bytes.
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

    /// A string, or `{"b64": ...}`.
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

/// The bytes of `{"b64": "..."}`, where that comes next; else nothing is read.
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

/// Appends a number as an element. What is past a float's range is infinite, and what is too small for it zero; a type of
/// whole numbers takes no fraction and nothing that is written as one.
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
