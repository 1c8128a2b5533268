//! Lines of series over steps: gaps, smoothing, the ranges of both axes, and the reduction to what pixels can show.

use crate::axis::AxisScale;

/// A chart of series over steps.
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// The title.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x_label: String,
    /// The label of the vertical axis, with its unit.
    pub y_label: String,
    /// The lines; the first [`LINES_MAX`](crate::LINES_MAX) are drawn.
    pub lines: Vec<SeriesLine>,
    /// Where another attempt of the job began.
    pub boundaries: Vec<AttemptBoundary>,
    /// Whether the vertical axis is logarithmic. Values that are not above 0 are gaps.
    pub is_log: bool,
    /// The weight of the exponential moving average, from 0, which changes nothing, to below 1. The values themselves
    /// are drawn behind it.
    pub smoothing: f64,
}

/// A series: a line of a chart.
#[derive(Clone, Debug, Default)]
pub struct SeriesLine {
    /// Its name in the legend.
    pub name: String,
    /// Its values by step, in the order of the steps. A value that is not finite is a gap.
    pub points: Vec<(u64, f64)>,
}

/// The step at which another attempt took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptBoundary {
    /// Its first step.
    pub step: u64,
    /// Its number.
    pub attempt: u32,
}

/// Neighbouring points without a gap: step and value.
pub(crate) type CurveSegment = Vec<(f64, f64)>;

/// A line as it is drawn.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreparedCurve {
    /// The line, smoothed if the chart is.
    pub(crate) segments: Vec<CurveSegment>,
    /// The values, if the line is smoothed.
    pub(crate) behind: Vec<CurveSegment>,
    /// The last value, which need not be finite.
    pub(crate) last: Option<f64>,
    /// The number of values that are NaN or infinite.
    pub(crate) not_finite: usize,
    /// The number of finite values that a logarithmic axis cannot show.
    pub(crate) not_positive: usize,
}

/// The lines of a chart and their axes.
#[derive(Clone, Debug)]
pub(crate) struct PreparedCurves {
    pub(crate) x: AxisScale,
    pub(crate) y: AxisScale,
    pub(crate) curves: Vec<PreparedCurve>,
}

impl LineChart {
    /// Prepares the lines that are drawn.
    pub(crate) fn prepare(&self) -> PreparedCurves {
        let lines = self.lines.iter().take(crate::LINES_MAX);
        let curves: Vec<PreparedCurve> = lines.map(|line| prepare_line(line, self.is_log, self.smoothing)).collect();
        let points = || curves.iter().flat_map(|curve| curve.segments.iter().chain(&curve.behind).flatten());
        // Steps with values that are not finite are part of the axis.
        let steps = self.lines.iter().take(crate::LINES_MAX).flat_map(|line| &line.points);
        let x = AxisScale::of_steps(steps.map(|(step, _)| *step as f64));
        let y = AxisScale::of_values(points().map(|(_, value)| *value), self.is_log);
        PreparedCurves { x, y, curves }
    }
}

fn prepare_line(line: &SeriesLine, is_log: bool, smoothing: f64) -> PreparedCurve {
    let mut curve = PreparedCurve { last: line.points.last().map(|(_, value)| *value), ..PreparedCurve::default() };
    let mut segment = CurveSegment::new();
    let mut segments = Vec::new();
    for (step, value) in &line.points {
        let is_drawn = value.is_finite() && (!is_log || *value > 0.0);
        if is_drawn {
            segment.push((*step as f64, *value));
            continue;
        }
        match value.is_finite() {
            true => curve.not_positive += 1,
            false => curve.not_finite += 1,
        }
        segments.extend((!segment.is_empty()).then(|| std::mem::take(&mut segment)));
    }
    segments.extend((!segment.is_empty()).then_some(segment));
    if smoothing > 0.0 {
        curve.behind = segments.clone();
        smooth(&mut segments, smoothing.min(0.999));
    }
    curve.segments = segments;
    curve
}

