//! Asynchronous successive halving. Source: Li et al. 2018, "A System for Massively Parallel Hyperparameter Tuning",
//! algorithm 2, the function `get_job`.

use saggar_store::records::TrialState;

use super::TrialBoard;

/// Returns the trial to promote: from the highest rung on, the best trial among the best `1 / eta` of its rung that is
/// not promoted yet. `None` if no trial can be promoted, and a new trial starts at the bottom.
pub(super) fn promotable(board: &TrialBoard<'_>) -> Option<usize> {
    let sweep = board.input.sweep;
    (0..sweep.rung_count()).rev().find_map(|rung| {
        let ranking = board.ranking(rung);
        let best = ranking.len() / sweep.spec.eta as usize;
        let is_waiting = |index: &usize| {
            let trial = &board.trials[*index];
            trial.state == TrialState::Paused
                && trial.rung == rung
                && board.score_at(trial, rung).is_some_and(|score| score > f64::NEG_INFINITY)
        };
        ranking.into_iter().take(best).find(is_waiting)
    })
}
