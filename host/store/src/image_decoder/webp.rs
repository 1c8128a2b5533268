//! Decodes WebP files. Source: RFC 9649.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::{DecodedImage, ImageDecodeError, ImageFormat, check_size};

/// Returns whether these are the first bytes of a WebP file: a RIFF container of the type `WEBP`.
pub(super) fn is_webp(file: &[u8]) -> bool {
    file.starts_with(ImageFormat::Webp.magic()) && file.get(8..12) == Some(b"WEBP")
}

/// Decodes a file to RGB, or to RGBA if it has transparency.
pub(super) fn decode_webp(file: &[u8], bytes_max: usize) -> Result<DecodedImage, ImageDecodeError> {
    let bad = |error: DecodingError| ImageFormat::Webp.damaged_error(error);
    if let Some((height, width)) = webp_dimensions(file) {
        check_size(height, width, 3, bytes_max)?;
    }
    let mut decoder = WebPDecoder::new(Cursor::new(file)).map_err(bad)?;
    decoder.set_memory_limit(bytes_max);
    if decoder.is_animated() {
        return Err(ImageFormat::Webp.damaged_error("it is an animation; take one picture of it"));
    }
    let (width, height) = decoder.dimensions();
    let (height, width) = (height as usize, width as usize);
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let mut pixels = vec![0; check_size(height, width, channels, bytes_max)?];
    if decoder.output_buffer_size() != Some(pixels.len()) {
        return Err(ImageFormat::Webp.damaged_error("its headers contradict each other"));
    }
    decoder.read_image(&mut pixels).map_err(bad)?;
    Ok(DecodedImage { height, width, channels, pixels })
}

/// Returns height and width from the first chunk: `VP8X` (2.7.1.2), `VP8L` (3.4) or `VP8 ` (RFC 6386, 9.1).
pub(super) fn webp_dimensions(file: &[u8]) -> Option<(usize, usize)> {
    let byte = |at: usize| file.get(at).copied().map(usize::from);
    match file.get(12..16)? {
        b"VP8X" => {
            let side = |at: usize| Some(1 + byte(at)? + (byte(at + 1)? << 8) + (byte(at + 2)? << 16));
            Some((side(27)?, side(24)?))
        }
        b"VP8L" => {
            // After a byte 0x2f, 14 bits of the width minus 1, and 14 of the height minus 1.
            let bits = byte(21)? | byte(22)? << 8 | byte(23)? << 16 | byte(24)? << 24;
            Some((1 + ((bits >> 14) & 0x3fff), 1 + (bits & 0x3fff)))
        }
        b"VP8 " => {
            // After a tag of 3 bytes and a start code of 3, 14 bits of the width, 2 of a scale, and so for the height.
            let side = |at: usize| Some((byte(at)? | byte(at + 1)? << 8) & 0x3fff);
            Some((side(28)?, side(26)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use image_webp::{ColorType, WebPEncoder};

    use super::super::decode;
    use super::*;

    fn webp(width: u32, height: u32, color: ColorType, pixels: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        WebPEncoder::new(&mut file).encode(pixels, width, height, color).unwrap();
        file
    }

    /// 4 x 2 pixels of about (200, 30, 40), compressed with losses by another program.
    const LOSSY: &[u8] = &[
        0x52, 0x49, 0x46, 0x46, 0x3a, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50, 0x38, 0x20, 0x2e, 0x00,
        0x00, 0x00, 0x90, 0x01, 0x00, 0x9d, 0x01, 0x2a, 0x04, 0x00, 0x02, 0x00, 0x01, 0x40, 0x26, 0x25, 0xa0, 0x02,
        0x74, 0xba, 0x00, 0x03, 0x98, 0x00, 0xfe, 0xf1, 0x4d, 0xaf, 0xe2, 0xda, 0x47, 0x42, 0x99, 0x0f, 0xfe, 0xf1,
        0x9f, 0xff, 0x71, 0x9f, 0xff, 0x71, 0x9f, 0xfc, 0x88, 0x00, 0x00, 0x00,
    ];

    /// Two pictures of 2 x 2 pixels, made by another program.
    const ANIMATION: &[u8] = &[
        0x52, 0x49, 0x46, 0x46, 0x92, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50, 0x38, 0x58, 0x0a, 0x00,
        0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00, 0x41, 0x4e, 0x49, 0x4d, 0x06, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x41, 0x4e, 0x4d, 0x46, 0x2c, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x56, 0x50, 0x38, 0x4c,
        0x14, 0x00, 0x00, 0x00, 0x2f, 0x01, 0x40, 0x00, 0x00, 0x07, 0x50, 0x81, 0x54, 0x08, 0x20, 0x00, 0x0a, 0x9a,
        0xfe, 0xc7, 0x88, 0x88, 0xfe, 0x07, 0x41, 0x4e, 0x4d, 0x46, 0x32, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x56, 0x50, 0x38, 0x4c, 0x1a, 0x00,
        0x00, 0x00, 0x2f, 0x01, 0x40, 0x00, 0x00, 0x07, 0xa0, 0x10, 0x40, 0x00, 0x14, 0x34, 0x45, 0x26, 0x90, 0xb4,
        0xc5, 0xdb, 0xfe, 0xfe, 0xc7, 0x47, 0x44, 0xf4, 0x3f, 0x00,
    ];

    #[test]
    fn webp_files_are_decoded_with_their_channels() {
        let rgb = webp(2, 1, ColorType::Rgb8, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(ImageFormat::detect(&rgb), Some(ImageFormat::Webp));
        assert_eq!(ImageFormat::Webp.dimensions(&rgb), Some((1, 2)));
        let picture = decode(&rgb, 6).unwrap();
        assert_eq!((picture.height, picture.width, picture.channels), (1, 2, 3));
        assert_eq!(picture.pixels, [1, 2, 3, 4, 5, 6]);
        assert_eq!(decode(&rgb, 5), Err(ImageDecodeError::Size { height: 1, width: 2, bytes_max: 5 }));
        let rgba = webp(1, 1, ColorType::Rgba8, &[9, 8, 7, 100]);
        assert_eq!(decode(&rgba, 4).unwrap().pixels, [9, 8, 7, 100]);
        assert_eq!(ImageFormat::detect(b"RIFF....WAVE"), None);
    }

    #[test]
    fn an_animation_is_refused() {
        let error = decode(ANIMATION, 4096).unwrap_err().to_string();
        assert_eq!(error, "a damaged WebP: it is an animation; take one picture of it");
    }

    #[test]
    fn a_lossy_webp_is_decoded() {
        assert_eq!(ImageFormat::Webp.dimensions(LOSSY), Some((2, 4)));
        let picture = decode(LOSSY, 24).unwrap();
        for pixel in picture.pixels.chunks_exact(3) {
            let near = pixel.iter().zip([200_u8, 30, 40]).all(|(found, expected)| found.abs_diff(expected) <= 12);
            assert!(near, "{pixel:?}");
        }
    }

    #[test]
    fn a_corrupted_webp_is_an_error_or_an_image() {
        let lossless = webp(8, 8, ColorType::Rgb8, &(0..192).map(|n| n as u8).collect::<Vec<u8>>());
        for file in [&lossless[..], LOSSY, ANIMATION] {
            for at in 0..file.len() {
                for value in [0, 0x55, 0xff] {
                    let mut bad = file.to_vec();
                    bad[at] = value;
                    if let Ok(picture) = decode(&bad, 4096) {
                        assert_eq!(picture.pixels.len(), picture.height * picture.width * picture.channels);
                    }
                }
            }
        }
    }
}
