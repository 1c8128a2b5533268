//! Sweeps and their trials.

use super::*;

fn new_sweep(project: &str) -> NewSweep {
    NewSweep { project: project.to_owned(), spec: "{}".to_owned(), ..NewSweep::default() }
}

fn trial(number: u32, state: TrialState) -> TrialRecord {
    TrialRecord {
        number,
        parameters: format!("{{\"lr\":{number}}}"),
        job: None,
        state,
        rung: 0,
        // JSON's reader returns a neighbour of the second one.
        rung_values: vec![None, Some(0.49723029136657715), Some(-1e-300)],
        reason: StateReason::new("WHY", "because"),
        parent: (number > 1).then_some(TrialParent { member: 4, trial: 1, rung: 2 }),
    }
}

pub(super) fn a_sweep_keeps_its_fields_and_its_idempotency_key(records: &dyn JobRecords) {
    let keyed = NewSweep { idempotency_key: Some("k".to_owned()), ..new_sweep("p") };
    let first = records.create_sweep(&keyed, 7).unwrap();
    assert_eq!((first.name.as_str(), first.state, first.created_ms), ("p-sweep-1", SweepState::Running, 7));
    assert_eq!(records.create_sweep(&keyed, 8).unwrap(), first);
    assert_eq!(records.find_sweep_by_idempotency_key("k").unwrap(), Some(first.clone()));
    let second = records.create_sweep(&new_sweep("p"), 9).unwrap();
    let other = records.create_sweep(&new_sweep("q"), 9).unwrap();
    assert_eq!((second.name.as_str(), other.name.as_str()), ("p-sweep-2", "q-sweep-1"));
    assert_eq!(records.find_sweep("p-sweep-2").unwrap(), Some(second.clone()));
    assert_eq!(records.find_sweep(&first.id).unwrap(), Some(first.clone()));
    assert_eq!(records.find_sweep("p-sweep-3").unwrap(), None);
    let names = |listed: Vec<SweepRecord>| listed.into_iter().map(|sweep| sweep.name).collect::<Vec<_>>();
    assert_eq!(names(records.list_sweeps(None).unwrap()), ["q-sweep-1", "p-sweep-2", "p-sweep-1"]);
    assert_eq!(names(records.list_sweeps(Some(&["q".to_owned()])).unwrap()), ["q-sweep-1"]);
    assert!(records.list_sweeps(Some(&[])).unwrap().is_empty());
    for wrong in [new_sweep("../p"), NewSweep { idempotency_key: Some(String::new()), ..new_sweep("p") }] {
        assert!(matches!(records.create_sweep(&wrong, 1), Err(RecordError::Invalid { .. })));
    }
}

pub(super) fn a_decision_is_recorded_once_and_only_on_the_state_that_it_follows_from(records: &dyn JobRecords) {
    let sweep = records.create_sweep(&new_sweep("p"), 1).unwrap();
    let start = SweepDecision { trials: vec![trial(2, TrialState::Running), trial(1, TrialState::Running)], end: None };
    assert!(records.record_decision(&sweep.id, 0, &start, 2).unwrap());
    assert!(!records.record_decision(&sweep.id, 0, &start, 2).unwrap(), "it follows from an outdated state");
    records.set_trial_job(&sweep.id, 1, "job").unwrap();
    records.set_trial_job(&sweep.id, 1, "another").unwrap();
    let pause = SweepDecision { trials: vec![trial(1, TrialState::Paused)], end: None };
    assert!(records.record_decision(&sweep.id, 1, &pause, 3).unwrap());
    let trials = records.trials(&sweep.id).unwrap();
    let expected = TrialRecord { job: Some("job".to_owned()), ..trial(1, TrialState::Paused) };
    assert_eq!(trials, [expected, trial(2, TrialState::Running)]);
    // A stop of a user counts as a decision.
    assert!(records.set_sweep_stopped(&sweep.id, Some(&reason("STOPPED"))).unwrap());
    assert!(!records.record_decision(&sweep.id, 2, &pause, 3).unwrap());
    assert_eq!(records.unsettled_sweeps().unwrap()[0].state, SweepState::Stopped);
    assert!(records.set_sweep_stopped(&sweep.id, None).unwrap());
    records.settle_sweep(&sweep.id).unwrap();
    assert_eq!(records.unsettled_sweeps().unwrap().len(), 1, "it is not over");
    let end = SweepDecision { trials: Vec::new(), end: Some((SweepState::Succeeded, StateReason::default())) };
    assert!(records.record_decision(&sweep.id, 4, &end, 5).unwrap());
    let over = records.find_sweep(&sweep.id).unwrap().unwrap();
    assert_eq!((over.state, over.finished_ms, over.decisions), (SweepState::Succeeded, Some(5), 5));
    assert!(!records.record_decision(&sweep.id, 5, &pause, 6).unwrap(), "it is over");
    assert!(!records.set_sweep_stopped(&sweep.id, Some(&reason("STOPPED"))).unwrap());
    assert_eq!(records.unsettled_sweeps().unwrap(), [over]);
    records.settle_sweep(&sweep.id).unwrap();
    assert!(records.unsettled_sweeps().unwrap().is_empty());
}
