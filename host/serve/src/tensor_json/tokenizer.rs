//! A JSON tokenizer without an intermediate tree, for bodies with many numbers and for locating the bytes of a value.
//! It accepts `NaN`, `Infinity` and `-Infinity` in addition to standard JSON numbers, except in standard JSON.
//!
//! Nothing here recurses, and nesting is bounded. The interpretation of the values is elsewhere.

use std::borrow::Cow;

use thiserror::Error;

use super::decimal::ScannedDecimal;
use super::number::JsonNumber;

/// Maximum nesting of a skipped value, which is deeper than any valid input.
const SKIP_DEPTH_MAX: usize = 1000;

/// A JSON syntax error. The reasons are those of RapidJSON, which clients of TensorFlow Serving match on.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{reason} at offset: {offset}")]
pub(crate) struct JsonSyntaxError {
    /// The problem.
    pub(crate) reason: &'static str,
    /// The byte offset.
    pub(crate) offset: usize,
}

/// A value, or the start of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonToken<'b> {
    /// `{`. Its keys are read with [`JsonTokenizer::next_key`].
    Object,
    /// `[`. Its elements are announced by [`JsonTokenizer::next_element`].
    Array,
    String(Cow<'b, str>),
    Number(JsonNumber),
    Bool(bool),
    Null,
}

/// A position in JSON text. A copy is a position to return to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonTokenizer<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
    /// Whether an object or array was just opened, so that no comma precedes the next element.
    pub(super) opened: bool,
    /// Whether `NaN` and `Infinity` are numbers.
    accepts_nonfinite: bool,
}

impl<'b> JsonTokenizer<'b> {
    /// Reads JSON in which `NaN` and `Infinity` are numbers too.
    pub(crate) fn new(bytes: &'b [u8]) -> JsonTokenizer<'b> {
        JsonTokenizer { bytes, at: 0, opened: false, accepts_nonfinite: true }
    }

    /// Reads standard JSON.
    pub(crate) fn standard(bytes: &'b [u8]) -> JsonTokenizer<'b> {
        JsonTokenizer { accepts_nonfinite: false, ..JsonTokenizer::new(bytes) }
    }

    /// Returns a tokenizer of the same text whose next value begins at `offset`.
    pub(crate) fn at_value(&self, offset: usize) -> JsonTokenizer<'b> {
        JsonTokenizer { at: offset, opened: false, ..*self }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Returns the bytes from `from` up to the current position.
    pub(crate) fn bytes_since(&self, from: usize) -> &'b [u8] {
        &self.bytes[from..self.at]
    }

    fn syntax_error<T>(&self, reason: &'static str) -> Result<T, JsonSyntaxError> {
        Err(JsonSyntaxError { reason, offset: self.at })
    }

    /// Skips white space and returns the next byte.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Reads a value, or the start of an object or array.
    pub(crate) fn next_token(&mut self) -> Result<JsonToken<'b>, JsonSyntaxError> {
        match self.peek() {
            Some(b'{') => {
                (self.at, self.opened) = (self.at + 1, true);
                Ok(JsonToken::Object)
            }
            Some(b'[') => {
                self.open_array();
                Ok(JsonToken::Array)
            }
            Some(b'"') => self.read_string().map(JsonToken::String),
            Some(b'-' | b'0'..=b'9') => self.read_number().map(JsonToken::Number),
            Some(b'N' | b'I') if self.accepts_nonfinite => self.read_number().map(JsonToken::Number),
            Some(b't') => self.expect_word("true", JsonToken::Bool(true)),
            Some(b'f') => self.expect_word("false", JsonToken::Bool(false)),
            Some(b'n') => self.expect_word("null", JsonToken::Null),
            _ => self.syntax_error("Invalid value."),
        }
    }

    /// Reads the start of an array, which [`peek`](JsonTokenizer::peek) found.
    #[inline]
    pub(super) fn open_array(&mut self) {
        (self.at, self.opened) = (self.at + 1, true);
    }

