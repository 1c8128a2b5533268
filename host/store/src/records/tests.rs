//! The tests that every implementation of [`JobRecords`] must pass. `record_suite!` at the end lists them.

use super::postgres::tests::test_server::TestServer;
use super::*;
use crate::limits::SERIES_MAX;

mod attempt_hosts;
pub(super) mod bounds;
mod documents;
mod events;
mod hosts;
mod lease_clock;
mod lease_simulation;
pub(super) mod leases;
mod pause;
pub(super) mod pipelines;
mod queue;
mod rights;
mod shared_rows;
mod sweeps;
mod urls;
mod usage;

use bounds::{
    a_backward_clock_jump_does_not_delay_a_requeued_job, invalid_jobs_are_refused,
    the_length_of_series_names_is_limited,
};
use documents::a_document_is_replaced_only_at_the_expected_revision;
use events::newest_events_and_events_of_a_kind_are_listed_in_order;
use pause::{
    a_paused_job_is_not_claimed_until_it_is_to_continue, a_queued_job_is_paused_at_once_and_can_be_stopped,
    a_worker_that_saved_for_an_outdated_pause_is_followed_by_another, an_invalid_pause_is_refused,
};
use pipelines::{
    a_pipeline_schedule_is_advanced_once_for_each_time, a_restart_begins_other_attempts_and_old_ones_do_not_change,
    a_step_changes_only_from_the_expected_state, runs_are_numbered_and_created_once_for_a_key,
};
use queue::{
    a_placement_reads_few_jobs_of_each_of_many_groups, a_placement_reads_the_first_jobs_of_all,
    a_placement_reads_the_first_jobs_of_each_group,
};
use rights::a_job_keeps_the_rights_that_it_was_submitted_with;
use sweeps::{
    a_decision_is_recorded_once_and_only_on_the_state_that_it_follows_from,
    a_sweep_keeps_its_fields_and_its_idempotency_key,
};
use usage::{a_removed_job_still_counts_in_the_usage_totals, usage_totals_do_not_change_when_a_job_finishes};

/// New records, and what they need until the end of the test.
type EngineFixture = (Box<dyn std::any::Any>, Arc<dyn JobRecords>);

fn sqlite_file() -> Option<EngineFixture> {
    let directory = tempfile::tempdir().unwrap();
    let records = open(directory.path().join("saggar.db")).unwrap();
    Some((Box::new(directory), records))
}

fn sqlite_memory() -> Option<EngineFixture> {
    Some((Box::new(()), Arc::new(SqliteRecords::open_in_memory())))
}

/// Returns `None` if PostgreSQL is not installed and not required.
fn postgres_server() -> Option<EngineFixture> {
    let server = TestServer::start()?;
    let records = open(server.create_database()).unwrap();
    Some((Box::new(server), records))
}

pub(super) fn new_job(project: &str) -> NewJob {
    let spec = r#"{"plugin":"p"}"#.to_owned();
    NewJob { project: project.to_owned(), task: "train".to_owned(), spec, ..NewJob::default() }
}

/// Claims the first job in the queue's order that can start.
pub(super) fn claim_next(records: &dyn JobRecords, now_ms: UnixMillis) -> Option<ClaimedJob> {
    let queued = records.queued_jobs().unwrap();
    queued.iter().find_map(|waiting| records.claim(&waiting.id, "any", now_ms).unwrap())
}

pub(super) fn claim(records: &dyn JobRecords) -> JobLease {
    claim_next(records, 1_000).unwrap().lease
}

fn priority(priority: i32) -> SchedulingRequest {
    SchedulingRequest { priority, ..SchedulingRequest::default() }
}

pub(super) fn point(step: u64, value: f64) -> MetricPoint {
    MetricPoint { name: "loss".to_owned(), step, value, at_ms: 7 }
}

pub(super) fn reason(code: &str) -> StateReason {
    StateReason::new(code, "because")
}

fn jobs_are_numbered_within_their_project(records: &dyn JobRecords) {
    let submit = |project: &str| records.submit(&new_job(project), 10).unwrap();
    let names = ["mnist", "face", "mnist", "mnist-1"].map(|project| submit(project).name);
    assert_eq!(names, ["mnist-1", "face-1", "mnist-2", "mnist-1-1"]);
    let job = records.get("mnist-2").unwrap();
    assert_eq!(records.get(&job.id).unwrap(), job);
    assert_eq!((job.state, job.created_ms, job.attempts, job.epoch), (JobState::Queued, 10, 0, 0));
    assert!(matches!(records.get("mnist-3"), Err(RecordError::NoSuchJob { .. })));
    let keyed = NewJob { idempotency_key: Some("k".to_owned()), ..new_job("mnist") };
    let first = records.submit(&keyed, 11).unwrap();
    assert_eq!(records.submit(&keyed, 12).unwrap(), first);
    assert_eq!(submit("mnist").number, 4);
}

