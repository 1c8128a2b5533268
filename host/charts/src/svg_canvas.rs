//! The SVG backend of plotters with the measures of the bundled font, and the element around its drawing.

use plotters::backend::SVGBackend;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

use crate::raster_canvas::estimate_text_size;

/// The number of units of the drawing for each pixel of the picture, because plotters draws at whole numbers.
pub(crate) const SVG_UNITS: u32 = 10;

type SvgResult<E> = Result<(), DrawingErrorKind<E>>;

/// An SVG drawing.
pub(crate) struct SvgCanvas<'a>(pub(crate) SVGBackend<'a>);

impl<'a> DrawingBackend for SvgCanvas<'a> {
    type ErrorType = <SVGBackend<'a> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> SvgResult<Self::ErrorType> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> SvgResult<Self::ErrorType> {
        self.0.present()
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> SvgResult<Self::ErrorType> {
        self.0.draw_pixel(point, color)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> SvgResult<Self::ErrorType> {
        self.0.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> SvgResult<Self::ErrorType> {
        self.0.draw_rect(upper_left, bottom_right, style, fill)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> SvgResult<Self::ErrorType> {
        self.0.draw_path(path, style)
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vert: I,
        style: &S,
    ) -> SvgResult<Self::ErrorType> {
        self.0.fill_polygon(vert, style)
    }

    fn draw_text<T: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &T,
        pos: BackendCoord,
    ) -> SvgResult<Self::ErrorType> {
        self.0.draw_text(text, style, pos)
    }

    fn estimate_text_size<T: BackendTextStyle>(
        &self,
        text: &str,
        style: &T,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        Ok(estimate_text_size(text, style))
    }
}

/// Replaces the outer element of a drawing by one that has the picture's size, and its title for people who cannot see
/// it.
pub(crate) fn frame_svg(drawing: &str, title: &str, width: u32, height: u32) -> String {
    let content = drawing.split_once('>').map_or("", |(_, content)| content).trim_start();
    let (inner_width, inner_height) = (width * SVG_UNITS, height * SVG_UNITS);
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {inner_width} {inner_height}\" stroke-linejoin=\"round\" role=\"img\">\n\
         <title>{title}</title>\n{content}"
    )
}
