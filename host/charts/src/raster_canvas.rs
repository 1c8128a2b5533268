//! A backend of plotters that draws into pixels. Everything is drawn several times larger than the picture and averaged,
//! which gives smooth edges. Colours are opaque, so the order of the pixels within a shape does not matter.

use std::convert::Infallible;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform,
};

use crate::label_font;

/// The size by which plotters multiplies an em: see its SVG backend.
pub(crate) const FONT_SIZE_PER_EM: f64 = 1.24;

type RasterResult = Result<(), DrawingErrorKind<Infallible>>;

/// The pixels of a picture, three bytes each, that are drawn enlarged.
pub(crate) struct RasterCanvas<'a> {
    pixels: &'a mut [u8],
    width: u32,
    height: u32,
}

impl<'a> RasterCanvas<'a> {
    /// Returns a canvas over `width` × `height` pixels of three bytes.
    pub(crate) fn new(pixels: &'a mut [u8], width: u32, height: u32) -> RasterCanvas<'a> {
        assert_eq!(pixels.len(), width as usize * height as usize * 3, "three bytes for each pixel");
        RasterCanvas { pixels, width, height }
    }

    /// Mixes a colour into the pixel at a place. Places outside the picture are left out.
    fn blend(&mut self, (x, y): BackendCoord, (red, green, blue): (u8, u8, u8), share: f64) {
        let inside = x >= 0 && y >= 0 && (x as u32) < self.width && (y as u32) < self.height;
        if !inside || share <= 0.0 {
            return;
        }
        let at = (y as usize * self.width as usize + x as usize) * 3;
        for (channel, colour) in self.pixels[at..at + 3].iter_mut().zip([red, green, blue]) {
            let before = f64::from(*channel);
            *channel = (before + (f64::from(colour) - before) * share.min(1.0)).round() as u8;
        }
    }

    /// Fills the pixels of a row from one place to another, both included.
    fn fill_row(&mut self, y: i32, from: f64, to: f64, colour: BackendColor) {
        if y < 0 || y as u32 >= self.height {
            return;
        }
        let from = from.round().max(0.0) as i32;
        let to = to.round().min(f64::from(self.width) - 1.0) as i32;
        for x in from..=to {
            self.blend((x, y), colour.rgb, colour.alpha);
        }
    }

    /// Fills everything that is at most `radius` from a straight line: a stroke with round ends.
    fn stroke(&mut self, from: BackendCoord, to: BackendCoord, radius: f64, colour: BackendColor) {
        let ((x0, y0), (x1, y1)) = (float(from), float(to));
        let (dx, dy) = (x1 - x0, y1 - y0);
        let length = dx.hypot(dy);
        let rows = (y0.min(y1) - radius).floor() as i32..=(y0.max(y1) + radius).ceil() as i32;
        for row in rows {
            let y = f64::from(row);
            let mut span: Option<(f64, f64)> = None;
            let mut include = |low: f64, high: f64| {
                span = Some(span.map_or((low, high), |(from, to)| (from.min(low), to.max(high))));
            };
            for (cx, cy) in [(x0, y0), (x1, y1)] {
                let above = radius * radius - (y - cy) * (y - cy);
                if above >= 0.0 {
                    include(cx - above.sqrt(), cx + above.sqrt());
                }
            }
            // The rectangle between the ends is the intersection of two strips.
            if length > 0.0 {
                let (ux, uy) = (dx / length, dy / length);
                let along = strip(ux, uy * (y - y0), 0.0, length);
                let across = strip(-uy, ux * (y - y0), -radius, radius);
                if let (Some((a, b)), Some((c, d))) = (along, across) {
                    let (low, high) = (a.max(c), b.min(d));
                    if low <= high {
                        include(x0 + low, x0 + high);
                    }
                }
            }
            if let Some((low, high)) = span {
                self.fill_row(row, low, high, colour);
            }
        }
    }
}

/// Returns the range of `x` with `low <= factor * x + offset <= high`.
fn strip(factor: f64, offset: f64, low: f64, high: f64) -> Option<(f64, f64)> {
    if factor.abs() < 1e-12 {
        return (low..=high).contains(&offset).then_some((f64::NEG_INFINITY, f64::INFINITY));
    }
    let (one, other) = ((low - offset) / factor, (high - offset) / factor);
    Some((one.min(other), one.max(other)))
}

fn float((x, y): BackendCoord) -> (f64, f64) {
    (f64::from(x), f64::from(y))
}

impl DrawingBackend for RasterCanvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn ensure_prepared(&mut self) -> RasterResult {
        Ok(())
    }

