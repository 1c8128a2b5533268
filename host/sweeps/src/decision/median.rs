//! The median stopping rule. Source: Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section
//! 3.2.1: a trial is stopped at step s if its best value by step s is strictly worse than the median of the running means
//! of all completed trials' values up to step s.

use saggar_store::records::{StateReason, TrialState};

use super::{BELOW_MEDIAN, TrialBoard};

/// Stops running trials that are worse than the median.
pub(super) fn stop_below_median(board: &mut TrialBoard<'_>) {
    let input = board.input;
    let needed = input.sweep.spec.median_trials_min as usize;
    for index in 0..board.trials.len() {
        let trial = &board.trials[index];
        if trial.state != TrialState::Running {
            continue;
        }
        let Some(Some(observed)) = input.observed.get(&trial.number) else { continue };
        // In the order in which they were reported, so that the same step stops the trial however late this looks.
        let mut best = f64::NEG_INFINITY;
        for (step, value) in &observed.points {
            best = best.max(input.sweep.score(Some(*value)));
            let mut means = completed_means(board, *step);
            if means.len() < needed {
                continue;
            }
            let median = median(&mut means);
            if best < median {
                let sentence =
                    format!("its best value by step {step} is worse than the median of {} trials", means.len());
                board.stop(index, StateReason::new(BELOW_MEDIAN, sentence));
                break;
            }
        }
    }
}

/// Returns the mean scores, up to a step, of the completed trials that have a value by then. A trial with a value that is
/// not finite has the worst mean.
fn completed_means(board: &TrialBoard<'_>, step: u64) -> Vec<f64> {
    let completed = board.trials.iter().filter(|trial| trial.state == TrialState::Completed);
    let points = completed.filter_map(|trial| board.input.finished.get(&trial.number));
    let mean = |points: &Vec<(u64, f64)>| {
        let by_step = points.iter().take_while(|(at, _)| *at <= step);
        let scores: Vec<f64> = by_step.map(|(_, value)| board.input.sweep.score(Some(*value))).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    };
    points.filter_map(mean).collect()
}

/// Returns the median, which of an even number of values is the mean of the middle two.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values) {
        (0, values) => f64::midpoint(values[middle - 1], values[middle]),
        (_, values) => values[middle],
    }
}
