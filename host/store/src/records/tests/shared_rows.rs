//! Tests of what the servers of shared records have in common: predictions, the audit log, the usage of keys, and
//! publications.

use super::lease_clock::{LeaseFixture, lease_suite};
use super::leases::{claim_for, host_lost, server};
use super::*;
use crate::records::{
    AUDIT_ROWS_MAX, AuditFilter, KeyRequests, NewAuditRow, NewPrediction, PendingPublication, PredictionKey,
};

fn key(owner: &str, id: &str) -> PredictionKey {
    PredictionKey { owner: owner.to_owned(), id: id.to_owned() }
}

fn prediction(id: &str, process: &str) -> NewPrediction {
    NewPrediction {
        key: key("k", id),
        process: process.to_owned(),
        server: "a".to_owned(),
        digest: "d".to_owned(),
        content: "{}".to_owned(),
    }
}

fn a_prediction_begins_and_ends_once(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    assert_eq!(records.prediction(&key("k", "1")).unwrap(), None);
    let created = std::thread::scope(|scope| {
        let create =
            |at: u32| scope.spawn(move || records.create_prediction(&prediction("1", &at.to_string())).unwrap());
        let threads: Vec<_> = (0..8).map(create).collect();
        threads.into_iter().map(|thread| u32::from(thread.join().unwrap())).sum::<u32>()
    });
    assert_eq!(created, 1, "of servers that begin the same prediction, one does");
    assert!(records.create_prediction(&NewPrediction { key: key("", "1"), ..prediction("1", "p") }).unwrap());
    let found = records.prediction(&key("k", "1")).unwrap().unwrap();
    assert_eq!(
        (found.digest.as_str(), found.content.as_str(), found.is_over, found.is_lost),
        ("d", "{}", false, false)
    );
    assert_eq!(records.renew_predictions(&found.process).unwrap(), [key("k", "1")]);
    assert_eq!(records.renew_predictions("other").unwrap(), []);
    let finish =
        |process: &str, content: &str| records.finish_prediction(&key("k", "1"), process, content, "").unwrap();
    assert!(!finish("other", "x"), "another process computes it");
    assert!(finish(&found.process, "[1]") && !finish(&found.process, "[2]"));
    assert_eq!(records.renew_predictions(&found.process).unwrap(), []);
    let ended = records.prediction(&key("k", "1")).unwrap().unwrap();
    assert_eq!((ended.content.as_str(), ended.is_over, ended.is_lost), ("[1]", true, false));
}

fn a_prediction_that_is_not_renewed_is_lost_and_old_ones_are_removed(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    for id in ["1", "2", "3"] {
        assert!(records.create_prediction(&prediction(id, "p")).unwrap());
        fixture.clock.advance(1000);
    }
    let is_lost = |id: &str| records.prediction(&key("k", id)).unwrap().unwrap().is_lost;
    fixture.clock.advance(12_000);
    assert!(!is_lost("1"));
    fixture.clock.advance(1);
    assert!(is_lost("1") && !is_lost("2"));
    fixture.clock.restart_database();
    records.renew_predictions("p").unwrap();
    assert!(!is_lost("1"));
    for id in ["1", "2", "3"] {
        fixture.clock.advance(1000);
        assert!(records.finish_prediction(&key("k", id), "p", "", &format!("o{id}")).unwrap());
    }
    assert_eq!(records.remove_old_predictions(60_000, 2).unwrap(), ["o1"]);
    assert_eq!(records.prediction(&key("k", "1")).unwrap(), None);
    fixture.clock.advance(60_000);
    assert_eq!(records.remove_old_predictions(60_000, 2).unwrap(), ["o2"]);
    assert!(records.prediction(&key("k", "3")).unwrap().is_some());
}

fn audit_row(action: &str, subject: &str, actor: &str) -> NewAuditRow {
    let [action, subject, actor] = [action, subject, actor].map(str::to_owned);
    NewAuditRow { action, subject, actor, server: "a".to_owned(), result: "ok".to_owned(), ..NewAuditRow::default() }
}

