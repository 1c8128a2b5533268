//! Decodes PNG, JPEG and WebP files to pixels, for datasets and predictions alike, so that training and inference see the
//! same input. The format is detected from the first bytes, not from the file name.
//!
//! 16-bit samples are reduced to 8 bits, and palettes are resolved. The EXIF orientation of a JPEG is not applied.

mod webp;

use std::fmt;

use png::{ColorType, Transformations};
use thiserror::Error;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::limits::{IMAGE_SIDE_MAX, JPEG_SCANS_MAX, PNG_CHUNKS_BYTES_MAX};

/// A decoded image.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedImage {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Number of channels: 1 for grey, 2 for grey and alpha, 3 for RGB, 4 for RGBA.
    pub channels: usize,
    /// Samples in row-major order, with the channels of a pixel adjacent (HWC).
    pub pixels: Vec<u8>,
}

/// A supported image format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// Portable Network Graphics. Source: PNG (third edition).
    Png,
    /// JPEG, baseline and progressive. Source: ITU-T T.81.
    Jpeg,
    /// WebP, with and without losses. Source: RFC 9649.
    Webp,
}

/// The reason why an image cannot be decoded.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ImageDecodeError {
    /// Not a format that is read.
    #[error("not a PNG, JPEG or WebP image, by its first bytes")]
    UnknownFormat,
    /// No pixels, or more than the limit.
    #[error("{height} x {width} pixels; 1 to {IMAGE_SIDE_MAX} a side and {bytes_max} bytes in all are read")]
    Size {
        /// Height in pixels.
        height: usize,
        /// Width in pixels.
        width: usize,
        /// The limit on bytes of pixels.
        bytes_max: usize,
    },
    /// The file contradicts its format, or ends early.
    #[error("a damaged {format}: {reason}")]
    Damaged {
        /// The format detected from its first bytes.
        format: ImageFormat,
        /// The decoder's message.
        reason: String,
    },
}

impl ImageFormat {
    /// Returns the format that these first bytes belong to, or `None`.
    pub fn detect(file: &[u8]) -> Option<ImageFormat> {
        let begins = |format: &ImageFormat| match format {
            ImageFormat::Png | ImageFormat::Jpeg => file.starts_with(format.magic()),
            ImageFormat::Webp => webp::is_webp(file),
        };
        [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Webp].into_iter().find(begins)
    }

    /// Returns the media type of the format.
    pub fn media_type(self) -> &'static str {
        match self {
            ImageFormat::Png => "image/png",
            ImageFormat::Jpeg => "image/jpeg",
            ImageFormat::Webp => "image/webp",
        }
    }

    /// Returns the first bytes of every file of the format. Files of other formats can begin with those of WebP too.
    pub fn magic(self) -> &'static [u8] {
        match self {
            ImageFormat::Png => b"\x89PNG\r\n\x1a\n",
            ImageFormat::Jpeg => b"\xff\xd8\xff",
            ImageFormat::Webp => b"RIFF",
        }
    }

    /// Returns the height and width from the header of a file of this format, without decoding pixels, or `None` if the
    /// file ends before they appear.
    pub fn dimensions(self, file: &[u8]) -> Option<(usize, usize)> {
        match self {
            ImageFormat::Png => {
                let side = |at: usize| file.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
                // PNG (third edition), 11.2.1: the first chunk is IHDR, which begins with width and height.
                Some((side(20)? as usize, side(16)? as usize))
            }
            ImageFormat::Jpeg => jpeg_dimensions(file),
            ImageFormat::Webp => webp::webp_dimensions(file),
        }
    }

    fn damaged_error(self, reason: impl fmt::Display) -> ImageDecodeError {
        ImageDecodeError::Damaged { format: self, reason: reason.to_string() }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageFormat::Png => "PNG",
            ImageFormat::Jpeg => "JPEG",
            ImageFormat::Webp => "WebP",
        })
    }
}

/// Decodes a whole file to at most `bytes_max` bytes of pixels, whatever size the header states.
///
/// # Errors
/// Returns [`ImageDecodeError`].
pub fn decode(file: &[u8], bytes_max: usize) -> Result<DecodedImage, ImageDecodeError> {
    match ImageFormat::detect(file).ok_or(ImageDecodeError::UnknownFormat)? {
        ImageFormat::Png => decode_png(file, bytes_max),
        ImageFormat::Jpeg => decode_jpeg(file, bytes_max),
        ImageFormat::Webp => webp::decode_webp(file, bytes_max),
    }
}

