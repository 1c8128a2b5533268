//! Encodes pixels as PNG files, for images that trainings log and for images that models return.

use png::{BitDepth, ColorType, Encoder};

/// Returns a PNG file of pixels with 8 bits per channel. Shape of `pixels`: `[height, width, channels]`, row-major, with
/// 1 channel for grey or 3 for RGB.
///
/// # Errors
/// The encoder's message if the image has no pixels, or another number of bytes than its shape.
pub fn encode_png(pixels: &[u8], height: usize, width: usize, channels: usize) -> Result<Vec<u8>, String> {
    let side = |pixels: usize| u32::try_from(pixels).map_err(|error| error.to_string());
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, side(width)?, side(height)?);
    encoder.set_color(if channels == 3 { ColorType::Rgb } else { ColorType::Grayscale });
    encoder.set_depth(BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map(|()| file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_decoder;

    #[test]
    fn an_encoded_image_decodes_to_the_same_pixels() {
        for channels in [1, 3] {
            let pixels: Vec<u8> = (0..5 * 7 * channels).map(|at| (at * 37 % 256) as u8).collect();
            let file = encode_png(&pixels, 5, 7, channels).unwrap();
            let decoded = image_decoder::decode(&file, 1 << 20).unwrap();
            assert_eq!((decoded.height, decoded.width, decoded.channels), (5, 7, channels));
            assert_eq!(decoded.pixels, pixels);
        }
    }

    #[test]
    fn pixels_that_do_not_match_their_shape_are_refused() {
        assert!(encode_png(&[0; 5], 2, 3, 1).is_err());
        assert!(encode_png(&[], 0, 3, 1).is_err());
    }
}
