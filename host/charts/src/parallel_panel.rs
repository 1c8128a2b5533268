//! Draws parallel coordinates. Better trials are darker, so that they stand out in black and white too; the best one is
//! thick and has markers.

use plotters::style::WHITE;
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::DrawingBackend;

use crate::chart_error::ChartError;
use crate::label_font::text_width;
use crate::label_text::clean_label;
use crate::line_style::{GRID, INK, LineStyle, MUTED, ramp};
use crate::numbers::format_number;
use crate::parallel_axis::{ParallelAxis, ParallelChart, TrialLine, TrialValue};
use crate::surface::{ChartSurface, NOTE_PIXELS, TEXT_PIXELS, TITLE_PIXELS, fit_text};
use crate::{PARALLEL_AXES_MAX, PARALLEL_TRIALS_MAX};

const SIDE_PIXELS: f64 = 14.0;
/// The width of the pictures' part for labels at the last axis.
const LABEL_PIXELS: f64 = 70.0;
/// The width of the scale of colours.
const RAMP_PIXELS: f64 = 90.0;
/// The style of the best trial, of the colours and markers of lines.
const BEST_STYLE: usize = 1;

/// The axes of a chart, the metric last.
struct ParallelAxes {
    axes: Vec<ParallelAxis>,
    /// The distance between two axes and the place of the first one.
    step: f64,
    left: f64,
    top: f64,
    height: f64,
}

impl ParallelAxes {
    fn x(&self, index: usize) -> f64 {
        self.left + index as f64 * self.step
    }

    fn y(&self, place: f64) -> f64 {
        self.top + (1.0 - place) * self.height
    }

    /// Returns the corners of a trial's line.
    fn line(&self, trial: &TrialLine) -> Vec<(f64, f64)> {
        let value = |index: usize| match index + 1 == self.axes.len() {
            true => trial.score.map_or(TrialValue::Missing, TrialValue::Number),
            false => trial.values.get(index).cloned().unwrap_or_default(),
        };
        let corner = |(index, axis): (usize, &ParallelAxis)| (self.x(index), self.y(axis.place(&value(index))));
        self.axes.iter().enumerate().map(corner).collect()
    }
}

/// Draws the chart over the whole surface.
pub(crate) fn draw_parallel_panel<DB: DrawingBackend>(
    surface: &ChartSurface<DB>,
    chart: &ParallelChart,
) -> Result<(), ChartError> {
    let (width, height) = surface.size();
    let title = fit_text(&clean_label(&chart.title), TITLE_PIXELS, width - 2.0 * SIDE_PIXELS);
    surface.text(&title, (SIDE_PIXELS, 16.0), (TITLE_PIXELS, INK), (HPos::Left, VPos::Center))?;
    draw_key(surface, chart, 38.0)?;
    let trials = &chart.trials[..chart.trials.len().min(PARALLEL_TRIALS_MAX)];
    let parameters = &chart.parameters[..chart.parameters.len().min(PARALLEL_AXES_MAX - 1)];
    let axes = arrange_axes(chart, parameters, trials, (width, height));
    let metric = axes.axes.last().expect("the metric has an axis");
    let best = chart.best().filter(|best| *best < trials.len());
    let mut order: Vec<(Option<f64>, usize)> =
        trials.iter().enumerate().map(|(index, trial)| (chart.quality(metric, trial), index)).collect();
    // The best ones are drawn last, over the others.
    order.sort_by(|one, other| one.0.unwrap_or(-1.0).total_cmp(&other.0.unwrap_or(-1.0)));
    for (quality, index) in order.into_iter().filter(|(_, index)| Some(*index) != best) {
        let colour = quality.map_or(GRID, ramp);
        surface.line(&axes.line(&trials[index]), 1.4, colour)?;
    }
    for (index, axis) in axes.axes.iter().enumerate() {
        draw_axis(surface, &axes, index, axis)?;
    }
    if let Some(best) = best {
        let (line, style) = (axes.line(&trials[best]), LineStyle::new(BEST_STYLE));
        surface.line(&line, 7.0, WHITE)?;
        surface.line(&line, 3.0, style.colour())?;
        line.iter().try_for_each(|corner| surface.marker(*corner, 5.0, style))?;
    }
    draw_labels(surface, &axes)?;
    if trials.is_empty() {
        let at = (width / 2.0, height / 2.0);
        surface.text("no trials", at, (TITLE_PIXELS, MUTED), (HPos::Center, VPos::Center))?;
    }
    Ok(())
}

