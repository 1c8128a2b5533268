//! Draws a line chart: title, legend, axes, boundaries of attempts, lines and markers.

use std::ops::Range;

use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::DrawingBackend;

use crate::axis::AxisScale;
use crate::chart_error::ChartError;
use crate::curve::{CurveSegment, LineChart, PreparedCurve, PreparedCurves, reduce_to_columns};
use crate::label_font::text_width;
use crate::label_text::clean_label;
use crate::legend::LegendRows;
use crate::line_style::{FINE_GRID, GRID, INK, LineStyle, MUTED};
use crate::surface::{ChartSurface, NOTE_PIXELS, TEXT_PIXELS, TITLE_PIXELS, drawn, fit_text};
use crate::ticks::AxisTick;

const SIDE_PIXELS: f64 = 14.0;
/// The width beside the labels of the vertical axis, for its own label and the ticks.
const Y_LABEL_PIXELS: f64 = 34.0;
const X_LABEL_PIXELS: f64 = 40.0;
/// The height of the numbers of attempts above the plot.
const BOUNDARY_PIXELS: f64 = 15.0;
/// The distance between the markers of a line, in pixels.
const MARKER_DISTANCE: f64 = 90.0;
/// If the points of a line are further apart than this, in pixels, each has a marker.
const SPARSE_PIXELS: f64 = 14.0;

/// Draws the chart over the whole surface.
pub(crate) fn draw_line_panel<DB: DrawingBackend>(
    surface: &ChartSurface<DB>,
    chart: &LineChart,
) -> Result<(), ChartError> {
    let (width, height) = surface.size();
    let prepared = chart.prepare();
    let mut top = 6.0;
    if !chart.title.is_empty() {
        let title = fit_text(&clean_label(&chart.title), TITLE_PIXELS, width - 2.0 * SIDE_PIXELS);
        surface.text(&title, (SIDE_PIXELS, top + 10.0), (TITLE_PIXELS, INK), (HPos::Left, VPos::Center))?;
        top += 24.0;
    }
    let rows_max = (height * 0.35 / 18.0).max(1.0) as usize;
    let legend = LegendRows::arrange(chart, &prepared.curves, width - 2.0 * SIDE_PIXELS, rows_max);
    legend.draw(surface, (SIDE_PIXELS, top))?;
    top += legend.height() + 4.0;
    if !chart.boundaries.is_empty() {
        top += BOUNDARY_PIXELS;
    }
    let y_ticks = prepared.y.ticks((((height - top - X_LABEL_PIXELS) / 42.0) as usize).max(2));
    let label_width = y_ticks.0.iter().map(|tick| text_width(&tick.label, TEXT_PIXELS)).fold(0.0, f64::max);
    let left = label_width + Y_LABEL_PIXELS;
    let x_ticks = prepared.x.ticks((((width - left - SIDE_PIXELS) / 85.0) as usize).max(2));
    let body = surface.rows(top, height);
    let plot = draw_axes(&body, chart, &prepared, (x_ticks, y_ticks), left)?;
    draw_boundaries(&plot, chart, &prepared.x)?;
    draw_curves(&plot, &prepared)
}

/// An axis for plotters: places from 0 to 1, those with a label and those with only a line.
struct PlacedAxis {
    labelled: Vec<(f64, String)>,
    fine: Vec<f64>,
}

impl PlacedAxis {
    fn new(scale: &AxisScale, (ticks, fine): (Vec<AxisTick>, Vec<f64>)) -> PlacedAxis {
        let labelled = ticks.into_iter().map(|tick| (scale.place(tick.value), tick.label)).collect();
        PlacedAxis { labelled, fine: fine.into_iter().map(|value| scale.place(value)).collect() }
    }
}

impl Ranged for PlacedAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        from + (f64::from(to - from) * place).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => self.fine.clone(),
            false => self.labelled.iter().map(|(place, _)| *place).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        0.0..1.0
    }
}

