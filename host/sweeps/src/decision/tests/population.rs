//! Population-based training, against simulated jobs.

use super::*;

fn population(trials: u32, parallel: u32, generations: u32, quantile: f64) -> ValidSweep {
    let space = BTreeMap::from([
        ("lr".to_owned(), "log(1e-4,1)".to_owned()),
        ("layers".to_owned(), "int(1,20)".to_owned()),
        ("kind".to_owned(), "choice(a,b)".to_owned()),
    ]);
    let spec = SweepSpec::new(JobSpec::new("p", "0".repeat(64)), space, "validation/accuracy");
    let spec = SweepSpec {
        method: SweepMethod::Pbt,
        trials: Some(trials),
        max_parallel: parallel,
        generations: Some(generations),
        exploit_quantile: Some(quantile),
        seed: 5,
        ..spec
    };
    spec.validate().unwrap()
}

/// What the job of a trial comes to at a rung.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reached {
    Value(f64),
    Failure,
}

/// Runs a sweep to its end. `order` selects which running job reaches its rung next. Before each decision for which `kill`
/// is true, the server is killed: the decision before it is taken again, from the records as they are read.
fn run(
    sweep: &ValidSweep,
    reach: impl Fn(&TrialRecord) -> Reached,
    order: &[usize],
    kill: impl Fn(usize) -> bool,
) -> (Vec<TrialRecord>, (SweepState, StateReason)) {
    let (mut trials, mut observed) = (Vec::<TrialRecord>::new(), BTreeMap::new());
    let finished = BTreeMap::new();
    for turn in 0.. {
        if kill(turn) {
            for trial in &mut trials {
                trial.rung_values = TrialRecord::parse_rung_values(&trial.rung_values_text()).unwrap();
            }
        }
        let input = SweepInput {
            sweep,
            trials: &trials,
            observed: &observed,
            finished: &finished,
            elapsed_seconds: 0.0,
            device_seconds: 0.0,
        };
        let decision = decide(&input);
        if kill(turn) {
            assert_eq!(decide(&input), decision, "a decision that was not recorded is taken again");
        }
        for trial in decision.trials {
            match trials.get_mut(trial.number as usize - 1) {
                Some(old) => *old = trial,
                None => trials.push(trial),
            }
        }
        assert_copies_start_before_their_parents_go_on(&trials);
        if let Some(end) = decision.end {
            return (trials, end);
        }
        let running: Vec<&TrialRecord> = trials.iter().filter(|trial| trial.state == TrialState::Running).collect();
        assert!((1..=sweep.spec.max_parallel as usize).contains(&running.len()));
        let next = running[order[turn % order.len()] % running.len()];
        let is_at_rung = sweep.pause_point(next.rung).is_some();
        let (state, points) = match (reach(next), is_at_rung) {
            (Reached::Failure, _) => (JobState::Failed, Vec::new()),
            (Reached::Value(value), true) => (JobState::Queued, vec![(1, value)]),
            (Reached::Value(value), false) => (JobState::Succeeded, vec![(1, value)]),
        };
        let is_at_rung = is_at_rung && state == JobState::Queued;
        let (reason, series) = (StateReason::default(), Vec::new());
        observed =
            BTreeMap::from([(next.number, Some(TrialObservation { state, is_at_rung, reason, points, series }))]);
    }
    unreachable!("the loop returns at the end of the sweep")
}

fn assert_copies_start_before_their_parents_go_on(trials: &[TrialRecord]) {
    for copy in trials.iter().filter(|trial| trial.state == TrialState::Paused) {
        let Some(parent) = copy.parent.as_ref().filter(|parent| parent.rung == copy.rung) else { continue };
        assert_eq!(trials[parent.trial as usize - 1].rung, parent.rung, "{copy:?}");
    }
}

/// What a sweep decided about a trial: its number, parameters, parent, state and values at rungs.
type TrialOutcome = (u32, String, Option<TrialParent>, TrialState, Vec<Option<f64>>);

/// Returns what must not depend on the order of the jobs or on kills.
fn outcome(trials: &[TrialRecord]) -> Vec<TrialOutcome> {
    let one = |trial: &TrialRecord| {
        (trial.number, trial.parameters.clone(), trial.parent.clone(), trial.state, trial.rung_values.clone())
    };
    trials.iter().map(one).collect()
}

fn reached(kind: u32) -> impl Fn(&TrialRecord) -> Reached {
    move |trial| match (noisy(trial.number, trial.rung) * 100.0) as u32 {
        0..10 if kind == 1 => Reached::Failure,
        10..20 if kind == 1 => Reached::Value(f64::NAN),
        _ => Reached::Value(noisy(trial.number, trial.rung)),
    }
}

