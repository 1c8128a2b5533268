//! The declared preprocessing of an image input of a model: size, colours, normalization and layout. It is stored with
//! the model's versions and applied by this code to the batches of a training and to the requests of a served model, so
//! that the same file gives the same bits in both.
//!
//! All arithmetic is on this machine's processor, whatever device computes the model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use saggar_tensor::{DType, Descriptor, Shape};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::image_decoder::DecodedImage;
use crate::image_resizer::{crop_to_proportions, resize_picture};
use crate::limits::{IMAGE_BYTES_MAX, IMAGE_SIDE_MAX};

/// The declared preprocessing of a model's image inputs, by input.
pub type ImageInputs = BTreeMap<String, ImagePreprocessing>;

/// The preprocessing of an image: resized, converted to its colours, normalized, and laid out as the model's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagePreprocessing {
    /// The size that images are resized to.
    pub resize: ImageResize,
    /// The colours that images are converted to.
    pub colors: ImageColors,
    /// How pixels become numbers.
    pub normalization: ImageNormalization,
    /// The order of the axes of the model's input.
    pub layout: ImageLayout,
}

/// The size that images are resized to. Images are shrunk by averaging over the area of each pixel, and enlarged by
/// linear interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageResize {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// What is done with an image of other proportions.
    pub fit: ImageFit,
}

/// What is done with an image of other proportions than the size that it is resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFit {
    /// Its proportions are changed.
    Stretch,
    /// Its edges are cut off, equally at both sides.
    Crop,
}

/// The colours that images are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageColors {
    /// One channel.
    Grey,
    /// Three channels: red, green, blue.
    Rgb,
}

/// How pixels, 0 to 255, become numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ImageNormalization {
    /// `(pixel - mean) * scale`, with a mean and a scale for each channel, in single precision.
    #[serde(rename_all = "kebab-case")]
    MeanAndScale {
        /// The mean of each channel.
        mean: Vec<f32>,
        /// The scale of each channel, not 0.
        scale: Vec<f32>,
    },
    /// `(pixel - mean) / max(std, 1 / sqrt(N))`, with the mean and the standard deviation of the image's `N` elements.
    PerImageStandardization,
}

/// The order of the axes of a batch of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageLayout {
    /// `[batch, channels, height, width]`.
    Nchw,
    /// `[batch, height, width, channels]`.
    Nhwc,
}

/// The reason for which a declared preprocessing is refused.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ImagePreprocessingError {
    /// No pixels, or too many.
    #[error(
        "resize: {height} x {width} pixels; declare 1 to {IMAGE_SIDE_MAX} a side and at most {IMAGE_BYTES_MAX} bytes \
         in all"
    )]
    Size {
        /// Height in pixels.
        height: usize,
        /// Width in pixels.
        width: usize,
    },
    /// Not one value for each channel.
    #[error("{field}: {found} values, and the image has {channels} channels; declare {channels}")]
    Channels {
        /// `mean` or `scale`.
        field: &'static str,
        /// The declared values.
        found: usize,
        /// The image's channels.
        channels: usize,
    },
    /// A value with which nothing can be computed.
    #[error("{field}: the value of channel {channel} is {value}; declare {expected}")]
    Value {
        /// `mean` or `scale`.
        field: &'static str,
        /// The channel, from 0.
        channel: usize,
        /// The declared value.
        value: f32,
        /// What is accepted.
        expected: &'static str,
    },
}

/// The reason for which the declared preprocessing of a model's inputs is refused.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ImageInputsError {
    /// Not a JSON object.
    #[error("the image inputs are no JSON object with a preprocessing for each input: {reason}")]
    Json {
        /// The parser's message.
        reason: String,
    },
    /// A preprocessing that cannot be read.
    #[error("input {input}: {reason}")]
    Fields {
        /// The input.
        input: String,
        /// The parser's message.
        reason: String,
    },
    /// A preprocessing that cannot be applied.
    #[error("input {input}: {error}")]
    Input {
        /// The input.
        input: String,
        /// What is wrong with it.
        error: ImagePreprocessingError,
    },
}

