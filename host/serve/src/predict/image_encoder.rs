//! Encodes a model's image output as PNG or JPEG.

use jpeg_encoder::{ColorType as JpegColorType, Encoder as JpegEncoder, SamplingFactor};
use saggar_plugin::{ModelPort as Port, ModelSignature, NamedTensor};
use saggar_store::image_decoder::ImageFormat;
use saggar_store::png_encoder;

use super::image::{ImageError, image_geometry};

/// The JPEG quality if the client asks for none.
pub(super) const JPEG_QUALITY_DEFAULT: u8 = 90;

/// How a JPEG is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JpegOptions {
    /// The quality, 1 to 100.
    pub(super) quality: u8,
    /// Whether colours have the full resolution (4:4:4) instead of half of it in both directions (4:2:0).
    pub(super) has_full_chroma: bool,
}

impl Default for JpegOptions {
    fn default() -> JpegOptions {
        JpegOptions { quality: JPEG_QUALITY_DEFAULT, has_full_chroma: false }
    }
}

/// An item of an image output.
struct Picture<'a> {
    port: &'a Port,
    bytes: &'a [u8],
    height: usize,
    width: usize,
    channels: usize,
}

/// Returns the first output that is an image.
pub(super) fn image_output(signature: &ModelSignature) -> Option<&Port> {
    signature.outputs.iter().find(|port| image_geometry(port).is_some())
}

/// Encodes the image output as a PNG. `items` is the requested batch size, or `None` for one item without a batch
/// dimension.
///
/// # Errors
/// Returns `OneAtATime` for a batch of several items, or `Broken` if the plugin's output is not an image.
pub(super) fn encode_png(
    signature: &ModelSignature,
    outputs: &[NamedTensor],
    items: Option<usize>,
) -> Result<Vec<u8>, ImageError> {
    let picture = find_picture(signature, outputs, items, ImageFormat::Png)?;
    png_encoder::encode_png(picture.bytes, picture.height, picture.width, picture.channels)
        .map_err(|reason| broken_error(picture.port, ImageFormat::Png, reason))
}

/// Encodes the image output as a JPEG, as [`encode_png`] does. Returns a warning too if colours lose resolution.
///
/// # Errors
/// As [`encode_png`].
pub(super) fn encode_jpeg(
    signature: &ModelSignature,
    outputs: &[NamedTensor],
    items: Option<usize>,
    options: JpegOptions,
) -> Result<(Vec<u8>, Option<String>), ImageError> {
    let picture = find_picture(signature, outputs, items, ImageFormat::Jpeg)?;
    let broken = |reason: String| broken_error(picture.port, ImageFormat::Jpeg, reason);
    let side =
        |pixels: usize| u16::try_from(pixels).map_err(|_| broken("a side has more than 65535 pixels".to_owned()));
    let mut file = Vec::new();
    let mut encoder = JpegEncoder::new(&mut file, options.quality);
    let sampling = if options.has_full_chroma { SamplingFactor::R_4_4_4 } else { SamplingFactor::R_4_2_0 };
    encoder.set_sampling_factor(sampling);
    let color = if picture.channels == 3 { JpegColorType::Rgb } else { JpegColorType::Luma };
    let written = encoder.encode(picture.bytes, side(picture.width)?, side(picture.height)?, color);
    written.map_err(|error| broken(error.to_string()))?;
    let loses_colour = picture.channels == 3 && !options.has_full_chroma;
    let warning = loses_colour.then(|| {
        format!(
            "{}: this JPEG has colours at half the resolution: ask for image/jpeg;chroma=444, or for image/png, which \
             loses nothing",
            picture.port.name
        )
    });
    Ok((file, warning))
}

