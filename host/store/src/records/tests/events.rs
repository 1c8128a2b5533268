//! Queries of job events.

use super::*;

pub(super) fn newest_events_and_events_of_a_kind_are_listed_in_order(records: &dyn JobRecords) {
    let (id, other) = (records.submit(&new_job("p"), 1).unwrap().id, records.submit(&new_job("p"), 1).unwrap().id);
    for at in 0..50 {
        let kind = if at % 10 == 0 { "PUBLISHED" } else { "CHECKPOINT_SAVED" };
        records.record_event(&id, kind, &at.to_string(), at).unwrap();
        records.record_event(&other, kind, "another's", at).unwrap();
    }
    let texts = |events: Vec<JobEvent>| events.into_iter().map(|event| event.text).collect::<Vec<_>>();
    assert_eq!(texts(records.newest_events(&id, 3).unwrap()), ["47", "48", "49"]);
    assert_eq!(records.newest_events(&id, 0).unwrap(), records.events(Some(&id), 0, 0).unwrap());
    assert_eq!(texts(records.events_of_kinds(&id, &["PUBLISHED"]).unwrap()), ["0", "10", "20", "30", "40"]);
    let both = records.events_of_kinds(&id, &["PUBLISHED", "SUBMITTED", "NONE"]).unwrap();
    assert_eq!((both.len(), both[0].kind.as_str()), (6, "SUBMITTED"));
    assert!(both.is_sorted_by_key(|event| event.sequence));
    assert!(records.events_of_kinds(&id, &[]).unwrap().is_empty());
    assert!(records.events_of_kinds("none", &["PUBLISHED"]).unwrap().is_empty());
}
