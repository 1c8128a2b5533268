//! Decides which trials of a sweep start, continue, or stop. It is a pure function of the sweep's records and what its
//! jobs have recorded. A value that a decision depends on is recorded with it, so that a later decision is the same
//! whatever the jobs have recorded since.

mod asha;
mod halving;
mod median;
mod population;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use saggar_store::JobState;
use saggar_store::records::{PAUSED, StateReason, SweepDecision, SweepState, TrialRecord, TrialState};
use serde_json::{Map, Value};

use crate::spec::{SweepMethod, ValidSweep};
use crate::tpe_sampler::{TrialResult, has_enough_results, propose, recorded_text};

/// The reason code of a trial that was stopped because others are better at its rung.
pub const NOT_PROMOTED: &str = "NOT_PROMOTED";
/// The reason code of a trial that was stopped because it was worse than the median.
pub const BELOW_MEDIAN: &str = "BELOW_MEDIAN";
/// The reason code of a trial that a copy of a better trial continues in the place of.
pub const REPLACED: &str = "REPLACED";
/// The reason code of a sweep, and of its trials, that has used up its budget.
pub const BUDGET: &str = "BUDGET";
/// The reason code of a sweep whose trials do not report its metric.
pub const NO_METRIC: &str = "NO_METRIC";
/// The reason code of a sweep whose trials all failed.
pub const ALL_TRIALS_FAILED: &str = "ALL_TRIALS_FAILED";
/// The reason code of a trial whose job was removed.
pub const JOB_REMOVED: &str = "JOB_REMOVED";

/// What the job of a trial has recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialObservation {
    /// The job's state.
    pub state: JobState,
    /// Whether it is paused at the point of its trial's rung.
    pub is_at_rung: bool,
    /// The reason of its state.
    pub reason: StateReason,
    /// The points of the sweep's metric, by step. Only read of jobs that are over or at their rung, or if the method
    /// compares running trials.
    pub points: Vec<(u64, f64)>,
    /// The names of its series, if it is over and has no point of the metric.
    pub series: Vec<String>,
}

/// What a decision depends on.
#[derive(Clone, Debug)]
pub struct SweepInput<'a> {
    /// The specification.
    pub sweep: &'a ValidSweep,
    /// The trials, by number.
    pub trials: &'a [TrialRecord],
    /// What the jobs of running trials have recorded, by the trial's number; `None` if the job was removed.
    pub observed: &'a BTreeMap<u32, Option<TrialObservation>>,
    /// The points of the metric of trials that are over, for methods that compare with them.
    pub finished: &'a BTreeMap<u32, Vec<(u64, f64)>>,
    /// Seconds since the sweep was created.
    pub elapsed_seconds: f64,
    /// Device seconds that its trials have used.
    pub device_seconds: f64,
}

/// Returns the decision.
pub fn decide(input: &SweepInput<'_>) -> SweepDecision {
    let mut board = TrialBoard::new(input);
    if let Some(reason) = board.apply_observations() {
        return board.end_early(SweepState::Failed, reason);
    }
    if let Some(reason) = used_up_budget(input) {
        return board.end_early(SweepState::Succeeded, reason);
    }
    match input.sweep.spec.method {
        SweepMethod::Median => median::stop_below_median(&mut board),
        SweepMethod::Halving => halving::stop_losers(&mut board),
        SweepMethod::Pbt => population::replace_worst(&mut board),
        SweepMethod::Full | SweepMethod::Asha | SweepMethod::Tpe | SweepMethod::TpeAsha => {}
    }
    while board.running_count() < input.sweep.spec.max_parallel as usize {
        let promoted = match input.sweep.spec.method {
            SweepMethod::Full | SweepMethod::Median | SweepMethod::Tpe => None,
            SweepMethod::Halving => halving::promotable(&board),
            SweepMethod::Asha | SweepMethod::TpeAsha => asha::promotable(&board),
            SweepMethod::Pbt => population::promotable(&board),
        };
        match promoted {
            Some(index) => board.promote(index),
            None if board.start_next_trial() => {}
            None => break,
        }
    }
    board.finish()
}

/// Returns the reason why the sweep ends if its budget is used up.
fn used_up_budget(input: &SweepInput<'_>) -> Option<StateReason> {
    let spec = &input.sweep.spec;
    let over = |budget: Option<f64>, used: f64| budget.filter(|budget| used >= *budget);
    let (budget, what) = match over(spec.budget_seconds, input.elapsed_seconds) {
        Some(budget) => (budget, "seconds"),
        None => (over(spec.budget_device_seconds, input.device_seconds)?, "device seconds"),
    };
    Some(StateReason::new(BUDGET, format!("its budget of {budget} {what} is used up")))
}

/// The trials, with those that the decision changes.
struct TrialBoard<'a> {
    input: &'a SweepInput<'a>,
    trials: Vec<TrialRecord>,
}

