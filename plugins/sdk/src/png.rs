//! PNG encoder: 8 bits per channel, grey or RGB. Source: W3C PNG, third edition.

use miniz_oxide::deflate::compress_to_vec_zlib;

use crate::error::{Error, Result};

const PNG_SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
/// Compression level, from 0 (fastest) to 10 (smallest).
const COMPRESSION_LEVEL: u8 = 8;

/// Encodes an image as a PNG file.
///
/// Shape: `[height, width]` or `[height, width, 1]` for grey, `[height, width, 3]` for RGB; `pixels` are its bytes,
/// row-major.
///
/// ```
/// use saggar_plugin::png;
///
/// let pixels = png::quantize(&[0.0, 0.5, 1.0, 0.25]);
/// let file = png::encode(&[2, 2], &pixels)?;
/// assert_eq!(file[1..4], *b"PNG");
/// # Ok::<(), saggar_plugin::Error>(())
/// ```
///
/// # Errors
/// Returns `Shape` if the shape is another, the image has no pixels, or the number of bytes does not match the shape.
pub fn encode(shape: &[u32], pixels: &[u8]) -> Result<Vec<u8>> {
    let refused = |what: &str, expected| Error::Shape { what: what.to_owned(), expected, given: shape.to_vec() };
    let (height, width, channels) = match *shape {
        [height, width] | [height, width, 1] => (height, width, 1),
        [height, width, 3] => (height, width, 3),
        _ => return Err(refused("an image", "[height, width] or [height, width, 3]")),
    };
    if height == 0 || width == 0 || height > i32::MAX as u32 || width > i32::MAX as u32 {
        return Err(refused("an image", "at least 1 by 1"));
    }
    let stride = width as usize * channels as usize;
    if stride.checked_mul(height as usize) != Some(pixels.len()) {
        return Err(refused(&format!("the shape of {} bytes of pixels", pixels.len()), "one with an element per byte"));
    }
    // The first byte of each row is its filter type; 0 means unfiltered.
    let rows: Vec<u8> =
        pixels.chunks_exact(stride).flat_map(|row| std::iter::once(0).chain(row.iter().copied())).collect();
    let colour = if channels == 3 { 2 } else { 0 };
    let mut header = [width, height].map(u32::to_be_bytes).concat();
    header.extend([8, colour, 0, 0, 0]);

    let mut file = PNG_SIGNATURE.to_vec();
    chunk(&mut file, *b"IHDR", &header);
    chunk(&mut file, *b"IDAT", &compress_to_vec_zlib(&rows, COMPRESSION_LEVEL));
    chunk(&mut file, *b"IEND", &[]);
    Ok(file)
}

/// Converts pixels from 0 to 1 to bytes from 0 to 255, rounded to nearest. Values outside of 0 to 1 are clamped.
pub fn quantize(pixels: &[f32]) -> Vec<u8> {
    pixels.iter().map(|pixel| (pixel.clamp(0.0, 1.0) * 255.0).round() as u8).collect()
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let checksum = crc32(&file[start..]);
    file.extend(checksum.to_be_bytes());
}

/// Returns the CRC-32 with the reversed polynomial 0xEDB88320.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the chunks of a file by type, after checking their checksums.
    fn chunks(file: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut rest = file.strip_prefix(&PNG_SIGNATURE).unwrap();
        let mut chunks = Vec::new();
        while let Some((size, after)) = rest.split_first_chunk::<4>() {
            let size = u32::from_be_bytes(*size) as usize;
            let (body, after) = after.split_at(size + 4);
            let (checksum, after) = after.split_first_chunk::<4>().unwrap();
            assert_eq!(u32::from_be_bytes(*checksum), crc32(body));
            chunks.push((String::from_utf8(body[..4].to_vec()).unwrap(), body[4..].to_vec()));
            rest = after;
        }
        chunks
    }

    #[test]
    fn crc32_matches_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b"IEND"), 0xae42_6082);
    }

    #[test]
    fn an_encoded_png_decodes_to_the_same_pixels() {
        for (shape, colour) in [(vec![3, 2, 3], 2), (vec![3, 2], 0)] {
            let count = shape.iter().product::<u32>() as u8;
            let pixels: Vec<u8> = (0..count).map(|i| i.wrapping_mul(37)).collect();
            let chunks = chunks(&encode(&shape, &pixels).unwrap());
            let names: Vec<&str> = chunks.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["IHDR", "IDAT", "IEND"]);
            assert_eq!(chunks[0].1, [0, 0, 0, 2, 0, 0, 0, 3, 8, colour, 0, 0, 0]);
            let rows = miniz_oxide::inflate::decompress_to_vec_zlib(&chunks[1].1).unwrap();
            let stride = rows.len() / 3;
            assert!(rows.chunks(stride).all(|row| row[0] == 0));
            let read: Vec<u8> = rows.chunks(stride).flat_map(|row| row[1..].to_vec()).collect();
            assert_eq!(read, pixels);
        }
    }

    #[test]
    fn shapes_that_are_not_images_are_refused() {
        let message = |shape: &[u32], bytes: usize| encode(shape, &vec![0; bytes]).unwrap_err().to_string();
        assert_eq!(message(&[2, 2, 4], 16), "an image must be [height, width] or [height, width, 3], not [2, 2, 4]");
        assert_eq!(message(&[0, 2], 0), "an image must be at least 1 by 1, not [0, 2]");
        assert_eq!(
            message(&[2, 2], 5),
            "the shape of 5 bytes of pixels must be one with an element per byte, not [2, 2]"
        );
    }

    #[test]
    fn floats_are_quantized_to_the_nearest_byte() {
        assert_eq!(quantize(&[-1.0, 0.0, 0.5, 0.998, 1.0, 7.0]), [0, 0, 128, 254, 255, 255]);
    }
}
