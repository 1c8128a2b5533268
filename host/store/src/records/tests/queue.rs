//! What a placement reads of a queue.

use super::leases::{place_all, query, server};
use super::*;
use crate::limits::{QUEUE_FIRST_JOBS_READ, QUEUE_GROUP_JOBS_READ_MAX, QUEUE_GROUP_JOBS_READ_MIN, QUEUE_JOBS_READ};
use crate::records::{PlacementQuery, PlacementState, QueueCount, QueueSelection};

fn demand(priority: i32) -> SchedulingRequest {
    SchedulingRequest { priority, ..SchedulingRequest::default() }
}

fn submit(records: &dyn JobRecords, project: &str, priority: i32) -> JobRecord {
    records.submit(&NewJob { demand: demand(priority), ..new_job(project) }, 1).unwrap()
}

fn names(state: &PlacementState) -> Vec<&str> {
    state.waiting.iter().map(|job| job.name.as_str()).collect()
}

pub(super) fn a_placement_reads_the_first_jobs_of_each_group(records: &dyn JobRecords) {
    let read = |now_ms| records.placement_state(&query(&server("a"), now_ms)).unwrap();
    assert!(read(1).waiting.is_empty());
    for _ in 0..QUEUE_GROUP_JOBS_READ_MAX + 3 {
        submit(records, "long", 0);
    }
    submit(records, "long", 5);
    let delayed = submit(records, "delayed", 0);
    let other = submit(records, "other", 0);
    submit(records, "last", 0);
    let lease = records.claim(&delayed.id, "any", 1).unwrap().unwrap().lease;
    records.requeue(&lease, &reason("FAILED"), 1_000, 1).unwrap();

    let state = read(2);
    let long = QUEUE_GROUP_JOBS_READ_MAX;
    let mut expected = vec![format!("long-{}", long + 4)];
    expected.extend((1..=long).map(|number| format!("long-{number}")));
    expected.extend(["other-1", "last-1"].map(str::to_owned));
    assert_eq!(names(&state), expected);
    let last_read = records.get(&format!("long-{long}")).unwrap().id;
    assert_eq!(state.unread_after.into_iter().collect::<Vec<_>>(), [last_read]);
    assert!(names(&read(1_000)).contains(&"delayed-1"), "its time has come");
    assert_eq!(records.queued_jobs().unwrap().len(), long + 7, "a listing has all");

    let count = |project: &str, waiting, running| QueueCount {
        queue: "default".to_owned(),
        project: project.to_owned(),
        waiting,
        running,
    };
    records.claim(&other.id, "any", 2).unwrap().unwrap();
    let all = [count("delayed", 1, 0), count("last", 1, 0), count("long", long as u64 + 4, 0), count("other", 0, 1)];
    assert_eq!(records.queue_counts().unwrap(), all);
}

pub(super) fn a_placement_reads_the_first_jobs_of_all(records: &dyn JobRecords) {
    let read = |selection, now_ms| {
        let server = server("a");
        let query = PlacementQuery { selection: &selection, ..query(&server, now_ms) };
        records.placement_state(&query).unwrap()
    };
    let first = |now_ms| read(QueueSelection::First, now_ms);
    assert!(first(1).waiting.is_empty());
    let delayed = submit(records, "delayed", 9);
    submit(records, "low", -1);
    let high = submit(records, "high", 5);
    let preemptible = SchedulingRequest { preemptible: true, ..demand(5) };
    records.submit(&NewJob { demand: preemptible, ..new_job("preemptible") }, 1).unwrap();
    submit(records, "high", 5);
    let lease = records.claim(&delayed.id, "any", 1).unwrap().unwrap().lease;
    records.requeue(&lease, &reason("FAILED"), 1_000, 1).unwrap();
    let state = first(2);
    assert_eq!(names(&state), ["high-1", "high-2", "preemptible-1", "low-1"]);
    assert!(state.unread_after.is_empty(), "all were read");
    assert_eq!(names(&first(1_000))[0], "delayed-1", "its time has come");

    for _ in 0..QUEUE_FIRST_JOBS_READ {
        submit(records, "many", 0);
    }
    records.claim(&high.id, "any", 2).unwrap().unwrap();
    let state = first(2);
    let mut expected = vec!["high-2".to_owned(), "preemptible-1".to_owned()];
    expected.extend((1..=QUEUE_FIRST_JOBS_READ - 2).map(|number| format!("many-{number}")));
    assert_eq!(names(&state), expected);
    let last = &state.waiting.last().unwrap().id;
    assert!(state.unread_after.len() == 1 && state.unread_after.contains(last));
    let running = read(QueueSelection::None, 2);
    assert!(running.waiting.is_empty() && running.unread_after.is_empty());
    assert_eq!(running.running, state.running);
    assert!(records.claim_placed(&query(&server("a"), 2), &place_all).unwrap().len() > 1);
    let running = read(QueueSelection::None, 2).running;
    assert!(running.len() > 1 && running == first(2).running, "a host reads its own jobs");
}

pub(super) fn a_placement_reads_few_jobs_of_each_of_many_groups(records: &dyn JobRecords) {
    let groups = QUEUE_JOBS_READ / QUEUE_GROUP_JOBS_READ_MAX * 2;
    for group in 0..groups {
        for _ in 0..QUEUE_GROUP_JOBS_READ_MAX / 2 + 1 {
            submit(records, &format!("p{group}"), 0);
        }
    }
    let state = records.placement_state(&query(&server("a"), 2)).unwrap();
    assert_eq!(state.waiting.len(), QUEUE_JOBS_READ, "half of the maximum of each");
    assert_eq!(state.unread_after.len(), groups);
    const { assert!(QUEUE_GROUP_JOBS_READ_MIN <= QUEUE_GROUP_JOBS_READ_MAX / 2) };
}