    fn present(&mut self) -> RasterResult {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> RasterResult {
        self.blend(point, color.rgb, color.alpha);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> RasterResult {
        self.stroke(from, to, f64::from(style.stroke_width()) / 2.0, style.color());
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> RasterResult {
        let path: Vec<BackendCoord> = path.into_iter().collect();
        path.windows(2).try_for_each(|ends| self.draw_line(ends[0], ends[1], style))
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> RasterResult {
        if !fill {
            return self.draw_path([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], style);
        }
        for y in top.max(0)..=bottom.min(i32::try_from(self.height).unwrap_or(i32::MAX) - 1) {
            self.fill_row(y, f64::from(left), f64::from(right), style.color());
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vert: I,
        style: &S,
    ) -> RasterResult {
        let corners: Vec<(f64, f64)> = vert.into_iter().map(float).collect();
        let heights = || corners.iter().map(|corner| corner.1);
        let (top, bottom) = (heights().fold(f64::MAX, f64::min), heights().fold(f64::MIN, f64::max));
        if corners.is_empty() {
            return Ok(());
        }
        for row in top as i32..=bottom as i32 {
            // Half a pixel lower, so that no corner is on the line.
            let y = f64::from(row) + 0.5;
            let mut crossings: Vec<f64> = Vec::new();
            for (index, (x0, y0)) in corners.iter().enumerate() {
                let (x1, y1) = corners[(index + 1) % corners.len()];
                if (*y0 < y) != (y1 < y) {
                    crossings.push(x0 + (y - y0) / (y1 - y0) * (x1 - x0));
                }
            }
            crossings.sort_unstable_by(f64::total_cmp);
            for ends in crossings.chunks_exact(2) {
                self.fill_row(row, ends[0], ends[1], style.color());
            }
        }
        Ok(())
    }

    fn draw_text<T: BackendTextStyle>(&mut self, text: &str, style: &T, pos: BackendCoord) -> RasterResult {
        let em = style.size() / FONT_SIZE_PER_EM;
        let width = label_font::text_width(text, em);
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        // The offsets of the SVG backend, except that figures are centred.
        let baseline = match style.anchor().v_pos {
            VPos::Top => 0.76 * em,
            VPos::Center => label_font::CAPITAL_HEIGHT / 2.0 * em,
            VPos::Bottom => -0.27 * em,
        };
        let (left, baseline) = (left.round() as i32, baseline.round() as i32);
        let color = style.color();
        label_font::draw_text(text, em, |x, y, coverage| {
            let (x, y) = (x + left, y + baseline);
            let (x, y) = match style.transform() {
                FontTransform::None => (x, y),
                FontTransform::Rotate90 => (-y, x),
                FontTransform::Rotate180 => (-x, -y),
                FontTransform::Rotate270 => (y, -x),
            };
            self.blend((pos.0 + x, pos.1 + y), color.rgb, color.alpha * f64::from(coverage));
        });
        Ok(())
    }

    fn estimate_text_size<T: BackendTextStyle>(
        &self,
        text: &str,
        style: &T,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok(estimate_text_size(text, style))
    }
}

/// Returns the width and the height of a text in the bundled font.
pub(crate) fn estimate_text_size<T: BackendTextStyle>(text: &str, style: &T) -> (u32, u32) {
    let em = style.size() / FONT_SIZE_PER_EM;
    (label_font::text_width(text, em).ceil() as u32, em.ceil() as u32)
}

/// Returns the averages of `times` × `times` pixels.
pub(crate) fn average(pixels: &[u8], width: u32, height: u32, times: u32) -> Vec<u8> {
    let (width, height, times) = (width as usize, height as usize, times as usize);
    let row = width * times * 3;
    let mut averaged = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let from = y * times * row + x * times * 3 + channel;
                let sum: usize = (0..times)
                    .flat_map(|dy| (0..times).map(move |dx| usize::from(pixels[from + dy * row + dx * 3])))
                    .sum();
                averaged.push(((sum + times * times / 2) / (times * times)) as u8);
            }
        }
    }
    averaged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the picture as text: `#` where it is dark.
    fn picture(draw: impl FnOnce(&mut RasterCanvas<'_>)) -> String {
        let mut pixels = vec![255; 12 * 7 * 3];
        draw(&mut RasterCanvas::new(&mut pixels, 12, 7));
        let rows = pixels.chunks(12 * 3);
        let row = |row: &[u8]| row.chunks(3).map(|pixel| if pixel[0] < 128 { '#' } else { '.' }).collect::<String>();
        rows.map(row).collect::<Vec<_>>().join("\n")
    }

    const BLACK: BackendColor = BackendColor { alpha: 1.0, rgb: (0, 0, 0) };

    #[test]
    fn strokes_are_as_wide_as_their_style() {
        let expected = "\
............\n............\n.##########.\n.##########.\n.##########.\n............\n............";
        assert_eq!(picture(|canvas| canvas.stroke((2, 3), (9, 3), 1.3, BLACK)), expected);
    }

    #[test]
    fn shapes_beyond_the_picture_are_cut() {
        let whole = picture(|canvas| {
            canvas.draw_rect((-5, -5), (50, 50), &BLACK, true).unwrap();
        });
        assert!(!whole.contains('.'));
        let empty = picture(|canvas| {
            canvas.stroke((-40, -40), (-20, -30), 2.0, BLACK);
            canvas.fill_polygon([(40, 40), (50, 40), (50, 50)], &BLACK).unwrap();
        });
        assert!(!empty.contains('#'));
    }

    #[test]
    fn polygons_are_filled() {
        let triangle = picture(|canvas| canvas.fill_polygon([(1, 0), (9, 0), (5, 4)], &BLACK).unwrap());
        assert!(triangle.starts_with("..########..\n...######"), "\n{triangle}");
    }

    #[test]
    fn pixels_are_averaged() {
        assert_eq!(average(&[0, 0, 0, 255, 255, 255, 0, 0, 0, 255, 255, 255], 1, 1, 2), [128, 128, 128]);
    }
}
