//! Every write method of the records, with an answer to COMMIT that is lost and with a COMMIT that is lost: the database has
//! what it has after a calm write, and the caller gets the same result.

use std::collections::{BTreeMap, BTreeSet};

use super::answer_cutter::AnswerCutter;
use super::test_server::TestServer;
use super::*;
use crate::records::session::{SqlRow, params};
use crate::records::tests::pipelines::pipeline_schedule;
use crate::records::tests::{leases, new_job, point, reason};
use crate::records::{
    AnnotationChange, AttemptUsage, DocumentRecords, HostDrain, HostOffer, HostRecords, JobLease, JobOrder, JobRecords,
    JobSchedule, JobState, LeaseRecords, LogRecords, NewJob, NewPipelineRun, NewSweep, PausePoint, PipelineRecords,
    PipelineRunState, PipelineStepState, ServerIdentity, StateReason, StepAttemptKey, StepChange, SweepDecision,
    SweepRecords, SweepState, TrialRecord, TrialState,
};

mod shared_steps;

use shared_steps::shared_steps;

/// Tables whose content is compared.
const TABLES: [&str; 23] = [
    "projects",
    "jobs",
    "attempts",
    "metrics",
    "latest",
    "events",
    "annotations",
    "spent",
    "schedules",
    "pipelines",
    "pipeline_runs",
    "pipeline_steps",
    "pipeline_schedules",
    "sweeps",
    "trials",
    "documents",
    "log_chunks",
    "workers",
    "attempt_hosts",
    "publications",
    "predictions",
    "audit_lines",
    "key_usage",
];

/// Methods that write nothing to PostgreSQL.
const READS: [&str; 51] = [
    "find_by_idempotency_key",
    "get",
    "list",
    "projects",
    "count_by_state",
    "queued_jobs",
    "unfinished_specs_with",
    "active_jobs",
    "jobs_left_active",
    "compact",
    "usage_totals",
    "attempts",
    "series_names",
    "series",
    "job_details",
    "experiments",
    "experiment_members",
    "job_membership",
    "events",
    "newest_events",
    "events_of_kinds",
    "count_events",
    "schedules",
    "newest_event_sequence",
    "find_sweep_by_idempotency_key",
    "find_sweep",
    "list_sweeps",
    "unsettled_sweeps",
    "trials",
    "find_run_by_idempotency_key",
    "get_run",
    "list_runs",
    "unfinished_runs",
    "steps",
    "find_cached_step",
    "unfinished_run_of_job",
    "pipeline_schedules",
    "is_shared",
    "placement_state",
    "queue_counts",
    "check_lease",
    "hosts",
    "document",
    "document_revisions",
    "log_chunks",
    "log_extent",
    "attempts_with_chunks",
    "parts_of_host",
    "unfinished_publications",
    "prediction",
    "audit_lines",
];

/// A database, and what earlier steps returned.
struct WriteStory {
    records: PostgresRecords,
    direct: PostgresRecords,
    cutter: AnswerCutter,
    ids: BTreeMap<&'static str, String>,
    leases: BTreeMap<&'static str, JobLease>,
}

impl WriteStory {
    fn start(server: &TestServer) -> WriteStory {
        let url = server.create_database();
        let direct = PostgresRecords::open(&url).unwrap();
        let cutter = AnswerCutter::start(server.port());
        let records = PostgresRecords::open(&server.url_through(&url, cutter.port())).unwrap();
        WriteStory { records, direct, cutter, ids: BTreeMap::new(), leases: BTreeMap::new() }
    }

    fn id(&self, name: &str) -> &str {
        &self.ids[name]
    }

    fn lease(&self, name: &str) -> &JobLease {
        &self.leases[name]
    }

    fn submit(&mut self, name: &'static str) -> String {
        let job = NewJob { idempotency_key: (name == "b").then(|| "key".to_owned()), ..new_job("p") };
        let job = self.records.submit(&job, 1).unwrap();
        self.ids.insert(name, job.id.clone());
        format!("{job:?}")
    }

    fn claim(&mut self, name: &'static str) -> String {
        let claimed = self.records.claim(self.id(name), "pool", 2).unwrap().expect("it is queued");
        self.leases.insert(name, claimed.lease.clone());
        format!("{claimed:?}")
    }