fn audit_lines_are_listed_by_filter_and_page(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let rows = [
        audit_row("model.promote", "m", "key:ops"),
        NewAuditRow { age_ms: 2000, ..audit_row("model.load", "m", "key:ci") },
        NewAuditRow { result: "refused".to_owned(), ..audit_row("modelx.load", "n", "key:ci") },
    ];
    records.record_audit(&rows[..2]).unwrap();
    fixture.clock.advance(5000);
    records.record_audit(&rows[2..]).unwrap();
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    let subjects = |filter: &AuditFilter| -> Vec<String> {
        records.audit_lines(filter).unwrap().into_iter().map(|line| line.row.action).collect()
    };
    assert_eq!(subjects(&all), ["modelx.load", "model.load", "model.promote"]);
    let listed = records.audit_lines(&all).unwrap();
    assert_eq!(listed[2].at_ms - listed[1].at_ms, 2000, "an older action has an earlier time");
    assert_eq!(listed[0].row, rows[2]);
    let page = AuditFilter { before: Some(listed[0].sequence), limit: 1, ..all.clone() };
    assert_eq!(subjects(&page), ["model.load"]);
    let text = |text: &str| text.to_owned();
    for (filter, expected) in [
        (AuditFilter { action: text("model"), ..all.clone() }, 2),
        (AuditFilter { action: text("model.load"), ..all.clone() }, 1),
        (AuditFilter { actor: text("key:ci"), ..all.clone() }, 2),
        (AuditFilter { subject: text("n"), ..all.clone() }, 1),
        (AuditFilter { result: text("refused"), ..all.clone() }, 1),
        (AuditFilter { server: text("b"), ..all.clone() }, 0),
        (AuditFilter { since_ms: listed[0].at_ms, ..all.clone() }, 1),
    ] {
        let found = records.audit_lines(&filter).unwrap();
        assert_eq!(found.len(), expected, "{filter:?}");
        assert!(found.iter().all(|line| filter.matches(line.at_ms, &line.row)), "{filter:?}");
    }
    const { assert!(AUDIT_ROWS_MAX > 1000) };
}

fn requests_of_keys_are_summed_over_servers(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let of = |key: &str, since_ms, requests| KeyRequests { key_id: key.to_owned(), since_ms, requests };
    let sums = records.add_key_requests(&[of("b", 1000, 5), of("a", 1000, 1)]).unwrap();
    assert_eq!(sums, [of("a", 1000, 1), of("b", 1000, 5)]);
    let totals = std::thread::scope(|scope| {
        let add = |_| scope.spawn(|| records.add_key_requests(&[of("a", 1000, 2), of("b", 1000, 0)]).unwrap());
        let threads: Vec<_> = (0..8).map(add).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()[0].requests).max().unwrap()
    });
    assert_eq!(totals, 17);
    let day = 86_400_000;
    assert_eq!(records.add_key_requests(&[of("a", 71 * day, 1)]).unwrap(), [of("a", 71 * day, 1)]);
    assert_eq!(records.add_key_requests(&[of("b", 1000, 0)]).unwrap(), [of("b", 1000, 0)], "it was removed");
    assert_eq!(records.add_key_requests(&[]).unwrap(), []);
}

fn a_publication_is_registered_only_by_the_owner(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    records.submit(&new_job("p"), 0).unwrap();
    let first = claim_for(records, &server("a")).remove(0).lease;
    let publication = |id: &str, version| PendingPublication { id: id.to_owned(), model: "m".to_owned(), version };
    fixture.clock.advance(14_000);
    records.register_publication(&first, &publication("x", 1)).unwrap();
    fixture.clock.advance(14_000);
    assert!(records.reap_expired(&host_lost, 0).unwrap().is_empty(), "the registration renewed the lease");
    assert_eq!(records.unfinished_publications().unwrap(), [], "its attempt can make it visible");
    records.register_publication(&first, &publication("x", 2)).unwrap();
    fixture.clock.advance(16_000);
    assert_eq!(records.reap_expired(&host_lost, 0).unwrap().len(), 1);
    let refused = records.register_publication(&first, &publication("y", 3)).unwrap_err();
    assert!(matches!(refused, RecordError::Fenced { .. }), "{refused}");
    assert!(matches!(records.renew_for_write(&first), Err(RecordError::Fenced { .. })));
    assert_eq!(records.unfinished_publications().unwrap(), [publication("x", 2)], "only what was registered is left");
    assert!(!records.renumber_publication(&publication("x", 1), 4).unwrap());
    assert!(records.renumber_publication(&publication("x", 2), 4).unwrap());
    records.confirm_publication("m", 4).unwrap();
    assert_eq!(records.unfinished_publications().unwrap(), []);
    let second = claim_for(records, &server("b")).remove(0).lease;
    records.renew_for_write(&second).unwrap();
    records.register_publication(&second, &publication("z", 5)).unwrap();
    records.finish_job(&second, JobState::Succeeded, &StateReason::default(), 0).unwrap();
    assert_eq!(records.unfinished_publications().unwrap(), [publication("z", 5)]);
    assert!(matches!(records.renew_for_write(&second), Err(RecordError::Finished { .. })));
}

lease_suite! { on_sqlite on_postgres:
    a_prediction_begins_and_ends_once
    a_prediction_that_is_not_renewed_is_lost_and_old_ones_are_removed
    audit_lines_are_listed_by_filter_and_page
    requests_of_keys_are_summed_over_servers
    a_publication_is_registered_only_by_the_owner
}
