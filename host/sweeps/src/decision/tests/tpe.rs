//! Parameters that depend on results.

use super::*;

/// Returns a search for `x` from 0 to 1, whose best value is at 0.8.
fn search(method: SweepMethod, trials: u32, parallel: u32) -> ValidSweep {
    let space =
        BTreeMap::from([("x".to_owned(), "uniform(0,1)".to_owned()), ("y".to_owned(), "choice(a,b)".to_owned())]);
    let spec = SweepSpec::new(JobSpec::new("p", "0".repeat(64)), space, "validation/accuracy");
    let spec = SweepSpec { method, trials: Some(trials), max_parallel: parallel, seed: 5, ..spec };
    spec.validate().unwrap()
}

fn parameter(trial: &TrialRecord) -> f64 {
    trial_parameters(trial)["x"].as_f64().unwrap()
}

/// The value of a trial at a rung: the same at each, better near 0.8.
fn accuracy(trial: &TrialRecord) -> f64 {
    1.0 - (parameter(trial) - 0.8).abs()
}

/// A decision, the records before it, and what was observed.
struct LoggedDecision {
    before: Vec<TrialRecord>,
    observed: BTreeMap<u32, Option<TrialObservation>>,
    decision: SweepDecision,
}

/// Runs a sweep to its end, and returns its trials and every decision.
fn run_recorded(
    sweep: &ValidSweep,
    order: &[usize],
    value: impl Fn(&TrialRecord) -> Option<f64>,
) -> (Vec<TrialRecord>, Vec<LoggedDecision>) {
    let mut trials: Vec<TrialRecord> = Vec::new();
    let mut log = Vec::new();
    let mut observed = BTreeMap::new();
    for turn in 0.. {
        let input = SweepInput {
            sweep,
            trials: &trials,
            observed: &observed,
            finished: &BTreeMap::new(),
            elapsed_seconds: 0.0,
            device_seconds: 0.0,
        };
        let decision = decide(&input);
        log.push(LoggedDecision { before: trials.clone(), observed: observed.clone(), decision: decision.clone() });
        for trial in decision.trials {
            match trials.get_mut(trial.number as usize - 1) {
                Some(old) => *old = trial,
                None => trials.push(trial),
            }
        }
        if decision.end.is_some() {
            return (trials, log);
        }
        let running: Vec<&TrialRecord> = trials.iter().filter(|trial| trial.state == TrialState::Running).collect();
        let next = running[order[turn % order.len()] % running.len()];
        let is_at_rung = sweep.pause_point(next.rung).is_some();
        let found = value(next);
        let state = match (is_at_rung, found) {
            (_, None) => JobState::Failed,
            (true, _) => JobState::Queued,
            (false, _) => JobState::Succeeded,
        };
        let points = found.map(|value| (u64::from(next.rung) + 1, value)).into_iter().collect();
        let is_at_rung = is_at_rung && found.is_some();
        let observation =
            TrialObservation { state, is_at_rung, reason: StateReason::default(), points, series: Vec::new() };
        observed = BTreeMap::from([(next.number, Some(observation))]);
    }
    unreachable!("the loop returns at the end of the sweep")
}

proptest! {
    #[test]
    fn a_replay_of_the_records_gives_the_same_parameters(
        trials in 11_u32..50, parallel in 1_u32..6, method in 4_usize..6, order in prop::collection::vec(0_usize..64, 1..20),
    ) {
        let sweep = search(SweepMethod::ALL[method], trials, parallel);
        let fails = |trial: &TrialRecord| match trial.number % 7 {
            3 => None,
            5 => Some(f64::NAN),
            _ => Some(accuracy(trial)),
        };
        let (ended, log) = run_recorded(&sweep, &order, fails);
        prop_assert_eq!(ended.len(), trials as usize);
        for LoggedDecision { before, observed, decision } in &log {
            // What the records keep, read again by a server that starts.
            let before: Vec<TrialRecord> = before.iter().map(|trial| TrialRecord {
                rung_values: TrialRecord::parse_rung_values(&trial.rung_values_text()).unwrap(),
                ..trial.clone()
            }).collect();
            let input = SweepInput {
                sweep: &sweep, trials: &before, observed, finished: &BTreeMap::new(),
                elapsed_seconds: 0.0, device_seconds: 0.0,
            };
            prop_assert_eq!(&decide(&input), decision);
        }
        for (number, trial) in (1..).zip(&ended) {
            prop_assert_eq!(trial.number, number);
        }
    }
}

#[test]
fn later_trials_are_nearer_to_the_optimum_also_with_rungs_failures_and_several_at_once() {
    for (method, parallel) in [(SweepMethod::Tpe, 1), (SweepMethod::Tpe, 4), (SweepMethod::TpeAsha, 4)] {
        let sweep = search(method, 60, parallel);
        let lower_half_fails = |trial: &TrialRecord| (parameter(trial) > 0.4).then(|| accuracy(trial));
        let (trials, _) = run_recorded(&sweep, &[0, 2, 1], lower_half_fails);
        let drawn = sweep.parameters(1);
        assert_eq!(trial_parameters(&trials[0]), drawn, "the first trials are drawn at random");
        let distance = |trials: &[TrialRecord]| {
            trials.iter().map(|trial| (parameter(trial) - 0.8).abs()).sum::<f64>() / trials.len() as f64
        };
        let (first, last) = (distance(&trials[..15]), distance(&trials[40..]));
        assert!(last < first / 2.0, "{method:?} {parallel}: {first} at first, {last} at last");
        let stopped = trials.iter().filter(|trial| trial.state == TrialState::Stopped).count();
        assert_eq!(stopped > 0, method == SweepMethod::TpeAsha);
    }
}

#[test]
fn without_ten_finite_values_parameters_stay_random() {
    let sweep = search(SweepMethod::Tpe, 30, 2);
    let mostly_wrong = |trial: &TrialRecord| match trial.number {
        1..=9 => Some(accuracy(trial)),
        number if number % 2 == 0 => None,
        _ => Some(f64::NAN),
    };
    let (trials, _) = run_recorded(&sweep, &[0], mostly_wrong);
    for trial in &trials {
        assert_eq!(trial_parameters(trial), sweep.parameters(trial.number));
    }
}

#[test]
fn a_removed_job_teaches_nothing() {
    let sweep = search(SweepMethod::Tpe, 40, 1);
    let (mut trials, _) = run_recorded(&sweep, &[0], |trial| Some(accuracy(trial)));
    trials.truncate(20);
    let decide_next = |trials: &[TrialRecord]| {
        let (observed, finished) = (BTreeMap::new(), BTreeMap::new());
        let input = SweepInput {
            sweep: &sweep,
            trials,
            observed: &observed,
            finished: &finished,
            elapsed_seconds: 0.0,
            device_seconds: 0.0,
        };
        decide(&input).trials[0].parameters.clone()
    };
    let with_all = decide_next(&trials);
    trials.iter_mut().for_each(|trial| {
        trial.reason = StateReason::new(JOB_REMOVED, "its job was removed");
        trial.rung_values = vec![None];
        trial.state = TrialState::Failed;
    });
    assert_ne!(decide_next(&trials), with_all);
    assert_eq!(decide_next(&trials), Value::Object(sweep.parameters(21)).to_string());
}
