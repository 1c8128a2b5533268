//! Small pictures in a terminal, with characters only: they must be readable in a log too.

use std::path::Path;

use saggar_store::image_decoder::{self, DecodedImage, ImageFormat};
use saggar_store::regular_file;

/// From dark to light.
const SHADES: &[u8] = b" .:-=+*#%@";
/// Columns a picture may take.
const COLUMNS_MAX: usize = 64;
/// Bytes of a file that is looked at.
const DRAWN_BYTES_MAX: u64 = 24 << 20;

/// Draws a PNG or JPEG file, a line of text a row of pixels, two characters a pixel; none where it is neither, or a large one.
pub(crate) fn draw_picture(path: &Path) -> Option<String> {
    let file = regular_file::read(path, DRAWN_BYTES_MAX).ok()?;
    let (height, width) = ImageFormat::detect(&file)?.dimensions(&file)?;
    if width * 2 > COLUMNS_MAX || height > COLUMNS_MAX {
        return None;
    }
    let DecodedImage { width, channels, pixels, .. } =
        image_decoder::decode(&file, COLUMNS_MAX * COLUMNS_MAX * 4).ok()?;
    let colours = if channels < 3 { 1 } else { 3 };
    let mut text = String::new();
    for row in pixels.chunks(width * channels) {
        for pixel in row.chunks_exact(channels) {
            let light = pixel[..colours].iter().map(|&value| usize::from(value)).sum::<usize>() / colours;
            let shade = char::from(SHADES[light * (SHADES.len() - 1) / 255]);
            text.extend([shade, shade]);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    Some(text)
}