    /// Returns all rows, sorted, without what differs between two databases: identifiers, times of the clock, and the numbers
    /// that the database gives, of which a repeated transaction has others.
    fn dump(&self) -> Vec<String> {
        let rows = |table: &str| {
            let sql = format!("SELECT CAST(to_jsonb(it) - 'cursor' - 'sequence' AS TEXT) FROM {table} AS it");
            let text = |row: &dyn SqlRow| row.get::<String>(0);
            let rows = self.direct.read(|tx| tx.query_all(&sql, params![], text)).unwrap();
            rows.iter().map(|row| format!("{table} {}", mask(row))).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = TABLES.into_iter().flat_map(rows).collect();
        all.sort();
        all
    }
}

/// Replaces words of 12 and more letters and digits, and the numbers after `cursor` and `sequence`.
fn mask(text: &str) -> String {
    let (mut masked, mut word, mut is_number_masked) = (String::new(), String::new(), false);
    for character in text.chars().chain(['\n']) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        let is_masked = word.len() >= 12 || is_number_masked && word.parse::<u64>().is_ok();
        masked.push_str(if is_masked { "#" } else { &word });
        if !word.is_empty() {
            is_number_masked = matches!(word.as_str(), "cursor" | "sequence");
        }
        word.clear();
        masked.push(character);
    }
    masked
}

type RunStep = fn(&mut WriteStory) -> String;