fn claims_go_by_priority_then_age_and_not_before_their_time(records: &dyn JobRecords) {
    records.submit(&new_job("a"), 0).unwrap();
    records.submit(&NewJob { demand: priority(5), ..new_job("b") }, 0).unwrap();
    records.submit(&new_job("c"), 0).unwrap();
    let first = claim_next(records, 1).unwrap();
    assert_eq!((first.job.name.as_str(), first.job.state, first.lease.attempt), ("b-1", JobState::Starting, 1));
    assert_eq!(claim(records).job, records.get("a-1").unwrap().id);
    assert_eq!(claim(records).job, records.get("c-1").unwrap().id);
    assert_eq!(claim_next(records, 1), None);
    let queued = records.requeue(&first.lease, &reason("PREEMPTED"), 500, 100).unwrap();
    assert_eq!((queued.state, queued.not_before_ms), (JobState::Queued, 500));
    assert_eq!(claim_next(records, 499), None);
    let again = claim_next(records, 500).unwrap();
    assert_eq!((again.lease.attempt, again.job.attempts), (2, 2));
    assert!(again.lease.epoch > first.lease.epoch);
    let attempts = records.attempts(&again.job.id).unwrap();
    assert_eq!(attempts[0].reason, reason("PREEMPTED"));
    assert_eq!((attempts[0].state, attempts[0].ended_ms), (JobState::Queued, Some(100)));
    assert_eq!((attempts[1].state, attempts[1].ended_ms), (JobState::Starting, None));
}

fn the_queue_is_ordered_by_priority_then_preemptibility_then_age(records: &dyn JobRecords) {
    for (priority, preemptible) in [(1, true), (1, false), (2, true), (1, true), (2, false)] {
        let demand = SchedulingRequest { priority, preemptible, ..SchedulingRequest::default() };
        records.submit(&NewJob { demand, ..new_job("p") }, 0).unwrap();
    }
    let names: Vec<String> = records.queued_jobs().unwrap().into_iter().map(|waiting| waiting.name).collect();
    assert_eq!(names, ["p-5", "p-3", "p-2", "p-1", "p-4"]);
}

fn a_job_passes_from_queued_to_succeeded(records: &dyn JobRecords) {
    let id = records.submit(&NewJob { steps_target: 50, ..new_job("p") }, 1).unwrap().id;
    let lease = claim(records);
    let usage = AttemptUsage {
        first_step: 1,
        last_step: 50,
        wall_seconds: 2.5,
        gpu_seconds: f64::NAN,
        peak_bytes: 9,
        samples: u64::MAX,
        data_seconds: 0.5,
        all_reduce_seconds: 0.25,
        checkpoint_seconds: 0.125,
    };
    records.set_device(&lease, "cpu", false).unwrap();
    records.set_state(&lease, JobState::Running, &StateReason::default(), 20).unwrap();
    assert_eq!(records.record_progress(&lease, 50, 60, &usage).unwrap(), None);
    records.set_state(&lease, JobState::Running, &StateReason::default(), 30).unwrap();
    let wrong = records.set_state(&lease, JobState::Failed, &StateReason::default(), 30);
    assert!(matches!(wrong, Err(RecordError::Invalid { .. })));
    records.finish_attempt(&lease, JobState::Succeeded, &StateReason::default(), &usage, 40).unwrap();
    let wrong = records.finish_job(&lease, JobState::Running, &StateReason::default(), 41);
    assert!(matches!(wrong, Err(RecordError::Invalid { .. })));
    let job = records.finish_job(&lease, JobState::Succeeded, &reason("DONE"), 41).unwrap();
    assert_eq!((job.state, job.step, job.steps_target), (JobState::Succeeded, 50, 60));
    assert_eq!((job.started_ms, job.finished_ms), (Some(20), Some(41)));
    let attempts = records.attempts(&id).unwrap();
    let stored = AttemptUsage { gpu_seconds: 0.0, samples: i64::MAX as u64, ..usage };
    assert_eq!((attempts.len(), &attempts[0].usage), (1, &stored));
    assert_eq!((attempts[0].device.as_str(), attempts[0].ended_ms), ("cpu", Some(40)));
    assert!(attempts[0].seconds_estimated);
    let late = records.record_progress(&lease, 51, 60, &AttemptUsage::default());
    assert!(matches!(late, Err(RecordError::Finished { state: JobState::Succeeded, .. })));
    assert!(matches!(records.request_stop(&id, &reason("USER"), 42), Err(RecordError::Finished { .. })));
    let kinds: Vec<_> = records.events(Some(&id), 0, 0).unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["SUBMITTED", "CLAIMED", "RUNNING", "ATTEMPT_ENDED", "SUCCEEDED"]);
    assert_eq!(records.count_by_state().unwrap(), [(JobState::Succeeded, 1)]);
}

