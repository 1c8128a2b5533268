//! A picture of charts below each other, as SVG and as PNG.

use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::style::WHITE;
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::DrawingBackend;

use crate::chart_error::ChartError;
use crate::curve::LineChart;
use crate::label_text::clean_label;
use crate::line_panel::draw_line_panel;
use crate::line_style::INK;
use crate::parallel_axis::ParallelChart;
use crate::parallel_panel::draw_parallel_panel;
use crate::raster_canvas::{RasterCanvas, average};
use crate::surface::{ChartSurface, drawn, fit_text};
use crate::svg_canvas::{SVG_UNITS, SvgCanvas, frame_svg};
use crate::{PANELS_MAX, PICTURE_SIDE_MAX, PICTURE_SIDE_MIN};

/// The least height of a panel, in pixels.
const PANEL_HEIGHT_MIN: u32 = 140;
/// The height of the picture's title, in pixels.
const HEAD_PIXELS: f64 = 34.0;
/// The size of the picture's title, in pixels.
const HEAD_TEXT_PIXELS: f64 = 18.0;

/// Charts below each other.
#[derive(Clone, Debug, Default)]
pub struct ChartPicture {
    /// The title above all charts.
    pub title: String,
    /// The charts, which all have the same height.
    pub panels: Vec<ChartPanel>,
    /// The width, in pixels.
    pub width: u32,
    /// The height, in pixels.
    pub height: u32,
}

/// A chart of a picture.
#[derive(Clone, Debug)]
pub enum ChartPanel {
    /// Series over steps.
    Lines(LineChart),
    /// Trials by their parameters.
    Parallel(ParallelChart),
}

impl ChartPicture {
    /// Returns the picture as the text of an SVG file.
    ///
    /// # Errors
    /// `PictureSize`, `PanelCount` and `PanelHeight` for a picture that cannot be drawn.
    pub fn render_svg(&self) -> Result<String, ChartError> {
        self.check()?;
        let mut drawing = String::new();
        let size = (self.width * SVG_UNITS, self.height * SVG_UNITS);
        let canvas = SvgCanvas(SVGBackend::with_string(&mut drawing, size));
        let area = canvas.into_drawing_area();
        self.draw(&ChartSurface::new(area.clone(), SVG_UNITS))?;
        drawn(area.present())?;
        drop(area);
        Ok(frame_svg(&drawing, &clean_label(&self.title), self.width, self.height))
    }

    /// Returns the picture as the bytes of a PNG file.
    ///
    /// # Errors
    /// `PictureSize`, `PanelCount` and `PanelHeight` for a picture that cannot be drawn.
    pub fn render_png(&self) -> Result<Vec<u8>, ChartError> {
        self.check()?;
        // Edges are smoother with more pixels; the sum of them is bounded.
        let times = match u64::from(self.width) * u64::from(self.height) {
            0..=600_000 => 4,
            600_001..=2_400_000 => 3,
            _ => 2,
        };
        let (width, height) = (self.width * times, self.height * times);
        let mut pixels = vec![0xff; width as usize * height as usize * 3];
        let area = RasterCanvas::new(&mut pixels, width, height).into_drawing_area();
        self.draw(&ChartSurface::new(area, times))?;
        encode_png(&average(&pixels, self.width, self.height, times), self.width, self.height)
    }

    fn check(&self) -> Result<(), ChartError> {
        let (width, height, panels) = (self.width, self.height, self.panels.len());
        let sides = PICTURE_SIDE_MIN..=PICTURE_SIDE_MAX;
        if !sides.contains(&width) || !sides.contains(&height) {
            return Err(ChartError::PictureSize { width, height, min: PICTURE_SIDE_MIN, max: PICTURE_SIDE_MAX });
        }
        if panels == 0 || panels > PANELS_MAX {
            return Err(ChartError::PanelCount { panels, max: PANELS_MAX });
        }
        let height_min = PANEL_HEIGHT_MIN * u32::try_from(panels).unwrap_or(u32::MAX) + HEAD_PIXELS as u32;
        if height < height_min {
            return Err(ChartError::PanelHeight { panels, height, height_min });
        }
        Ok(())
    }

    fn draw<DB: DrawingBackend>(&self, surface: &ChartSurface<DB>) -> Result<(), ChartError> {
        drawn(surface.area.fill(&WHITE))?;
        let (width, height) = surface.size();
        let mut top = 0.0;
        if !self.title.is_empty() {
            let title = fit_text(&clean_label(&self.title), HEAD_TEXT_PIXELS, width - 28.0);
            surface.text(&title, (14.0, 20.0), (HEAD_TEXT_PIXELS, INK), (HPos::Left, VPos::Center))?;
            top = HEAD_PIXELS;
        }
        let each = (height - top) / self.panels.len() as f64;
        for (index, panel) in self.panels.iter().enumerate() {
            let part = surface.rows(top + each * index as f64, top + each * (index + 1) as f64);
            match panel {
                ChartPanel::Lines(chart) => draw_line_panel(&part, chart)?,
                ChartPanel::Parallel(chart) => draw_parallel_panel(&part, chart)?,
            }
        }
        Ok(())
    }
}

fn encode_png(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, ChartError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests;
