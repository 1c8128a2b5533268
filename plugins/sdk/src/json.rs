//! A minimal JSON parser and writer for parameters and configurations.
//!
//! Repeated names and deep nesting are refused. Objects keep their order and numbers have one representation, so equal
//! configurations are equal texts.

use std::fmt;

use crate::error::{Error, Result};

/// Maximum nesting depth of arrays and objects, because the stack of a guest is small.
const DEPTH_MAX: usize = 32;

/// A JSON value. Numbers are `f64`.
///
/// ```
/// use saggar_plugin::Json;
///
/// let value = Json::parse(r#"{"name": "cat", "sizes": [1, 2.5]}"#)?;
/// let Json::Object(members) = &value else { panic!("not an object") };
/// assert_eq!(members[0], ("name".to_owned(), Json::from("cat")));
/// assert_eq!(members[1].1, Json::from(vec![1.0_f64, 2.5]));
/// assert_eq!(value.to_string(), r#"{"name":"cat","sizes":[1,2.5]}"#);
/// assert!(Json::parse("[1,]").is_err());
/// # Ok::<(), saggar_plugin::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object, in the order of the text. Names are unique.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses one JSON value.
    ///
    /// # Errors
    /// Returns `Json` with the offset of the first byte that is not valid JSON. Nesting deeper than 32 levels and
    /// repeated names in an object are refused.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = JsonParser { text: text.as_bytes(), at: 0 };
        let value = parser.parse_value(0)?;
        parser.skip_whitespace();
        if parser.at < text.len() {
            return Err(parser.expected_error("the end"));
        }
        Ok(value)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) if value.is_finite() => write!(f, "{value}"),
            // JSON cannot represent infinities and NaN.
            Self::Number(_) => f.write_str("null"),
            Self::String(text) => write_quoted(f, text),
            Self::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    write!(f, "{item}")?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    write_quoted(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            c if u32::from(c) < 0x20 => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

struct JsonParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl JsonParser<'_> {
    fn expected_error(&self, expected: &'static str) -> Error {
        Error::Json { at: self.at, expected }
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips whitespace, then consumes `byte` if it is next. Returns whether it was.
    fn take_byte(&mut self, byte: u8) -> bool {
        self.skip_whitespace();
        let is_match = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_match);
        is_match
    }

    fn parse_value(&mut self, depth: usize) -> Result<Json> {
        if depth > DEPTH_MAX {
            return Err(self.expected_error("less nesting"));
        }
        self.skip_whitespace();
        match self.text.get(self.at) {
            Some(b'{') => self.parse_object(depth),
            Some(b'[') => self.parse_array(depth),
            Some(b'"') => Ok(Json::String(self.parse_string()?)),
            Some(b'-' | b'0'..=b'9') => self.parse_number(),
            _ => self.parse_keyword(),
        }
    }

    fn parse_keyword(&mut self) -> Result<Json> {
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected_error("a value"))
    }

    fn parse_object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut members: Vec<(String, Json)> = Vec::new();
        if self.take_byte(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_whitespace();
            let name = self.parse_string()?;
            if members.iter().any(|(other, _)| *other == name) {
                return Err(self.expected_error("a name not given before"));
            }
            if !self.take_byte(b':') {
                return Err(self.expected_error("`:`"));
            }
            members.push((name, self.parse_value(depth + 1)?));
            if self.take_byte(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.take_byte(b',') {
                return Err(self.expected_error("`,` or `}`"));
            }
        }
    }

    fn parse_array(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take_byte(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.parse_value(depth + 1)?);
            if self.take_byte(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take_byte(b',') {
                return Err(self.expected_error("`,` or `]`"));
            }
        }
    }

    fn parse_number(&mut self) -> Result<Json> {
        let start = self.at;
        self.at += usize::from(self.text[self.at] == b'-');
        let whole = self.at;
        self.skip_digits()?;
        if self.text[whole] == b'0' && self.at > whole + 1 {
            return Err(self.expected_error("a number without leading zeros"));
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.text.get(self.at), Some(b'+' | b'-')));
            self.skip_digits()?;
        }
        let text = str::from_utf8(&self.text[start..self.at]).map_err(|_| self.expected_error("a number"))?;
        text.parse().map(Json::Number).map_err(|_| self.expected_error("a number"))
    }

    fn skip_digits(&mut self) -> Result<()> {
        let start = self.at;
        while matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected_error("a digit")) } else { Ok(()) }
    }

    fn parse_string(&mut self) -> Result<String> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(self.expected_error("a string"));
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let start = self.at;
            while !matches!(self.text.get(self.at), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            // The text was UTF-8 and is only cut at ASCII bytes.
            text.push_str(str::from_utf8(&self.text[start..self.at]).map_err(|_| self.expected_error("UTF-8"))?);
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.parse_escape()?),
                _ => return Err(self.expected_error("the end of the string")),
            }
        }
    }

    fn parse_escape(&mut self) -> Result<char> {
        let kind = self.text.get(self.at + 1).copied();
        self.at += 2;
        Ok(match kind {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.parse_code_point(),
            _ => return Err(self.expected_error("an escape")),
        })
    }

    fn parse_code_point(&mut self) -> Result<char> {
        let first = self.parse_code_unit()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.parse_code_unit()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.expected_error("the second half of a surrogate pair"));
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| self.expected_error("a character"))
    }

    fn parse_code_unit(&mut self) -> Result<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.text.get(self.at).and_then(|c| char::from(*c).to_digit(16));
            unit = unit * 16 + digit.ok_or_else(|| self.expected_error("four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(unit)
    }
}

macro_rules! from_number {
    ($($number:ty),*) => { $(
        impl From<$number> for Json {
            fn from(value: $number) -> Self {
                Self::Number(f64::from(value))
            }
        }
    )* };
}
from_number!(u8, u16, u32, i8, i16, i32, f32, f64);

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Json {
    fn from(values: Vec<T>) -> Self {
        Self::Array(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let outcome = match Json::parse(text) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, expected, "{text}");
    }

    #[test]
    fn json_values_round_trip() {
        check(" { \"a\" : [ 1 , -2.5e1, true,null ] , \"b\":{} }", r#"{"a":[1,-25,true,null],"b":{}}"#);
        check(r#""\u0041\n\ud83d\ude00\"é""#, "\"A\\u000a\u{1f600}\\\"é\"");
        check("[]", "[]");
        check("0.1", "0.1");
        check("9007199254740991", "9007199254740991");
    }

    #[test]
    fn json_errors_name_their_offset() {
        check("", "not JSON at byte 0: expected a value");
        check("[1,]", "not JSON at byte 3: expected a value");
        check("{\"a\" 1}", "not JSON at byte 5: expected `:`");
        check("01", "not JSON at byte 2: expected a number without leading zeros");
        check("-", "not JSON at byte 1: expected a digit");
        check("\"a", "not JSON at byte 2: expected the end of the string");
        check("\"\\ud800x\"", "not JSON at byte 7: expected a character");
        check("\"\\", "not JSON at byte 3: expected an escape");
        check("{\"a\":1,\"a\":2}", "not JSON at byte 10: expected a name not given before");
        check("1 2", "not JSON at byte 2: expected the end");
    }

    #[test]
    fn json_nesting_is_limited() {
        check(&"[".repeat(100_000), "not JSON at byte 33: expected less nesting");
    }
}
