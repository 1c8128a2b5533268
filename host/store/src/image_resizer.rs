//! Converts images to a size and a number of channels, for datasets and predictions alike, so that training and
//! inference see the same input.
//!
//! Colours are converted to grey with ITU-R BT.601 weights, and grey to three equal channels. Transparent pixels are
//! composited over black. An image of another size is resized per axis: shrunk by averaging over the area of each pixel,
//! enlarged by linear interpolation between pixel centres.

use std::borrow::Cow;

use crate::image_decoder::DecodedImage;

/// Returns the pixels of a picture with another size and 1 or 3 channels. Shape: `[height, width, channels]`,
/// row-major. The picture and the size must not be empty.
pub fn resize_picture(picture: &DecodedImage, height: usize, width: usize, channels: usize) -> Vec<u8> {
    let columns: Vec<PixelWeights> = (0..width).map(|at| resample_weights(picture.width, width, at)).collect();
    let stride = picture.width * picture.channels;
    let mut pixels = Vec::with_capacity(height * width * channels);
    let (mut row, mut line) = (vec![0.0; picture.width * channels], vec![0.0; width * channels]);
    // Row by row, because the whole picture as floats can take hundreds of megabytes.
    for at in 0..height {
        row.fill(0.0);
        for (source, weight) in resample_weights(picture.height, height, at) {
            let samples = &picture.pixels[source * stride..][..stride];
            let source = FloatPixels::from_samples(samples, picture.channels).with_channels(channels);
            row.iter_mut().zip(&source.values).for_each(|(value, sample)| *value += weight * sample);
        }
        line.fill(0.0);
        for (target, weights) in line.chunks_exact_mut(channels).zip(&columns) {
            for &(source, weight) in weights {
                let source = &row[source * channels..][..channels];
                target.iter_mut().zip(source).for_each(|(value, sample)| *value += weight * sample);
            }
        }
        pixels.extend(line.iter().map(|value| value.round().clamp(0.0, 255.0) as u8));
    }
    pixels
}

/// Returns the middle of a picture with the proportions of `height` to `width`, as near as whole pixels allow. The
/// picture and the size must not be empty.
pub fn crop_to_proportions(picture: &DecodedImage, height: usize, width: usize) -> Cow<'_, DecodedImage> {
    let scaled = |side: usize, by: usize, over: usize| ((side * by + over / 2) / over).max(1);
    let rows = scaled(picture.width, height, width).min(picture.height);
    let columns = scaled(picture.height, width, height).min(picture.width);
    if (rows, columns) == (picture.height, picture.width) {
        return Cow::Borrowed(picture);
    }
    let (top, left) = ((picture.height - rows) / 2, (picture.width - columns) / 2);
    let lines = picture.pixels.chunks_exact(picture.width * picture.channels).skip(top).take(rows);
    let line = |line: &[u8]| line[left * picture.channels..][..columns * picture.channels].to_vec();
    let pixels = lines.flat_map(line).collect();
    Cow::Owned(DecodedImage { height: rows, width: columns, channels: picture.channels, pixels })
}

/// The pixels of one axis that contribute to a pixel, with their weights.
type PixelWeights = Vec<(usize, f32)>;

/// Pixels in row-major order with interleaved channels, values 0 to 255.
struct FloatPixels {
    channels: usize,
    values: Vec<f32>,
}

fn samples_to_floats(samples: &[u8]) -> Vec<f32> {
    samples.iter().map(|&sample| f32::from(sample)).collect()
}

fn composite_over_black(samples: &[u8], colours: usize) -> Vec<f32> {
    let pixel = |pixel: &[u8]| {
        let alpha = f32::from(pixel[colours]) / 255.0;
        pixel[..colours].iter().map(move |&sample| f32::from(sample) * alpha).collect::<Vec<f32>>()
    };
    samples.chunks_exact(colours + 1).flat_map(pixel).collect()
}

impl FloatPixels {
    /// Converts samples with this number of channels to floats. Transparent pixels are composited over black.
    fn from_samples(samples: &[u8], channels: usize) -> FloatPixels {
        let (channels, values) = match channels {
            2 => (1, composite_over_black(samples, 1)),
            4 => (3, composite_over_black(samples, 3)),
            channels => (channels, samples_to_floats(samples)),
        };
        FloatPixels { channels, values }
    }

    fn with_channels(self, channels: usize) -> FloatPixels {
        let values: Vec<f32> = match (self.channels, channels) {
            (3, 1) => {
                let grey = |rgb: &[f32]| 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
                self.values.chunks_exact(3).map(grey).collect()
            }
            (1, 3) => self.values.iter().flat_map(|&grey| [grey; 3]).collect(),
            _ => return self,
        };
        FloatPixels { channels, values }
    }
}

/// Returns the pixels of `from` that contribute to pixel `at` of `to`, with weights whose sum is 1.
fn resample_weights(from: usize, to: usize, at: usize) -> PixelWeights {
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
