//! `saggar compare --png` of sweeps: the best value that each had found after its first trials, by the steps they took.

use saggar_charts::{ChartPanel, SeriesLine};
use saggar_rest::comparisons::SweepComparisonDocument;
use saggar_rest::sweeps::{SweepDocument, TrialDocument};

use crate::args::CompareArgs;
use crate::client::{ApiClient, encode_path_segment};
use crate::commands::series_charts::line_chart;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Draws the chart into the files that the arguments name.
///
/// # Errors
/// The sweeps have different metrics, or no trial has a value yet; the server's errors; a file cannot be written.
pub(super) fn write(
    args: &CompareArgs,
    comparison: &SweepComparisonDocument,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    let sweeps = &comparison.sweeps;
    let Some(first) = sweeps.first() else { return Err(no_values()) };
    if let Some(other) = sweeps.iter().find(|it| (&it.metric, &it.direction) != (&first.metric, &first.direction)) {
        return Err(CliError::invalid(format!(
            "{} is searched for {} of {}, and {} for {} of {}: their values cannot share a chart",
            first.name, first.direction, first.metric, other.name, other.direction, other.metric
        ))
        .with_hint(format!("`saggar sweep results {} --png FILE` draws one sweep", first.name)));
    }
    if let Some(named) = args.metric.as_ref().filter(|named| **named != first.metric) {
        return Err(CliError::invalid(format!("--metric {named}: the metric of these sweeps is {}", first.metric))
            .with_hint("leave it out"));
    }
    let mut lines = Vec::new();
    for sweep in sweeps {
        let whole: SweepDocument = client.get(&format!("/api/v1/sweeps/{}", encode_path_segment(&sweep.name)))?;
        let trials = whole.trials.unwrap_or_default();
        let points = best_values(&trials, sweep.direction == "min");
        lines.push(SeriesLine { name: format!("{} {}", sweep.name, sweep.method), points });
    }
    if lines.iter().all(|line| line.points.is_empty()) {
        return Err(no_values());
    }
    let mut chart = line_chart(&first.metric, lines, &[], args.look.curves);
    chart.title.clear();
    chart.x_label = "steps of all trials".to_owned();
    let title = format!("best {} of {} sweeps", first.metric, sweeps.len());
    args.files.write(&args.look, (title, vec![ChartPanel::Lines(chart)]), output)
}

fn no_values() -> CliError {
    CliError::new(exit::NOT_FOUND, "no_series", "no trial of the compared sweeps has a value yet")
        .with_hint("`saggar sweep ls` shows what they do")
}

/// Returns the best value of the first trials, by the steps that these took together. A trial without a value adds its
/// steps alone.
fn best_values(trials: &[TrialDocument], is_lowest_best: bool) -> Vec<(u64, f64)> {
    let mut trials: Vec<&TrialDocument> = trials.iter().collect();
    trials.sort_by_key(|trial| trial.number);
    let (mut steps, mut best) = (0_u64, None);
    let mut points = Vec::new();
    for trial in trials {
        steps = steps.saturating_add(trial.own_steps());
        let Some(value) = trial.value else { continue };
        let is_better = best.is_none_or(|best| if is_lowest_best { value < best } else { value > best });
        if is_better {
            best = Some(value);
        }
        points.extend(best.map(|best| (steps, best)));
    }
    points
}

#[cfg(test)]
mod tests {
    use saggar_rest::sweeps::TrialParentDocument;

    use super::*;

    #[test]
    fn a_sweep_is_drawn_by_its_best_value_so_far() {
        let trial = |number, step, value| TrialDocument { number, step, value, ..TrialDocument::default() };
        let copy = TrialDocument {
            parent: Some(TrialParentDocument { trial: 1, rung: 0, step: Some(5) }),
            ..trial(4, 25, Some(0.625))
        };
        let trials = [trial(2, 10, Some(0.75)), trial(1, 10, Some(0.5)), trial(3, 5, None), copy];
        assert_eq!(best_values(&trials, true), [(10, 0.5), (20, 0.5), (45, 0.5)]);
        assert_eq!(best_values(&trials, false), [(10, 0.5), (20, 0.75), (45, 0.75)]);
        assert_eq!(best_values(&[], true), []);
    }
}
