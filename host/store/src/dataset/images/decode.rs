//! A PNG or JPEG file as bytes, row by row, channels together. Files are told apart by how they begin, not by their names.

use png::{ColorType, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::limits::{IMAGE_BYTES_MAX, IMAGE_SIDE_MAX};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG: &[u8] = b"\xff\xd8\xff";
/// Markers of a JPEG: a scan begins, the image ends.
const SCAN: [u8; 2] = [0xff, 0xda];
const END: [u8; 2] = [0xff, 0xd9];

/// An image in memory.
#[derive(Debug)]
pub(super) struct Image {
    /// Height, width, channels.
    pub(super) dims: [usize; 3],
    pub(super) pixels: Vec<u8>,
}

/// Decodes a whole file, or says what is wrong with it.
pub(super) fn decode(file: &[u8]) -> Result<Image, String> {
    if file.starts_with(PNG) {
        png(file)
    } else if file.starts_with(JPEG) {
        jpeg(file)
    } else {
        Err("neither a PNG nor a JPEG image, by its first bytes".to_owned())
    }
}

/// Bytes of such an image, if it is one that we read.
fn size(height: usize, width: usize, channels: usize) -> Result<usize, String> {
    if height == 0 || width == 0 {
        return Err(format!("{height} x {width} pixels; an image has at least one"));
    }
    if height > IMAGE_SIDE_MAX || width > IMAGE_SIDE_MAX || height * width * channels > IMAGE_BYTES_MAX {
        return Err(format!(
            "{height} x {width} pixels; at most {IMAGE_SIDE_MAX} a side and {IMAGE_BYTES_MAX} bytes are read"
        ));
    }
    Ok(height * width * channels)
}

fn png(file: &[u8]) -> Result<Image, String> {
    let bad = |error: png::DecodingError| format!("a damaged PNG: {error}");
    let mut decoder =
        png::Decoder::new_with_limits(std::io::Cursor::new(file), png::Limits { bytes: 2 * IMAGE_BYTES_MAX });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(bad)?;
    let (height, width) = (reader.info().height as usize, reader.info().width as usize);
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
        // Palettes were asked to be looked up.
        ColorType::Indexed => return Err("a damaged PNG: its palette stayed".to_owned()),
    };
    let mut pixels = vec![0; size(height, width, channels)?];
    reader.next_frame(&mut pixels).map_err(bad)?;
    // Reads what follows, with its checksums.
    reader.finish().map_err(bad)?;
    Ok(Image { dims: [height, width, channels], pixels })
}

fn jpeg(file: &[u8]) -> Result<Image, String> {
    // The decoder fills up what is missing with grey. An image ends with a marker, which is in no scan; one of a preview in
    // the headers comes before the last scan begins.
    let last = |marker: [u8; 2]| file.windows(2).rposition(|pair| pair == marker);
    if last(END) <= last(SCAN) {
        return Err("a damaged JPEG: it ends early".to_owned());
    }
    let bad = |error: zune_jpeg::errors::DecodeErrors| format!("a damaged JPEG: {error}");
    let options = |colors| {
        DecoderOptions::default()
            .set_max_width(IMAGE_SIDE_MAX)
            .set_max_height(IMAGE_SIDE_MAX)
            .jpeg_set_out_colorspace(colors)
    };
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options(ColorSpace::RGB));
    decoder.decode_headers().map_err(bad)?;
    let gray = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (width, height) = decoder.dimensions().ok_or("a damaged JPEG: it has no size")?;
    let (channels, colors) = if gray { (1, ColorSpace::Luma) } else { (3, ColorSpace::RGB) };
    let expected = size(height, width, channels)?;
    decoder.set_options(options(colors));
    let pixels = decoder.decode().map_err(bad)?;
    if pixels.len() != expected {
        return Err(format!("a damaged JPEG: {} bytes of pixels, expected {expected}", pixels.len()));
    }
    Ok(Image { dims: [height, width, channels], pixels })
}