proptest! {
    #[test]
    fn the_members_parents_and_parameters_depend_on_no_order_and_no_kill(
        trials in 2_u32..20, parallel in 1_u32..25, generations in 2_u32..7, quantile in 0.05_f64..0.5, kind in 0_u32..2,
        order in prop::collection::vec(0_usize..64, 1..30), kills in prop::collection::vec(any::<bool>(), 1..30),
    ) {
        let calm = run(&population(trials, 1, generations, quantile), reached(kind), &[0], |_| false);
        let sweep = population(trials, parallel, generations, quantile);
        let shaken = run(&sweep, reached(kind), &order, |turn| kills[turn % kills.len()]);
        prop_assert_eq!(outcome(&calm.0), outcome(&shaken.0));
        prop_assert_eq!(calm.1.0, shaken.1.0);
    }

    #[test]
    fn every_member_has_one_trial_in_each_generation_and_copies_are_of_better_ones(
        trials in 2_u32..20, generations in 2_u32..7, quantile in 0.05_f64..0.5, kind in 0_u32..2,
    ) {
        let sweep = population(trials, trials, generations, quantile);
        let (ended, (state, _)) = run(&sweep, reached(kind), &[0], |_| false);
        prop_assert!(state == SweepState::Succeeded || kind == 1);
        for trial in &ended {
            let Some(parent) = &trial.parent else { continue };
            let copied = &ended[parent.trial as usize - 1];
            let rung = parent.rung as usize;
            prop_assert_eq!(&trial.rung_values[..=rung], &copied.rung_values[..=rung]);
            prop_assert!(copied.rung_values[rung].is_some());
            let replaced = ended[..trial.number as usize - 1].iter().rfind(|it| it.member() == trial.member()).unwrap();
            prop_assert!(matches!(replaced.state, TrialState::Stopped | TrialState::Failed), "{:?}", replaced);
            let old = replaced.rung_values.get(rung).copied().flatten();
            prop_assert!(sweep.score(copied.rung_values[rung]) > sweep.score(old));
            prop_assert!(trial.parameters != copied.parameters, "it would repeat its parent");
        }
        let members: BTreeSet<u32> = ended.iter().map(TrialRecord::member).collect();
        prop_assert_eq!(members, (1..=trials).collect::<BTreeSet<u32>>());
        let last = ended.iter().filter(|trial| trial.state == TrialState::Completed).count();
        prop_assert!(last <= trials as usize && (kind == 1 || last == trials as usize));
    }
}

#[test]
fn the_worst_fifth_continues_from_the_best_fifth() {
    let sweep = population(10, 10, 3, 0.2);
    // Member 10 is the best, member 1 the worst, and copies are in between.
    let value = |trial: &TrialRecord| Reached::Value(if trial.number > 10 { 5.5 } else { f64::from(trial.number) });
    let (trials, _) = run(&sweep, value, &[0], |_| false);
    let first: Vec<&TrialRecord> =
        trials.iter().filter(|trial| trial.parent.as_ref().is_some_and(|parent| parent.rung == 0)).collect();
    assert_eq!(first.iter().map(|trial| trial.member()).collect::<Vec<_>>(), [1, 2]);
    assert!(first.iter().all(|trial| trial.parent.as_ref().unwrap().trial >= 9), "{first:?}");
    for number in [1, 2] {
        let replaced = &trials[number - 1];
        assert_eq!((replaced.state, replaced.reason.code.as_str()), (TrialState::Stopped, REPLACED));
        let copy = first.iter().find(|trial| trial.member() as usize == number).unwrap();
        assert!(replaced.reason.sentence.contains(&format!("trial {} continues", copy.number)), "{replaced:?}");
    }
    // At the second rung the worst ones are members 3 and 4.
    let second: Vec<u32> = trials[12..].iter().map(TrialRecord::member).collect();
    assert_eq!(second, [3, 4]);
    assert_eq!(trials.iter().filter(|trial| trial.state == TrialState::Completed).count(), 10);
}

#[test]
fn failed_and_diverged_members_are_replaced_beyond_the_share_and_equal_ones_are_not() {
    let sweep = population(6, 6, 2, 0.2);
    let value = |trial: &TrialRecord| match trial.number {
        2 => Reached::Failure,
        3 => Reached::Value(f64::INFINITY),
        number => Reached::Value(f64::from(number)),
    };
    let (trials, (state, _)) = run(&sweep, value, &[0], |_| false);
    assert_eq!(state, SweepState::Succeeded);
    let members: Vec<u32> = trials[6..].iter().map(TrialRecord::member).collect();
    assert_eq!(members, [2, 3]);
    assert!(trials[6..].iter().all(|trial| trial.parent.as_ref().unwrap().trial == 6));
    assert_ne!(trials[6].parameters, trials[7].parameters, "two copies of one state train with different parameters");
    assert_eq!(trials[1].state, TrialState::Failed, "a failed trial keeps its state");

    let (trials, (state, _)) = run(&sweep, |_| Reached::Value(0.5), &[0], |_| false);
    assert_eq!((trials.len(), state), (6, SweepState::Succeeded), "no member is better than another");
    let (trials, (state, _)) = run(&sweep, |_| Reached::Value(f64::NAN), &[0], |_| false);
    assert_eq!((trials.len(), state), (6, SweepState::Succeeded), "there is no state to copy");
    let (trials, (state, reason)) = run(&sweep, |_| Reached::Failure, &[0], |_| false);
    assert_eq!((trials.len(), state, reason.code.as_str()), (6, SweepState::Failed, ALL_TRIALS_FAILED));
}