fn arrange_axes(
    chart: &ParallelChart,
    parameters: &[String],
    trials: &[TrialLine],
    (width, height): (f64, f64),
) -> ParallelAxes {
    let column = |index: usize| -> Vec<TrialValue> {
        trials.iter().map(|trial| trial.values.get(index).cloned().unwrap_or_default()).collect()
    };
    let mut axes: Vec<ParallelAxis> =
        parameters.iter().enumerate().map(|(index, name)| ParallelAxis::of_values(name, &column(index))).collect();
    let scores = trials.iter().map(|trial| trial.score.map_or(TrialValue::Missing, TrialValue::Number));
    axes.push(ParallelAxis::of_values(&chart.metric, &scores.collect::<Vec<_>>()));
    let left = 46.0;
    let step = (width - left - LABEL_PIXELS) / (axes.len() - 1).max(1) as f64;
    let top = 76.0;
    ParallelAxes { axes, step, left, top, height: (height - top - 20.0).max(20.0) }
}

/// Draws the names of the colours, of the best trial and of what is left out.
fn draw_key<DB: DrawingBackend>(surface: &ChartSurface<DB>, chart: &ParallelChart, y: f64) -> Result<(), ChartError> {
    let place = (HPos::Left, VPos::Center);
    let mut x = SIDE_PIXELS;
    surface.text("worse", (x, y), (TEXT_PIXELS, INK), place)?;
    x += text_width("worse", TEXT_PIXELS) + 6.0;
    let steps = 30;
    for step in 0..steps {
        let (from, to) = (f64::from(step) / f64::from(steps), f64::from(step + 1) / f64::from(steps));
        surface.fill((x + from * RAMP_PIXELS, y - 5.0), (x + to * RAMP_PIXELS, y + 5.0), ramp(from))?;
    }
    x += RAMP_PIXELS + 6.0;
    let better = format!("better {}", clean_label(&chart.metric));
    surface.text(&better, (x, y), (TEXT_PIXELS, INK), place)?;
    x += text_width(&better, TEXT_PIXELS) + 24.0;
    let best = chart.best().map(|index| &chart.trials[index]);
    if let Some((trial, score)) = best.and_then(|trial| trial.score.map(|score| (trial, score))) {
        let style = LineStyle::new(BEST_STYLE);
        surface.line(&[(x, y), (x + 22.0, y)], 3.0, style.colour())?;
        surface.marker((x + 11.0, y), 4.5, style)?;
        let text = format!("best: {}  {}", clean_label(&trial.name), format_number(score));
        surface.text(&text, (x + 28.0, y), (TEXT_PIXELS, INK), place)?;
        x += 28.0 + text_width(&text, TEXT_PIXELS) + 24.0;
    }
    let undrawn = [
        (chart.trials.len().saturating_sub(PARALLEL_TRIALS_MAX), "trials"),
        (chart.parameters.len().saturating_sub(PARALLEL_AXES_MAX - 1), "parameters"),
    ];
    let undrawn = undrawn.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} more {what}"));
    let undrawn: Vec<String> = undrawn.collect();
    if !undrawn.is_empty() {
        let text = format!("{} not drawn", undrawn.join(" and "));
        surface.text(&text, (x, y), (TEXT_PIXELS, MUTED), place)?;
    }
    Ok(())
}

fn draw_axis<DB: DrawingBackend>(
    surface: &ChartSurface<DB>,
    axes: &ParallelAxes,
    index: usize,
    axis: &ParallelAxis,
) -> Result<(), ChartError> {
    let x = axes.x(index);
    surface.line(&[(x, axes.top), (x, axes.top + axes.height)], 1.2, INK)?;
    let is_last = index + 1 == axes.axes.len();
    let room = if is_last { LABEL_PIXELS + axes.step * 0.4 } else { axes.step - 8.0 };
    let name = fit_text(&axis.name, TEXT_PIXELS, room.max(24.0));
    // The name of the last axis ends at the picture's edge if it would otherwise be cut.
    let half = text_width(&name, TEXT_PIXELS) / 2.0;
    let middle = x.clamp(half + 4.0, (surface.size().0 - half - 4.0).max(half + 4.0));
    surface.text(&name, (middle, axes.top - 14.0), (TEXT_PIXELS, INK), (HPos::Center, VPos::Center))
}

/// Writes the numbers and texts of all axes over the lines, each on a white ground.
fn draw_labels<DB: DrawingBackend>(surface: &ChartSurface<DB>, axes: &ParallelAxes) -> Result<(), ChartError> {
    for (index, axis) in axes.axes.iter().enumerate() {
        let room = if index + 1 == axes.axes.len() { LABEL_PIXELS - 10.0 } else { axes.step - 14.0 };
        for (text, place) in axis.labels() {
            let text = fit_text(&text, NOTE_PIXELS, room.max(16.0));
            let (x, y) = (axes.x(index) + 8.0, axes.y(place));
            let width = text_width(&text, NOTE_PIXELS);
            surface.fill((x - 2.0, y - 6.5), (x + width + 2.0, y + 6.5), WHITE)?;
            surface.text(&text, (x, y), (NOTE_PIXELS, INK), (HPos::Left, VPos::Center))?;
            surface.line(&[(axes.x(index) - 3.0, y), (axes.x(index) + 3.0, y)], 1.0, INK)?;
        }
    }
    Ok(())
}
