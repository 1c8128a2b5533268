//! The fast path for plain JSON: arrays of short decimal numbers are parsed directly into a tensor's bytes.
//!
//! Plain JSON is decoded to the same bits as by [`decode`](super::decode) in a fraction of the time. Anything else —
//! escapes, long numbers, errors — is rejected here and decoded by the slow path, which reports errors.

use saggar_plugin::ModelSignature;
use saggar_serving::PredictionInputs;
use saggar_tensor::DType;

use super::decode::{PredictionInput, assemble_inputs};
use crate::limits::{INPUT_BYTES_MAX, JSON_DEPTH_MAX};

/// A rectangular array of numbers, or one number.
#[derive(Debug, PartialEq)]
struct PlainNumberArray {
    /// Lengths from the outermost dimension inward. Empty for a number.
    dims: Vec<usize>,
    /// Dense little-endian elements.
    bytes: Vec<u8>,
}

/// Decodes a body that is plain throughout: an object keyed by input, or the value of the only required input. Returns
/// `None` if it is not plain.
pub(super) fn decode_plain_json(signature: &ModelSignature, body: &[u8]) -> Option<PredictionInputs> {
    let mut text = PlainJsonReader { bytes: body, at: 0 };
    text.skip_whitespace();
    let mut inputs = Vec::with_capacity(signature.inputs.len());
    if text.peek() != Some(b'{') {
        inputs.push(text.read_input(signature.only_input()?)?);
    } else {
        text.at += 1;
        loop {
            text.skip_whitespace();
            let name = text.read_plain_string()?;
            text.skip_whitespace();
            text.expect(b':')?;
            text.skip_whitespace();
            inputs.push(text.read_input(signature.inputs.iter().find(|port| port.name.as_bytes() == name)?)?);
            text.skip_whitespace();
            if !text.consume_if(b',')? {
                text.expect(b'}')?;
                break;
            }
        }
    }
    text.skip_whitespace();
    (text.at == body.len()).then(|| assemble_inputs(signature, inputs).ok())?
}

struct PlainJsonReader<'t> {
    bytes: &'t [u8],
    at: usize,
}

/// The shape of an array while it is read. Lengths are set from the innermost array outward.
#[derive(Default)]
struct PlainArrayShape {
    dims: [usize; JSON_DEPTH_MAX],
    /// The depth of the numbers, once one was read.
    depth: Option<usize>,
}