/// Returns whether a file is an image in colours, by its headers. A file that cannot be read is refused when it is
/// decoded.
pub fn has_colours(file: &[u8]) -> bool {
    match ImageFormat::detect(file) {
        // PNG (third edition), 11.2.1: the colour type 0 is grey, and 4 is grey with alpha.
        Some(ImageFormat::Png) => file.get(25).is_some_and(|colours| !matches!(colours, 0 | 4)),
        // ITU-T T.81, B.2.2: the number of components follows the two sides.
        Some(ImageFormat::Jpeg) => {
            jpeg_frame(file).and_then(|at| file.get(at + 9)).is_some_and(|components| *components > 1)
        }
        Some(ImageFormat::Webp) => true,
        None => false,
    }
}

/// Returns the bytes of an image's pixels, or an error if the image is empty or over the limits.
fn check_size(height: usize, width: usize, channels: usize, bytes_max: usize) -> Result<usize, ImageDecodeError> {
    let sides = [height, width];
    if sides.iter().any(|&side| side == 0 || side > IMAGE_SIDE_MAX) || height * width * channels > bytes_max {
        return Err(ImageDecodeError::Size { height, width, bytes_max });
    }
    Ok(height * width * channels)
}

fn decode_png(file: &[u8], bytes_max: usize) -> Result<DecodedImage, ImageDecodeError> {
    let bad = |error: png::DecodingError| ImageFormat::Png.damaged_error(error);
    // The decoder holds one row at a time, so this limits the memory of chunks and one row.
    let limits = png::Limits { bytes: PNG_CHUNKS_BYTES_MAX };
    let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(file), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.ignore_checksums(false);
    let mut reader = decoder.read_info().map_err(bad)?;
    let (height, width) = (reader.info().height as usize, reader.info().width as usize);
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
        // The decoder was asked to resolve palettes.
        ColorType::Indexed => return Err(ImageFormat::Png.damaged_error("its palette stayed")),
    };
    let mut pixels = vec![0; check_size(height, width, channels, bytes_max)?];
    reader.next_frame(&mut pixels).map_err(bad)?;
    // Read to the end of the file, so that its checksums are verified.
    reader.finish().map_err(bad)?;
    Ok(DecodedImage { height, width, channels, pixels })
}

/// JPEG markers: start of scan, end of image. Source: ITU-T T.81, table B.1.
const SCAN: [u8; 2] = [0xff, 0xda];
const END: [u8; 2] = [0xff, 0xd9];

fn decode_jpeg(file: &[u8], bytes_max: usize) -> Result<DecodedImage, ImageDecodeError> {
    let damaged = |reason: &str| ImageFormat::Jpeg.damaged_error(reason);
    // The decoder fills missing data with grey, so look for the end-of-image marker, which cannot occur within a scan.
    // That of a preview in the headers comes before the last scan begins.
    let last = |marker: [u8; 2]| file.windows(2).rposition(|pair| pair == marker);
    if last(END) <= last(SCAN) {
        return Err(damaged("it ends early"));
    }
    // A scan of a few bytes can cover all pixels.
    if file.windows(2).filter(|pair| *pair == SCAN).count() > JPEG_SCANS_MAX {
        return Err(damaged(&format!("more than {JPEG_SCANS_MAX} scans")));
    }
    let bad = |error: zune_jpeg::errors::DecodeErrors| ImageFormat::Jpeg.damaged_error(error);
    if let Some((height, width)) = jpeg_dimensions(file) {
        check_size(height, width, 1, bytes_max)?;
    }
    let options = |colors| {
        DecoderOptions::default()
            .set_max_width(IMAGE_SIDE_MAX)
            .set_max_height(IMAGE_SIDE_MAX)
            .jpeg_set_out_colorspace(colors)
    };
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options(ColorSpace::RGB));
    decoder.decode_headers().map_err(bad)?;
    let gray = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (width, height) = decoder.dimensions().ok_or_else(|| damaged("it has no size"))?;
    let (channels, colors) = if gray { (1, ColorSpace::Luma) } else { (3, ColorSpace::RGB) };
    let expected = check_size(height, width, channels, bytes_max)?;
    decoder.set_options(options(colors));
    let pixels = decoder.decode().map_err(bad)?;
    if pixels.len() != expected {
        return Err(damaged(&format!("{} bytes of pixels, expected {expected}", pixels.len())));
    }
    Ok(DecodedImage { height, width, channels, pixels })
}