impl<'a> TrialBoard<'a> {
    fn new(input: &'a SweepInput<'a>) -> TrialBoard<'a> {
        TrialBoard { input, trials: input.trials.to_vec() }
    }

    fn running_count(&self) -> usize {
        self.trials.iter().filter(|trial| trial.state == TrialState::Running).count()
    }

    /// Returns the score of a trial at a rung, or `None` if it has not reached it.
    fn score_at(&self, trial: &TrialRecord, rung: u32) -> Option<f64> {
        trial.rung_values.get(rung as usize).map(|value| self.input.sweep.score(*value))
    }

    /// Returns the indices of the trials that have reached a rung, best first; of equal ones, the older first.
    fn ranking(&self, rung: u32) -> Vec<usize> {
        let mut ranked: Vec<(usize, f64)> = self
            .trials
            .iter()
            .enumerate()
            .filter_map(|(index, trial)| self.score_at(trial, rung).map(|score| (index, score)))
            .collect();
        ranked.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        ranked.into_iter().map(|(index, _)| index).collect()
    }

    /// Records what the jobs of running trials have reached. Returns the reason why the sweep fails if one of them
    /// ended without the metric.
    fn apply_observations(&mut self) -> Option<StateReason> {
        let mut failure = None;
        for trial in self.trials.iter_mut().filter(|trial| trial.state == TrialState::Running) {
            let Some(observed) = self.input.observed.get(&trial.number) else { continue };
            match observed {
                None => fail(trial, StateReason::new(JOB_REMOVED, "its job was removed")),
                Some(job) if job.is_at_rung => {
                    trial.rung_values.push(reached_value(trial, &job.points));
                    trial.state = TrialState::Paused;
                    trial.reason = StateReason::new(PAUSED, format!("waits at rung {}", trial.rung));
                }
                Some(job) if job.state == JobState::Succeeded => {
                    if job.points.is_empty() && trial.parent.is_none() {
                        failure.get_or_insert_with(|| self.input.no_metric_reason(trial.number, &job.series));
                    }
                    trial.rung_values.push(reached_value(trial, &job.points));
                    trial.state = TrialState::Completed;
                    trial.reason = StateReason::default();
                }
                Some(job) if job.state.is_final() => fail(trial, job.reason.clone()),
                Some(_) => {}
            }
        }
        failure
    }

    /// Lets a paused trial continue to its next rung.
    fn promote(&mut self, index: usize) {
        let trial = &mut self.trials[index];
        trial.rung += 1;
        trial.state = TrialState::Running;
        trial.reason = StateReason::default();
    }

    /// Starts the next trial. Returns `false` if all have started.
    fn start_next_trial(&mut self) -> bool {
        let number = self.trials.len() as u32 + 1;
        if number > self.input.sweep.trials {
            return false;
        }
        let parameters = recorded_text(&self.parameters(number));
        self.trials.push(TrialRecord {
            number,
            parameters,
            job: None,
            state: TrialState::Running,
            rung: 0,
            rung_values: Vec::new(),
            reason: StateReason::default(),
            parent: None,
        });
        true
    }

    /// Returns the parameters of a new trial.
    fn parameters(&self, number: u32) -> Map<String, Value> {
        let sweep = self.input.sweep;
        let results = if sweep.spec.method.learns_parameters() { self.results() } else { Vec::new() };
        if !has_enough_results(&results) {
            return sweep.parameters(number);
        }
        let tried: Vec<&str> = self.trials.iter().map(|trial| trial.parameters.as_str()).collect();
        propose(&sweep.space, sweep.spec.seed, number, &results, &tried)
    }

    /// Returns the results of the trials that have a value or failed. Those whose jobs were removed are left out, because
    /// a removal says nothing about their parameters.
    ///
    /// The score is a rank: of two trials, the one that got further is better, and at the same rung the one with the better
    /// value. If only the trials of a later rung were compared, the regions that none of them is from would look
    /// promising, although their trials were stopped before. Source: Akiba et al. 2019, "Optuna", whose estimator orders
    /// trials that were stopped early in this way.
    fn results(&self) -> Vec<TrialResult> {
        let reached = self.trials.iter().filter(|trial| trial.reason.code != JOB_REMOVED);
        let mut ordered: Vec<(usize, f64, &TrialRecord)> = reached
            .filter_map(|trial| {
                let value = *trial.rung_values.last()?;
                Some((trial.rung_values.len(), self.input.sweep.score(value), trial))
            })
            .collect();
        ordered.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let mut rank = 0.0;
        let mut results: Vec<(u32, TrialResult)> = Vec::with_capacity(ordered.len());
        for (index, (rungs, score, trial)) in ordered.iter().enumerate() {
            let is_equal = index > 0 && (ordered[index - 1].0, ordered[index - 1].1) == (*rungs, *score);
            rank += if is_equal { 0.0 } else { 1.0 };
            let score = if score.is_finite() { rank } else { f64::NEG_INFINITY };
            results.push((trial.number, TrialResult { parameters: trial_parameters(trial), score }));
        }
        results.sort_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Stops a trial for good.
    fn stop(&mut self, index: usize, reason: StateReason) {
        let trial = &mut self.trials[index];
        trial.state = TrialState::Stopped;
        trial.reason = reason;
    }

    /// Ends the sweep and stops what still runs.
    fn end_early(mut self, state: SweepState, reason: StateReason) -> SweepDecision {
        for index in 0..self.trials.len() {
            if matches!(self.trials[index].state, TrialState::Running | TrialState::Paused) {
                self.stop(index, reason.clone());
            }
        }
        self.decision(Some((state, reason)))
    }

    /// Ends the sweep if nothing runs any more.
    fn finish(mut self) -> SweepDecision {
        if self.running_count() > 0 {
            return self.decision(None);
        }
        let has_result = self.trials.iter().any(|trial| trial.state == TrialState::Completed);
        if !has_result && let Some(index) = self.best_paused() {
            // With few trials, a rung can promote none of them. The best one gives the sweep its result.
            self.promote(index);
            return self.decision(None);
        }
        for index in 0..self.trials.len() {
            if self.trials[index].state == TrialState::Paused {
                let rung = self.trials[index].rung;
                self.stop(index, self.not_promoted(index, rung));
            }
        }
        let end = match has_result {
            true => (SweepState::Succeeded, StateReason::default()),
            false => {
                let last = self.trials.iter().rev().find(|trial| trial.state == TrialState::Failed);
                let why = last.map_or_else(String::new, |trial| {
                    format!("; trial {}: {} {}", trial.number, trial.reason.code, trial.reason.sentence)
                });
                let sentence = format!("none of its {} trials succeeded{why}", self.trials.len());
                (SweepState::Failed, StateReason::new(ALL_TRIALS_FAILED, sentence))
            }
        };
        self.decision(Some(end))
    }

    /// Returns the best paused trial of the highest rung, unless all paused ones have the worst value.
    fn best_paused(&self) -> Option<usize> {
        (0..self.input.sweep.rung_count()).rev().find_map(|rung| {
            let is_candidate = |index: &usize| {
                let trial = &self.trials[*index];
                trial.state == TrialState::Paused
                    && trial.rung == rung
                    && self.score_at(trial, rung).is_some_and(|score| score > f64::NEG_INFINITY)
            };
            self.ranking(rung).into_iter().find(is_candidate)
        })
    }

    /// Returns the reason of a trial that others beat at a rung.
    fn not_promoted(&self, index: usize, rung: u32) -> StateReason {
        let ranking = self.ranking(rung);
        let rank = ranking.iter().position(|other| *other == index).unwrap_or(ranking.len());
        StateReason::new(NOT_PROMOTED, format!("rank {} of {} at rung {rung}", rank + 1, ranking.len()))
    }

    /// Returns the trials that changed.
    fn decision(self, end: Option<(SweepState, StateReason)>) -> SweepDecision {
        let before = self.input.trials;
        let changed = |(index, trial): (usize, TrialRecord)| (before.get(index) != Some(&trial)).then_some(trial);
        SweepDecision { trials: self.trials.into_iter().enumerate().filter_map(changed).collect(), end }
    }
}

