//! Parses the header of a `.npy` file: a Python dictionary of three entries, as text. Any other content is refused.

use saggar_tensor::DType;

use super::NAMES;

/// Maximum characters of a text in messages.
const SHOWN_MAX: usize = 40;

/// The content of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NpyHeader {
    pub(super) dtype: DType,
    pub(super) big_endian: bool,
    /// Whether the first axis is contiguous (Fortran order).
    pub(super) fortran: bool,
    pub(super) dims: Vec<u64>,
}

/// Returns NumPy's name for a little-endian type.
pub(super) fn dtype_name(dtype: DType) -> String {
    let (_, name) = NAMES.into_iter().find(|(it, _)| *it == dtype).expect("every data type has a name");
    format!("{}{name}", if dtype.bytes() == 1 { '|' } else { '<' })
}

impl NpyHeader {
    /// Parses a header; the error is the reason, as text.
    pub(super) fn parse(text: &[u8]) -> Result<NpyHeader, String> {
        let text = std::str::from_utf8(text).map_err(|_| "its header is not text".to_owned())?;
        let mut words = NpyHeaderParser { text };
        words.expect('{')?;
        let (mut descr, mut fortran, mut dims) = (None, None, None);
        while !words.skip_char('}') {
            let key = words.parse_quoted()?;
            words.expect(':')?;
            let again = match key {
                "descr" => descr.replace(words.parse_descr()?).is_some(),
                "fortran_order" => fortran.replace(words.parse_bool()?).is_some(),
                "shape" => dims.replace(words.parse_tuple()?).is_some(),
                other => return Err(format!("its header has an unknown entry `{}`", truncated(other))),
            };
            if again {
                return Err(format!("its header says `{key}` twice"));
            }
            if !words.skip_char(',') && !words.text.trim_start().starts_with('}') {
                return Err(words.unexpected("`,` or `}`"));
            }
        }
        if !words.text.trim().is_empty() {
            return Err(words.unexpected("the header's end"));
        }
        let missing = |key: &str| format!("its header has no entry `{key}`");
        let (dtype, big_endian) = descr.ok_or_else(|| missing("descr"))?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        let dims = dims.ok_or_else(|| missing("shape"))?;
        Ok(NpyHeader { dtype, big_endian, fortran, dims })
    }
}

/// Returns the data type, and whether elements are big-endian.
fn parse_dtype(descr: &str) -> Result<(DType, bool), String> {
    let known = || DType::ALL.map(DType::name).join(", ");
    let refuse = |what: &str| format!("its elements are {what}; a column has one of {}", known());
    let mut letters = descr.chars();
    let order = letters.next();
    let name = letters.as_str();
    let found = NAMES.into_iter().find(|(_, ours)| *ours == name);
    match (order, found) {
        (Some('<' | '|'), Some((dtype, _))) => Ok((dtype, false)),
        (Some('>'), Some((dtype, _))) => Ok((dtype, true)),
        (_, _) if name.starts_with('O') => Err(refuse("Python objects, which only Python can read")),
        (_, _) if name == "f8" => Err(refuse("float64, so save it as array.astype('float32')")),
        (_, _) if name == "b1" => Err(refuse("truth values, so save them as array.astype('uint8')")),
        (_, _) => Err(refuse(&format!("of type `{}`", truncated(descr)))),
    }
}

/// Returns the beginning of a text.
fn truncated(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect::<String>().escape_debug().to_string()
}

/// The rest of a header.
struct NpyHeaderParser<'a> {
    text: &'a str,
}

impl<'a> NpyHeaderParser<'a> {
    fn skip_char(&mut self, letter: char) -> bool {
        match self.text.trim_start().strip_prefix(letter) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, letter: char) -> Result<(), String> {
        if self.skip_char(letter) { Ok(()) } else { Err(self.unexpected(&format!("`{letter}`"))) }
    }

    fn unexpected(&self, expected: &str) -> String {
        format!("its header has `{}` where {expected} was expected", truncated(self.text.trim()))
    }

    fn parse_quoted(&mut self) -> Result<&'a str, String> {
        for quote in ['\'', '"'] {
            if self.skip_char(quote) {
                let (text, rest) = self.text.split_once(quote).ok_or_else(|| self.unexpected("a text's end"))?;
                self.text = rest;
                return Ok(text);
            }
        }
        Err(self.unexpected("a text in quotation marks"))
    }

    fn parse_descr(&mut self) -> Result<(DType, bool), String> {
        if self.text.trim_start().starts_with('[') {
            return Err("its elements are records; save each of their fields as a separate array".to_owned());
        }
        parse_dtype(self.parse_quoted()?)
    }

    fn parse_bool(&mut self) -> Result<bool, String> {
        let text = self.text.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = text.strip_prefix(word) {
                self.text = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    fn parse_tuple(&mut self) -> Result<Vec<u64>, String> {
        self.expect('(')?;
        let mut dims = Vec::new();
        while !self.skip_char(')') {
            let text = self.text.trim_start();
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let dim = text[..end].parse().map_err(|_| self.unexpected("a length"))?;
            self.text = &text[end..];
            dims.push(dim);
            if !self.skip_char(',') && !self.text.trim_start().starts_with(')') {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        Ok(dims)
    }
}