/// A writer that lost its lease cannot change anything.
fn a_stale_lease_is_fenced_everywhere(records: &dyn JobRecords) {
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let stale = claim(records);
    records.set_state(&stale, JobState::Running, &StateReason::default(), 2).unwrap();
    records.record_metrics(&stale, &[point(1, 0.5)]).unwrap();
    assert_eq!(records.jobs_left_active().unwrap().len(), 1);
    let owner = records.take_over(&id, 3).unwrap();
    assert_eq!((owner.attempt, owner.epoch), (stale.attempt, stale.epoch + 1));
    let none = StateReason::default();
    let usage = AttemptUsage::default();
    let check = |stale: &JobLease| {
        let before = (records.get(&id).unwrap(), records.attempts(&id).unwrap(), records.events(None, 0, 0).unwrap());
        let writes = [
            records.set_state(stale, JobState::Stopping, &none, 9),
            records.set_device(stale, "gpu", true),
            records.record_progress(stale, 9, 9, &usage).map(drop),
            records.record_metrics(stale, &[point(1, 9.0)]),
            records.finish_attempt(stale, JobState::Failed, &none, &usage, 9),
            records.finish_job(stale, JobState::Failed, &none, 9).map(drop),
            records.requeue(stale, &none, 0, 9).map(drop),
        ];
        for write in writes {
            assert!(matches!(write, Err(RecordError::Fenced { .. })), "{write:?}");
        }
        let after = (records.get(&id).unwrap(), records.attempts(&id).unwrap(), records.events(None, 0, 0).unwrap());
        assert_eq!(before, after);
        assert_eq!(records.series(&id, "loss", 0, 0).unwrap()[0].value, 0.5);
    };
    check(&stale);
    records.requeue(&owner, &reason("HOST_RESTART"), 0, 4).unwrap();
    // A requeued job has no lease.
    check(&stale);
    check(&owner);
    let newest = claim(records);
    check(&owner);
    records.set_state(&newest, JobState::Running, &none, 5).unwrap();
}

fn only_active_jobs_can_be_taken_over(records: &dyn JobRecords) {
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    assert!(matches!(records.take_over(&id, 2), Err(RecordError::Invalid { .. })));
    assert!(matches!(records.take_over("nobody", 2), Err(RecordError::NoSuchJob { .. })));
    let lease = claim(records);
    records.finish_job(&lease, JobState::Failed, &reason("BROKEN"), 3).unwrap();
    assert!(matches!(records.take_over(&id, 4), Err(RecordError::Finished { .. })));
    assert!(records.jobs_left_active().unwrap().is_empty());
}

fn a_queued_job_is_cancelled_at_once_and_an_active_one_is_asked_to_stop(records: &dyn JobRecords) {
    let queued = records.submit(&new_job("p"), 1).unwrap();
    let stopped = records.request_stop(&queued.id, &reason("USER"), 2).unwrap();
    assert_eq!((stopped.state, stopped.reason), (JobState::Cancelled, reason("USER")));
    assert_eq!(claim_next(records, 3), None);
    let id = records.submit(&new_job("p"), 4).unwrap().id;
    let lease = claim(records);
    let stopping = records.request_stop(&id, &reason("USER"), 5).unwrap();
    assert_eq!(stopping.state, JobState::Stopping);
    records.request_stop(&id, &reason("SOMEBODY_ELSE"), 6).unwrap();
    // The worker was starting when the stop was requested; moving to "running" does not cancel the request.
    records.set_state(&lease, JobState::Running, &StateReason::default(), 7).unwrap();
    assert_eq!(records.get(&id).unwrap().state, JobState::Stopping);
    assert_eq!(records.record_progress(&lease, 1, 2, &AttemptUsage::default()).unwrap(), Some(reason("USER")));
    let ended = records.requeue(&lease, &reason("PREEMPTED"), 0, 8).unwrap();
    assert_eq!((ended.state, ended.reason, ended.finished_ms), (JobState::Cancelled, reason("USER"), Some(8)));
}