impl SweepInput<'_> {
    fn no_metric_reason(&self, trial: u32, series: &[String]) -> StateReason {
        let metric = &self.sweep.metric.metric;
        let known = if series.is_empty() { "no series".to_owned() } else { series.join(", ") };
        let sentence = format!("trial {trial} succeeded without a value of `{metric}`; it recorded: {known}");
        StateReason::new(NO_METRIC, sentence)
    }
}

/// Ends a trial whose job did not succeed. It counts with the worst value at the rung that it ran to.
fn fail(trial: &mut TrialRecord, reason: StateReason) {
    trial.rung_values.push(None);
    trial.state = TrialState::Failed;
    trial.reason = reason;
}

/// Returns the recorded parameters of a trial.
fn trial_parameters(trial: &TrialRecord) -> Map<String, Value> {
    serde_json::from_str(&trial.parameters).unwrap_or_default()
}

/// Returns the value that a trial has reached. A copy that has no value yet, because the training has no step between two
/// generations, has that of the state that it continues from.
fn reached_value(trial: &TrialRecord, points: &[(u64, f64)]) -> Option<f64> {
    match (&trial.parent, points) {
        (Some(_), []) => trial.rung_values.last().copied().flatten(),
        _ => last_value(points),
    }
}

/// Returns the value at the last step, or `None` if it is missing or not finite.
fn last_value(points: &[(u64, f64)]) -> Option<f64> {
    points.last().map(|(_, value)| *value).filter(|value| value.is_finite())
}