/// Reads the preprocessing of image inputs, such as
/// `{"image": {"resize": {"height": 32, "width": 32, "fit": "crop"}, "colors": "rgb", "layout": "nchw",
/// "normalization": "per-image-standardization"}}`.
///
/// # Errors
/// Returns [`ImageInputsError`], with the input.
pub fn read_image_inputs(json: &[u8]) -> Result<ImageInputs, ImageInputsError> {
    let parsed = serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(json);
    let values = parsed.map_err(|error| ImageInputsError::Json { reason: error.to_string() })?;
    let preprocessing = |(input, value): (String, serde_json::Value)| match ImagePreprocessing::deserialize(value) {
        Ok(preprocessing) => Ok((input, preprocessing)),
        Err(error) => Err(ImageInputsError::Fields { input, reason: error.to_string() }),
    };
    let inputs = values.into_iter().map(preprocessing).collect::<Result<ImageInputs, _>>()?;
    check_image_inputs(&inputs)?;
    Ok(inputs)
}

/// Refuses declarations that cannot be applied.
///
/// # Errors
/// Returns `Input`.
pub fn check_image_inputs(inputs: &ImageInputs) -> Result<(), ImageInputsError> {
    inputs.iter().try_for_each(|(input, preprocessing)| {
        preprocessing.check().map_err(|error| ImageInputsError::Input { input: input.clone(), error })
    })
}

impl ImageFit {
    /// Returns the name that it has in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            ImageFit::Stretch => "stretch",
            ImageFit::Crop => "crop",
        }
    }
}

impl ImageNormalization {
    /// Returns the name that it has in a manifest.
    pub fn name(&self) -> &'static str {
        match self {
            ImageNormalization::MeanAndScale { .. } => "mean-and-scale",
            ImageNormalization::PerImageStandardization => "per-image-standardization",
        }
    }
}

impl ImageLayout {
    /// Returns the name that it has in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            ImageLayout::Nchw => "nchw",
            ImageLayout::Nhwc => "nhwc",
        }
    }
}

impl ImageColors {
    /// Returns the name that it has in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            ImageColors::Grey => "grey",
            ImageColors::Rgb => "rgb",
        }
    }

    /// Returns the number of channels.
    pub fn channels(self) -> usize {
        match self {
            ImageColors::Grey => 1,
            ImageColors::Rgb => 3,
        }
    }
}

/// The preprocessing in one line, such as `32 x 32 pixels, crop, rgb, per-image-standardization, nchw`; the height is
/// first.
impl fmt::Display for ImagePreprocessing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ImageResize { height, width, fit } = self.resize;
        write!(f, "{height} x {width} pixels, {}, {}, ", fit.name(), self.colors.name())?;
        match &self.normalization {
            ImageNormalization::MeanAndScale { mean, scale } => write!(f, "mean {mean:?} and scale {scale:?}")?,
            ImageNormalization::PerImageStandardization => f.write_str(self.normalization.name())?,
        }
        write!(f, ", {}", self.layout.name())
    }
}

impl ImagePreprocessing {
    /// Refuses a declaration that cannot be applied.
    ///
    /// # Errors
    /// Returns [`ImagePreprocessingError`].
    pub fn check(&self) -> Result<(), ImagePreprocessingError> {
        let ImageResize { height, width, .. } = self.resize;
        let channels = self.colors.channels();
        let is_side = |side: usize| (1..=IMAGE_SIDE_MAX).contains(&side);
        if !is_side(height) || !is_side(width) || height * width * channels > IMAGE_BYTES_MAX {
            return Err(ImagePreprocessingError::Size { height, width });
        }
        let ImageNormalization::MeanAndScale { mean, scale } = &self.normalization else { return Ok(()) };
        let is_scale = |value: f32| value.is_finite() && value != 0.0;
        check_channels("mean", mean, channels, "a finite number", f32::is_finite)?;
        check_channels("scale", scale, channels, "a finite number other than 0", is_scale)
    }

    /// Returns the pixels of an image as [`ImagePreprocessing::normalize`] accepts them. Shape: `[height, width,
    /// channels]`, row-major.
    pub fn pixels(&self, picture: &DecodedImage) -> Vec<u8> {
        let ImageResize { height, width, fit } = self.resize;
        let picture = match fit {
            ImageFit::Stretch => Cow::Borrowed(picture),
            ImageFit::Crop => crop_to_proportions(picture, height, width),
        };
        resize_picture(&picture, height, width, self.colors.channels())
    }

