//! Small pictures in a terminal, with characters only: they must be readable in a log too.

use std::io::BufReader;
use std::path::Path;

/// From dark to light.
const SHADES: &[u8] = b" .:-=+*#%@";
/// Columns a picture may take.
const COLUMNS_MAX: usize = 64;

/// Draws a PNG file, a line of text a row of pixels, two characters a pixel; none where it is no PNG, or a large one.
pub(crate) fn draw(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().ok()?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    if width * 2 > COLUMNS_MAX || height > COLUMNS_MAX {
        return None;
    }
    let mut pixels = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut pixels).ok()?;
    let samples = frame.color_type.samples();
    let colours = if samples < 3 { 1 } else { 3 };
    let mut text = String::new();
    for row in pixels[..frame.buffer_size()].chunks(frame.line_size) {
        for pixel in row.chunks_exact(samples) {
            let light = pixel[..colours].iter().map(|&value| usize::from(value)).sum::<usize>() / colours;
            let shade = char::from(SHADES[light * (SHADES.len() - 1) / 255]);
            text.extend([shade, shade]);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    Some(text)
}