fn a_series_takes_the_latest_attempt_at_each_step(records: &dyn JobRecords) {
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let first = claim(records);
    let points: Vec<_> = (1..=5).map(|step| point(step, step as f64)).collect();
    records.record_metrics(&first, &points).unwrap();
    records.record_metrics(&first, &[point(5, 5.5)]).unwrap();
    records.requeue(&first, &reason("PREEMPTED"), 0, 2).unwrap();
    let second = claim(records);
    let not_finite = [point(4, f64::NAN), point(6, f64::INFINITY), point(7, f64::NEG_INFINITY)];
    records.record_metrics(&second, &not_finite[..1]).unwrap();
    let latest = || records.job_details(std::slice::from_ref(&id)).unwrap().remove(&id).unwrap().latest;
    // The newest attempt wins, even though the previous one ran more steps.
    assert_eq!((latest().len(), latest()[0].step, latest()[0].value.is_nan()), (1, 4, true));
    records.record_metrics(&second, &not_finite[1..]).unwrap();
    assert_eq!((latest()[0].step, latest()[0].value), (7, f64::NEG_INFINITY));
    let series = records.series(&id, "loss", 2, 0).unwrap();
    let values: Vec<_> = series.iter().map(|it| (it.step, it.value.to_string())).collect();
    let expected = [(2, "2"), (3, "3"), (4, "NaN"), (5, "5.5"), (6, "inf"), (7, "-inf")];
    assert_eq!(values, expected.map(|(step, value)| (step, value.to_owned())));
    assert_eq!(records.series(&id, "loss", 0, 2).unwrap().len(), 2);
    assert!(records.series(&id, "accuracy", 0, 0).unwrap().is_empty());
}

fn points_of_steps_lost_by_a_rollback_are_left_out(records: &dyn JobRecords) {
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let first = claim(records);
    let points: Vec<_> = (1..=9).map(|step| point(step, 1.0)).collect();
    records.record_metrics(&first, &points).unwrap();
    records.record_progress(&first, 9, 100, &AttemptUsage { last_step: 9, ..AttemptUsage::default() }).unwrap();
    records.requeue(&first, &reason("WORKER_LOST"), 0, 2).unwrap();
    let steps = || {
        let series = records.series(&id, "loss", 0, 0).unwrap();
        series.iter().map(|it| (it.step, it.value)).collect::<Vec<_>>()
    };
    let second = claim(records);
    assert_eq!(steps().len(), 9, "an attempt that has not begun undoes nothing");
    // It resumes from a checkpoint of step 4 and reports at other steps.
    records
        .record_progress(&second, 4, 100, &AttemptUsage { first_step: 4, last_step: 4, ..AttemptUsage::default() })
        .unwrap();
    assert_eq!(steps(), [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)]);
    records.record_metrics(&second, &[point(6, 2.0)]).unwrap();
    assert_eq!(steps()[4..], [(6, 2.0)]);
    records.requeue(&second, &reason("WORKER_LOST"), 0, 3).unwrap();
    // Without a checkpoint, all steps are undone.
    let third = claim(records);
    records
        .record_progress(&third, 1, 100, &AttemptUsage { first_step: 0, last_step: 1, ..AttemptUsage::default() })
        .unwrap();
    assert_eq!(steps(), []);
    records.record_metrics(&third, &[point(1, 3.0)]).unwrap();
    assert_eq!(steps(), [(1, 3.0)]);
}

fn names_of_series_are_sorted_and_bounded(records: &dyn JobRecords) {
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let lease = claim(records);
    let named = |at: u32| MetricPoint { name: format!("n{at:03}"), ..point(1, 0.0) };
    let most: Vec<_> = (0..SERIES_MAX).rev().map(named).collect();
    records.record_metrics(&lease, &most).unwrap();
    let names = records.series_names(&id).unwrap();
    assert_eq!((names.len(), names[0].as_str(), names[9].as_str()), (SERIES_MAX as usize, "n000", "n009"));
    let over = records.record_metrics(&lease, &[point(2, 1.0), named(SERIES_MAX)]);
    assert!(matches!(over, Err(RecordError::Invalid { field: "metric", .. })));
    // All points are recorded, or none.
    assert_eq!(records.series_names(&id).unwrap(), names);
}

