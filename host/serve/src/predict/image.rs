//! Pictures: PNG to the item of an `image` port, and an item of one to PNG.
//!
//! Colours become grey by ITU-R BT.601 weights, grey becomes three equal channels, transparent pixels are laid on
//! black, 16 bits become 8. A picture of another size is resized, each axis by itself: shrunk by the mean over the area
//! of each pixel, enlarged by linear interpolation between pixel centres.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodingError, Limits, Transformations};
use saggar_tensor::DType;
use thiserror::Error;

use crate::limits::IMAGE_PIXELS_MAX;
use saggar_plugin::{ModelPort as Port, Signature};

use super::decode::Tensor;

/// The first bytes of every PNG.
pub(crate) const PNG_MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Why a picture cannot be taken.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ImageError {
    /// Another format.
    #[error("{name}: expected a PNG, got {got}")]
    NotPng {
        /// The input.
        name: String,
        /// What the bytes look like.
        got: &'static str,
    },
    /// A broken PNG.
    #[error("{name}: the PNG cannot be read: {reason}")]
    Broken {
        /// The input.
        name: String,
        /// The decoder's words.
        reason: String,
    },
    /// Too many pixels.
    #[error("{name}: the PNG has {width} x {height} pixels, at most {IMAGE_PIXELS_MAX} are taken")]
    TooLarge {
        /// The input.
        name: String,
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
    },
    /// A batch of pictures where a PNG holds one.
    #[error("{name}: a PNG holds one picture, and the batch has {items}; ask for JSON, or for one at a time")]
    OneAtATime {
        /// The output.
        name: String,
        /// Items of the batch.
        items: usize,
    },
    /// The input takes no pictures.
    #[error("{name}: takes {item}, not a picture")]
    NotImage {
        /// The input.
        name: String,
        /// What it takes.
        item: String,
    },
}

/// The first output that is a picture.
pub(super) fn output(signature: &Signature) -> Option<&Port> {
    signature.outputs.iter().find(|port| geometry(port).is_some())
}

/// The picture that a model made, as a PNG. `items` is the batch that was asked for, or none for one item.
///
/// # Errors
/// `OneAtATime` for a batch of several; `Broken` where the plugin's output is none.
pub(super) fn encode(signature: &Signature, outputs: &[Tensor], items: Option<usize>) -> Result<Vec<u8>, ImageError> {
    let broken = |name: &str, reason: String| ImageError::Broken { name: name.to_owned(), reason };
    let port = output(signature).ok_or_else(|| broken("output", "the model makes no pictures".to_owned()))?;
    if let Some(items) = items.filter(|&items| items != 1) {
        return Err(ImageError::OneAtATime { name: port.name.clone(), items });
    }
    let (height, width, channels) = geometry(port).unwrap_or_default();
    let tensor = outputs.iter().find(|tensor| tensor.name == port.name);
    let bytes = tensor.map(|tensor| tensor.bytes.as_slice()).filter(|bytes| bytes.len() == height * width * channels);
    let bytes = bytes.ok_or_else(|| broken(&port.name, format!("the plugin gave no {}", port.item)))?;
    let side = |pixels: usize| u32::try_from(pixels).map_err(|error| broken(&port.name, error.to_string()));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side(width)?, side(height)?);
    encoder.set_color(if channels == 3 { ColorType::Rgb } else { ColorType::Grayscale });
    encoder.set_depth(BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(bytes)?;
        writer.finish()
    });
    written.map_err(|error| broken(&port.name, error.to_string()))?;
    Ok(file)
}

/// Whether these are a PNG's first bytes.
pub fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(PNG_MAGIC)
}

/// Height, width and channels of a port that takes pictures.
pub fn geometry(port: &Port) -> Option<(usize, usize, usize)> {
    if port.semantics.as_deref() != Some("image") || port.item.dtype != DType::U8 {
        return None;
    }
    match *port.item.shape.dims() {
        [height, width] | [height, width, 1] => Some((height, width, 1)),
        [height, width, 3] => Some((height, width, 3)),
        _ => None,
    }
}

/// A PNG's pixels as an item of `port`.
///
/// # Errors
/// [`ImageError`]. No more than `IMAGE_PIXELS_MAX` pixels are ever decoded, whatever the file says.
pub fn decode(port: &Port, bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    let name = || port.name.clone();
    let Some((height, width, channels)) = geometry(port) else {
        return Err(ImageError::NotImage { name: name(), item: port.item.to_string() });
    };
    if !is_png(bytes) {
        return Err(ImageError::NotPng { name: name(), got: guess(bytes) });
    }
    let picture = read(port, bytes)?;
    let picture = picture.with_channels(channels);
    let rows = resample(&picture.values, picture.height, picture.width * channels, 1, height);
    let values = resample(&rows, picture.width, channels, height, width);
    Ok(values.into_iter().map(|value| value.round().clamp(0.0, 255.0) as u8).collect())
}