/// Replaces values by their exponential moving average without the pull towards its start. Gaps do not reset it.
/// Source: the debiasing of Adam (Kingma and Ba 2015, section 3).
fn smooth(segments: &mut [CurveSegment], weight: f64) {
    let (mut sum, mut share) = (0.0, 0.0);
    for (_, value) in segments.iter_mut().flatten() {
        sum = weight * sum + (1.0 - weight) * *value;
        share = weight * share + (1.0 - weight);
        *value = sum / share;
    }
}

/// Reduces places, from 0 to 1, to at most four for each of `columns`: the first, the lowest, the highest and the last,
/// in their order. A segment that has fewer places than columns stays as it is.
pub(crate) fn reduce_to_columns(places: &[(f64, f64)], columns: usize) -> Vec<(f64, f64)> {
    if places.len() <= columns {
        return places.to_vec();
    }
    let column = |place: &(f64, f64)| (place.0 * columns as f64) as usize;
    let mut reduced = Vec::with_capacity(columns * 4);
    for group in places.chunk_by(|one, other| column(one) == column(other)) {
        let by_height = |one: &(usize, &(f64, f64)), other: &(usize, &(f64, f64))| one.1.1.total_cmp(&other.1.1);
        let lowest = group.iter().enumerate().min_by(by_height).map_or(0, |(index, _)| index);
        let highest = group.iter().enumerate().max_by(by_height).map_or(0, |(index, _)| index);
        let mut chosen = [0, lowest, highest, group.len() - 1];
        chosen.sort_unstable();
        let mut before = None;
        for index in chosen {
            if before != Some(index) {
                reduced.push(group[index]);
            }
            before = Some(index);
        }
    }
    reduced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: &[f64]) -> SeriesLine {
        let points = values.iter().enumerate().map(|(step, value)| (step as u64, *value)).collect();
        SeriesLine { name: "loss".to_owned(), points }
    }

    #[test]
    fn values_that_are_not_finite_are_counted_gaps() {
        let curve = prepare_line(&line(&[1.0, f64::NAN, 2.0, 3.0, f64::INFINITY, 0.0]), false, 0.0);
        assert_eq!(curve.segments, [vec![(0.0, 1.0)], vec![(2.0, 2.0), (3.0, 3.0)], vec![(5.0, 0.0)]]);
        assert_eq!((curve.not_finite, curve.not_positive), (2, 0));
        let curve = prepare_line(&line(&[1.0, 0.0, -1.0, 2.0]), true, 0.0);
        assert_eq!(curve.segments, [vec![(0.0, 1.0)], vec![(3.0, 2.0)]]);
        assert_eq!((curve.not_finite, curve.not_positive), (0, 2));
    }

    #[test]
    fn smoothing_has_no_pull_to_zero_and_keeps_the_values_behind() {
        let curve = prepare_line(&line(&[4.0, 4.0, f64::NAN, 4.0]), false, 0.9);
        for (_, value) in curve.segments.iter().flatten() {
            assert!((value - 4.0).abs() < 1e-12, "{value}");
        }
        assert_eq!(curve.behind.iter().flatten().count(), 3);
    }

    #[test]
    fn a_spike_among_100_000_points_survives_the_reduction() {
        let places: Vec<(f64, f64)> = (0..100_000)
            .map(|step| {
                (f64::from(step) / 99_999.0, if step == 43_210 { 1.0 } else { 0.25 + f64::from(step % 7) / 100.0 })
            })
            .collect();
        let reduced = reduce_to_columns(&places, 700);
        assert!(reduced.len() <= 701 * 4, "{}", reduced.len());
        assert!(reduced.contains(&places[43_210]));
        assert_eq!((reduced.first(), reduced.last()), (places.first(), places.last()));
        assert!(reduced.is_sorted_by(|one, other| one.0 <= other.0));
        assert_eq!(reduce_to_columns(&places[..50], 700), places[..50]);
    }
}
