//! The bundled font, so that a server without fonts draws the same pictures as any other machine.

use std::sync::OnceLock;

use ab_glyph::{Font, FontRef, GlyphId, PxScale, ScaleFont, point};

/// The font. Its licence is beside it.
const FONT_FILE: &[u8] = include_bytes!("../fonts/DejaVuSans-subset.ttf");

/// The families that a viewer of an SVG picture is to use: the bundled one, and others of about the same widths.
pub(crate) const FONT_FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// The height of figures and capital letters, in em.
pub(crate) const CAPITAL_HEIGHT: f64 = 0.73;

fn font() -> &'static FontRef<'static> {
    static FONT: OnceLock<FontRef<'static>> = OnceLock::new();
    FONT.get_or_init(|| FontRef::try_from_slice(FONT_FILE).expect("the bundled font is valid"))
}

/// Returns the scale at which an em has this number of pixels.
fn scale(em_pixels: f64) -> PxScale {
    let units = font().units_per_em().unwrap_or(2048.0);
    PxScale::from(em_pixels as f32 * font().height_unscaled() / units)
}

/// Returns the glyph of a character. One that the font lacks is drawn as the glyph for missing characters, a box.
fn glyph_of(c: char) -> GlyphId {
    font().glyph_id(c)
}

/// Returns the width of a text on one line, in pixels.
pub(crate) fn text_width(text: &str, em_pixels: f64) -> f64 {
    let scaled = font().as_scaled(scale(em_pixels));
    text.chars().map(|c| f64::from(scaled.h_advance(glyph_of(c)))).sum()
}

/// Calls `pixel` with the place and the coverage, from 0 to 1, of every pixel of a text. The first letter begins at x =
/// 0, and its baseline is at y = 0.
pub(crate) fn draw_text(text: &str, em_pixels: f64, mut pixel: impl FnMut(i32, i32, f32)) {
    let scale = scale(em_pixels);
    let scaled = font().as_scaled(scale);
    let mut x = 0.0;
    for c in text.chars() {
        let id = glyph_of(c);
        if let Some(outline) = font().outline_glyph(id.with_scale_and_position(scale, point(x, 0.0))) {
            let bounds = outline.px_bounds();
            let (left, top) = (bounds.min.x as i32, bounds.min.y as i32);
            outline.draw(|x, y, coverage| pixel(left + x as i32, top + y as i32, coverage));
        }
        x += scaled.h_advance(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_the_letters_of_labels() {
        for c in "Az09 ÄéłñğșżΑωЖя…–×∞≥→₂²µ\u{fffd}".chars() {
            assert_ne!(glyph_of(c).0, 0, "{c:?}");
        }
        let mut ink = 0.0;
        draw_text("数字", 13.0, |_, _, coverage| ink += coverage);
        assert!(ink > 10.0, "missing characters are boxes");
        assert!((text_width("mm", 13.0) - 2.0 * text_width("m", 13.0)).abs() < 1e-3);
    }
}
