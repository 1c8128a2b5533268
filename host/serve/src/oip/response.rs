//! Encodes a model's outputs as an inference response: JSON, followed by the outputs requested as binary data.

use std::fmt::{Display, Write};

use saggar_plugin::{ModelPort, ModelSignature, NamedTensor};
use saggar_tensor::DType;

use super::binary;
use super::datatype::{OipDatatype, item_dims};
use super::request::{RequestedOutput, is_batched};
use crate::predict::encode::{EncodeError, checked_output, push_string};
use crate::predict::text_codec;

/// The model, version and request that a response belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseSource<'a> {
    pub(super) model: &'a str,
    pub(super) version: u64,
    /// The client's identifier for the request.
    pub(super) id: Option<&'a str>,
}

/// A response's body.
#[derive(Debug, PartialEq)]
pub(super) struct EncodedResponse {
    pub(super) bytes: Vec<u8>,
    /// The length of the JSON in bytes, if binary data follows it.
    pub(super) json_bytes: Option<usize>,
}

/// Encodes the requested outputs of `items` items.
///
/// # Errors
/// Returns an error if an output is missing or its type or shape differs from the signature.
pub(super) fn encode(
    signature: &ModelSignature,
    outputs: &[NamedTensor],
    items: Option<usize>,
    wanted: &[RequestedOutput],
    from: ResponseSource<'_>,
) -> Result<EncodedResponse, EncodeError> {
    let given: Vec<(RequestedOutput, &ModelPort, &NamedTensor)> = wanted
        .iter()
        .map(|&wanted| {
            let port = &signature.outputs[wanted.port];
            let output = outputs.iter().find(|output| output.name == port.name);
            Ok((wanted, port, checked_output(port, output, items.unwrap_or(1))?))
        })
        .collect::<Result<_, EncodeError>>()?;
    let room = |(wanted, port, output): &(RequestedOutput, &ModelPort, &NamedTensor)| {
        128 + port.name.len() + output.bytes.len() * if wanted.is_binary { 0 } else { 3 }
    };
    let batch = is_batched(signature).then(|| items.unwrap_or(1));
    let mut json = String::with_capacity(128 + given.iter().map(room).sum::<usize>());
    push_head(&mut json, from);
    for (at, &(wanted, port, output)) in given.iter().enumerate() {
        json.push_str(if at > 0 { ",{\"name\":" } else { "{\"name\":" });
        push_string(&mut json, &port.name);
        push_formatted(
            &mut json,
            format_args!(",\"datatype\":\"{}\",\"shape\":[", OipDatatype::from_port(port).name()),
        );
        push_list(&mut json, batch.iter().chain(item_dims(port)));
        if wanted.is_binary {
            push_formatted(
                &mut json,
                format_args!("],\"parameters\":{{\"binary_data_size\":{}}}}}", binary_bytes(port, output)),
            );
        } else {
            json.push_str("],\"data\":[");
            push_elements(&mut json, port, &output.bytes);
            json.push_str("]}");
        }
    }
    json.push_str("]}");
    Ok(append_binary_outputs(json, &given))
}

fn push_head(json: &mut String, from: ResponseSource<'_>) {
    json.push('{');
    if let Some(id) = from.id {
        json.push_str("\"id\":");
        push_string(json, id);
        json.push(',');
    }
    json.push_str("\"model_name\":");
    push_string(json, from.model);
    push_formatted(json, format_args!(",\"model_version\":\"{}\",\"outputs\":[", from.version));
}

fn binary_bytes(port: &ModelPort, output: &NamedTensor) -> usize {
    port.text_bytes_max().map_or(output.bytes.len(), |bytes_max| binary::texts_wire_bytes(bytes_max, &output.bytes))
}

fn append_binary_outputs(json: String, given: &[(RequestedOutput, &ModelPort, &NamedTensor)]) -> EncodedResponse {
    let binary = || given.iter().filter(|(wanted, ..)| wanted.is_binary);
    let mut bytes = json.into_bytes();
    if binary().next().is_none() {
        return EncodedResponse { bytes, json_bytes: None };
    }
    let json_bytes = bytes.len();
    bytes.reserve_exact(binary().map(|(_, port, output)| binary_bytes(port, output)).sum());
    for (_, port, output) in binary() {
        match port.text_bytes_max() {
            Some(bytes_max) => binary::push_texts(&mut bytes, bytes_max, &output.bytes),
            None => bytes.extend_from_slice(&output.bytes),
        }
    }
    EncodedResponse { bytes, json_bytes: Some(json_bytes) }
}

fn push_formatted(json: &mut String, text: std::fmt::Arguments<'_>) {
    json.write_fmt(text).expect("writing to a String cannot fail");
}

fn push_list(json: &mut String, values: impl IntoIterator<Item = impl Display>) {
    let mut separator = "";
    for value in values {
        push_formatted(json, format_args!("{separator}{value}"));
        separator = ",";
    }
}

/// Appends the elements of an output in row-major order.
fn push_elements(json: &mut String, port: &ModelPort, bytes: &[u8]) {
    if let Some(bytes_max) = port.text_bytes_max() {
        for (at, item) in bytes.chunks_exact(bytes_max).enumerate() {
            if at > 0 {
                json.push(',');
            }
            push_string(json, &text_codec::decode_text_item(item));
        }
        return;
    }
    if port.is_boolean() {
        return push_list(json, bytes.iter().map(|&byte| byte != 0));
    }
    match port.item.dtype {
        DType::F32 => push_list(json, decode_elements(bytes).map(|e| JsonFloat(f32::from_le_bytes(e)))),
        // Requests for half floats as JSON are refused before the prediction.
        DType::F16 => {}
        DType::I64 => push_list(json, decode_elements(bytes).map(i64::from_le_bytes)),
        DType::U64 => push_list(json, decode_elements(bytes).map(u64::from_le_bytes)),
        DType::I32 => push_list(json, decode_elements(bytes).map(i32::from_le_bytes)),
        DType::U32 => push_list(json, decode_elements(bytes).map(u32::from_le_bytes)),
        DType::I8 => push_list(json, decode_elements(bytes).map(i8::from_le_bytes)),
        DType::U8 => push_list(json, bytes),
    }
}

fn decode_elements<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks().0.iter().copied()
}

/// A float in the shortest form that parses to the same value. Values that JSON cannot represent are written like
/// Triton writes them.
struct JsonFloat(f32);

impl Display for JsonFloat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            f32::INFINITY => f.write_str("Infinity"),
            f32::NEG_INFINITY => f.write_str("-Infinity"),
            // `Debug` is the shortest form, with an exponent if that is shorter; for NaN it is `NaN`.
            value => write!(f, "{value:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
