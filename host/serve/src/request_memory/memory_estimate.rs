//! Upper bounds for the memory of a prediction, derived from the model's signature before anything is allocated.

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_store::image_decoder::ImageFormat;
use saggar_tensor::DType;

use crate::limits::{IMAGE_PIXELS_MAX, INFER_BYTES_MAX, INPUT_BYTES_MAX};
use crate::predict::decode::PredictionInputs;
use crate::predict::image;

/// The most bytes of one input's elements under any protocol.
const TENSOR_BYTES_MAX: u64 = if INPUT_BYTES_MAX > INFER_BYTES_MAX { INPUT_BYTES_MAX } else { INFER_BYTES_MAX } as u64;

/// The first bytes of PNG and JPEG files.
const IMAGE_FIRST_BYTES: [u8; 2] = [0x89, 0xff];

/// Bytes per pixel for decoding an image: up to 12 for a progressive JPEG's coefficients or 4 for samples, 12 for
/// colours as floats, 12 for a resampled copy.
const DECODE_BYTES_PER_PIXEL: u64 = 40;

/// Returns the most bytes that decoding `body` can take in addition to the body.
pub(crate) fn decode_bytes_max(signature: &ModelSignature, body: &[u8]) -> u64 {
    let body_bytes = body.len() as u64;
    let items = |port: &ModelPort| body_bytes / body_bytes_per_item(port).max(1) + 1;
    let items_max = signature.inputs.iter().map(items).max().unwrap_or(1);
    let port = |port: &ModelPort| {
        let count = if port.default.is_some() { items_max } else { items(port) };
        count.saturating_mul(port.item.bytes() as u64).min(TENSOR_BYTES_MAX)
    };
    // The fields of a form are copies.
    let tensors = signature.inputs.iter().map(port).fold(body_bytes, u64::saturating_add);
    tensors.saturating_add(image_decode_bytes_max(signature, body))
}

/// Returns the fewest bytes of a body that can encode one item: two characters for each number or text in JSON, the
/// elements themselves in binary form.
fn body_bytes_per_item(port: &ModelPort) -> u64 {
    match port.text_bytes_max() {
        Some(_) => 2,
        None => (2 * port.item.shape.elements()).min(port.item.bytes()) as u64,
    }
}

/// Returns the most bytes that the images in `body` take while the largest of them is decoded.
fn image_decode_bytes_max(signature: &ModelSignature, body: &[u8]) -> u64 {
    let Some(item_bytes) = signature
        .inputs
        .iter()
        .filter(|port| image::image_geometry(port).is_some())
        .map(|port| port.item.bytes())
        .max()
    else {
        return 0;
    };
    let mut rest = body;
    let (mut pictures, mut pixels_max) = (0_u64, 0_u64);
    while let Some(at) = rest.iter().position(|byte| IMAGE_FIRST_BYTES.contains(byte)) {
        let file = &rest[at..];
        rest = &file[1..];
        let Some(format) = ImageFormat::detect(file) else { continue };
        pictures += 1;
        let pixels = format.dimensions(file).map_or(0, |(height, width)| height as u64 * width as u64);
        // Larger images are refused before they are decoded.
        if pixels <= IMAGE_PIXELS_MAX {
            pixels_max = pixels_max.max(pixels);
        }
    }
    pictures.saturating_mul(item_bytes as u64).saturating_add(pixels_max * DECODE_BYTES_PER_PIXEL)
}

/// Returns the most bytes that computing `inputs` and encoding the response takes: inputs and outputs, a second copy of
/// both for merging into a batch and splitting, and the response's text.
pub(crate) fn prediction_bytes_max(signature: &ModelSignature, inputs: &PredictionInputs) -> u64 {
    let items = inputs.items.unwrap_or(1) as u64;
    let given: u64 = inputs.tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum();
    let output = |port: &ModelPort| {
        let dense = port.item.bytes() as u64;
        items.saturating_mul((2 * dense).saturating_add(json_bytes_max(port).max(dense)))
    };
    signature.outputs.iter().map(output).fold(given.saturating_mul(2), u64::saturating_add)
}

/// Returns the most characters of one item as JSON.
fn json_bytes_max(port: &ModelPort) -> u64 {
    if let Some(bytes) = port.text_bytes_max() {
        // A control character is encoded as `\u0001`.
        return 6 * bytes as u64 + 3;
    }
    let number = match port.item.dtype {
        DType::U8 => 4,
        DType::I8 => 5,
        DType::U32 | DType::I32 => 12,
        DType::F16 | DType::F32 => 17,
        DType::U64 | DType::I64 => 21,
    };
    // Each number can be in a separate list.
    (number + 2) * port.item.shape.elements() as u64 + 2
}
