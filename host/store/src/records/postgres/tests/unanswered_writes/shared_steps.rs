//! The steps of what servers have in common besides jobs: hosts of attempts, publications, predictions, the audit log and the
//! usage of keys.

use super::{RunStep, WriteStory, debug, leases};
use crate::records::{
    AttemptHost, AttemptHostRecords, AuditRecords, JobPlacements, KeyRequests, KeyUsageRecords, LeaseRecords,
    MeetingPoint, NewAuditRow, NewPrediction, PendingPublication, PlacedJob, PlacementState, PredictionKey,
    PredictionRecords, PublicationRecords, ServerIdentity,
};

/// The batch job whose process takes a part of an attempt.
const BATCH_JOB: &str = "slurm 7.0";

fn host(host_id: &str, host: &str) -> AttemptHost {
    AttemptHost { host_id: host_id.to_owned(), host: host.to_owned(), pool: "any".to_owned(), device: String::new() }
}

/// Claims a job for two hosts, of which a process of a batch job takes the second.
fn claim_for_two_hosts(it: &mut WriteStory) -> String {
    let id = it.id("d").to_owned();
    let identity = ServerIdentity { id: "a-id".to_owned(), name: "a".to_owned(), ..ServerIdentity::default() };
    let place = |_: &PlacementState| {
        let hosts = vec![host("a-id", "a"), host("", BATCH_JOB)];
        JobPlacements { start: vec![PlacedJob { id: id.clone(), pool: "any".to_owned(), hosts }], preempt: Vec::new() }
    };
    let claimed = it.records.claim_placed(&leases::query(&identity, 20), &place).unwrap().remove(0).claim;
    it.leases.insert("d", claimed.lease.clone());
    debug(claimed)
}

fn meeting_point() -> MeetingPoint {
    MeetingPoint { address: "10.0.0.1:7".to_owned(), key_sha256: "k".to_owned(), token: "t".to_owned() }
}

fn publication(version: u64) -> PendingPublication {
    PendingPublication { id: "parts".to_owned(), model: "m".to_owned(), version }
}

fn prediction() -> NewPrediction {
    NewPrediction { key: key(), process: "process".to_owned(), content: "{}".to_owned(), ..NewPrediction::default() }
}

fn key() -> PredictionKey {
    PredictionKey { owner: "key".to_owned(), id: "one".to_owned() }
}

fn audit_row() -> NewAuditRow {
    NewAuditRow { server: "a".to_owned(), actor: "key:boss".to_owned(), ..NewAuditRow::default() }
}

pub(super) fn shared_steps() -> Vec<(&'static str, RunStep)> {
    vec![
        ("submit", |it| it.submit("d")),
        ("claim_placed", claim_for_two_hosts),
        ("set_meeting_point", |it| debug(it.records.set_meeting_point(it.lease("d"), &meeting_point()))),
        ("take_part", |it| {
            let part = it.records.take_part(it.id("d"), BATCH_JOB, 1, &host("b-id", "b")).unwrap();
            debug(part.expect("it is not taken").part)
        }),
        ("register_publication", |it| debug(it.records.register_publication(it.lease("d"), &publication(1)))),
        ("register_publication", |it| debug(it.records.register_publication(it.lease("d"), &publication(2)))),
        ("renew_for_write", |it| debug(it.records.renew_for_write(it.lease("d")))),
        ("renumber_publication", |it| debug(it.records.renumber_publication(&publication(2), 3))),
        ("confirm_publication", |it| debug(it.records.confirm_publication("m", 3))),
        ("create_prediction", |it| debug(it.records.create_prediction(&prediction()))),
        ("renew_predictions", |it| debug(it.records.renew_predictions("process"))),
        ("finish_prediction", |it| debug(it.records.finish_prediction(&key(), "process", "{}", ""))),
        ("remove_old_predictions", |it| debug(it.records.remove_old_predictions(0, 0))),
        ("record_audit", |it| debug(it.records.record_audit(&[audit_row()]))),
        ("add_key_requests", |it| {
            debug(it.records.add_key_requests(&[KeyRequests { key_id: "k".to_owned(), since_ms: 1, requests: 3 }]))
        }),
    ]
}
