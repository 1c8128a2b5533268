//! Reads nested arrays of elements into dense bytes in one pass. The first array that ends at a level defines the
//! length of all arrays of that level.

use std::borrow::Cow;
use std::string::FromUtf8Error;

use saggar_tensor::DType;

use super::error::{TensorErrorKind, TensorJsonError};
use super::number::{JsonNumber, NumberRules};
use super::tokenizer::{JsonSyntaxError, JsonToken, JsonTokenizer};
use super::{base64, text_item};
use crate::limits::JSON_DEPTH_MAX;

/// The values that a protocol accepts as elements of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementRules<'p> {
    pub(crate) dtype: DType,
    /// The form of texts and the bytes of each, above 0, for a tensor of texts.
    pub(crate) text: Option<(TextNotation, usize)>,
    /// Names that stand for their index.
    pub(crate) classes: &'p [String],
    pub(crate) numbers: NumberRules,
    /// Whether `true` and `false` are the numbers 1 and 0.
    pub(crate) booleans: bool,
    pub(crate) nesting: ArrayNesting,
    /// The limit of the bytes of all elements.
    pub(crate) bytes_max: usize,
}

impl ElementRules<'_> {
    /// Returns the form and the bytes of texts, if each is one element.
    fn text_element(&self) -> Option<(TextNotation, usize)> {
        self.text.filter(|(notation, _)| *notation != TextNotation::StringOrNumbers)
    }
}

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextNotation {
    /// A string, or an array of all the numbers that hold it. Both count as an array.
    StringOrNumbers,
    /// A string, which is one element.
    String,
    /// A string or `{"b64": "..."}`, which is one element.
    StringOrBase64,
}

/// The nesting of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayNesting {
    /// All elements have the same level, and all arrays of a level the same length.
    Rectangular,
    /// Elements are in at least one array. Nesting has no meaning.
    Any,
}

/// A reader of one tensor, or of several with the same rules whose elements are joined.
#[derive(Debug)]
pub(crate) struct TensorReader<'p> {
    rules: ElementRules<'p>,
    bytes: Vec<u8>,
    shape: NestedShape,
    /// The indices of the current position, of which the first `level` are in use.
    path: [usize; JSON_DEPTH_MAX],
    level: usize,
    /// The offset of the value read last.
    offset: usize,
}

/// The lengths of nested arrays by level. They are known from the innermost array outward.
#[derive(Clone, Copy, Debug)]
struct NestedShape {
    lengths: [usize; JSON_DEPTH_MAX],
    /// The outermost level whose length is known.
    known_from: usize,
    /// The level of the elements, once one was read or an empty array has ended.
    rank: Option<usize>,
}

impl NestedShape {
    const UNKNOWN: NestedShape = NestedShape { lengths: [0; JSON_DEPTH_MAX], known_from: JSON_DEPTH_MAX, rank: None };
}

impl<'p> TensorReader<'p> {
    /// Creates a reader with memory for `bytes_expected` bytes of elements.
    pub(crate) fn new(rules: ElementRules<'p>, bytes_expected: usize) -> TensorReader<'p> {
        let bytes = Vec::with_capacity(bytes_expected.min(rules.bytes_max));
        TensorReader { rules, bytes, shape: NestedShape::UNKNOWN, path: [0; JSON_DEPTH_MAX], level: 0, offset: 0 }
    }

    /// Reads the next value of `json` with all its arrays, and appends its elements.
    ///
    /// # Errors
    /// Returns the first problem and its position.
    pub(crate) fn read(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), TensorJsonError> {
        (self.shape.known_from, self.shape.rank, self.level) = (JSON_DEPTH_MAX, None, 0);
        self.read_value(json).map_err(|kind| TensorJsonError {
            kind,
            offset: self.offset,
            path: self.path[..self.level].to_vec(),
            element: self.elements(),
        })
    }

    /// Returns the shape of the value read last. A text is an array of the bytes that hold it.
    pub(crate) fn dims(&self) -> impl Iterator<Item = usize> {
        let lengths = &self.shape.lengths[..self.shape.rank.unwrap_or(0)];
        lengths.iter().copied().chain(self.rules.text_element().map(|(_, bytes)| bytes))
    }

    /// Returns the number of elements of all values read. A text is one element, unless it counts as an array.
    pub(crate) fn elements(&self) -> usize {
        self.bytes.len() / self.rules.text_element().map_or(self.rules.dtype.bytes(), |(_, bytes)| bytes)
    }

    /// Returns the elements of all values read.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn read_value(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), TensorErrorKind> {
        let next = json.peek();
        self.offset = json.offset();
        match (next, self.rules.text) {
            (Some(b'['), _) => self.read_array(json),
            (Some(b'"'), Some((TextNotation::StringOrNumbers, bytes))) => self.read_text_as_array(json, bytes),
            _ => self.read_element(json),
        }
    }

    fn read_array(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), TensorErrorKind> {
        let (level, offset) = (self.level, self.offset);
        self.enter_array(level)?;
        json.open_array();
        self.level = level + 1;
        self.path[level] = 0;
        loop {
            self.path[level] += self.read_plain_numbers(json);
            if !json.next_element()? {
                break;
            }
            self.read_value(json)?;
            self.path[level] += 1;
        }
        (self.level, self.offset) = (level, offset);
        self.leave_array(level, self.path[level])
    }

    /// Reads plain numbers at the current level, if it is known to be that of the elements. Returns how many.
    #[inline]
    fn read_plain_numbers(&mut self, json: &mut JsonTokenizer<'_>) -> usize {
        let is_element_level = self.rules.nesting == ArrayNesting::Any || self.shape.rank == Some(self.level);
        if !is_element_level || self.rules.text_element().is_some() {
            return 0;
        }
        json.read_plain_numbers(self.rules.dtype, self.rules.bytes_max, &mut self.bytes)
    }

