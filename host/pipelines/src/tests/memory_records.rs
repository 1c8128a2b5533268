//! Records in memory, which can be interrupted before or after each operation.

use std::sync::Arc;

use parking_lot::Mutex;
use saggar_store::error::RecordError;
use saggar_store::records::{
    NewPipelineRun, PipelineRecords, PipelineRunFilter, PipelineRunRecord, PipelineRunState, PipelineSchedule,
    PipelineStepRecord, PipelineStepState, StateReason, StepAttemptKey, StepChange,
};

use super::simulated_server::KillSwitch;

#[derive(Debug)]
pub(super) struct MemoryRecords {
    kills: Arc<KillSwitch>,
    runs: Mutex<Vec<(PipelineRunRecord, Vec<PipelineStepRecord>)>>,
}

fn killed() -> RecordError {
    RecordError::Database { database: "memory".to_owned(), source: "killed".into() }
}

impl MemoryRecords {
    pub(super) fn new(kills: Arc<KillSwitch>) -> MemoryRecords {
        MemoryRecords { kills, runs: Mutex::default() }
    }

    /// Runs an operation that a kill can prevent, or whose answer a kill can lose.
    fn operate<T>(
        &self,
        work: impl FnOnce(&mut Vec<(PipelineRunRecord, Vec<PipelineStepRecord>)>) -> Result<T, RecordError>,
    ) -> Result<T, RecordError> {
        self.kills.operate(|| work(&mut self.runs.lock())).ok_or_else(killed)?
    }

    /// Approves every step that waits.
    pub(super) fn approve_all(&self, run: &str) {
        for (_, steps) in self.runs.lock().iter_mut().filter(|(it, _)| it.id == run) {
            for step in steps.iter_mut().filter(|step| step.state == PipelineStepState::Waiting) {
                step.state = PipelineStepState::Succeeded;
            }
        }
    }
}

fn find<'a>(
    runs: &'a mut [(PipelineRunRecord, Vec<PipelineStepRecord>)],
    run: &str,
) -> Result<&'a mut (PipelineRunRecord, Vec<PipelineStepRecord>), RecordError> {
    let missing = || RecordError::NoSuchRun { run: run.to_owned() };
    runs.iter_mut().find(|(it, _)| it.id == run || it.name == run).ok_or_else(missing)
}

fn pending(position: u32, item: u32, attempt: u32, step: &str) -> PipelineStepRecord {
    PipelineStepRecord {
        position,
        item,
        attempt,
        step: step.to_owned(),
        state: PipelineStepState::Pending,
        reason: StateReason::default(),
        job: None,
        cached_from: None,
        cache_key: None,
        inputs: "[]".to_owned(),
        outputs: "{}".to_owned(),
        started_ms: None,
        finished_ms: None,
    }
}

impl PipelineRecords for MemoryRecords {
    fn create_run(&self, run: &NewPipelineRun, now_ms: u64) -> Result<PipelineRunRecord, RecordError> {
        self.operate(|runs| {
            let number = runs.len() + 1;
            let record = PipelineRunRecord {
                id: format!("run{number}"),
                name: format!("{}-{number}", run.pipeline),
                pipeline: run.pipeline.clone(),
                project: run.project.clone(),
                plan: run.plan.clone(),
                params: run.params.clone(),
                state: PipelineRunState::Running,
                reason: StateReason::default(),
                stop: None,
                owner: None,
                rights: run.rights.clone(),
                created_ms: now_ms,
                finished_ms: None,
                reuse_from: run.reuse_from.clone(),
                cursor: number as u64,
            };
            let steps = run.steps.iter().enumerate().flat_map(|(position, (name, items))| {
                (0..*items).map(move |item| pending(position as u32, item, 1, name))
            });
            runs.push((record.clone(), steps.collect()));
            Ok(record)
        })
    }

    fn find_run_by_idempotency_key(&self, _: &str) -> Result<Option<PipelineRunRecord>, RecordError> {
        Ok(None)
    }

    fn get_run(&self, run: &str) -> Result<PipelineRunRecord, RecordError> {
        self.operate(|runs| Ok(find(runs, run)?.0.clone()))
    }

    fn list_runs(&self, _: &PipelineRunFilter) -> Result<Vec<PipelineRunRecord>, RecordError> {
        self.operate(|runs| Ok(runs.iter().map(|(run, _)| run.clone()).collect()))
    }

