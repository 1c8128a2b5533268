//! Errors of drawing.

use thiserror::Error;

/// The reason why a picture was not drawn.
#[derive(Debug, Error)]
pub enum ChartError {
    /// The picture is too small or too large.
    #[error("invalid size {width}x{height}: expected {min} to {max} pixels in each direction")]
    PictureSize {
        /// The width, in pixels.
        width: u32,
        /// The height, in pixels.
        height: u32,
        /// The least number of pixels.
        min: u32,
        /// The greatest number of pixels.
        max: u32,
    },
    /// The panels do not fit.
    #[error("{panels} charts need {height_min} pixels of height or more: {height} were given")]
    PanelHeight {
        /// The number of panels.
        panels: usize,
        /// The height, in pixels.
        height: u32,
        /// The least height for this number of panels, in pixels.
        height_min: u32,
    },
    /// The picture has no panel, or more than the maximum.
    #[error("{panels} charts in a picture: expected 1 to {max}")]
    PanelCount {
        /// The number of panels.
        panels: usize,
        /// The maximum.
        max: usize,
    },
    /// The drawing library failed.
    #[error("the chart cannot be drawn: {message}")]
    Drawing {
        /// Its message.
        message: String,
    },
    /// The pixels cannot be encoded.
    #[error("the PNG cannot be encoded")]
    Encoding(#[from] png::EncodingError),
}