impl<'t> PlainJsonReader<'t> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Consumes the next byte if it is `byte`. Returns whether it was, or `None` at the end.
    #[inline]
    fn consume_if(&mut self, byte: u8) -> Option<bool> {
        let is = self.peek()? == byte;
        self.at += usize::from(is);
        Some(is)
    }

    /// Reads a string without escapes.
    fn read_plain_string(&mut self) -> Option<&'t [u8]> {
        self.expect(b'"')?;
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        (rest[length] == b'"').then(|| self.at += length + 1)?;
        Some(&rest[..length])
    }

    fn read_input(&mut self, port: &saggar_plugin::ModelPort) -> Option<PredictionInput> {
        if port.text_bytes_max().is_some() {
            return None;
        }
        let PlainNumberArray { dims, bytes } = self.read_array(port.item.dtype, port.item.bytes())?;
        PredictionInput::new(port, &dims, bytes).ok()
    }

    fn read_array(&mut self, dtype: DType, capacity: usize) -> Option<PlainNumberArray> {
        let mut bytes = Vec::with_capacity(capacity.min(INPUT_BYTES_MAX));
        let mut shape = PlainArrayShape::default();
        match dtype {
            DType::F32 => self.read_nested(&mut shape, 0, &mut bytes, |n| Some((n.to_f64()? as f32).to_le_bytes()))?,
            DType::U8 => self.read_nested(&mut shape, 0, &mut bytes, |n| Some([u8::try_from(n.to_i64()?).ok()?]))?,
            DType::I32 => {
                self.read_nested(&mut shape, 0, &mut bytes, |n| Some(i32::try_from(n.to_i64()?).ok()?.to_le_bytes()))?;
            }
            DType::I64 => self.read_nested(&mut shape, 0, &mut bytes, |n| Some(n.to_i64()?.to_le_bytes()))?,
            DType::F16 | DType::I8 | DType::U32 | DType::U64 => return None,
        }
        let depth = shape.depth?;
        Some(PlainNumberArray { dims: shape.dims[..depth].to_vec(), bytes })
    }

    /// Reads a value at this depth: a number, or an array of values.
    fn read_nested<const N: usize>(
        &mut self,
        shape: &mut PlainArrayShape,
        depth: usize,
        bytes: &mut Vec<u8>,
        element: impl Fn(ShortDecimal) -> Option<[u8; N]> + Copy,
    ) -> Option<()> {
        if !self.consume_if(b'[').unwrap_or(false) {
            if *shape.depth.get_or_insert(depth) != depth {
                return None;
            }
            let number = self.read_number()?;
            bytes.extend_from_slice(&element(number)?);
            return Some(());
        }
        if depth == JSON_DEPTH_MAX || shape.depth.is_some_and(|numbers| numbers <= depth) {
            return None;
        }
        let mut length = 0;
        loop {
            self.skip_whitespace();
            if shape.depth == Some(depth + 1) {
                // At the known depth of numbers, anything else ends the fast path.
                bytes.extend_from_slice(&element(self.read_number()?)?);
            } else {
                self.read_nested(shape, depth + 1, bytes, element)?;
            }
            length += 1;
            self.skip_whitespace();
            if !self.consume_if(b',')? {
                break;
            }
        }
        self.expect(b']')?;
        let known = &mut shape.dims[depth];
        if *known != 0 && *known != length || bytes.len() > INPUT_BYTES_MAX {
            return None;
        }
        *known = length;
        Some(())
    }

    /// Reads a number of at most 19 digits, without an exponent.
    #[inline]
    fn read_number(&mut self) -> Option<ShortDecimal> {
        let negative = self.consume_if(b'-')?;
        let mut digits: u64 = 0;
        let start = self.at;
        let whole = self.read_digits(&mut digits);
        // JSON has no leading zeros.
        if whole == 0 || (whole > 1 && self.bytes[start] == b'0') {
            return None;
        }
        let mut fraction = 0;
        if self.peek() == Some(b'.') {
            self.at += 1;
            fraction = self.read_digits(&mut digits);
            if fraction == 0 {
                return None;
            }
        }
        if whole + fraction > 19 || matches!(self.peek(), Some(b'e' | b'E')) {
            return None;
        }
        Some(ShortDecimal { negative, digits, fraction })
    }

    #[inline]
    fn read_digits(&mut self, number: &mut u64) -> usize {
        let rest = &self.bytes[self.at..];
        let mut count = 0;
        for byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
            count += 1;
        }
        self.at += count;
        count
    }
}

/// `-digits / 10^fraction`.
#[derive(Clone, Copy, Debug)]
struct ShortDecimal {
    negative: bool,
    digits: u64,
    fraction: usize,
}

/// Powers of ten that a double represents exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

impl ShortDecimal {
    /// Returns the nearest double: both operands are exact, so the division rounds once (Clinger, 1990).
    #[inline]
    fn to_f64(self) -> Option<f64> {
        if self.digits >= 1 << 53 {
            return None;
        }
        let magnitude = self.digits as f64 / POWERS_OF_TEN[self.fraction];
        Some(if self.negative { -magnitude } else { magnitude })
    }