fn jobs_are_listed_by_filter_and_page(records: &dyn JobRecords) {
    for at in 0..5 {
        records.submit(&new_job(if at % 2 == 0 { "even" } else { "odd" }), at).unwrap();
    }
    let list =
        |filter: JobFilter| -> Vec<String> { records.list(&filter).unwrap().into_iter().map(|job| job.name).collect() };
    assert_eq!(list(JobFilter::default()), ["even-3", "odd-2", "even-2", "odd-1", "even-1"]);
    assert_eq!(list(JobFilter { project: Some("odd".to_owned()), ..JobFilter::default() }), ["odd-2", "odd-1"]);
    let of = |projects: &[&str]| {
        let projects = Some(projects.iter().map(|name| (*name).to_owned()).collect());
        list(JobFilter { projects, ..JobFilter::default() })
    };
    assert_eq!(of(&["odd"]), ["odd-2", "odd-1"]);
    assert_eq!(of(&["none", "odd", "even"]).len(), 5);
    assert!(of(&[]).is_empty() && of(&["od"]).is_empty());
    let both =
        JobFilter { project: Some("even".to_owned()), projects: Some(vec!["odd".to_owned()]), ..JobFilter::default() };
    assert!(list(both).is_empty());
    let first = records.list(&JobFilter { limit: 2, ..JobFilter::default() }).unwrap();
    let before = Some(first[1].cursor);
    assert_eq!(list(JobFilter { limit: 2, before, ..JobFilter::default() }), ["even-2", "odd-1"]);
    claim(records);
    assert_eq!(
        list(JobFilter { states: vec![JobState::Starting, JobState::Failed], ..JobFilter::default() }),
        ["even-1"]
    );
}

fn a_submitted_job_keeps_every_field(records: &dyn JobRecords) {
    let demand = SchedulingRequest {
        queue: "gpu".to_owned(),
        priority: 70,
        preemptible: true,
        device: "vulkan:0".to_owned(),
        slots_milli: 250,
        labels: [("gpu".to_owned(), "a100".to_owned()), ("zone".to_owned(), "1".to_owned())].into(),
        hosts: 4,
    };
    let (experiment, owner) = (Some("lr".to_owned()), Some("ci".to_owned()));
    let new = NewJob { demand: demand.clone(), experiment: experiment.clone(), owner: owner.clone(), ..new_job("p") };
    let job = records.submit(&new, 1).unwrap();
    assert_eq!((&job.demand, &job.experiment, &job.owner), (&demand, &experiment, &owner));
    let waiting = records.queued_jobs().unwrap();
    assert_eq!((&waiting[0].demand, &waiting[0].owner, waiting[0].name.as_str()), (&demand, &owner, "p-1"));
    assert!(records.active_jobs().unwrap().is_empty());
    let claim = records.claim(&job.id, "pool-a", 7).unwrap().unwrap();
    assert_eq!(records.claim(&job.id, "pool-b", 8).unwrap(), None);
    assert!(matches!(records.claim("nobody", "pool-b", 8), Err(RecordError::NoSuchJob { .. })));
    let running = records.active_jobs().unwrap();
    assert_eq!((&running[0].demand, running[0].pool.as_str(), running[0].started_ms), (&demand, "pool-a", 7));
    assert_eq!(records.attempts(&claim.lease.job).unwrap()[0].pool, "pool-a");
    let of = |experiment: &str| JobFilter { experiment: Some(experiment.to_owned()), ..JobFilter::default() };
    assert_eq!((records.list(&of("lr")).unwrap().len(), records.list(&of("other")).unwrap().len()), (1, 0));
}