    /// Returns the model's input for images that have its size and colours: `[images, height, width, channels]`
    /// row-major to little-endian `float32` of [`ImagePreprocessing::input_item`] for each image.
    pub fn normalize(&self, pixels: &[u8]) -> Vec<u8> {
        let (channels, elements) = (self.colors.channels(), self.pixels_item().bytes());
        let mut bytes = Vec::with_capacity(pixels.len() * size_of::<f32>());
        for image in pixels.chunks_exact(elements) {
            let tables = self.channel_tables(image);
            match self.layout {
                ImageLayout::Nhwc => {
                    for pixel in image.chunks_exact(channels) {
                        let values = pixel.iter().zip(&tables).flat_map(|(&sample, table)| table[usize::from(sample)]);
                        bytes.extend(values);
                    }
                }
                ImageLayout::Nchw => {
                    for (channel, table) in tables.iter().enumerate() {
                        let samples = image.iter().skip(channel).step_by(channels);
                        bytes.extend(samples.flat_map(|&sample| table[usize::from(sample)]));
                    }
                }
            }
        }
        bytes
    }

    /// Returns the data type and shape of the model's input for one image: `float32`, in the declared layout.
    pub fn input_item(&self) -> Descriptor {
        let (ImageResize { height, width, .. }, channels) = (self.resize, self.colors.channels());
        let dims = match self.layout {
            ImageLayout::Nchw => [channels, height, width],
            ImageLayout::Nhwc => [height, width, channels],
        };
        Descriptor::new(DType::F32, Shape::new(dims).expect("a checked size"))
    }

    /// Returns the data type and shape of the pixels of one image as clients send them: `uint8`, `[height, width]` for
    /// grey and `[height, width, 3]` for RGB.
    pub fn pixels_item(&self) -> Descriptor {
        let ImageResize { height, width, .. } = self.resize;
        let dims = match self.colors {
            ImageColors::Grey => vec![height, width],
            ImageColors::Rgb => vec![height, width, 3],
        };
        Descriptor::new(DType::U8, Shape::new(dims).expect("a checked size"))
    }

    /// Returns, for each channel, the bytes of the number that each of the 256 values of a sample becomes.
    fn channel_tables(&self, image: &[u8]) -> Vec<[[u8; 4]; 256]> {
        match &self.normalization {
            ImageNormalization::MeanAndScale { mean, scale } => {
                let channels = mean.iter().zip(scale);
                channels.map(|(mean, scale)| sample_table(|sample| (sample as f32 - mean) * scale)).collect()
            }
            ImageNormalization::PerImageStandardization => {
                let (mean, divisor) = mean_and_divisor(image);
                let table = sample_table(|sample| ((sample - mean) / divisor) as f32);
                vec![table; self.colors.channels()]
            }
        }
    }
}

fn sample_table(number: impl Fn(f64) -> f32) -> [[u8; 4]; 256] {
    std::array::from_fn(|sample| number(sample as f64).to_le_bytes())
}

/// Returns the mean of an image's elements and `max(std, 1 / sqrt(N))`. The sums are exact.
fn mean_and_divisor(image: &[u8]) -> (f64, f64) {
    let count = image.len() as u64;
    let sum: u64 = image.iter().map(|&sample| u64::from(sample)).sum();
    let squares: u64 = image.iter().map(|&sample| u64::from(sample) * u64::from(sample)).sum();
    // N^2 times the variance. An image has at most 2^25 elements, so the products are below 2^66.
    let scaled = u128::from(count) * u128::from(squares) - u128::from(sum) * u128::from(sum);
    let count = count as f64;
    (sum as f64 / count, (scaled as f64).sqrt().max(count.sqrt()) / count)
}

fn check_channels(
    field: &'static str,
    values: &[f32],
    channels: usize,
    expected: &'static str,
    is_valid: impl Fn(f32) -> bool,
) -> Result<(), ImagePreprocessingError> {
    if values.len() != channels {
        return Err(ImagePreprocessingError::Channels { field, found: values.len(), channels });
    }
    match values.iter().position(|value| !is_valid(*value)) {
        Some(channel) => Err(ImagePreprocessingError::Value { field, channel, value: values[channel], expected }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
