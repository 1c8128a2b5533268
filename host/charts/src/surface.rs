//! A part of a picture, measured in its pixels, whatever the size at which a backend draws it.

use plotters::coord::{CoordTranslate, Shift};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};
use plotters_backend::DrawingBackend;

use crate::chart_error::ChartError;
use crate::label_font::{FONT_FAMILY, text_width};
use crate::label_text::shorten_until;
use crate::line_style::LineStyle;
use crate::raster_canvas::FONT_SIZE_PER_EM;

/// The size of the text of axes and legends, in pixels.
pub(crate) const TEXT_PIXELS: f64 = 12.0;
/// The size of the text of titles, in pixels.
pub(crate) const TITLE_PIXELS: f64 = 15.0;
/// The size of the text of small notes, in pixels.
pub(crate) const NOTE_PIXELS: f64 = 10.5;

/// A rectangle of a picture. All lengths are pixels of the picture, from its upper left corner.
pub(crate) struct ChartSurface<DB: DrawingBackend> {
    pub(crate) area: DrawingArea<DB, Shift>,
    /// The units of the drawing for each pixel.
    units: f64,
    /// The upper left corner and the size of the rectangle in the area. Markers and labels can be beyond it, because
    /// plotters moves what is beyond an area to its edge.
    origin: (f64, f64),
    extent: (f64, f64),
}

/// Returns the result of a drawing with this crate's error.
pub(crate) fn drawn<T, E: std::error::Error + Send + Sync>(
    result: Result<T, DrawingAreaErrorKind<E>>,
) -> Result<T, ChartError> {
    result.map_err(|error| ChartError::Drawing { message: error.to_string() })
}

impl<DB: DrawingBackend> ChartSurface<DB> {
    pub(crate) fn new(area: DrawingArea<DB, Shift>, units: u32) -> ChartSurface<DB> {
        let (width, height) = area.dim_in_pixel();
        let units = f64::from(units);
        let extent = (f64::from(width) / units, f64::from(height) / units);
        ChartSurface { area, units, origin: (0.0, 0.0), extent }
    }

    /// Returns a length in units of the drawing.
    pub(crate) fn units(&self, pixels: f64) -> i32 {
        (pixels * self.units).round() as i32
    }

    fn point(&self, (x, y): (f64, f64)) -> (i32, i32) {
        (self.units(x + self.origin.0), self.units(y + self.origin.1))
    }

    /// Returns the width and the height.
    pub(crate) fn size(&self) -> (f64, f64) {
        self.extent
    }

    /// Returns the part from one height to another, as an area of the drawing.
    pub(crate) fn rows(&self, from: f64, to: f64) -> ChartSurface<DB> {
        let height = self.area.dim_in_pixel().1;
        let below = (i32::try_from(height).unwrap_or(i32::MAX) - self.units(to)).max(0);
        let area = self.area.clone().margin(self.units(from), below, 0, 0);
        ChartSurface { area, units: self.units, origin: (0.0, 0.0), extent: (self.extent.0, to - from) }
    }

    /// Returns the part that another area of the same drawing covers. Unlike in that area, shapes can reach beyond it.
    pub(crate) fn part<C: CoordTranslate>(&self, part: &DrawingArea<DB, C>) -> ChartSurface<DB> {
        let ((left, top), (x, y)) = (corner(&self.area), corner(part));
        let (width, height) = part.dim_in_pixel();
        let pixels = |units: i32| f64::from(units) / self.units;
        ChartSurface {
            area: self.area.clone(),
            units: self.units,
            origin: (pixels(x - left), pixels(y - top)),
            extent: (f64::from(width) / self.units, f64::from(height) / self.units),
        }
    }

    /// Returns the style of a text.
    pub(crate) fn text_style(&self, pixels: f64, colour: RGBColor) -> TextStyle<'static> {
        let font = (FONT_FAMILY, pixels * self.units * FONT_SIZE_PER_EM).into_font();
        TextStyle { color: colour.to_backend_color(), ..TextStyle::from(font) }
    }

    /// Returns the style of a line.
    pub(crate) fn stroke(&self, pixels: f64, colour: RGBColor) -> ShapeStyle {
        ShapeStyle::from(&colour).stroke_width(u32::try_from(self.units(pixels).max(1)).unwrap_or(1))
    }

    /// Writes a text on one line.
    pub(crate) fn text(
        &self,
        text: &str,
        at: (f64, f64),
        (pixels, colour): (f64, RGBColor),
        (horizontal, vertical): (HPos, VPos),
    ) -> Result<(), ChartError> {
        if text.is_empty() {
            return Ok(());
        }
        let style = self.text_style(pixels, colour).pos(Pos::new(horizontal, vertical));
        drawn(self.area.draw(&Text::new(text.to_owned(), self.point(at), style)))
    }

    /// Draws a line through points.
    pub(crate) fn line(&self, points: &[(f64, f64)], pixels: f64, colour: RGBColor) -> Result<(), ChartError> {
        let points: Vec<(i32, i32)> = points.iter().map(|point| self.point(*point)).collect();
        drawn(self.area.draw(&PathElement::new(points, self.stroke(pixels, colour))))
    }

    /// Draws a vertical line of dashes.
    pub(crate) fn dashed_vertical(&self, x: f64, from: f64, to: f64, colour: RGBColor) -> Result<(), ChartError> {
        let (dash, gap) = (4.0, 4.0);
        let mut y = from;
        while y < to {
            self.line(&[(x, y), (x, (y + dash).min(to))], 1.0, colour)?;
            y += dash + gap;
        }
        Ok(())
    }

    /// Fills a rectangle.
    pub(crate) fn fill(&self, from: (f64, f64), to: (f64, f64), colour: RGBColor) -> Result<(), ChartError> {
        let corners = [self.point(from), self.point(to)];
        drawn(self.area.draw(&Rectangle::new(corners, ShapeStyle::from(&colour).filled())))
    }

    /// Draws the marker of a line, with a white edge, so that it is visible on its line.
    pub(crate) fn marker(&self, at: (f64, f64), radius: f64, style: LineStyle) -> Result<(), ChartError> {
        let at = self.point(at);
        drawn(self.area.draw(&style.marker(at, (radius + 1.2) * self.units, WHITE)))?;
        drawn(self.area.draw(&style.marker(at, radius * self.units, style.colour())))
    }
}

/// Returns the upper left corner of an area in the whole drawing.
fn corner<DB: DrawingBackend, C: CoordTranslate>(area: &DrawingArea<DB, C>) -> (i32, i32) {
    let (columns, rows) = area.get_pixel_range();
    (columns.start, rows.start)
}

/// Shortens a text in its middle to a width in pixels.
pub(crate) fn fit_text(text: &str, pixels: f64, width_max: f64) -> String {
    shorten_until(text, |text| text_width(text, pixels) <= width_max)
}
