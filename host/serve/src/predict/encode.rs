//! Encodes a model's outputs as JSON: a flat object keyed by output name, without an intermediate tree.

use std::fmt::Write;

use saggar_rest::errors::ErrorCode;
use saggar_serving::PredictionOutcome;
use saggar_tensor::interp::float16;
use saggar_tensor::{DType, Descriptor, Shape};
use thiserror::Error;

use super::text_codec;
use crate::error::{ErrorMapping, ProtocolError};
use saggar_plugin::{ModelPort as Port, ModelSignature, NamedTensor};

/// An output of a model that does not match its signature.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("output {name}: expected {expected}, the plugin gave {got}")]
pub struct EncodeError {
    /// The output.
    pub name: String,
    /// The output in the signature.
    pub expected: String,
    /// The output that the plugin returned.
    pub got: String,
}

/// Encodes the outputs as a JSON object. `items` is the requested batch size, or `None` for one item without a batch
/// dimension.
///
/// Floats are printed with the fewest digits that parse to the same float. NaN and infinities become `null`. A `class`
/// output with named classes gets a second entry, `<name>_name`. A `text` output is a string.
///
/// # Errors
/// Returns `EncodeError` if outputs are missing or their type or shape differs from the signature.
pub fn encode_json(
    signature: &ModelSignature,
    outputs: &[NamedTensor],
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
        // Without a batch dimension in the request, the leading dimension of 1 is omitted.
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

/// Encodes a chunk of an output as a JSON object with its name and elements, and the item's number if a batch was
/// requested.
///
/// The elements have the shape that the plugin passed.
pub(super) fn encode_piece(port: &Port, item: Option<usize>, shape: &Shape, bytes: &[u8]) -> String {
    let elements = ElementReader { dtype: port.item.dtype, bytes };
    let push =
        |json: &mut String| push_nested(json, shape.dims(), &mut 0, &mut |json, at| elements.push_element(json, at));
    encode_piece_with(port, item, push)
}

/// Encodes a chunk of a text as [`encode_piece`] does.
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

/// Returns the output of a port if its type and shape match the signature for `items` items.
pub(crate) fn checked_output<'o>(
    port: &Port,
    output: Option<&'o NamedTensor>,
    items: usize,
) -> Result<&'o NamedTensor, EncodeError> {
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

/// Returns whether the classes have names other than their numbers.
fn has_class_names(port: &Port) -> bool {
    let is_number = |(at, class): (usize, &String)| *class == at.to_string();
    port.semantics.as_deref() == Some("class")
        && !port.item.dtype.is_float()
        && !port.classes.iter().enumerate().all(is_number)
}

/// Writes elements starting at `at`, nested in brackets by `dims`.
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

    /// Returns the element as an index. Negative values map to an index beyond any list.
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
        // `Debug` prints the shortest text that parses to the same float, with an exponent if that is shorter.
        write!(text, "{value:?}").expect("a string takes whatever is written");
    } else {
        text.push_str("null");
    }
}

pub(crate) fn push_string(text: &mut String, string: &str) {
    // The fast path for strings without escapes, such as names.
    if string.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(string);
        text.push('"');
    } else {
        text.push_str(&serde_json::Value::from(string).to_string());
    }
}

impl ProtocolError for EncodeError {
    fn mapping(&self) -> ErrorMapping {
        ErrorMapping::server_error(ErrorCode::BadOutput, "this is a fault of the plugin")
    }

    fn outcome(&self) -> PredictionOutcome {
        PredictionOutcome::PluginError
    }
}

#[cfg(test)]
mod tests;
