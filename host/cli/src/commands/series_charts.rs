//! Series as charts: which of them share one, and how its axes are labelled. The console groups them alike.

use std::collections::BTreeMap;

use saggar_charts::{AttemptBoundary, LineChart, SeriesLine};
use saggar_rest::jobs::JobDocument;

use crate::args::CurveArgs;

/// A series of a job.
pub(crate) struct NamedSeries {
    /// Its name, such as `validation/loss`.
    pub(crate) name: String,
    /// The name of its line.
    pub(crate) label: String,
    pub(crate) points: Vec<(u64, f64)>,
}

/// Returns the chart that a series belongs to: `validation/loss` and `loss` share one.
fn group_of(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns one chart for each group of series: losses first, then by name. Short names come first in a chart.
pub(crate) fn group_charts(
    series: Vec<NamedSeries>,
    boundaries: &[AttemptBoundary],
    curves: CurveArgs,
) -> Vec<LineChart> {
    let mut groups: BTreeMap<(bool, String), Vec<NamedSeries>> = BTreeMap::new();
    for one in series {
        let group = group_of(&one.name).to_owned();
        groups.entry((!group.contains("loss"), group)).or_default().push(one);
    }
    let chart = |((_, group), mut members): ((bool, String), Vec<NamedSeries>)| {
        members.sort_by_key(|one| one.name.len());
        let lines = members.into_iter().map(|one| SeriesLine { name: one.label, points: one.points });
        line_chart(&group, lines.collect(), boundaries, curves)
    };
    groups.into_iter().map(chart).collect()
}

/// Returns a chart of series of one kind.
pub(crate) fn line_chart(
    name: &str,
    lines: Vec<SeriesLine>,
    boundaries: &[AttemptBoundary],
    curves: CurveArgs,
) -> LineChart {
    let smoothed = if curves.smooth > 0.0 { format!(", smoothed {}", curves.smooth) } else { String::new() };
    LineChart {
        title: format!("{name}{smoothed}"),
        x_label: "step".to_owned(),
        y_label: with_unit(group_of(name)),
        lines,
        boundaries: boundaries.to_vec(),
        is_log: curves.log,
        smoothing: curves.smooth,
    }
}

/// Returns a name with the unit that its ending states: `epoch_seconds (s)`.
fn with_unit(name: &str) -> String {
    let units =
        [("_seconds", "s"), ("_ms", "ms"), ("_bytes", "bytes"), ("_per_second", "per second"), ("_percent", "%")];
    match units.iter().find(|(ending, _)| name.ends_with(ending)) {
        Some((_, unit)) => format!("{name} ({unit})"),
        None => name.to_owned(),
    }
}

/// Returns where the attempts after the first began.
pub(crate) fn boundaries_of(job: &JobDocument) -> Vec<AttemptBoundary> {
    let later = job.attempts.iter().flatten().skip(1);
    later.map(|attempt| AttemptBoundary { step: attempt.first_step, attempt: attempt.number }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_with_the_same_last_word_share_a_chart_and_losses_come_first() {
        let names = ["accuracy", "epoch/loss", "validation/accuracy", "loss", "step_seconds"];
        let series =
            |name: &&str| NamedSeries { name: (*name).to_owned(), label: (*name).to_owned(), points: vec![(1, 0.5)] };
        let curves = CurveArgs { log: true, smooth: 0.6 };
        let charts = group_charts(names.iter().map(series).collect(), &[], curves);
        let chart = |chart: &LineChart| {
            let lines: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
            format!("{} | {} | {}", chart.title, chart.y_label, lines.join(" "))
        };
        assert_eq!(
            charts.iter().map(chart).collect::<Vec<_>>(),
            [
                "loss, smoothed 0.6 | loss | loss epoch/loss",
                "accuracy, smoothed 0.6 | accuracy | accuracy validation/accuracy",
                "step_seconds, smoothed 0.6 | step_seconds (s) | step_seconds",
            ]
        );
    }
}
