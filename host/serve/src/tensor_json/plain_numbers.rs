//! The fast path for arrays of numbers: consecutive elements that are numbers of the data type are converted directly
//! to a tensor's bytes.
//!
//! An element gets the same bits as [`JsonNumber`](super::number::JsonNumber) gives it, in a fraction of the time. The
//! first element that is anything else ends the run. The caller reads it, and reports errors.

use saggar_tensor::DType;
use saggar_tensor::interp::float16;

use super::decimal::ScannedDecimal;
use super::tokenizer::JsonTokenizer;

impl JsonTokenizer<'_> {
    /// Appends the next elements of an array as little-endian elements of `dtype`, up to the first one that is not a
    /// number of the type, while `bytes` has less than `bytes_max`. Returns how many were read. Stops before the comma that follows.
    pub(super) fn read_plain_numbers(&mut self, dtype: DType, bytes_max: usize, bytes: &mut Vec<u8>) -> usize {
        let max = bytes_max;
        match dtype {
            DType::F32 => self.read_run(max, bytes, |number| {
                let element = number.to_f32();
                element.is_finite().then(|| element.to_le_bytes())
            }),
            DType::F16 => self.read_run(max, bytes, |number| {
                let bits = float16::to_bits(number.to_f64());
                float16::from_bits(bits).is_finite().then(|| bits.to_le_bytes())
            }),
            DType::I64 => self.read_run(max, bytes, |number| Some(number.to_i64()?.to_le_bytes())),
            DType::U64 => self.read_run(max, bytes, |number| Some(number.to_u64()?.to_le_bytes())),
            DType::I32 => self.read_run(max, bytes, |number| Some(i32::try_from(number.to_i64()?).ok()?.to_le_bytes())),
            DType::U32 => self.read_run(max, bytes, |number| Some(u32::try_from(number.to_u64()?).ok()?.to_le_bytes())),
            DType::I8 => self.read_run(max, bytes, |number| Some(i8::try_from(number.to_i64()?).ok()?.to_le_bytes())),
            DType::U8 => self.read_run(max, bytes, |number| Some([u8::try_from(number.to_u64()?).ok()?])),
        }
    }

    fn read_run<const N: usize>(
        &mut self,
        bytes_max: usize,
        bytes: &mut Vec<u8>,
        to_bytes: impl Fn(ScannedDecimal<'_>) -> Option<[u8; N]>,
    ) -> usize {
        let text = self.bytes;
        let mut count = 0;
        while bytes.len() < bytes_max {
            let mut at = skip_whitespace(text, self.at);
            if !self.opened {
                if text.get(at) != Some(&b',') {
                    break;
                }
                at = skip_whitespace(text, at + 1);
            }
            let Ok((number, end)) = ScannedDecimal::scan(text, at) else { break };
            let Some(element) = to_bytes(number) else { break };
            bytes.extend_from_slice(&element);
            (self.at, self.opened) = (end, false);
            count += 1;
        }
        count
    }
}

#[inline]
fn skip_whitespace(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}