impl ValueFormatter<f64> for PlacedAxis {
    fn format_ext(&self, place: &f64) -> String {
        self.labelled.iter().find(|(known, _)| known == place).map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// The labelled and the unlabelled places of both axes.
type PlotTicks = ((Vec<AxisTick>, Vec<f64>), (Vec<AxisTick>, Vec<f64>));

/// Draws the axes with their grid and returns the surface within them.
fn draw_axes<DB: DrawingBackend>(
    body: &ChartSurface<DB>,
    chart: &LineChart,
    prepared: &PreparedCurves,
    (x_ticks, y_ticks): PlotTicks,
    left: f64,
) -> Result<ChartSurface<DB>, ChartError> {
    let (x_axis, y_axis) = (PlacedAxis::new(&prepared.x, x_ticks), PlacedAxis::new(&prepared.y, y_ticks));
    let mut builder = ChartBuilder::on(&body.area);
    builder
        .margin_right(body.units(SIDE_PIXELS))
        .margin_left(body.units(4.0))
        .set_label_area_size(LabelAreaPosition::Left, body.units(left - 4.0))
        .set_label_area_size(LabelAreaPosition::Bottom, body.units(X_LABEL_PIXELS));
    let mut context = drawn(builder.build_cartesian_2d(x_axis, y_axis))?;
    let text = body.text_style(TEXT_PIXELS, INK);
    let y_title = match chart.is_log {
        true => format!("{} (log scale)", clean_label(&chart.y_label)),
        false => clean_label(&chart.y_label),
    };
    let y_title = fit_text(&y_title, TEXT_PIXELS, body.size().1 - X_LABEL_PIXELS);
    drawn(
        context
            .configure_mesh()
            .bold_line_style(body.stroke(1.0, GRID))
            .light_line_style(body.stroke(1.0, FINE_GRID))
            .axis_style(body.stroke(1.0, INK))
            .set_all_tick_mark_size(body.units(4.0))
            .label_style(text.clone())
            .axis_desc_style(text)
            .x_desc(clean_label(&chart.x_label))
            .y_desc(y_title)
            .draw(),
    )?;
    Ok(body.part(context.plotting_area()))
}

/// Draws a line where each attempt but the first began, with its number above if there is room.
fn draw_boundaries<DB: DrawingBackend>(
    plot: &ChartSurface<DB>,
    chart: &LineChart,
    x: &AxisScale,
) -> Result<(), ChartError> {
    let (width, height) = plot.size();
    let boundaries = chart.boundaries.iter().filter(|boundary| x.contains(boundary.step as f64));
    let places: Vec<(f64, u32)> =
        boundaries.map(|boundary| (x.place(boundary.step as f64) * width, boundary.attempt)).collect();
    let mut free_from = f64::MIN;
    for (index, (place, attempt)) in places.iter().enumerate() {
        plot.dashed_vertical(*place, 0.0, height, MUTED)?;
        let next = places.get(index + 1).map_or(width + SIDE_PIXELS, |(next, _)| *next);
        let texts = [format!("attempt {attempt}"), attempt.to_string()];
        let width_of = |text: &String| text_width(text, NOTE_PIXELS);
        let fitting = texts.iter().find(|text| place + 3.0 + width_of(text) <= next && *place >= free_from);
        if let Some(text) = fitting {
            plot.text(text, (place + 3.0, -3.0), (NOTE_PIXELS, MUTED), (HPos::Left, VPos::Bottom))?;
            free_from = place + 6.0 + width_of(text);
        }
    }
    Ok(())
}

fn draw_curves<DB: DrawingBackend>(plot: &ChartSurface<DB>, prepared: &PreparedCurves) -> Result<(), ChartError> {
    let (width, height) = plot.size();
    if prepared.curves.iter().all(|curve| curve.segments.is_empty()) {
        let text = if prepared.curves.is_empty() { "no series" } else { "no values that can be drawn" };
        return plot.text(text, (width / 2.0, height / 2.0), (TITLE_PIXELS, MUTED), (HPos::Center, VPos::Center));
    }
    let to_pixels = |segment: &CurveSegment| -> Vec<(f64, f64)> {
        let places = segment.iter().map(|(step, value)| (prepared.x.place(*step), prepared.y.place(*value)));
        let reduced = reduce_to_columns(&places.collect::<Vec<_>>(), width as usize);
        reduced.into_iter().map(|(x, y)| (x * width, (1.0 - y) * height)).collect()
    };
    for (index, curve) in prepared.curves.iter().enumerate() {
        let style = LineStyle::new(index);
        for segment in &curve.behind {
            plot.line(&to_pixels(segment), 1.0, style.faint_colour())?;
        }
    }
    for (index, curve) in prepared.curves.iter().enumerate() {
        let style = LineStyle::new(index);
        for segment in curve.segments.iter().map(to_pixels) {
            let is_dense = segment.len() as f64 > width / 2.0;
            plot.line(&segment, if is_dense { 1.3 } else { 2.0 }, style.colour())?;
        }
        draw_markers(plot, curve, (index, prepared.curves.len()), to_pixels)?;
    }
    Ok(())
}

/// Draws the markers of a line: at each point if they are far apart, otherwise now and then, and at a point between gaps.
/// Those of different lines are at different places.
fn draw_markers<DB: DrawingBackend>(
    plot: &ChartSurface<DB>,
    curve: &PreparedCurve,
    (index, count): (usize, usize),
    to_pixels: impl Fn(&CurveSegment) -> Vec<(f64, f64)>,
) -> Result<(), ChartError> {
    let style = LineStyle::new(index);
    let points = curve.segments.iter().map(Vec::len).sum::<usize>();
    let is_sparse = (points as f64) * SPARSE_PIXELS <= plot.size().0;
    let mut next = MARKER_DISTANCE * (index as f64 + 0.5) / count as f64;
    for segment in curve.segments.iter().map(to_pixels) {
        let is_alone = segment.len() == 1;
        for point in &segment {
            let is_due = count > 1 && point.0 >= next;
            if is_sparse || is_alone || is_due {
                plot.marker(*point, 3.6, style)?;
            }
            while next <= point.0 {
                next += MARKER_DISTANCE;
            }
        }
    }
    Ok(())
}