#[test]
fn a_lower_value_is_better_of_a_metric_that_is_minimized() {
    let sweep = population(4, 4, 2, 0.25);
    let sweep = SweepSpec { metric: "min:loss".to_owned(), ..sweep.spec }.validate().unwrap();
    let (trials, _) = run(&sweep, |trial| Reached::Value(f64::from(trial.number)), &[0], |_| false);
    let parent = trials[4].parent.clone().unwrap();
    assert_eq!((trials[4].member(), parent.trial, trials.len()), (4, 1, 5));
}

#[test]
fn a_used_up_budget_stops_members_and_copies_that_wait() {
    let sweep = population(4, 1, 2, 0.25);
    let sweep = SweepSpec { budget_seconds: Some(10.0), ..sweep.spec }.validate().unwrap();
    let waiting = |number: u32, parent: Option<TrialParent>| TrialRecord {
        number,
        parameters: "{}".to_owned(),
        job: None,
        state: TrialState::Paused,
        rung: 0,
        rung_values: vec![Some(1.0)],
        reason: StateReason::default(),
        parent,
    };
    let mut trials: Vec<TrialRecord> = (1..=4).map(|number| waiting(number, None)).collect();
    trials.push(waiting(5, Some(TrialParent { member: 4, trial: 1, rung: 0 })));
    let input = SweepInput {
        sweep: &sweep,
        trials: &trials,
        observed: &BTreeMap::new(),
        finished: &BTreeMap::new(),
        elapsed_seconds: 10.0,
        device_seconds: 0.0,
    };
    let decision = decide(&input);
    assert_eq!(decision.trials.len(), 5);
    assert!(decision.trials.iter().all(|trial| trial.state == TrialState::Stopped && trial.reason.code == BUDGET));
    assert_eq!(decision.end.unwrap().0, SweepState::Succeeded);
}

/// The expected squared error of a parameter after 5 steps of gradient descent on a quadratic function with noise of
/// variance 1: `(1 - lr)^2 m + lr^2` for each step. A large rate approaches the optimum, a small one averages the noise.
fn descend(mut error: f64, rate: f64) -> f64 {
    for _ in 0..5 {
        error = (1.0 - rate).powi(2) * error + rate * rate;
    }
    error
}

/// Returns the lowest error of 10 trials with 20 times 5 steps.
fn lowest_error(method: SweepMethod, seed: u64) -> f64 {
    let space = BTreeMap::from([("lr".to_owned(), "log(1e-3,1)".to_owned())]);
    let spec = SweepSpec::new(JobSpec::new("p", "0".repeat(64)), space, "min:error");
    let generations = (method == SweepMethod::Pbt).then_some(20);
    let sweep = SweepSpec { method, trials: Some(10), max_parallel: 10, generations, seed, ..spec }.validate().unwrap();
    let error_at = |trial: &TrialRecord| {
        let rate = trial_parameters(trial)["lr"].as_f64().unwrap();
        let of_parent = trial.rung_values.last().copied().flatten();
        match method {
            SweepMethod::Pbt => descend(of_parent.unwrap_or(100.0), rate),
            _ => (0..20).fold(100.0, |error, _| descend(error, rate)),
        }
    };
    let (trials, _) = run(&sweep, |trial| Reached::Value(error_at(trial)), &[0], |_| false);
    let last = trials.iter().filter(|trial| trial.state == TrialState::Completed);
    last.filter_map(|trial| trial.rung_values.last().copied().flatten()).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_population_finds_a_schedule_that_is_better_than_the_best_constant_rate() {
    let seeds = 20;
    let mean = |method| (0..seeds).map(|seed| lowest_error(method, seed)).sum::<f64>() / seeds as f64;
    let (random, population) = (mean(SweepMethod::Full), mean(SweepMethod::Pbt));
    // The best constant rate of all, to three digits.
    let constant = (1..1000).map(|rate| (0..20).fold(100.0, |error, _| descend(error, f64::from(rate) / 1000.0)));
    let constant = constant.fold(f64::INFINITY, f64::min);
    assert!(population < constant && constant <= random, "{population} {constant} {random}");
}