    /// Returns the number if it has no fraction and is not negative zero.
    #[inline]
    fn to_i64(self) -> Option<i64> {
        if self.fraction > 0 || (self.negative && self.digits == 0) {
            return None;
        }
        let magnitude = i64::try_from(self.digits).ok()?;
        Some(if self.negative { -magnitude } else { magnitude })
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;
    use proptest::prelude::*;
    use saggar_plugin::ModelPort;
    use saggar_tensor::{Descriptor, Shape};

    fn signature(dtype: DType, dims: &[usize]) -> ModelSignature {
        let port = |name: &str, dims: &[usize]| ModelPort {
            name: name.to_owned(),
            item: Descriptor::new(dtype, Shape::new(dims).unwrap()),
            semantics: None,
            classes: Vec::new(),
            default: (name == "y").then_some(1.0),
        };
        ModelSignature {
            inputs: vec![port("x", dims), port("y", &[])],
            outputs: vec![port("z", &[])],
            batch_sizes: vec![1],
            routes: Vec::new(),
        }
    }

    const TYPES: [DType; 8] =
        [DType::F32, DType::F16, DType::I64, DType::U64, DType::I32, DType::U32, DType::I8, DType::U8];

    /// Returns whether the fast path accepted the body. Asserts that it then agrees with the slow path.
    fn agrees_with_slow_path(dtype: DType, dims: &[usize], body: &str) -> bool {
        let signature = signature(dtype, dims);
        let Some(inputs) = decode_plain_json(&signature, body.as_bytes()) else { return false };
        assert_eq!(Ok(inputs), decode::decode_json_slow_path(&signature, body.as_bytes()), "{body}");
        true
    }

    #[test]
    fn plain_json_takes_the_fast_path() {
        for (dtype, body) in [
            (DType::F32, r#"{"x": [1, 2.5, -0.125]}"#),
            (DType::F32, "[0.1,\n 1e0, 3]".replace("1e0", "1").leak()),
            (DType::F32, r#" { "x" : [ [1, 2, 3] , [4,5,-0] ] , "y": [1, 2] } "#),
            (DType::U8, r#"{"x": [0, 255, 7], "y": 3}"#),
            (DType::I32, r#"{"y": -1, "x": [-2147483648, 2147483647, 0]}"#),
            (DType::I64, r#"{"x": [9223372036854775807, -5, 0]}"#),
            (DType::F32, r#"{"x": [9007199254740991, 0.3333333333333333, 123456.789012]}"#),
        ] {
            assert!(agrees_with_slow_path(dtype, &[3], body), "{body}");
        }
    }

    #[test]
    fn other_json_takes_the_slow_path() {
        for body in [
            "",
            "{",
            "{}",
            "[",
            "[]",
            "[1,2,]",
            "[1,2",
            "[01,2,3]",
            "[1.,2,3]",
            "[.5,2,3]",
            "[-,2,3]",
            "[+1,2,3]",
            "[1,2,3] 4",
            "[1,[2],3]",
            "[[1],2,3]",
            "[[1,2,3],[1,2]]",
            "[[[[[[[[[[[1]]]]]]]]]]]",
            "[1e3,2,3]",
            "[null,2,3]",
            "[\"1\",2,3]",
            r#"{"x": [1,2,3], "x": [1,2,3]}"#,
            r#"{"q": [1,2,3]}"#,
            r#"{"\u0078": [1,2,3]}"#,
            r#"{"x" [1,2,3]}"#,
            r#"{"x": [1,2,3],}"#,
            "[99999999999999999999,2,3]",
            "[1,2,3,4]",
            "nan",
            "[NaN,1,2]",
        ] {
            assert!(!agrees_with_slow_path(DType::F32, &[3], body), "{body}");
        }
        assert!(
            !agrees_with_slow_path(DType::U8, &[3], "[256, 0, 0]")
                && !agrees_with_slow_path(DType::U8, &[3], "[1.0, 0, 0]")
        );
        assert!(!agrees_with_slow_path(DType::I32, &[3], "[2147483648, 0, 0]"));
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_the_other_way_reads_them(
            dtype in prop::sample::select(TYPES.to_vec()),
            numbers in prop::collection::vec("-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?", 3),
        ) {
            agrees_with_slow_path(dtype, &[3], &format!("[{}]", numbers.join(",")));
        }

        #[test]
        fn nothing_is_read_that_the_other_way_refuses(body in "[\\[\\]{}:,\" xy.0-9eE-]{0,24}") {
            for dtype in [DType::F32, DType::U8, DType::I32] {
                agrees_with_slow_path(dtype, &[2], &body);
            }
        }

        #[test]
        fn the_nearest_float_is_read(value in any::<f32>().prop_filter("short", |v| v.abs() < 1e6 && v.abs() > 1e-6)) {
            let text = format!("[{value}, {value:.5}, 0]");
            if let Some(array) = (PlainJsonReader { bytes: text.as_bytes(), at: 0 }).read_array(DType::F32, 12) {
                prop_assert_eq!(&array.bytes[..4], &value.to_le_bytes());
            }
        }
    }
}