/// Returns height and width from the first frame header.
fn jpeg_dimensions(file: &[u8]) -> Option<(usize, usize)> {
    let at = jpeg_frame(file)?;
    Some((jpeg_number(file, at + 5)?, jpeg_number(file, at + 7)?))
}

fn jpeg_number(file: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(file.get(at..at + 2)?.try_into().ok()?)))
}

/// Returns the position of the first frame header. Source: ITU-T T.81, B.2.2: markers `C0` to `CF` except `C4`, `C8` and
/// `CC`.
fn jpeg_frame(file: &[u8]) -> Option<usize> {
    // Skip the start-of-image marker.
    let mut at = 2;
    loop {
        if *file.get(at)? != 0xff {
            return None;
        }
        match *file.get(at + 1)? {
            0xff => at += 1,
            0xc0..=0xcf if ![0xc4, 0xc8, 0xcc].contains(&file[at + 1]) => return Some(at),
            // A scan or the end of the image comes before any frame header.
            0xda | 0xd9 => return None,
            _ => at += 2 + jpeg_number(file, at + 2)?.max(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a JPEG of 8 x 8 grey pixels of one value, built by hand: quantization by 1, one code per table.
    fn grey_jpeg() -> Vec<u8> {
        let mut file = vec![0xff, 0xd8];
        let mut segment = |marker: u8, bytes: &[u8]| {
            file.extend([0xff, marker]);
            file.extend(u16::try_from(bytes.len() + 2).unwrap().to_be_bytes());
            file.extend(bytes);
        };
        let quantization: Vec<u8> = std::iter::once(0).chain([1; 64]).collect();
        segment(0xdb, &quantization);
        segment(0xc0, &[8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
        // The DC difference has 0 bits and all AC coefficients are 0: one code of one bit each.
        let mut codes = vec![0; 18];
        codes[1] = 1;
        segment(0xc4, &codes);
        codes[0] = 0x10;
        segment(0xc4, &codes);
        segment(0xda, &[1, 1, 0, 0, 63, 0]);
        file.extend([0b0011_1111, 0xff, 0xd9]);
        file
    }

    #[test]
    fn a_jpeg_is_decoded_and_its_dimensions_are_read() {
        let file = grey_jpeg();
        assert_eq!(ImageFormat::detect(&file), Some(ImageFormat::Jpeg));
        assert_eq!(ImageFormat::Jpeg.dimensions(&file), Some((8, 8)));
        let picture = decode(&file, 64).unwrap();
        assert_eq!((picture.height, picture.width, picture.channels), (8, 8, 1));
        assert_eq!(picture.pixels, [128; 64]);
        assert_eq!(decode(&file, 63), Err(ImageDecodeError::Size { height: 8, width: 8, bytes_max: 63 }));
    }

    #[test]
    fn a_jpeg_with_too_many_scans_is_refused() {
        let file = grey_jpeg();
        let (head, end) = file.split_at(file.len() - 2);
        let scan = &head[head.len() - 11..];
        assert_eq!(scan[..2], SCAN);
        let many = [head, &scan.repeat(JPEG_SCANS_MAX), end].concat();
        let error = decode(&many, 64).unwrap_err().to_string();
        assert_eq!(error, format!("a damaged JPEG: more than {JPEG_SCANS_MAX} scans"));
    }

    #[test]
    fn a_corrupted_image_is_an_error_or_an_image() {
        let file = grey_jpeg();
        for at in 0..file.len() {
            assert!(decode(&file[..at], 64).is_err(), "{at}");
            for value in [0, 0x55, 0xff] {
                let mut bad = file.clone();
                bad[at] = value;
                if let Ok(picture) = decode(&bad, 64) {
                    assert_eq!(picture.pixels.len(), picture.height * picture.width * picture.channels);
                }
            }
        }
    }
}
