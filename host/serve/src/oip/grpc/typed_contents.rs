//! The typed contents of an input: numbers or texts in the field of their type.

use std::num::TryFromIntError;

use saggar_plugin::ModelPort;
use saggar_tensor::DType;

use super::wire::{WireReader, WireValue, malformed};
use crate::limits::INFER_BYTES_MAX;
use crate::oip::binary;
use crate::oip::error::InferError;
use crate::oip::tensor_data::TensorElements;
use crate::tensor_json::expected_range;

/// The fields of `InferTensorContents`, by their numbers.
const FIELD_NAMES: [&str; 9] = [
    "",
    "bool_contents",
    "int_contents",
    "int64_contents",
    "uint_contents",
    "uint64_contents",
    "fp32_contents",
    "fp64_contents",
    "bytes_contents",
];

/// Reads the elements of an input that is declared as `datatype`; its shape has `count` of them.
///
/// # Errors
/// Returns `Syntax` if they are in the field of another type or the type has no field, `Element` if the type cannot
/// represent an element, `Elements` if there are more than `count`, and the errors of texts.
pub(super) fn read_contents(
    port: &ModelPort,
    datatype: &str,
    count: usize,
    contents: &[u8],
) -> Result<TensorElements, InferError> {
    let field = field_of(datatype).ok_or_else(|| {
        let reason = format!("{}: {datatype} has no typed contents; send raw_input_contents", port.name);
        InferError::Syntax { reason }
    })?;
    let bytes_max = count.saturating_mul(port.text_bytes_max().unwrap_or(port.item.dtype.bytes()));
    if bytes_max > INFER_BYTES_MAX {
        return Err(InferError::TooLarge { name: port.name.clone() });
    }
    let mut sink = ElementSink { port, count_max: count, elements: TensorElements::default() };
    let mut fields = WireReader::new(contents);
    while let Some((number, value)) = fields.next_field()? {
        if number != field {
            let got = usize::try_from(number).ok().and_then(|number| FIELD_NAMES.get(number));
            let Some(got) = got else { continue };
            let reason = format!("{}: expected {}, got {got}", port.name, FIELD_NAMES[field as usize]);
            return Err(InferError::Syntax { reason });
        }
        sink.push_field(value)?;
    }
    Ok(sink.elements)
}

/// Returns the number of the field of a data type. Half floats have none.
fn field_of(datatype: &str) -> Option<u64> {
    match datatype {
        "BOOL" => Some(1),
        "INT8" | "INT16" | "INT32" => Some(2),
        "INT64" => Some(3),
        "UINT8" | "UINT16" | "UINT32" => Some(4),
        "UINT64" => Some(5),
        "FP32" => Some(6),
        "BYTES" => Some(8),
        _ => None,
    }
}

/// Collects the elements of a port.
struct ElementSink<'s> {
    port: &'s ModelPort,
    count_max: usize,
    elements: TensorElements,
}

impl ElementSink<'_> {
    /// Appends what a field has: packed numbers, one number or one text.
    fn push_field(&mut self, value: WireValue<'_>) -> Result<(), InferError> {
        if let Some(bytes_max) = self.port.text_bytes_max() {
            self.check_space(1)?;
            let item = binary::text_element(self.port, bytes_max, self.elements.count, value.bytes()?)?;
            self.elements.bytes.extend_from_slice(&item);
            self.elements.count += 1;
            return Ok(());
        }
        let is_float = self.port.item.dtype == DType::F32;
        match value {
            WireValue::Fixed32(float) if is_float => self.push_floats(&float),
            WireValue::Bytes(floats) if is_float => self.push_floats(floats),
            WireValue::Varint(number) if !is_float => self.push_integer(number),
            WireValue::Bytes(packed) if !is_float => {
                let mut numbers = WireReader::new(packed);
                while let Some(number) = numbers.next_varint()? {
                    self.push_integer(number)?;
                }
                Ok(())
            }
            _ => Err(malformed()),
        }
    }

    /// Appends floats, which are encoded as they are stored.
    fn push_floats(&mut self, floats: &[u8]) -> Result<(), InferError> {
        if !floats.len().is_multiple_of(4) {
            return Err(malformed());
        }
        self.check_space(floats.len() / 4)?;
        self.elements.bytes.extend_from_slice(floats);
        self.elements.count += floats.len() / 4;
        Ok(())
    }

    fn push_integer(&mut self, number: u64) -> Result<(), InferError> {
        self.check_space(1)?;
        // Negative numbers are encoded in 64 bits.
        let signed = number.cast_signed();
        let bytes = &mut self.elements.bytes;
        let is_pushed = match self.port.item.dtype {
            DType::U8 => push(bytes, u8::try_from(number).map(u8::to_le_bytes)),
            DType::I8 => push(bytes, i8::try_from(signed).map(i8::to_le_bytes)),
            DType::U32 => push(bytes, u32::try_from(number).map(u32::to_le_bytes)),
            DType::I32 => push(bytes, i32::try_from(signed).map(i32::to_le_bytes)),
            DType::U64 | DType::I64 => push(bytes, Ok(number.to_le_bytes())),
            DType::F16 | DType::F32 => false,
        };
        if !is_pushed {
            let expected = expected_range(self.port.item.dtype);
            let (name, at) = (self.port.name.clone(), self.elements.count);
            return Err(InferError::Element { name, at, expected, got: signed.to_string() });
        }
        self.elements.count += 1;
        Ok(())
    }

    /// Checks that `more` elements do not exceed the shape, before they are stored.
    fn check_space(&self, more: usize) -> Result<(), InferError> {
        let got = self.elements.count + more;
        if got <= self.count_max {
            return Ok(());
        }
        let reason = format!("{}: more elements than the {} of its shape", self.port.name, self.count_max);
        Err(InferError::Syntax { reason })
    }
}

/// Appends an element. Returns whether its type can represent it.
fn push<const N: usize>(bytes: &mut Vec<u8>, element: Result<[u8; N], TryFromIntError>) -> bool {
    element.map(|element| bytes.extend_from_slice(&element)).is_ok()
}
