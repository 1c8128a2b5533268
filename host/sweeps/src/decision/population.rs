//! Population-based training. Source: Jaderberg et al. 2017, "Population Based Training of Neural Networks": algorithm 1
//! with truncation selection (`exploit`, section 4.1) and [`perturb`] (`explore`).
//!
//! A member of the population is a sequence of trials. A trial trains with the same parameters from its beginning to its
//! end. When a member is replaced, its trial is stopped, and a new trial with other parameters continues from the state of
//! the trial that it copies, so that the values, steps and costs of each one stay recorded.
//!
//! The members are compared once all of them have ended the generation, and not when one of them is ready, as in the
//! source. So a decision depends on recorded values alone, and not on which job was faster.

use std::collections::BTreeMap;

use saggar_store::records::{PAUSED, StateReason, TrialParent, TrialRecord, TrialState};
use serde_json::{Map, Value};

use super::{REPLACED, TrialBoard, trial_parameters};
use crate::perturbation::{draw_parent, perturb};
use crate::tpe_sampler::recorded_text;

/// Returns the indices of the newest trial of each member, by member.
fn current_trials(board: &TrialBoard<'_>) -> Vec<usize> {
    let newest = board.trials.iter().enumerate().map(|(index, trial)| (trial.member(), index));
    newest.collect::<BTreeMap<u32, usize>>().into_values().collect()
}

/// Returns the generation that all members have ended and none has left, or `None`.
fn ended_generation(board: &TrialBoard<'_>, current: &[usize]) -> Option<u32> {
    let trials = || current.iter().map(|index| &board.trials[*index]);
    let generation = trials().map(|trial| trial.rung).max()?;
    let has_started = current.len() >= board.input.sweep.trials as usize;
    let mut paused = trials().filter(|trial| trial.state == TrialState::Paused).peekable();
    let has_ended = paused.peek().is_some() && paused.all(|trial| trial.rung == generation);
    (has_started && has_ended && trials().all(|trial| trial.state != TrialState::Running)).then_some(generation)
}

/// Replaces the worst members by copies of the best ones, if all have ended the generation. A copy waits at the rung of its
/// parent, as the other members do.
pub(super) fn replace_worst(board: &mut TrialBoard<'_>) {
    let current = current_trials(board);
    let Some(generation) = ended_generation(board, &current) else { return };
    let Some(settings) = &board.input.sweep.population else { return };
    // A trial that completed before the rung neither is replaced nor has a state to copy.
    let is_compared = |index: &&usize| matches!(board.trials[**index].state, TrialState::Paused | TrialState::Failed);
    let score = |index: &usize| match board.trials[*index].state {
        TrialState::Paused => board.score_at(&board.trials[*index], generation).unwrap_or(f64::NEG_INFINITY),
        _ => f64::NEG_INFINITY,
    };
    let mut ranked: Vec<(usize, f64)> =
        current.iter().filter(is_compared).map(|index| (*index, score(index))).collect();
    // The sort is stable: of equal scores, the lower member is first.
    ranked.sort_by(|one, other| other.1.total_cmp(&one.1));
    let share = (ranked.len() as f64 * settings.exploit_quantile).floor() as usize;
    let count = share.min(ranked.len() / 2).max(1);
    let best: Vec<(usize, f64)> = ranked.iter().copied().take(count).filter(|it| it.1.is_finite()).collect();
    let is_worst = |(rank, (_, score)): &(usize, &(usize, f64))| *rank + count >= ranked.len() || !score.is_finite();
    let mut worst: Vec<(usize, f64)> = ranked.iter().enumerate().filter(is_worst).map(|(_, it)| *it).collect();
    worst.sort_by_key(|(index, _)| board.trials[*index].member());
    // The parameters with which trials continue from the state of each parent.
    let mut continued: BTreeMap<usize, Vec<Map<String, Value>>> = BTreeMap::new();
    for (index, score) in worst {
        let better: Vec<usize> = best.iter().filter(|it| it.1 > score).map(|it| it.0).collect();
        if better.is_empty() {
            continue;
        }
        let copy = board.trials.len() as u32 + 1;
        let parent = better[draw_parent(board.input.sweep.spec.seed, copy, better.len())];
        let of_parent = trial_parameters(&board.trials[parent]);
        let siblings = continued.entry(parent).or_insert_with(|| vec![of_parent.clone()]);
        let sweep = board.input.sweep;
        let parameters = perturb(&sweep.space, settings, (sweep.spec.seed, copy), &of_parent, siblings);
        siblings.push(parameters.clone());
        replace(board, index, parent, &parameters);
    }
}

/// Stops the trial of a member, and adds the one that continues from the parent's state in its place.
fn replace(board: &mut TrialBoard<'_>, index: usize, parent: usize, parameters: &Map<String, Value>) {
    let copy = board.trials.len() as u32 + 1;
    let TrialRecord { number, rung, rung_values, .. } = board.trials[parent].clone();
    let reason = |sentence: String| StateReason::new(PAUSED, sentence);
    let added = TrialRecord {
        number: copy,
        parameters: recorded_text(parameters),
        job: None,
        state: TrialState::Paused,
        rung,
        rung_values,
        reason: reason(format!("waits at rung {rung} with the state of trial {number}")),
        parent: Some(TrialParent { member: board.trials[index].member(), trial: number, rung }),
    };
    // A failed trial keeps its state and its reason.
    if board.trials[index].state == TrialState::Paused {
        let sentence = format!("trial {copy} continues in its place from the state of trial {number}");
        board.stop(index, StateReason::new(REPLACED, sentence));
    }
    board.trials.push(added);
}

/// Returns the next trial that continues to the next generation, or `None` if the members wait for others.
///
/// Copies come first and the trials that they copy last: a parent must not leave its state before the jobs of its copies
/// are submitted, which keeps the checkpoint.
pub(super) fn promotable(board: &TrialBoard<'_>) -> Option<usize> {
    let current = current_trials(board);
    let furthest = current.iter().map(|index| board.trials[*index].rung).max()?;
    let has_ended = ended_generation(board, &current).is_some();
    let may_continue = |index: &&usize| {
        let trial = &board.trials[**index];
        trial.state == TrialState::Paused && (trial.rung < furthest || has_ended)
    };
    let copies_at =
        |trial: &TrialRecord| trial.parent.as_ref().filter(|parent| parent.rung == trial.rung).map(|it| it.trial);
    let order = |index: &&usize| {
        let trial = &board.trials[**index];
        let is_copy = copies_at(trial).is_some();
        let is_copied =
            board.trials.iter().any(|copy| copy.rung == trial.rung && copies_at(copy) == Some(trial.number));
        (!is_copy, is_copied, trial.member())
    };
    current.iter().filter(may_continue).min_by_key(order).copied()
}
