//! Conversion of images: PNG, JPEG and WebP to an item of an `image` port.
//!
//! Images of another size or with other channels are converted as for datasets (`saggar_store::image_resizer`).

use saggar_rest::errors::ErrorCode;
use saggar_store::image_decoder::{self, ImageDecodeError, ImageFormat};
use saggar_store::image_resizer::resize_picture;
use saggar_tensor::DType;
use thiserror::Error;

use crate::error::{ErrorMapping, ProtocolError};
use crate::limits::IMAGE_PIXELS_MAX;
use saggar_plugin::ModelPort as Port;

/// Bytes of an image's decoded pixels, with four channels each.
const PIXELS_BYTES_MAX: usize = 4 * IMAGE_PIXELS_MAX as usize;
/// Ratio of an image's side to the model's from which on the client is warned that the image was shrunk.
const SHRINK_FACTOR_MAX: usize = 4;
/// Ratio between the aspect ratios of an image and the model's input from which on the client is warned.
const STRETCH_FACTOR_MAX: f64 = 1.5;

/// The reason for which an image cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ImageError {
    /// The format is not supported.
    #[error("{name}: expected a PNG, a JPEG or a WebP, got {got}")]
    NotPicture {
        /// The input.
        name: String,
        /// The detected format.
        got: &'static str,
    },
    /// The file cannot be decoded completely.
    #[error("{name}: the {format} cannot be read: {reason}")]
    Broken {
        /// The input.
        name: String,
        /// The format of its first bytes.
        format: ImageFormat,
        /// The decoder's message.
        reason: String,
    },
    /// The image has too many pixels.
    #[error("{name}: the picture has {width} x {height} pixels, at most {IMAGE_PIXELS_MAX} are taken")]
    TooLarge {
        /// The input.
        name: String,
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
    },
    /// A batch of several images, while a file holds only one.
    #[error("{name}: a {format} holds one picture, and the batch has {items}; ask for JSON, or for one at a time")]
    OneAtATime {
        /// The output.
        name: String,
        /// The format.
        format: ImageFormat,
        /// Items of the batch.
        items: usize,
    },
    /// The input does not accept images.
    #[error("{name}: takes {item}, not a picture")]
    NotImage {
        /// The input.
        name: String,
        /// The expected item.
        item: String,
    },
}

/// Returns whether these are the first bytes of a supported image format.
pub fn is_image(bytes: &[u8]) -> bool {
    ImageFormat::detect(bytes).is_some()
}

/// Returns height, width and channels of a port that accepts images, else `None`.
pub fn image_geometry(port: &Port) -> Option<(usize, usize, usize)> {
    if port.semantics.as_deref() != Some("image") || port.item.dtype != DType::U8 {
        return None;
    }
    match *port.item.shape.dims() {
        [height, width] | [height, width, 1] => Some((height, width, 1)),
        [height, width, 3] => Some((height, width, 3)),
        _ => None,
    }
}

/// An item decoded from an image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageItem {
    /// The bytes as the port expects them.
    pub bytes: Vec<u8>,
    /// A warning to the client that most of the image's detail or its proportions were lost.
    pub warning: Option<String>,
}

/// Decodes a PNG, JPEG or WebP into an item of `port`.
///
/// # Errors
/// Returns [`ImageError`]. Never decodes more than `IMAGE_PIXELS_MAX` pixels, whatever the file declares.
pub fn decode_image(port: &Port, bytes: &[u8]) -> Result<ImageItem, ImageError> {
    let name = || port.name.clone();
    let Some((height, width, channels)) = image_geometry(port) else {
        return Err(ImageError::NotImage { name: name(), item: port.item.to_string() });
    };
    let format = ImageFormat::detect(bytes);
    let format = format.ok_or_else(|| ImageError::NotPicture { name: name(), got: guess_format(bytes) })?;
    if let Some((height, width)) = format.dimensions(bytes)
        && height as u64 * width as u64 > IMAGE_PIXELS_MAX
    {
        return Err(ImageError::TooLarge { name: name(), width, height });
    }
    let picture = image_decoder::decode(bytes, PIXELS_BYTES_MAX).map_err(|error| match error {
        ImageDecodeError::Size { height, width, .. } if height * width > 0 => {
            ImageError::TooLarge { name: name(), width, height }
        }
        ImageDecodeError::Damaged { format, reason } => ImageError::Broken { name: name(), format, reason },
        error => ImageError::Broken { name: name(), format, reason: error.to_string() },
    })?;
    let warning = resize_warning(&port.name, (picture.width, picture.height), (width, height));
    let bytes = match &port.preprocessing {
        Some(preprocessing) => preprocessing.pixels(&picture),
        None => resize_picture(&picture, height, width, channels),
    };
    Ok(ImageItem { bytes, warning })
}

/// Returns a warning if resizing an image of width and height `from` to `to` loses much.
fn resize_warning(name: &str, from: (usize, usize), to: (usize, usize)) -> Option<String> {
    let is_shrunk = from.0 > SHRINK_FACTOR_MAX * to.0 || from.1 > SHRINK_FACTOR_MAX * to.1;
    let stretching = (from.0 * to.1) as f64 / (from.1 * to.0).max(1) as f64;
    let is_stretched = !(1.0 / STRETCH_FACTOR_MAX..=STRETCH_FACTOR_MAX).contains(&stretching);
    let lost = match (is_shrunk, is_stretched) {
        (false, false) => return None,
        (true, false) => "most of its detail is lost",
        (false, true) => "its proportions are changed",
        (true, true) => "most of its detail is lost and its proportions are changed",
    };
    Some(format!(
        "{name}: the picture of {} x {} pixels was resized to the model's {} x {}: {lost}",
        from.0, from.1, to.0, to.1
    ))
}

fn guess_format(bytes: &[u8]) -> &'static str {
    match bytes {
        [b'G', b'I', b'F', b'8', ..] => "a GIF; convert it to PNG",
        [b'{' | b'[', ..] => "JSON; send it as application/json",
        [] => "nothing",
        _ => "something else",
    }
}

impl ProtocolError for ImageError {
    fn mapping(&self) -> ErrorMapping {
        match self {
            ImageError::TooLarge { .. } => ErrorMapping::too_large("make the picture smaller"),
            ImageError::NotPicture { .. } | ImageError::NotImage { .. } => {
                ErrorMapping::unsupported_media_type("send a PNG, a JPEG, a WebP, or JSON")
            }
            ImageError::OneAtATime { .. } => ErrorMapping::not_acceptable(""),
            ImageError::Broken { .. } => {
                ErrorMapping::bad_request(ErrorCode::BadInput, "the file may have been cut off")
            }
        }
    }
}

#[cfg(test)]
mod tests;
