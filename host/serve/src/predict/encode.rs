//! From a model's outputs to JSON: a flat object by output name, without a tree in between.

use std::fmt::Write;

use saggar_tensor::interp::float16;
use saggar_tensor::{DType, Descriptor, Shape};
use thiserror::Error;

use super::decode::PredictionTensor;
use super::text_codec;
use saggar_plugin::{ModelPort as Port, ModelSignature};

/// A model answered something that its signature does not promise.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("output {name}: expected {expected}, the plugin gave {got}")]
pub struct EncodeError {
    /// The output.
    pub name: String,
    /// What the signature says.
    pub expected: String,
    /// What came.
    pub got: String,
}

/// The outputs as a JSON object. `items` is the batch that was asked for, or none for one item.
///
/// Floats are printed with as many digits as bring the same float back; what JSON has no word for is `null`. A `class`
/// output whose classes have names of their own gets a second entry, `<name>_name`. A `text` output is a string.
///
/// # Errors
/// Where outputs are missing or of another type or shape than the signature promises.
pub fn encode_json(
    signature: &ModelSignature,
    outputs: &[PredictionTensor],
    items: Option<usize>,
) -> Result<String, EncodeError> {
    let mut text = String::with_capacity(64 + outputs.iter().map(|output| output.bytes.len()).sum::<usize>() * 3);
    text.push('{');
    for port in &signature.outputs {
        let output = outputs.iter().find(|output| output.name == port.name);
        let output = checked_output(port, output, items.unwrap_or(1))?;
        if text.len() > 1 {
            text.push(',');
        }
        push_string(&mut text, &port.name);
        text.push(':');
        // Without a batch around the item the leading dimension, which is 1, is left out.
        let dims = &output.descriptor.shape.dims()[usize::from(items.is_none())..];
        if let Some(bytes_max) = port.text_bytes_max() {
            let item = |at: usize| &output.bytes[at * bytes_max..][..bytes_max];
            push_nested(&mut text, &dims[..dims.len() - 1], &mut 0, &mut |text, at| {
                push_string(text, &text_codec::decode_text_item(item(at)));
            });
            continue;
        }
        let elements = ElementReader { dtype: port.item.dtype, bytes: &output.bytes };
        push_nested(&mut text, dims, &mut 0, &mut |text, at| elements.push_element(text, at));
        if has_class_names(port) {
            text.push(',');
            push_string(&mut text, &format!("{}_name", port.name));
            text.push(':');
            push_nested(
                &mut text,
                dims,
                &mut 0,
                &mut |text, at| match port.classes.get(elements.element_as_index(at)) {
                    Some(class) => push_string(text, class),
                    None => text.push_str("null"),
                },
            );
        }
    }
    text.push('}');
    Ok(text)
}

/// A piece of an output as a JSON object: its name and its elements, and the item's number where a batch was asked for.
///
/// Numbers have the shape that the plugin gave them.
pub(super) fn encode_piece(port: &Port, item: Option<usize>, shape: &Shape, bytes: &[u8]) -> String {
    let elements = ElementReader { dtype: port.item.dtype, bytes };
    let push =
        |json: &mut String| push_nested(json, shape.dims(), &mut 0, &mut |json, at| elements.push_element(json, at));
    encode_piece_with(port, item, push)
}

/// A piece of a text, as [`encode_piece`].
pub(super) fn encode_text_piece(port: &Port, item: Option<usize>, text: &str) -> String {
    encode_piece_with(port, item, |json| push_string(json, text))
}

fn encode_piece_with(port: &Port, item: Option<usize>, push: impl FnOnce(&mut String)) -> String {
    let mut json = String::from("{");
    if let Some(item) = item {
        write!(json, "\"item\":{item},").expect("a string takes whatever is written");
    }
    push_string(&mut json, &port.name);
    json.push(':');
    push(&mut json);
    json.push('}');
    json
}

