//! Prometheus metrics of sweeps. States and methods that do not occur are 0, not absent.

use std::sync::Arc;

use saggar_metrics::MetricsRegistry;
use saggar_store::records::{SweepDecision, SweepState, TrialRecord, TrialState};

use crate::spec::SweepMethod;

/// The states of a sweep that is not over.
const UNFINISHED_SWEEPS: [SweepState; 2] = [SweepState::Running, SweepState::Stopped];
/// The states of a trial that is not over.
const UNFINISHED_TRIALS: [TrialState; 2] = [TrialState::Running, TrialState::Paused];

/// Counts decisions of sweeps once they are recorded.
#[derive(Debug)]
pub(crate) struct SweepMetrics(Arc<MetricsRegistry>);

impl SweepMetrics {
    /// Creates every series.
    pub(crate) fn new(metrics: Arc<MetricsRegistry>) -> SweepMetrics {
        let families = &metrics.families;
        for method in SweepMethod::ALL.map(SweepMethod::name) {
            for state in SweepState::ALL.into_iter().filter(|state| state.is_final()) {
                families.sweeps_finished.with_label_values(&[method, state.name()]);
            }
            for state in TrialState::ALL.into_iter().filter(|state| !UNFINISHED_TRIALS.contains(state)) {
                families.sweep_trials_finished.with_label_values(&[method, state.name()]);
            }
        }
        let metrics = SweepMetrics(metrics);
        metrics.set_unfinished([]);
        metrics
    }

    /// Counts the trials and the sweep that a recorded decision ended. `before` are the trials that it follows from.
    pub(crate) fn count_decision(&self, method: SweepMethod, before: &[TrialRecord], decision: &SweepDecision) {
        let families = &self.0.families;
        let was_over = |number: u32| {
            let old = before.iter().find(|trial| trial.number == number);
            old.is_some_and(|trial| !UNFINISHED_TRIALS.contains(&trial.state))
        };
        for trial in &decision.trials {
            if !UNFINISHED_TRIALS.contains(&trial.state) && !was_over(trial.number) {
                families.sweep_trials_finished.with_label_values(&[method.name(), trial.state.name()]).inc();
            }
        }
        if let Some((state, _)) = decision.end.as_ref().filter(|(state, _)| state.is_final()) {
            families.sweeps_finished.with_label_values(&[method.name(), state.name()]).inc();
        }
    }

    /// Sets the numbers of sweeps that are not over, and of their trials.
    pub(crate) fn set_unfinished<'a>(&self, sweeps: impl IntoIterator<Item = (SweepState, &'a [TrialRecord])>) {
        let (mut by_state, mut trials_by_state) = ([0_i64; 2], [0_i64; 2]);
        for (state, trials) in sweeps {
            if let Some(index) = UNFINISHED_SWEEPS.iter().position(|it| *it == state) {
                by_state[index] += 1;
                for trial in trials {
                    if let Some(index) = UNFINISHED_TRIALS.iter().position(|it| *it == trial.state) {
                        trials_by_state[index] += 1;
                    }
                }
            }
        }
        for (state, count) in UNFINISHED_SWEEPS.iter().zip(by_state) {
            self.0.families.sweeps.with_label_values(&[state.name()]).set(count);
        }
        for (state, count) in UNFINISHED_TRIALS.iter().zip(trials_by_state) {
            self.0.families.sweep_trials.with_label_values(&[state.name()]).set(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use saggar_store::records::StateReason;

    use super::*;

    fn trial(number: u32, state: TrialState) -> TrialRecord {
        TrialRecord {
            number,
            parameters: "{}".to_owned(),
            job: None,
            state,
            rung: 0,
            rung_values: Vec::new(),
            reason: StateReason::default(),
            parent: None,
        }
    }

    fn lines(metrics: &MetricsRegistry) -> Vec<String> {
        let page = metrics.render_prometheus();
        page.lines().filter(|line| line.starts_with("saggar_sweep")).map(str::to_owned).collect()
    }

    #[test]
    fn each_end_is_counted_once_and_series_exist_from_the_beginning() {
        let registry = Arc::new(MetricsRegistry::new());
        let metrics = SweepMetrics::new(Arc::clone(&registry));
        let before = lines(&registry);
        assert!(before.iter().all(|line| line.ends_with(" 0")), "{before:?}");
        assert!(before.contains(&"saggar_sweeps_finished_total{method=\"tpe-asha\",state=\"FAILED\"} 0".to_owned()));

        let old = [trial(1, TrialState::Running), trial(2, TrialState::Completed), trial(3, TrialState::Paused)];
        let trials = vec![
            trial(1, TrialState::Completed),
            trial(2, TrialState::Completed),
            trial(3, TrialState::Stopped),
            trial(4, TrialState::Running),
        ];
        let decision = SweepDecision { trials, end: Some((SweepState::Succeeded, StateReason::default())) };
        metrics.count_decision(SweepMethod::Asha, &old, &decision);
        metrics.set_unfinished([(SweepState::Running, &old[..]), (SweepState::Succeeded, &old[..])]);
        let changed: Vec<String> = lines(&registry).into_iter().filter(|line| !line.ends_with(" 0")).collect();
        assert_eq!(
            changed,
            [
                "saggar_sweep_trials{state=\"PAUSED\"} 1",
                "saggar_sweep_trials{state=\"RUNNING\"} 1",
                "saggar_sweep_trials_finished_total{method=\"asha\",state=\"COMPLETED\"} 1",
                "saggar_sweep_trials_finished_total{method=\"asha\",state=\"STOPPED\"} 1",
                "saggar_sweeps{state=\"RUNNING\"} 1",
                "saggar_sweeps_finished_total{method=\"asha\",state=\"SUCCEEDED\"} 1",
            ]
        );
    }
}
