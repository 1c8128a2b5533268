//! Successive halving: the trials of a rung are compared once all of them have reached it. Source: Jamieson and
//! Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization"; the rungs as in Li et al.
//! 2018, algorithm 1.

use saggar_store::records::TrialState;

use super::TrialBoard;

/// Returns the indices of the trials of a complete rung that continue, or `None` if the rung is not complete. At least
/// one continues.
fn winners(board: &TrialBoard<'_>, rung: u32) -> Option<Vec<usize>> {
    if board.trials.len() < board.input.sweep.trials as usize {
        return None;
    }
    // All trials start at rung 0; those of a later rung are known once the rung before is complete and its winners
    // continue.
    let members: Vec<usize> = match rung {
        0 => (0..board.trials.len()).collect(),
        _ => winners(board, rung - 1)?,
    };
    let ranking = board.ranking(rung);
    if !members.iter().all(|member| ranking.contains(member)) {
        return None;
    }
    let count = (members.len() / board.input.sweep.spec.eta as usize).max(1);
    Some(ranking.into_iter().filter(|index| members.contains(index)).take(count).collect())
}

/// Stops the trials that do not continue from complete rungs.
pub(super) fn stop_losers(board: &mut TrialBoard<'_>) {
    for rung in 0..board.input.sweep.rung_count() {
        let Some(winners) = winners(board, rung) else { return };
        for index in 0..board.trials.len() {
            let trial = &board.trials[index];
            if trial.state == TrialState::Paused && trial.rung == rung && !winners.contains(&index) {
                let reason = board.not_promoted(index, rung);
                board.stop(index, reason);
            }
        }
    }
}

/// Returns the next trial that continues from a complete rung.
pub(super) fn promotable(board: &TrialBoard<'_>) -> Option<usize> {
    (0..board.input.sweep.rung_count()).find_map(|rung| {
        let is_waiting = |index: &usize| {
            let trial = &board.trials[*index];
            trial.state == TrialState::Paused && trial.rung == rung
        };
        winners(board, rung)?.into_iter().find(is_waiting)
    })
}