/// The output of a port, if it has the type and shape that `items` items have by the signature.
pub(crate) fn checked_output<'o>(
    port: &Port,
    output: Option<&'o PredictionTensor>,
    items: usize,
) -> Result<&'o PredictionTensor, EncodeError> {
    let expected = || format!("{} for each of {items} items", port.item);
    let refuse = |got: String| EncodeError { name: port.name.clone(), expected: expected(), got };
    let output = output.ok_or_else(|| refuse("nothing".to_owned()))?;
    let Descriptor { dtype, shape } = &output.descriptor;
    let fits = *dtype == port.item.dtype && shape.first() == Some(&items) && shape[1..] == *port.item.shape.dims();
    if !fits || output.bytes.len() != output.descriptor.bytes() {
        return Err(refuse(format!("{} in {} bytes", output.descriptor, output.bytes.len())));
    }
    Ok(output)
}

/// Whether the classes have names that say more than their numbers.
fn has_class_names(port: &Port) -> bool {
    let is_number = |(at, class): (usize, &String)| *class == at.to_string();
    port.semantics.as_deref() == Some("class")
        && !port.item.dtype.is_float()
        && !port.classes.iter().enumerate().all(is_number)
}

/// Writes elements from `element_bytes` on, in brackets by `dims`.
fn push_nested(text: &mut String, dims: &[usize], at: &mut usize, push: &mut impl FnMut(&mut String, usize)) {
    let Some((&length, inner)) = dims.split_first() else {
        push(text, *at);
        *at += 1;
        return;
    };
    text.push('[');
    for index in 0..length {
        if index > 0 {
            text.push(',');
        }
        push_nested(text, inner, at, push);
    }
    text.push(']');
}

#[derive(Clone, Copy)]
struct ElementReader<'b> {
    dtype: DType,
    bytes: &'b [u8],
}

impl ElementReader<'_> {
    fn element_bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let mut element = [0; N];
        element.copy_from_slice(&self.bytes[at * N..][..N]);
        element
    }

    fn push_element(self, text: &mut String, at: usize) {
        let written = match self.dtype {
            DType::F32 => return push_float(text, f32::from_le_bytes(self.element_bytes(at))),
            DType::F16 => {
                return push_float(text, float16::from_bits(u16::from_le_bytes(self.element_bytes(at))) as f32);
            }
            DType::I64 => write!(text, "{}", i64::from_le_bytes(self.element_bytes(at))),
            DType::U64 => write!(text, "{}", u64::from_le_bytes(self.element_bytes(at))),
            DType::I32 => write!(text, "{}", i32::from_le_bytes(self.element_bytes(at))),
            DType::U32 => write!(text, "{}", u32::from_le_bytes(self.element_bytes(at))),
            DType::I8 => write!(text, "{}", i8::from_le_bytes(self.element_bytes(at))),
            DType::U8 => write!(text, "{}", self.bytes[at]),
        };
        written.expect("a string takes whatever is written");
    }

    /// The element as an index; past every list where it is negative.
    fn element_as_index(self, at: usize) -> usize {
        let index = match self.dtype {
            DType::F32 | DType::F16 => None,
            DType::I64 => usize::try_from(i64::from_le_bytes(self.element_bytes(at))).ok(),
            DType::U64 => usize::try_from(u64::from_le_bytes(self.element_bytes(at))).ok(),
            DType::I32 => usize::try_from(i32::from_le_bytes(self.element_bytes(at))).ok(),
            DType::U32 => usize::try_from(u32::from_le_bytes(self.element_bytes(at))).ok(),
            DType::I8 => usize::try_from(i8::from_le_bytes(self.element_bytes(at))).ok(),
            DType::U8 => Some(self.bytes[at].into()),
        };
        index.unwrap_or(usize::MAX)
    }
}

fn push_float(text: &mut String, value: f32) {
    if value.is_finite() {
        // `Debug` is the shortest form that reads back as the same float, with an exponent where that is shorter.
        write!(text, "{value:?}").expect("a string takes whatever is written");
    } else {
        text.push_str("null");
    }
}

pub(crate) fn push_string(text: &mut String, string: &str) {
    // Names, mostly: nothing in them to escape.
    if string.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(string);
        text.push('"');
    } else {
        text.push_str(&serde_json::Value::from(string).to_string());
    }
}

#[cfg(test)]
mod tests;
