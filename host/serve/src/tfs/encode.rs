//! Encodes the responses of `:predict`. Floats are printed in the shortest form that parses to the same value, integral
//! ones with `.0`. Non-finite values are printed as `NaN`, `Infinity` and `-Infinity`, as TensorFlow Serving does.

use std::fmt::Write;

use saggar_plugin::{ModelPort, ModelSignature, NamedTensor};
use saggar_tensor::DType;
use saggar_tensor::interp::float16;

use super::request::PredictFormat;
use crate::predict::encode::{EncodeError, checked_output};
use crate::predict::text_codec;

/// Encodes the outputs in the format of the request. `items` is the requested batch size, or `None` for one item
/// without a batch.
///
/// # Errors
/// Returns an error if the outputs do not match the signature.
pub(super) fn encode_predictions(
    signature: &ModelSignature,
    outputs: &[NamedTensor],
    items: Option<usize>,
    form: PredictFormat,
) -> Result<String, EncodeError> {
    let columns: Vec<OutputColumn<'_>> =
        signature.outputs.iter().map(|port| OutputColumn::find(port, outputs, items)).collect::<Result<_, _>>()?;
    let mut text = String::with_capacity(64 + outputs.iter().map(|output| output.bytes.len()).sum::<usize>() * 3);
    match form {
        PredictFormat::Rows => {
            text.push_str("{\"predictions\":[");
            for row in 0..items.unwrap_or(1) {
                push_separator(&mut text, row);
                push_outputs(&mut text, &columns, |text, column| column.push_item(text, row));
            }
            text.push_str("]}");
        }
        PredictFormat::Columns => {
            text.push_str("{\"outputs\":");
            push_outputs(&mut text, &columns, |text, column| match items {
                None => column.push_item(text, 0),
                Some(items) => {
                    text.push('[');
                    for row in 0..items {
                        push_separator(text, row);
                        column.push_item(text, row);
                    }
                    text.push(']');
                }
            });
            text.push('}');
        }
    }
    Ok(text)
}

/// Writes the value of a single output directly, and the values of several outputs by name.
fn push_outputs(text: &mut String, columns: &[OutputColumn<'_>], push: impl Fn(&mut String, &OutputColumn<'_>)) {
    if let [column] = columns {
        return push(text, column);
    }
    text.push('{');
    for (at, column) in columns.iter().enumerate() {
        push_separator(text, at);
        push_string(text, &column.port.name);
        text.push(':');
        push(text, column);
    }
    text.push('}');
}

fn push_separator(text: &mut String, at: usize) {
    if at > 0 {
        text.push(',');
    }
}

/// The values of one output for all items.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputColumn<'o> {
    port: &'o ModelPort,
    bytes: &'o [u8],
}

impl<'o> OutputColumn<'o> {
    /// Finds the output of `port` among `outputs`.
    ///
    /// # Errors
    /// Returns an error if it is missing or does not match the signature.
    pub(super) fn find(
        port: &'o ModelPort,
        outputs: &'o [NamedTensor],
        items: Option<usize>,
    ) -> Result<OutputColumn<'o>, EncodeError> {
        let output = outputs.iter().find(|output| output.name == port.name);
        let output = checked_output(port, output, items.unwrap_or(1))?;
        Ok(OutputColumn { port, bytes: &output.bytes })
    }

    /// Writes the value of one item as nested lists.
    pub(super) fn push_item(&self, text: &mut String, item: usize) {
        let size = self.port.item.bytes();
        let bytes = &self.bytes[item * size..][..size];
        if self.port.text_bytes_max().is_some() {
            return push_text(text, &self.port.name, bytes);
        }
        let mut elements = bytes.chunks_exact(self.port.item.dtype.bytes());
        push_nested(text, self.port.item.shape.dims(), self.port.item.dtype, &mut elements);
    }

    /// Writes one element of one item.
    pub(super) fn push_element(&self, text: &mut String, item: usize, element: usize) {
        let (size, width) = (self.port.item.bytes(), self.port.item.dtype.bytes());
        push_element(text, self.port.item.dtype, &self.bytes[item * size + element * width..][..width]);
    }
}

fn push_nested(text: &mut String, dims: &[usize], dtype: DType, elements: &mut std::slice::ChunksExact<'_, u8>) {
    let Some((&length, inner)) = dims.split_first() else {
        if let Some(element) = elements.next() {
            push_element(text, dtype, element);
        }
        return;
    };
    text.push('[');
    for at in 0..length {
        push_separator(text, at);
        push_nested(text, inner, dtype, elements);
    }
    text.push(']');
}

fn push_element(text: &mut String, dtype: DType, element: &[u8]) {
    fn at<const N: usize>(element: &[u8]) -> [u8; N] {
        element.try_into().expect("an element has the size of its type")
    }
    let written = match dtype {
        DType::F32 => return push_float(text, f32::from_le_bytes(at(element))),
        DType::F16 => return push_float(text, float16::from_bits(u16::from_le_bytes(at(element))) as f32),
        DType::I64 => write!(text, "{}", i64::from_le_bytes(at(element))),
        DType::U64 => write!(text, "{}", u64::from_le_bytes(at(element))),
        DType::I32 => write!(text, "{}", i32::from_le_bytes(at(element))),
        DType::U32 => write!(text, "{}", u32::from_le_bytes(at(element))),
        DType::I8 => write!(text, "{}", i8::from_le_bytes(at(element))),
        DType::U8 => write!(text, "{}", element[0]),
    };
    written.expect("writing to a String cannot fail");
}

fn push_float(text: &mut String, value: f32) {
    let word = match value {
        value if value.is_finite() => {
            // `Debug` is the shortest form that parses to the same float, with `.0` or an exponent.
            return write!(text, "{value:?}").expect("writing to a String cannot fail");
        }
        value if value.is_nan() => "NaN",
        value if value < 0.0 => "-Infinity",
        _ => "Infinity",
    };
    text.push_str(word);
}

/// Writes a text as a string; for an output whose name ends in `_bytes`, its bytes as base64.
fn push_text(text: &mut String, name: &str, item: &[u8]) {
    if !name.ends_with("_bytes") {
        return push_string(text, &text_codec::decode_text_item(item));
    }
    let length = item.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    write!(text, "{{\"b64\":\"{}\"}}", crate::tensor_json::base64::encode(&item[..length]))
        .expect("writing to a String cannot fail");
}

pub(super) fn push_string(text: &mut String, string: &str) {
    text.push_str(&serde_json::Value::from(string).to_string());
}