    fn enter_array(&mut self, level: usize) -> Result<(), TensorErrorKind> {
        if level == JSON_DEPTH_MAX {
            return Err(TensorErrorKind::TooDeep);
        }
        match self.shape.rank {
            Some(rank) if level >= rank && self.rules.nesting == ArrayNesting::Rectangular => {
                Err(TensorErrorKind::ArrayAmongElements { level, rank })
            }
            _ => Ok(()),
        }
    }

    fn leave_array(&mut self, level: usize, length: usize) -> Result<(), TensorErrorKind> {
        if self.rules.nesting == ArrayNesting::Any {
            return Ok(());
        }
        self.shape.rank.get_or_insert(level + 1);
        if level < self.shape.known_from {
            (self.shape.lengths[level], self.shape.known_from) = (length, level);
        }
        let expected = self.shape.lengths[level];
        if expected == length { Ok(()) } else { Err(TensorErrorKind::Ragged { level, expected, got: length }) }
    }

    /// Checks that elements have the current level.
    fn enter_element(&mut self) -> Result<(), TensorErrorKind> {
        let level = self.level;
        match self.rules.nesting {
            ArrayNesting::Any if level > 0 => Ok(()),
            ArrayNesting::Any => Err(TensorErrorKind::Element),
            ArrayNesting::Rectangular => match *self.shape.rank.get_or_insert(level) {
                rank if rank == level => Ok(()),
                rank => Err(TensorErrorKind::ElementAmongArrays { level, rank }),
            },
        }
    }

    fn read_element(&mut self, json: &mut JsonTokenizer<'_>) -> Result<(), TensorErrorKind> {
        if let Some((notation, bytes_max)) = self.rules.text_element() {
            let text = read_text(json, notation)?;
            self.enter_element()?;
            return self.push_text(&text.ok_or(TensorErrorKind::Element)?, bytes_max);
        }
        let number = self.classify_number(json.next_token()?);
        if number.is_some_and(JsonNumber::is_beyond_f64) && !self.rules.numbers.overflow_is_infinite {
            return Err(TensorErrorKind::NumberOutOfRange);
        }
        self.enter_element()?;
        let number = number.ok_or(TensorErrorKind::Element)?;
        if self.bytes.len() >= self.rules.bytes_max {
            return Err(TensorErrorKind::TooLarge);
        }
        let is_element = number.push_element(self.rules.dtype, self.rules.numbers, &mut self.bytes);
        if is_element { Ok(()) } else { Err(TensorErrorKind::Element) }
    }

    /// Returns the number that a value stands for.
    fn classify_number(&self, token: JsonToken<'_>) -> Option<JsonNumber> {
        match token {
            JsonToken::Number(number) => Some(number),
            JsonToken::Bool(truth) => self.rules.booleans.then(|| JsonNumber::Integer(truth.into())),
            JsonToken::String(text) => {
                let class = self.rules.classes.iter().position(|class| *class == text);
                class.map(|index| JsonNumber::Integer(index as i128))
            }
            JsonToken::Object | JsonToken::Array | JsonToken::Null => None,
        }
    }

    /// Reads a string as an array of the bytes that hold it.
    fn read_text_as_array(&mut self, json: &mut JsonTokenizer<'_>, bytes_max: usize) -> Result<(), TensorErrorKind> {
        let JsonToken::String(text) = json.next_token()? else { return Err(TensorErrorKind::Element) };
        let level = self.level;
        self.enter_array(level)?;
        if let Some(rank) = self.shape.rank.filter(|&rank| rank > level + 1) {
            return Err(TensorErrorKind::ElementAmongArrays { level, rank });
        }
        self.push_text(&text, bytes_max)?;
        self.leave_array(level, bytes_max)
    }

    fn push_text(&mut self, text: &str, bytes_max: usize) -> Result<(), TensorErrorKind> {
        if self.bytes.len() + bytes_max > self.rules.bytes_max {
            return Err(TensorErrorKind::TooLarge);
        }
        text_item::push_text_item(text, bytes_max, &mut self.bytes).map_err(TensorErrorKind::Text)
    }
}

/// Reads a text, or returns `None` if the next value is something else.
fn read_text<'b>(
    json: &mut JsonTokenizer<'b>,
    notation: TextNotation,
) -> Result<Option<Cow<'b, str>>, TensorErrorKind> {
    if notation == TextNotation::StringOrBase64
        && let Some(base64) = read_base64_object(json)?
    {
        let bytes = base64::decode(&base64).ok_or(TensorErrorKind::Base64)?;
        let text = String::from_utf8(bytes);
        let not_utf8 = |error: FromUtf8Error| TensorErrorKind::NotUtf8 { bytes: error.as_bytes().len() };
        return text.map(|text| Some(text.into())).map_err(not_utf8);
    }
    match json.next_token()? {
        JsonToken::String(text) => Ok(Some(text)),
        _ => Ok(None),
    }
}

/// Returns whether the next value is an object whose only member is `b64`, a string. Reads nothing.
pub(crate) fn is_base64_object(json: &JsonTokenizer<'_>) -> bool {
    matches!(read_base64_object(&mut json.clone()), Ok(Some(_)))
}

/// Reads the text of `{"b64": "..."}`. If something else comes next, reads nothing and returns `None`.
fn read_base64_object<'b>(json: &mut JsonTokenizer<'b>) -> Result<Option<Cow<'b, str>>, JsonSyntaxError> {
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
    Ok(Some(text))
}