fn a_schedule_is_advanced_once_for_each_due_time(records: &dyn JobRecords) {
    let schedule = JobSchedule {
        name: "nightly".to_owned(),
        cron: "15 23 * * *".to_owned(),
        spec: "{}".to_owned(),
        owner: Some("ci".to_owned()),
        rights: crate::rights::tests::key_rights(&[crate::KeyScope::JobsWrite], &["p"]),
        created_ms: 5,
        settled_ms: 5,
        last_job: None,
    };
    records.put_schedule(&schedule).unwrap();
    assert_eq!(records.schedules().unwrap(), std::slice::from_ref(&schedule));
    assert!(records.advance_schedule("nightly", 9, Some("p-1")).unwrap());
    assert!(!records.advance_schedule("nightly", 9, Some("p-2")).unwrap());
    assert!(records.advance_schedule("nightly", 10, None).unwrap());
    let nightly = records.schedules().unwrap().remove(0);
    assert_eq!((nightly.settled_ms, nightly.last_job.as_deref()), (10, Some("p-1")));
    assert!(matches!(
        records.put_schedule(&JobSchedule { name: "../x".to_owned(), ..schedule }),
        Err(RecordError::Invalid { .. })
    ));
    assert!(records.remove_schedule("nightly").unwrap());
    assert!(!records.remove_schedule("nightly").unwrap());
    assert!(!records.advance_schedule("nightly", 11, None).unwrap());
}

#[test]
fn job_states_round_trip_as_text() {
    for state in JobState::ALL {
        assert_eq!(state.name().parse(), Ok(state));
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        assert!(!(state.is_final() && state.is_active()));
    }
    assert!("queued".parse::<JobState>().is_err());
}

fn concurrent_callers_never_claim_the_same_job(records: &dyn JobRecords) {
    let jobs = 40;
    for at in 0..jobs {
        records.submit(&new_job("p"), at).unwrap();
    }
    let mut claimed: Vec<String> = std::thread::scope(|scope| {
        let claim_all =
            || std::iter::from_fn(|| claim_next(records, 100)).map(|claim| claim.lease.job).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim_all)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    claimed.sort();
    claimed.dedup();
    assert_eq!(claimed.len(), jobs as usize);
}

/// Runs each test of the suite on one implementation, the one that the function of this name returns.
macro_rules! engine_tests {
    ($engine:ident: $($test:ident)*) => {
        mod $engine {
            $(#[test]
            fn $test() {
                if let Some((_engine, records)) = super::$engine() {
                    super::$test(&*records);
                }
            })*
        }
    };
}

macro_rules! record_suite {
    ($($test:ident)*) => {
        engine_tests!(sqlite_file: $($test)*);
        engine_tests!(sqlite_memory: $($test)*);
        engine_tests!(postgres_server: $($test)*);
    };
}

record_suite! {
    jobs_are_numbered_within_their_project
    invalid_jobs_are_refused
    claims_go_by_priority_then_age_and_not_before_their_time
    the_queue_is_ordered_by_priority_then_preemptibility_then_age
    a_placement_reads_the_first_jobs_of_each_group
    a_placement_reads_few_jobs_of_each_of_many_groups
    a_placement_reads_the_first_jobs_of_all
    a_job_passes_from_queued_to_succeeded
    a_stale_lease_is_fenced_everywhere
    only_active_jobs_can_be_taken_over
    a_queued_job_is_cancelled_at_once_and_an_active_one_is_asked_to_stop
    a_series_takes_the_latest_attempt_at_each_step
    points_of_steps_lost_by_a_rollback_are_left_out
    names_of_series_are_sorted_and_bounded
    jobs_are_listed_by_filter_and_page
    a_submitted_job_keeps_every_field
    a_removed_job_still_counts_in_the_usage_totals
    a_schedule_is_advanced_once_for_each_due_time
    usage_totals_do_not_change_when_a_job_finishes
    concurrent_callers_never_claim_the_same_job
    newest_events_and_events_of_a_kind_are_listed_in_order
    a_job_keeps_the_rights_that_it_was_submitted_with
    the_length_of_series_names_is_limited
    a_backward_clock_jump_does_not_delay_a_requeued_job
    a_paused_job_is_not_claimed_until_it_is_to_continue
    a_worker_that_saved_for_an_outdated_pause_is_followed_by_another
    a_queued_job_is_paused_at_once_and_can_be_stopped
    an_invalid_pause_is_refused
    a_sweep_keeps_its_fields_and_its_idempotency_key
    a_decision_is_recorded_once_and_only_on_the_state_that_it_follows_from
    runs_are_numbered_and_created_once_for_a_key
    a_step_changes_only_from_the_expected_state
    a_restart_begins_other_attempts_and_old_ones_do_not_change
    a_pipeline_schedule_is_advanced_once_for_each_time
    a_document_is_replaced_only_at_the_expected_revision
}