    fn unfinished_runs(&self) -> Result<Vec<PipelineRunRecord>, RecordError> {
        self.operate(|runs| Ok(runs.iter().map(|(run, _)| run.clone()).filter(|run| !run.state.is_final()).collect()))
    }

    fn steps(&self, run: &str) -> Result<Vec<PipelineStepRecord>, RecordError> {
        self.operate(|runs| Ok(find(runs, run)?.1.clone()))
    }

    fn change_step(
        &self,
        run: &str,
        key: StepAttemptKey,
        change: &StepChange,
        now_ms: u64,
    ) -> Result<bool, RecordError> {
        self.operate(|runs| {
            let (run, steps) = find(runs, run)?;
            let is_later = |it: &PipelineStepRecord| {
                (it.position, it.item) == (key.position, key.item) && it.attempt > key.attempt
            };
            if run.state.is_final() || steps.iter().any(is_later) {
                return Ok(false);
            }
            let Some(step) = steps.iter_mut().find(|it| it.key() == key && it.state == change.from) else {
                return Ok(false);
            };
            step.state = change.to;
            step.reason = change.reason.clone();
            step.job = change.job.clone().or(step.job.take());
            step.cached_from = change.cached_from.clone().or(step.cached_from.take());
            step.cache_key = change.cache_key.clone().or(step.cache_key.take());
            step.outputs = change.outputs.clone().unwrap_or_else(|| std::mem::take(&mut step.outputs));
            step.finished_ms = change.to.is_final().then_some(now_ms);
            Ok(true)
        })
    }

    fn finish_run(
        &self,
        run: &str,
        state: PipelineRunState,
        reason: &StateReason,
        now_ms: u64,
    ) -> Result<bool, RecordError> {
        self.operate(|runs| {
            let (run, _) = find(runs, run)?;
            if run.state.is_final() {
                return Ok(false);
            }
            (run.state, run.reason, run.finished_ms) = (state, reason.clone(), Some(now_ms));
            Ok(true)
        })
    }

    fn request_run_stop(&self, run: &str, reason: &StateReason) -> Result<bool, RecordError> {
        self.operate(|runs| {
            let (run, _) = find(runs, run)?;
            let is_open = !run.state.is_final();
            if is_open {
                run.stop.get_or_insert(reason.clone());
            }
            Ok(is_open)
        })
    }

    fn restart_run(&self, run: &str, items: &[(u32, u32)]) -> Result<bool, RecordError> {
        self.operate(|runs| {
            let (run, steps) = find(runs, run)?;
            if !run.state.is_final() {
                return Ok(false);
            }
            (run.state, run.stop, run.finished_ms) = (PipelineRunState::Running, None, None);
            for (position, item) in items {
                let of_item = steps.iter().filter(|it| (it.position, it.item) == (*position, *item));
                let last = of_item.max_by_key(|it| it.attempt).unwrap().clone();
                steps.push(pending(*position, *item, last.attempt + 1, &last.step));
            }
            steps.sort_by_key(PipelineStepRecord::key);
            Ok(true)
        })
    }

    fn find_cached_step(&self, _: &str, key: &str) -> Result<Option<(String, PipelineStepRecord)>, RecordError> {
        self.operate(|runs| {
            let fits = |step: &&PipelineStepRecord| {
                step.cache_key.as_deref() == Some(key)
                    && step.state == PipelineStepState::Succeeded
                    && step.cached_from.is_none()
            };
            let found =
                runs.iter().rev().find_map(|(run, steps)| Some((run.name.clone(), steps.iter().find(fits)?.clone())));
            Ok(found)
        })
    }

    fn unfinished_run_of_job(&self, _: &str) -> Result<Option<String>, RecordError> {
        Ok(None)
    }

    fn remove_run(&self, _: &str) -> Result<bool, RecordError> {
        Ok(false)
    }

    fn put_pipeline_schedule(&self, _: &PipelineSchedule) -> Result<(), RecordError> {
        Ok(())
    }

    fn pipeline_schedules(&self) -> Result<Vec<PipelineSchedule>, RecordError> {
        Ok(Vec::new())
    }

    fn remove_pipeline_schedule(&self, _: &str) -> Result<bool, RecordError> {
        Ok(false)
    }

    fn advance_pipeline_schedule(&self, _: &str, _: u64, _: Option<&str>) -> Result<bool, RecordError> {
        Ok(false)
    }
}
