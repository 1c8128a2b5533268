//! The metrics of runs and steps.

use saggar_clock::UnixMillis;
use saggar_metrics::{MetricHandles, MetricsRegistry};
use saggar_project::StepKind;
use saggar_store::records::{PipelineRunRecord, PipelineRunState, PipelineStepRecord, PipelineStepState};

/// Counts runs and steps that end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RunMetrics(MetricHandles);

impl RunMetrics {
    /// Returns the metrics of a registry. Counters by kind of step exist from the beginning.
    pub(crate) fn new(registry: &MetricsRegistry) -> RunMetrics {
        let families = registry.families.clone();
        for (_, kind) in StepKind::NAMES.into_iter().filter(|(_, kind)| *kind != StepKind::Pipeline) {
            for state in PipelineStepState::ALL.iter().filter(|state| state.is_final()) {
                families.pipeline_steps_finished.with_label_values(&[kind.name(), state.name()]);
            }
        }
        families.pipeline_running_runs.with_label_values::<&str>(&[]);
        RunMetrics(families)
    }

    /// Creates the counters of a pipeline, so that the end of its first run is seen as an increase.
    pub(crate) fn begin_run(&self, pipeline: &str) {
        for state in PipelineRunState::ALL.iter().filter(|state| state.is_final()) {
            self.0.pipeline_runs_finished.with_label_values(&[pipeline, state.name()]);
        }
    }

    /// Sets the number of runs that are not over.
    pub(crate) fn set_running(&self, runs: usize) {
        self.0.pipeline_running_runs.with_label_values::<&str>(&[]).set(i64::try_from(runs).unwrap_or(i64::MAX));
    }

    /// Counts a run that ended now.
    pub(crate) fn end_run(&self, run: &PipelineRunRecord, state: PipelineRunState, now_ms: UnixMillis) {
        self.0.pipeline_runs_finished.with_label_values(&[run.pipeline.as_str(), state.name()]).inc();
        let seconds = seconds_between(run.created_ms, now_ms);
        self.0.pipeline_run_duration.with_label_values(&[run.pipeline.as_str()]).observe(seconds);
    }

    /// Counts an attempt whose state changed to `state` now, if that is final.
    pub(crate) fn change_step(
        &self,
        kind: StepKind,
        attempt: &PipelineStepRecord,
        state: PipelineStepState,
        now_ms: UnixMillis,
    ) {
        if !state.is_final() {
            return;
        }
        self.0.pipeline_steps_finished.with_label_values(&[kind.name(), state.name()]).inc();
        if let Some(started_ms) = attempt.started_ms {
            let seconds = seconds_between(started_ms, now_ms);
            self.0.pipeline_step_duration.with_label_values(&[kind.name()]).observe(seconds);
        }
    }
}

/// Returns the seconds from one time to another; 0 if the clock was set back.
fn seconds_between(from_ms: UnixMillis, to_ms: UnixMillis) -> f64 {
    to_ms.saturating_sub(from_ms) as f64 / 1000.0
}
