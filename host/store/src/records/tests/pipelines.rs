//! The records of pipeline runs.

use super::*;

fn new_run(pipeline: &str) -> NewPipelineRun {
    NewPipelineRun {
        pipeline: pipeline.to_owned(),
        project: "p".to_owned(),
        plan: "{}".to_owned(),
        params: "{}".to_owned(),
        steps: vec![("train".to_owned(), 2), ("serve".to_owned(), 1)],
        ..NewPipelineRun::default()
    }
}

fn change(from: PipelineStepState, to: PipelineStepState) -> StepChange {
    StepChange::new(from, to, StateReason::new("CODE", "because"))
}

const FIRST: StepAttemptKey = StepAttemptKey { position: 0, item: 0, attempt: 1 };

pub(super) fn runs_are_numbered_and_created_once_for_a_key(records: &dyn JobRecords) {
    let keyed = NewPipelineRun { idempotency_key: Some("k".to_owned()), ..new_run("nightly") };
    let first = records.create_run(&keyed, 5).unwrap();
    assert_eq!((first.name.as_str(), first.state, first.created_ms), ("nightly-1", PipelineRunState::Running, 5));
    assert_eq!(records.create_run(&keyed, 6).unwrap(), first);
    assert_eq!(records.create_run(&new_run("nightly"), 7).unwrap().name, "nightly-2");
    assert_eq!(records.get_run("nightly-1").unwrap(), records.get_run(&first.id).unwrap());
    assert!(matches!(records.get_run("nightly-3"), Err(RecordError::NoSuchRun { .. })));
    let steps = records.steps(&first.id).unwrap();
    let keys: Vec<_> = steps.iter().map(|step| (step.step.as_str(), step.item, step.attempt)).collect();
    assert_eq!(keys, [("train", 0, 1), ("train", 1, 1), ("serve", 0, 1)]);
    let names = |filter: PipelineRunFilter| -> Vec<String> {
        records.list_runs(&filter).unwrap().into_iter().map(|run| run.name).collect()
    };
    assert_eq!(names(PipelineRunFilter::default()), ["nightly-2", "nightly-1"]);
    let none = PipelineRunFilter { projects: Some(Vec::new()), ..PipelineRunFilter::default() };
    assert!(names(none).is_empty());
    assert!(records.create_run(&new_run("Bad Name"), 1).is_err());
}

pub(super) fn a_step_changes_only_from_the_expected_state(records: &dyn JobRecords) {
    let run = records.create_run(&new_run("n"), 1).unwrap().id;
    let (pending, running, succeeded) =
        (PipelineStepState::Pending, PipelineStepState::Running, PipelineStepState::Succeeded);
    let started = StepChange { job: Some("p-1".to_owned()), ..change(pending, running) };
    assert!(records.change_step(&run, FIRST, &started, 10).unwrap());
    assert!(!records.change_step(&run, FIRST, &started, 11).unwrap());
    assert_eq!(records.unfinished_run_of_job("p-1").unwrap().as_deref(), Some("n-1"));
    let key = Some("c".to_owned());
    let ended = StepChange { cache_key: key, outputs: Some("{\"a\":1}".to_owned()), ..change(running, succeeded) };
    assert!(records.change_step(&run, FIRST, &ended, 20).unwrap());
    let step = records.steps(&run).unwrap().remove(0);
    assert_eq!((step.started_ms, step.finished_ms, step.job.as_deref()), (Some(10), Some(20), Some("p-1")));
    assert_eq!(records.find_cached_step("p", "c").unwrap().unwrap(), ("n-1".to_owned(), step));
    assert_eq!(records.find_cached_step("other", "c").unwrap(), None);
    assert!(!records.restart_run(&run, &[(0, 0)]).unwrap(), "it is not over");
    assert!(records.request_run_stop(&run, &StateReason::new("USER", "stop")).unwrap());
    assert!(records.finish_run(&run, PipelineRunState::Failed, &StateReason::default(), 30).unwrap());
    assert!(!records.finish_run(&run, PipelineRunState::Succeeded, &StateReason::default(), 31).unwrap());
    assert!(!records.request_run_stop(&run, &StateReason::default()).unwrap());
    let second = StepAttemptKey { item: 1, ..FIRST };
    assert!(!records.change_step(&run, second, &started, 32).unwrap(), "the run is over");
    assert_eq!(records.unfinished_run_of_job("p-1").unwrap(), None);
}

pub(super) fn a_restart_begins_other_attempts_and_old_ones_do_not_change(records: &dyn JobRecords) {
    let run = records.create_run(&new_run("n"), 1).unwrap().id;
    records.finish_run(&run, PipelineRunState::Failed, &StateReason::default(), 2).unwrap();
    assert!(records.restart_run(&run, &[(0, 0), (1, 0)]).unwrap());
    let attempts: Vec<_> = records.steps(&run).unwrap().iter().map(|it| (it.position, it.item, it.attempt)).collect();
    assert_eq!(attempts, [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 0, 2)]);
    let started = change(PipelineStepState::Pending, PipelineStepState::Running);
    assert!(!records.change_step(&run, FIRST, &started, 3).unwrap());
    assert!(records.change_step(&run, StepAttemptKey { attempt: 2, ..FIRST }, &started, 3).unwrap());
    assert_eq!(records.unfinished_runs().unwrap().len(), 1);
    assert!(!records.remove_run(&run).unwrap());
    records.finish_run(&run, PipelineRunState::Succeeded, &StateReason::default(), 4).unwrap();
    assert!(records.remove_run(&run).unwrap() && records.steps(&run).unwrap().is_empty());
    assert_eq!(records.create_run(&new_run("n"), 5).unwrap().name, "n-2", "a name is not used again");
}

/// Returns a schedule with the name `n`.
pub(in crate::records) fn pipeline_schedule() -> PipelineSchedule {
    PipelineSchedule {
        name: "n".to_owned(),
        project: "p".to_owned(),
        cron: "0 0 * * *".to_owned(),
        request: "{}".to_owned(),
        owner: None,
        rights: Default::default(),
        created_ms: 1,
        settled_ms: 1,
        last_run: None,
    }
}

pub(super) fn a_pipeline_schedule_is_advanced_once_for_each_time(records: &dyn JobRecords) {
    let schedule = pipeline_schedule();
    records.put_pipeline_schedule(&schedule).unwrap();
    assert!(records.advance_pipeline_schedule("n", 5, Some("n-1")).unwrap());
    assert!(!records.advance_pipeline_schedule("n", 5, Some("n-2")).unwrap());
    assert!(records.advance_pipeline_schedule("n", 6, None).unwrap());
    let stored = records.pipeline_schedules().unwrap().remove(0);
    assert_eq!((stored.settled_ms, stored.last_run.as_deref()), (6, Some("n-1")));
    assert!(records.remove_pipeline_schedule("n").unwrap() && !records.remove_pipeline_schedule("n").unwrap());
}