fn debug(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn schedule() -> JobSchedule {
    JobSchedule {
        name: "s".to_owned(),
        cron: "* * * * *".to_owned(),
        spec: r#"{"plugin":"p"}"#.to_owned(),
        owner: None,
        rights: Default::default(),
        created_ms: 1,
        settled_ms: 1,
        last_job: None,
    }
}

fn new_run() -> NewPipelineRun {
    let (pipeline, project) = ("nightly".to_owned(), "p".to_owned());
    let steps = vec![("train".to_owned(), 1)];
    NewPipelineRun { pipeline, project, plan: "{}".to_owned(), params: "{}".to_owned(), steps, ..Default::default() }
}

fn decision(end: bool) -> SweepDecision {
    let trial = TrialRecord {
        number: 1,
        parameters: "{}".to_owned(),
        job: None,
        state: TrialState::Running,
        rung: 0,
        rung_values: vec![Some(0.5)],
        reason: StateReason::default(),
        parent: None,
    };
    let end = end.then(|| (SweepState::Succeeded, StateReason::default()));
    SweepDecision { trials: if end.is_some() { Vec::new() } else { vec![trial] }, end }
}

/// Ends all leases, in a database that has run for longer than one.
fn expire_leases(story: &WriteStory) {
    let started = "CREATE OR REPLACE FUNCTION lease_clock_start_ms() RETURNS BIGINT LANGUAGE SQL AS 'SELECT 0::BIGINT'";
    story.direct.write(|tx| tx.execute(started, &[])).unwrap();
    story.direct.write(|tx| tx.execute("UPDATE jobs SET lease_until = 0", &[])).unwrap();
}

/// The steps of jobs: each is one call of the method that it names.
fn job_steps() -> Vec<(&'static str, RunStep)> {
    vec![
        ("submit", |it| it.submit("a")),
        ("submit", |it| it.submit("b")),
        ("claim", |it| it.claim("a")),
        ("set_state", |it| debug(it.records.set_state(it.lease("a"), JobState::Running, &StateReason::default(), 3))),
        ("set_device", |it| debug(it.records.set_device(it.lease("a"), "cpu", true))),
        ("record_progress", |it| {
            debug(it.records.record_progress(
                it.lease("a"),
                5,
                10,
                &AttemptUsage { last_step: 5, ..Default::default() },
            ))
        }),
        ("record_metrics", |it| debug(it.records.record_metrics(it.lease("a"), &[point(1, 0.5), point(2, 0.25)]))),
        ("record_event", |it| debug(it.records.record_event(it.id("a"), "NOTE", "text", 4))),
        ("record_attempt_event", |it| debug(it.records.record_attempt_event(it.lease("a"), "PHASE", "text", 4))),
        ("annotate", |it| {
            let note = AnnotationChange { note: Some("a note".to_owned()), ..AnnotationChange::default() };
            debug(it.records.annotate(it.id("a"), &note))
        }),
        ("order", |it| debug(it.records.order(it.id("a"), &JobOrder::Checkpoint))),
        ("append_log", |it| debug(it.records.append_log(it.lease("a"), 0, "line\n"))),
        ("remove_log_chunks", |it| debug(it.records.remove_log_chunks(it.id("a"), 1, 5))),
        ("renew_leases", |it| debug(it.records.renew_leases(std::slice::from_ref(it.lease("a"))))),
        ("finish_attempt", |it| {
            debug(it.records.finish_attempt(
                it.lease("a"),
                JobState::Failed,
                &reason("BAD"),
                &AttemptUsage::default(),
                5,
            ))
        }),
        ("finish_job", |it| debug(it.records.finish_job(it.lease("a"), JobState::Failed, &reason("BAD"), 6))),
        ("set_pause", |it| debug(it.records.set_pause(it.id("b"), Some(&PausePoint::now()), 7))),
        ("set_pause", |it| debug(it.records.set_pause(it.id("b"), None, 8))),
        ("claim", |it| it.claim("b")),
        ("take_over", |it| {
            let lease = it.records.take_over(it.id("b"), 9).unwrap();
            it.leases.insert("b", lease.clone());
            debug(lease)
        }),
        ("requeue", |it| debug(it.records.requeue(it.lease("b"), &reason("PREEMPTED"), 0, 10))),
        ("claim", |it| it.claim("b")),
        ("pause_at_point", |it| {
            debug(it.records.pause_at_point(it.lease("b"), &PausePoint::now(), &AttemptUsage::default(), 11))
        }),
        ("request_stop", |it| debug(it.records.request_stop(it.id("b"), &reason("STOPPED"), 12))),
        ("remove", |it| debug(it.records.remove(it.id("b")))),
        ("submit", |it| it.submit("c")),
        ("claim_placed", |it| {
            let identity = ServerIdentity { name: "s".to_owned(), ..ServerIdentity::default() };
            debug(it.records.claim_placed(&leases::query(&identity, 13), &leases::place_all).unwrap().len())
        }),
        ("reap_expired", |it| {
            expire_leases(it);
            debug(it.records.reap_expired(&leases::host_lost, 14).unwrap().len())
        }),
        ("put_schedule", |it| debug(it.records.put_schedule(&schedule()))),
        ("advance_schedule", |it| debug(it.records.advance_schedule("s", 5, Some("p-1")))),
        ("remove_schedule", |it| debug(it.records.remove_schedule("s"))),
    ]
}

/// The steps of sweeps, pipelines, hosts and documents.
fn other_steps() -> Vec<(&'static str, RunStep)> {
    const FIRST: StepAttemptKey = StepAttemptKey { position: 0, item: 0, attempt: 1 };
    vec![
        ("create_sweep", |it| {
            let sweep = NewSweep { project: "p".to_owned(), spec: "{}".to_owned(), ..NewSweep::default() };
            let sweep = it.records.create_sweep(&sweep, 1).unwrap();
            it.ids.insert("sweep", sweep.id.clone());
            debug(sweep)
        }),
        ("record_decision", |it| debug(it.records.record_decision(it.id("sweep"), 0, &decision(false), 2))),
        ("set_trial_job", |it| debug(it.records.set_trial_job(it.id("sweep"), 1, "p-1"))),
        ("set_sweep_stopped", |it| debug(it.records.set_sweep_stopped(it.id("sweep"), Some(&reason("STOPPED"))))),
        ("set_sweep_stopped", |it| debug(it.records.set_sweep_stopped(it.id("sweep"), None))),
        ("record_decision", |it| debug(it.records.record_decision(it.id("sweep"), 3, &decision(true), 3))),
        ("settle_sweep", |it| debug(it.records.settle_sweep(it.id("sweep")))),
        ("create_run", |it| {
            let run = it.records.create_run(&new_run(), 1).unwrap();
            it.ids.insert("run", run.id.clone());
            debug(run)
        }),
        ("change_step", |it| {
            let change =
                StepChange::new(PipelineStepState::Pending, PipelineStepState::Running, StateReason::default());
            debug(it.records.change_step(it.id("run"), FIRST, &change, 2))
        }),
        ("request_run_stop", |it| debug(it.records.request_run_stop(it.id("run"), &reason("STOPPED")))),
        ("finish_run", |it| {
            debug(it.records.finish_run(it.id("run"), PipelineRunState::Failed, &StateReason::default(), 3))
        }),
        ("restart_run", |it| debug(it.records.restart_run(it.id("run"), &[(0, 0)]))),
        ("finish_run", |it| {
            debug(it.records.finish_run(it.id("run"), PipelineRunState::Failed, &StateReason::default(), 4))
        }),
        ("remove_run", |it| debug(it.records.remove_run(it.id("run")))),
        ("put_pipeline_schedule", |it| debug(it.records.put_pipeline_schedule(&pipeline_schedule()))),
        ("advance_pipeline_schedule", |it| debug(it.records.advance_pipeline_schedule("n", 5, Some("n-1")))),
        ("remove_pipeline_schedule", |it| debug(it.records.remove_pipeline_schedule("n"))),
        ("register_host", |it| debug(it.records.register_host("host-id", "host", &HostOffer::default()))),
        ("renew_host", |it| debug(it.records.renew_host("host-id"))),
        ("set_host_drain", |it| {
            debug(
                it.records
                    .set_host_drain("host", HostDrain::Requeue)
                    .unwrap()
                    .iter()
                    .map(|it| it.drain)
                    .collect::<Vec<_>>(),
            )
        }),
        ("remove_host", |it| debug(it.records.remove_host("host-id"))),
        ("replace_document", |it| debug(it.records.replace_document("keys", 0, "{}"))),
        ("replace_document", |it| debug(it.records.replace_document("keys", 1, "[]"))),
    ]
}

fn steps() -> Vec<(&'static str, RunStep)> {
    [job_steps(), other_steps(), shared_steps()].concat()
}

#[test]
fn every_write_method_whose_answer_or_request_is_lost_happens_once() {
    let Some(server) = TestServer::start() else { return };
    let [mut calm, mut unanswered, mut lost] = [(); 3].map(|()| WriteStory::start(&server));
    for (at, (method, run)) in steps().into_iter().enumerate() {
        let what = format!("step {at}, {method}");
        let expected = mask(&run(&mut calm));
        unanswered.cutter.cut_next_commit();
        lost.cutter.lose_next_commit();
        for (story, kind) in [(&mut unanswered, "the answer is lost"), (&mut lost, "the request is lost")] {
            let before = story.cutter.cuts();
            assert_eq!(mask(&run(story)), expected, "{what}: {kind}");
            assert_eq!(story.cutter.cuts(), before + 1, "{what} is one transaction that writes");
            assert_eq!(story.dump(), calm.dump(), "{what}: {kind}");
        }
    }
}

/// Returns the methods that a trait declares.
fn methods_of(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("pub trait {name}")).nth(1).expect("the trait").split("\n}\n").next().unwrap();
    let method = |line: &str| Some(line.strip_prefix("    fn ")?.split('(').next()?.to_owned());
    body.lines().filter_map(method).collect()
}

