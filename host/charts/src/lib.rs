//! Charts of series over steps and of the trials of a sweep, as SVG, as PNG and as text for a terminal.
//!
//! A [`ChartPicture`] has a title and panels below each other: [`LineChart`]s and [`ParallelChart`]s. The same picture
//! always gives the same bytes: nothing depends on the machine's fonts, on the time or on the order of a map.
//!
//! Lines differ by colour and by marker, so a picture is readable in black and white. Values that cannot be drawn, such
//! as NaN, are gaps, and the legend counts them. Series of any length are reduced to a few points for each column of
//! pixels, among them the lowest and the highest, so that every spike stays visible.
//!
//! Names come from plugins and users. [`label_text`] replaces what could control a viewer, and shortens long names.
//!
//! Deliberately elsewhere: which series are drawn, and files, which are matters of the commands.

mod axis;
mod chart_error;
mod curve;
mod label_font;
pub mod label_text;
mod legend;
mod line_panel;
mod line_style;
mod numbers;
mod parallel_axis;
mod parallel_panel;
mod picture;
mod plot_grid;
mod raster_canvas;
mod sparkline;
mod surface;
mod svg_canvas;
mod terminal_chart;
mod ticks;

pub use axis::AxisScale;
pub use chart_error::ChartError;
pub use curve::{AttemptBoundary, LineChart, SeriesLine};
pub use line_style::{line_letter, terminal_line_colour};
pub use numbers::{format_bytes, format_number};
pub use parallel_axis::{ParallelChart, TrialLine, TrialValue};
pub use picture::{ChartPanel, ChartPicture};
pub use plot_grid::{PlotCell, PlotGrid};
pub use sparkline::sparkline;
pub use terminal_chart::{TerminalSize, terminal_chart};
pub use ticks::AxisTick;

/// Minimum width and height of a picture, in pixels.
pub const PICTURE_SIDE_MIN: u32 = 200;
/// Maximum width and height of a picture, in pixels.
pub const PICTURE_SIDE_MAX: u32 = 4096;
/// Maximum panels of a picture.
pub const PANELS_MAX: usize = 12;
/// Maximum lines of a line chart. The legend states how many more there are.
pub const LINES_MAX: usize = 24;
/// Maximum axes of parallel coordinates, the metric's included. The panel states how many more there are.
pub const PARALLEL_AXES_MAX: usize = 12;
/// Maximum trials that parallel coordinates draw. The panel states how many more there are.
pub const PARALLEL_TRIALS_MAX: usize = 2000;
