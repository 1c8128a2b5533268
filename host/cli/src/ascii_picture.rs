//! Small pictures in a terminal, drawn with ASCII characters so that they are readable in a log too.

use std::path::Path;

use saggar_store::image_decoder::{self, DecodedImage, ImageFormat};
use saggar_store::regular_file;

/// Characters from dark to light.
const SHADES: &[u8] = b" .:-=+*#%@";
/// Maximum width of a picture, in characters.
const COLUMNS_MAX: usize = 64;
/// Maximum size, in bytes, of a file that is drawn.
const DRAWN_BYTES_MAX: u64 = 24 << 20;

/// Draws a PNG or JPEG file: one line of text per row of pixels, two characters per pixel. Returns `None` if the file
/// is of another type or larger than [`DRAWN_BYTES_MAX`].
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
