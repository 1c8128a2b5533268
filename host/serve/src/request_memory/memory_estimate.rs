//! An upper bound for the memory of decoding a body, derived from the model's signature before anything is allocated.

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_store::image_decoder::ImageFormat;

use crate::limits::{IMAGE_PIXELS_MAX, INFER_BYTES_MAX, INPUT_BYTES_MAX};
use crate::predict::image;

/// The most bytes of one input's elements under any protocol.
const TENSOR_BYTES_MAX: u64 = if INPUT_BYTES_MAX > INFER_BYTES_MAX { INPUT_BYTES_MAX } else { INFER_BYTES_MAX } as u64;

/// The first bytes of PNG, JPEG and WebP files.
const IMAGE_FIRST_BYTES: [u8; 3] = [0x89, 0xff, b'R'];

/// Bytes per pixel for decoding an image: up to 12 for a progressive JPEG's coefficients or 4 for samples, 12 for
/// colours as floats, 12 for a resampled copy.
const DECODE_BYTES_PER_PIXEL: u64 = 40;

/// Returns the most bytes that decoding `body` can take in addition to the body, if a number has at least
/// `number_bytes_min` bytes in it.
pub(crate) fn decode_bytes_max(signature: &ModelSignature, body: &[u8], number_bytes_min: usize) -> u64 {
    let body_bytes = body.len() as u64;
    let items = |port: &ModelPort| body_bytes / body_bytes_per_item(port, number_bytes_min).max(1) + 1;
    let items_max = signature.inputs.iter().map(items).max().unwrap_or(1);
    let port = |port: &ModelPort| {
        let count = if port.default.is_some() { items_max } else { items(port) };
        count.saturating_mul(port.item.bytes() as u64).min(TENSOR_BYTES_MAX)
    };
    // The fields of a form are copies.
    let tensors = signature.inputs.iter().map(port).fold(body_bytes, u64::saturating_add);
    tensors.saturating_add(image_decode_bytes_max(signature, body))
}

/// Returns the fewest bytes of a body that can encode one item: two characters for each text, `number_bytes_min` for
/// each number, the elements themselves in binary form.
fn body_bytes_per_item(port: &ModelPort, number_bytes_min: usize) -> u64 {
    match port.text_bytes_max() {
        Some(_) => 2,
        None => (number_bytes_min * port.item.shape.elements()).min(port.item.bytes()) as u64,
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