fn guess(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => "a JPEG; convert it to PNG",
        [b'G', b'I', b'F', b'8', ..] => "a GIF; convert it to PNG",
        [b'R', b'I', b'F', b'F', ..] => "a WebP; convert it to PNG",
        [b'{' | b'[', ..] => "JSON; send it as application/json",
        [] => "nothing",
        _ => "something else",
    }
}

/// Pixels, row by row, channels side by side, 0 to 255.
struct Picture {
    height: usize,
    width: usize,
    channels: usize,
    values: Vec<f32>,
}

fn read(port: &Port, bytes: &[u8]) -> Result<Picture, ImageError> {
    let broken = |error: DecodingError| ImageError::Broken { name: port.name.clone(), reason: error.to_string() };
    // Rows are read one at a time, so this bounds what chunks and one row may take.
    let limits = Limits { bytes: 64 << 20 };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.ignore_checksums(false);
    let mut reader = decoder.read_info().map_err(broken)?;
    let (width, height) = reader.info().size();
    if u64::from(width) * u64::from(height) > IMAGE_PIXELS_MAX {
        return Err(ImageError::TooLarge { name: port.name.clone(), width, height });
    }
    let Some(size) = reader.output_buffer_size() else {
        return Err(ImageError::TooLarge { name: port.name.clone(), width, height });
    };
    let mut samples = vec![0; size];
    let frame = reader.next_frame(&mut samples).map_err(broken)?;
    samples.truncate(frame.buffer_size());
    debug_assert_eq!(frame.bit_depth, BitDepth::Eight);
    let (width, height) = (frame.width as usize, frame.height as usize);
    let (channels, values) = match frame.color_type {
        ColorType::Grayscale | ColorType::Indexed => (1, floats(&samples)),
        ColorType::GrayscaleAlpha => (1, over_black(&samples, 1)),
        ColorType::Rgb => (3, floats(&samples)),
        ColorType::Rgba => (3, over_black(&samples, 3)),
    };
    Ok(Picture { height, width, channels, values })
}

fn floats(samples: &[u8]) -> Vec<f32> {
    samples.iter().map(|&sample| f32::from(sample)).collect()
}

fn over_black(samples: &[u8], colours: usize) -> Vec<f32> {
    let pixel = |pixel: &[u8]| {
        let alpha = f32::from(pixel[colours]) / 255.0;
        pixel[..colours].iter().map(move |&sample| f32::from(sample) * alpha).collect::<Vec<f32>>()
    };
    samples.chunks_exact(colours + 1).flat_map(pixel).collect()
}

impl Picture {
    fn with_channels(self, channels: usize) -> Picture {
        let values: Vec<f32> = match (self.channels, channels) {
            (3, 1) => {
                let grey = |rgb: &[f32]| 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
                self.values.chunks_exact(3).map(grey).collect()
            }
            (1, 3) => self.values.iter().flat_map(|&grey| [grey; 3]).collect(),
            _ => return self,
        };
        Picture { channels, values, ..self }
    }
}

/// Resizes one axis of `[outer, from, inner]` to `[outer, to, inner]`.
fn resample(values: &[f32], from: usize, inner: usize, outer: usize, to: usize) -> Vec<f32> {
    if from == to {
        return values.to_vec();
    }
    let weights: Vec<Vec<(usize, f32)>> = (0..to).map(|at| weights(from, to, at)).collect();
    let mut resized = vec![0.0; outer * to * inner];
    for block in 0..outer {
        for (at, weights) in weights.iter().enumerate() {
            let target = &mut resized[(block * to + at) * inner..][..inner];
            for &(source, weight) in weights {
                let source = &values[(block * from + source) * inner..][..inner];
                for (value, &sample) in target.iter_mut().zip(source) {
                    *value += weight * sample;
                }
            }
        }
    }
    resized
}

/// Which of `from` pixels make up pixel `at` of `to`, and how much of it each; the sum is 1.
fn weights(from: usize, to: usize, at: usize) -> Vec<(usize, f32)> {
    let scale = from as f64 / to as f64;
    if scale <= 1.0 {
        let centre = ((at as f64 + 0.5) * scale - 0.5).clamp(0.0, (from - 1) as f64);
        let first = centre.floor() as usize;
        let part = (centre - centre.floor()) as f32;
        return vec![(first, 1.0 - part), ((first + 1).min(from - 1), part)];
    }
    let (start, end) = (at as f64 * scale, (at + 1) as f64 * scale);
    let last = (end.ceil() as usize).min(from);
    let covered = |pixel: usize| (end.min((pixel + 1) as f64) - start.max(pixel as f64)).max(0.0);
    (start as usize..last).map(|pixel| (pixel, (covered(pixel) / scale) as f32)).collect()
}

#[cfg(test)]
mod tests;