#[test]
fn every_method_of_the_records_is_a_read_or_has_a_step() {
    let sources = [
        (include_str!("../../../records.rs"), "JobRecords"),
        (include_str!("../../sweep.rs"), "SweepRecords"),
        (include_str!("../../pipeline.rs"), "PipelineRecords"),
        (include_str!("../../lease.rs"), "LeaseRecords"),
        (include_str!("../../host.rs"), "HostRecords"),
        (include_str!("../../document.rs"), "DocumentRecords"),
        (include_str!("../../log.rs"), "LogRecords"),
        (include_str!("../../attempt_host_records.rs"), "AttemptHostRecords"),
        (include_str!("../../publication.rs"), "PublicationRecords"),
        (include_str!("../../prediction.rs"), "PredictionRecords"),
        (include_str!("../../audit.rs"), "AuditRecords"),
        (include_str!("../../key_usage.rs"), "KeyUsageRecords"),
    ];
    let declared: BTreeSet<String> = sources.iter().flat_map(|(source, name)| methods_of(source, name)).collect();
    // The trait names the others, so that none is forgotten here.
    let parts = sources[0].0.split("pub trait JobRecords:").nth(1).unwrap().split('{').next().unwrap();
    let parts: BTreeSet<&str> = parts.split('+').map(str::trim).collect();
    assert_eq!(parts, sources[1..].iter().map(|(_, name)| *name).collect());
    let reads: BTreeSet<String> = READS.into_iter().map(str::to_owned).collect();
    let writes: BTreeSet<String> = steps().into_iter().map(|(method, _)| method.to_owned()).collect();
    assert!(reads.is_disjoint(&writes));
    let listed: BTreeSet<String> = reads.union(&writes).cloned().collect();
    assert_eq!(
        declared.difference(&listed).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "add a step, or name it in READS"
    );
    assert_eq!(listed.difference(&declared).collect::<Vec<_>>(), Vec::<&String>::new(), "no such method");
    // A read does not write.
    let queries = [
        include_str!("../../queries.rs"),
        include_str!("../../queries/sweep.rs"),
        include_str!("../../queries/pipeline.rs"),
        include_str!("../../queries/lease.rs"),
        include_str!("../../queries/host.rs"),
        include_str!("../../queries/document.rs"),
        include_str!("../../queries/log.rs"),
        include_str!("../../queries/host_part.rs"),
        include_str!("../../queries/publication.rs"),
        include_str!("../../queries/prediction.rs"),
        include_str!("../../queries/audit.rs"),
    ];
    for read in &reads {
        let bodies: Vec<&str> =
            queries.iter().filter_map(|source| source.split(&format!("    fn {read}(")).nth(1)).collect();
        assert_eq!(bodies.len(), 1, "{read} is implemented once");
        let body = bodies[0].split("\n    }\n").next().unwrap();
        assert!(!body.contains(".write("), "{read} writes: give it a step");
    }
}