fn find_picture<'a>(
    signature: &'a ModelSignature,
    outputs: &'a [NamedTensor],
    items: Option<usize>,
    format: ImageFormat,
) -> Result<Picture<'a>, ImageError> {
    let port = image_output(signature).ok_or_else(|| ImageError::Broken {
        name: "output".to_owned(),
        format,
        reason: "the model makes no pictures".to_owned(),
    })?;
    if let Some(items) = items.filter(|&items| items != 1) {
        return Err(ImageError::OneAtATime { name: port.name.clone(), format, items });
    }
    let (height, width, channels) = image_geometry(port).unwrap_or_default();
    let tensor = outputs.iter().find(|tensor| tensor.name == port.name);
    let bytes = tensor.map(|tensor| tensor.bytes.as_slice()).filter(|bytes| bytes.len() == height * width * channels);
    let bytes = bytes.ok_or_else(|| broken_error(port, format, format!("the plugin gave no {}", port.item)))?;
    Ok(Picture { port, bytes, height, width, channels })
}

fn broken_error(port: &Port, format: ImageFormat, reason: String) -> ImageError {
    ImageError::Broken { name: port.name.clone(), format, reason }
}

#[cfg(test)]
mod tests {
    use saggar_store::image_decoder;
    use saggar_tensor::{DType, Descriptor, Shape};

    use super::*;

    /// A red and blue checkerboard of single pixels, or its grey version.
    fn checkerboard(channels: usize) -> (ModelSignature, Vec<NamedTensor>) {
        let descriptor = Descriptor::new(DType::U8, Shape::new([16, 16, channels]).unwrap());
        let port = Port {
            name: "picture".to_owned(),
            item: descriptor.clone(),
            semantics: Some("image".to_owned()),
            classes: Vec::new(),
            default: None,
            preprocessing: None,
        };
        let pixel = |at: usize| -> Vec<u8> {
            let is_red = (at % 16 + at / 16).is_multiple_of(2);
            match (channels, is_red) {
                (1, _) => vec![if is_red { 250 } else { 5 }],
                (_, true) => vec![255, 0, 0],
                (_, false) => vec![0, 0, 255],
            }
        };
        let bytes = (0..256).flat_map(pixel).collect();
        let (inputs, outputs) = (Vec::new(), vec![port]);
        let signature =
            ModelSignature { inputs, outputs, batch_sizes: Vec::new(), routes: Vec::new(), handlers: Vec::new() };
        (signature, vec![NamedTensor { name: "picture".to_owned(), descriptor, bytes }])
    }

    /// Returns the mean difference of the decoded file's samples from those of the tensor.
    fn error_of(file: &[u8], tensor: &NamedTensor) -> f64 {
        let decoded = image_decoder::decode(file, 1 << 20).unwrap();
        assert_eq!(decoded.pixels.len(), tensor.bytes.len());
        let differences = decoded.pixels.iter().zip(&tensor.bytes).map(|(a, b)| f64::from(a.abs_diff(*b)));
        differences.sum::<f64>() / tensor.bytes.len() as f64
    }

    #[test]
    fn a_jpeg_without_full_chroma_ruins_colours_and_warns() {
        let (signature, outputs) = checkerboard(3);
        let encode = |options| encode_jpeg(&signature, &outputs, None, options).unwrap();
        let (half, warning) = encode(JpegOptions::default());
        assert!(warning.unwrap().contains("image/jpeg;chroma=444"));
        let (full, warning) = encode(JpegOptions { has_full_chroma: true, ..JpegOptions::default() });
        assert_eq!(warning, None);
        let [half, full] = [half, full].map(|file| error_of(&file, &outputs[0]));
        assert!(full < 20.0 && half > 2.0 * full, "{half} {full}");
        assert_eq!(error_of(&encode_png(&signature, &outputs, None).unwrap(), &outputs[0]), 0.0);
    }

    #[test]
    fn a_grey_jpeg_has_no_colours_to_lose() {
        let (signature, outputs) = checkerboard(1);
        let (file, warning) = encode_jpeg(&signature, &outputs, Some(1), JpegOptions::default()).unwrap();
        assert_eq!(warning, None);
        assert!(error_of(&file, &outputs[0]) < 20.0);
        let refused = encode_jpeg(&signature, &outputs, Some(2), JpegOptions::default()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "picture: a JPEG holds one picture, and the batch has 2; ask for JSON, or for one at a time"
        );
    }
}