    /// Returns whether the array has another element. Consumes the comma before it, or the array's end.
    #[inline]
    pub(crate) fn next_element(&mut self) -> Result<bool, JsonSyntaxError> {
        let first = std::mem::take(&mut self.opened);
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => self.syntax_error("Missing a comma or ] after an array element."),
        }
    }

    /// Checks that nothing follows the last value.
    pub(crate) fn expect_end(&mut self) -> Result<(), JsonSyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.syntax_error("The document root must not be followed by other values."),
        }
    }

    /// Reads the object's next key and its colon. Returns `None` at the object's end.
    pub(crate) fn next_key(&mut self) -> Result<Option<Cow<'b, str>>, JsonSyntaxError> {
        let first = std::mem::take(&mut self.opened);
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                return Ok(None);
            }
            Some(b',') if !first => self.at += 1,
            _ if !first => return self.syntax_error("Missing a comma or } after an object member."),
            _ => {}
        }
        if self.peek() != Some(b'"') {
            return self.syntax_error("Missing a name for object member.");
        }
        let key = self.read_string()?;
        if self.peek() != Some(b':') {
            return self.syntax_error("Missing a colon after a name of object member.");
        }
        self.at += 1;
        Ok(Some(key))
    }

    /// Skips the next value and returns its bytes.
    pub(crate) fn skip_value(&mut self) -> Result<&'b [u8], JsonSyntaxError> {
        self.peek();
        let from = self.at;
        // One entry per level: whether it is an array.
        let mut open: Vec<bool> = Vec::new();
        loop {
            match self.next_token()? {
                JsonToken::Array => open.push(true),
                JsonToken::Object => open.push(false),
                _ => {}
            }
            if open.len() > SKIP_DEPTH_MAX {
                return self.syntax_error("Nested too deeply.");
            }
            loop {
                let Some(&is_array) = open.last() else { return Ok(self.bytes_since(from)) };
                if if is_array { self.next_element()? } else { self.next_key()?.is_some() } {
                    break;
                }
                open.pop();
            }
        }
    }

    fn expect_word(&mut self, word: &str, token: JsonToken<'b>) -> Result<JsonToken<'b>, JsonSyntaxError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return self.syntax_error("Invalid value.");
        }
        self.at += word.len();
        Ok(token)
    }

    /// Reads a string. Its opening quote is the next byte.
    fn read_string(&mut self) -> Result<Cow<'b, str>, JsonSyntaxError> {
        let from = self.at + 1;
        let plain = self.bytes[from..].iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
        let Some(length) = plain else {
            self.at = self.bytes.len();
            return self.syntax_error("Missing a closing quotation mark in string.");
        };
        if self.bytes[from + length] == b'"' {
            let text = &self.bytes[from..from + length];
            let text = std::str::from_utf8(text).or_else(|_| self.syntax_error("Invalid encoding in string."))?;
            self.at = from + length + 1;
            return Ok(Cow::Borrowed(text));
        }
        // Escapes are rare: the end is located here, and serde decodes them.
        let mut end = from + length;
        while self.bytes.get(end).is_some_and(|&byte| byte != b'"') {
            end += if self.bytes[end] == b'\\' { 2 } else { 1 };
        }
        let Some(quoted) = self.bytes.get(self.at..=end) else {
            return self.syntax_error("Missing a closing quotation mark in string.");
        };
        let text =
            serde_json::from_slice(quoted).or_else(|_| self.syntax_error("Invalid escape character in string."))?;
        self.at = end + 1;
        Ok(Cow::Owned(text))
    }

    /// Reads a number. One beyond the range of `f64` is an infinite float.
    fn read_number(&mut self) -> Result<JsonNumber, JsonSyntaxError> {
        let is_negative = self.bytes.get(self.at) == Some(&b'-');
        let magnitude = self.at + usize::from(is_negative);
        if self.accepts_nonfinite && matches!(self.bytes.get(magnitude), Some(b'N' | b'I')) {
            self.at = magnitude;
            return self.read_nonfinite(is_negative);
        }
        match ScannedDecimal::scan(self.bytes, self.at) {
            Ok((number, end)) => {
                self.at = end;
                Ok(number.to_number())
            }
            Err(offset) => {
                self.at = offset;
                self.syntax_error("Invalid value.")
            }
        }
    }

    fn read_nonfinite(&mut self, negative: bool) -> Result<JsonNumber, JsonSyntaxError> {
        for (name, value) in [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("Inf", f64::INFINITY)] {
            if self.bytes[self.at..].starts_with(name.as_bytes()) {
                self.at += name.len();
                return Ok(JsonNumber::Nonfinite(if negative { -value } else { value }));
            }
        }
        self.syntax_error("Invalid value.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<JsonNumber, JsonSyntaxError> {
        JsonTokenizer::new(text.as_bytes()).read_number()
    }

    #[test]
    fn tokenizer_numbers_equal_those_of_the_standard_library() {
        let texts = [
            "0.5",
            "-0.0",
            "-0",
            "3.141592653589793",
            "1e5",
            "1E+2",
            "2.5e-3",
            "123456789012345678.25",
            "9007199254740993.0",
            "0.1",
            "0.30000000000000004",
            "1e400",
            "1e-400",
            "4.9e-324",
            "12345678901234567890.5",
            "0.000000000000000000001",
        ];
        for text in texts {
            let expected: f64 = text.parse().unwrap();
            let Ok(JsonNumber::Float(found)) = number(text) else { panic!("{text}") };
            assert_eq!(found.to_bits(), expected.to_bits(), "{text}");
        }
        for text in ["0", "7", "-7", "18446744073709551615", "-9223372036854775808", "123456789012345678901234567890"] {
            assert_eq!(number(text), Ok(JsonNumber::Integer(text.parse().unwrap())), "{text}");
        }
        assert!(matches!(number("NaN"), Ok(JsonNumber::Nonfinite(nan)) if nan.is_nan()));
        assert_eq!(number("-Infinity"), Ok(JsonNumber::Nonfinite(f64::NEG_INFINITY)));
        for word in ["NaN", "-NaN", "Infinity", "-Infinity"] {
            assert!(JsonTokenizer::standard(word.as_bytes()).next_token().is_err(), "{word}");
        }
        for bad in ["", "-", ".5", "1.", "1e", "01", "+1", "Nan", "-x", "1.e5"] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }

    /// Every printed float parses to the same value.
    #[test]
    fn printed_floats_are_read_back() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f32::from_bits((state >> 32) as u32);
            if !value.is_finite() {
                continue;
            }
            for text in [format!("{value:?}"), format!("{value}"), format!("{:.3}", value)] {
                let expected: f64 = text.parse().unwrap();
                let found = match number(&text) {
                    Ok(JsonNumber::Float(found)) => found,
                    Ok(JsonNumber::Integer(found)) => found as f64,
                    Ok(JsonNumber::Nonfinite(_)) => panic!("{text}"),
                    Err(error) => panic!("{text}: {error}"),
                };
                assert_eq!(found.to_bits(), expected.to_bits(), "{text}");
            }
        }
    }

    #[test]
    fn skipping_a_value_returns_all_its_bytes() {
        let check = |text: &str, expected: &str| {
            let mut json = JsonTokenizer::new(text.as_bytes());
            assert_eq!(json.skip_value().map(|bytes| std::str::from_utf8(bytes).unwrap()), Ok(expected));
        };
        check(" {\"a\": [1, {\"b\": \"}\\\"\"}], \"c\": null} rest", "{\"a\": [1, {\"b\": \"}\\\"\"}], \"c\": null}");
        check("[[], {}, true]", "[[], {}, true]");
        check("-1.5,", "-1.5");
        for bad in
            ["", "[1 2]", "[1,]", "{\"a\" 1}", "{\"a\":1,}", "{a:1}", "[,1]", "{\"a\":1", "[\"x]", "tru", "\"\\q\""]
        {
            assert!(JsonTokenizer::new(bad.as_bytes()).skip_value().is_err(), "{bad}");
        }
        let deep = "[".repeat(1_000_000);
        assert_eq!(JsonTokenizer::new(deep.as_bytes()).skip_value().unwrap_err().reason, "Nested too deeply.");
    }

    #[test]
    fn string_escapes_are_decoded() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                JsonTokenizer::new(text.as_bytes()).next_token(),
                Ok(JsonToken::String(expected.into())),
                "{text}"
            );
        };
        check(r#""né""#, "né");
        check(r#""a\"b\\""#, "a\"b\\");
        check(r#""\u00e9\ud83d\ude00""#, "é😀");
        for bad in [r#""\"#, r#""\u12""#, "\"a\nb\"", "\"abc"] {
            assert!(JsonTokenizer::new(bad.as_bytes()).next_token().is_err(), "{bad}");
        }
        assert!(JsonTokenizer::new(b"\"\xff\"").next_token().is_err());
    }
}
