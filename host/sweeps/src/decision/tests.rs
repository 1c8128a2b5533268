//! Decisions, against simulated jobs and direct implementations of the algorithms.

mod population;
mod tpe;

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use saggar_jobs::JobSpec;
use saggar_store::records::TrialParent;

use super::*;
use crate::spec::SweepSpec;

fn sweep(method: SweepMethod, trials: u32, parallel: u32, eta: u32, rungs: u32) -> ValidSweep {
    let space = BTreeMap::from([("lr".to_owned(), "log(1e-4,1)".to_owned())]);
    let spec = SweepSpec::new(JobSpec::new("p", "0".repeat(64)), space, "validation/accuracy");
    let spec = SweepSpec { method, trials: Some(trials), max_parallel: parallel, eta, rungs, seed: 5, ..spec };
    spec.validate().unwrap()
}

/// The jobs of a sweep, which reach rungs in an order that a sequence of numbers decides.
struct Simulation<'a> {
    sweep: &'a ValidSweep,
    trials: Vec<TrialRecord>,
    /// The value of each trial at a rung.
    value: Box<dyn Fn(u32, u32) -> f64>,
    points: HashMap<u32, Vec<(u64, f64)>>,
    /// Trials in the order of their promotions, with their new rung.
    promotions: Vec<(u32, u32)>,
    end: Option<(SweepState, StateReason)>,
}

impl Simulation<'_> {
    fn new(sweep: &ValidSweep, value: impl Fn(u32, u32) -> f64 + 'static) -> Simulation<'_> {
        let (value, points) = (Box::new(value), HashMap::new());
        Simulation { sweep, trials: Vec::new(), value, points, promotions: Vec::new(), end: None }
    }

    /// Decides once; the jobs of `reached` have reached their rung, or their end.
    fn look(&mut self, reached: &[u32]) {
        let mut observed = BTreeMap::new();
        for number in reached {
            let trial = &self.trials[*number as usize - 1];
            let value = (self.value)(*number, trial.rung);
            let points = self.points.entry(*number).or_default();
            points.push((u64::from(trial.rung) + 1, value));
            let is_at_rung = self.sweep.pause_point(trial.rung).is_some();
            let state = if is_at_rung { JobState::Queued } else { JobState::Succeeded };
            let (reason, points, series) = (StateReason::default(), points.clone(), Vec::new());
            observed.insert(*number, Some(TrialObservation { state, is_at_rung, reason, points, series }));
        }
        let finished = self.points.iter().map(|(number, points)| (*number, points.clone())).collect();
        self.apply(&observed, &finished);
    }

    fn apply(&mut self, observed: &BTreeMap<u32, Option<TrialObservation>>, finished: &BTreeMap<u32, Vec<(u64, f64)>>) {
        let input = SweepInput {
            sweep: self.sweep,
            trials: &self.trials,
            observed,
            finished,
            elapsed_seconds: 0.0,
            device_seconds: 0.0,
        };
        let decision = decide(&input);
        assert_eq!(decision, decide(&input), "a decision depends on its input alone");
        for trial in decision.trials {
            match self.trials.get_mut(trial.number as usize - 1) {
                Some(old) => {
                    if trial.rung > old.rung {
                        self.promotions.push((trial.number, trial.rung));
                    }
                    *old = trial;
                }
                None => {
                    assert_eq!(trial.number as usize, self.trials.len() + 1);
                    self.trials.push(trial);
                }
            }
        }
        assert!(self.running().len() <= self.sweep.spec.max_parallel as usize);
        self.end = decision.end;
    }

    fn running(&self) -> Vec<u32> {
        let running = self.trials.iter().filter(|trial| trial.state == TrialState::Running);
        running.map(|trial| trial.number).collect()
    }

    /// Runs the sweep to its end; `order` selects which running job reaches its rung next.
    fn run(&mut self, order: impl Fn(usize) -> usize) {
        self.look(&[]);
        for turn in 0.. {
            if self.end.is_some() {
                return;
            }
            let running = self.running();
            assert!(!running.is_empty(), "a sweep that is not over runs something");
            self.look(&[running[order(turn) % running.len()]]);
        }
    }

    fn count(&self, state: TrialState) -> usize {
        self.trials.iter().filter(|trial| trial.state == state).count()
    }
}

/// Returns a value of a trial at a rung from a hash, so that ranks change between rungs.
fn noisy(number: u32, rung: u32) -> f64 {
    let hash = (u64::from(number) << 32 | u64::from(rung)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 40) as f64 / (1 << 24) as f64
}

/// ASHA as it is printed in Li et al. 2018, algorithm 2: the rungs as lists of values, and who was promoted from each.
struct ReferenceAsha {
    eta: usize,
    rungs: Vec<Vec<(u32, f64)>>,
    promoted: Vec<BTreeSet<u32>>,
}

impl ReferenceAsha {
    /// `get_job()`: returns the promoted trial and its new rung, or `None` to grow the bottom rung.
    fn next_job(&mut self) -> Option<(u32, u32)> {
        for rung in (0..self.rungs.len()).rev() {
            let mut ranked = self.rungs[rung].clone();
            ranked.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
            let top = ranked.iter().take(ranked.len() / self.eta).map(|(trial, _)| *trial);
            let promotable: Vec<u32> = top.filter(|trial| !self.promoted[rung].contains(trial)).collect();
            if let Some(trial) = promotable.first() {
                self.promoted[rung].insert(*trial);
                return Some((*trial, rung as u32 + 1));
            }
        }
        None
    }
}

fn asha_equals_the_reference(trials: u32, eta: u32, rungs: u32, parallel: u32, order: &[usize]) {
    let sweep = sweep(SweepMethod::Asha, trials, parallel, eta, rungs);
    let mut ours = Simulation::new(&sweep, noisy);
    let (lists, promoted) = (vec![Vec::new(); rungs as usize], vec![BTreeSet::new(); rungs as usize]);
    let mut reference = ReferenceAsha { eta: eta as usize, rungs: lists, promoted };
    // The reference's running jobs: the trial and its rung.
    let mut running: Vec<(u32, u32)> = Vec::new();
    let (mut next, mut promotions) = (1, Vec::new());
    ours.look(&[]);
    for turn in 0.. {
        while running.len() < parallel as usize {
            match reference.next_job() {
                Some(job) => {
                    promotions.push(job);
                    running.push(job);
                }
                None if next <= trials => {
                    running.push((next, 0));
                    next += 1;
                }
                None => break,
            }
        }
        running.sort_unstable();
        let found: Vec<(u32, u32)> =
            ours.running().into_iter().map(|number| (number, ours.trials[number as usize - 1].rung)).collect();
        if running.is_empty() {
            break;
        }
        assert_eq!(found, running, "turn {turn}");
        assert_eq!(ours.promotions, promotions);
        let (trial, rung) = running.remove(order[turn % order.len()] % running.len());
        if let Some(list) = reference.rungs.get_mut(rung as usize) {
            list.push((trial, noisy(trial, rung)));
        }
        ours.look(&[trial]);
    }
}

proptest! {
    #[test]
    fn asha_promotes_as_the_published_algorithm_does(
        trials in 1_u32..80, eta in 2_u32..5, rungs in 1_u32..4, parallel in 1_u32..9,
        order in prop::collection::vec(0_usize..64, 1..40),
    ) {
        asha_equals_the_reference(trials, eta, rungs, parallel, &order);
    }

    #[test]
    fn every_method_ends_with_a_result_and_starts_each_trial_once(
        trials in 1_u32..60, parallel in 1_u32..9, method in 0_usize..6, order in prop::collection::vec(0_usize..64, 1..20),
    ) {
        let sweep = sweep(SweepMethod::ALL[method], trials, parallel, 3, 2);
        let mut run = Simulation::new(&sweep, noisy);
        run.run(|turn| order[turn % order.len()]);
        prop_assert_eq!(run.end.as_ref().map(|(state, _)| *state), Some(SweepState::Succeeded));
        prop_assert_eq!(run.trials.len(), trials as usize);
        prop_assert!(run.count(TrialState::Completed) >= 1);
        prop_assert_eq!(run.count(TrialState::Completed) + run.count(TrialState::Stopped), trials as usize);
        for trial in &run.trials {
            let parameters: serde_json::Map<_, _> = serde_json::from_str(&trial.parameters).unwrap();
            if !sweep.spec.method.learns_parameters() {
                prop_assert_eq!(parameters, sweep.parameters(trial.number));
            }
        }
    }

    #[test]
    fn a_loop_that_is_restarted_takes_the_same_decisions(
        trials in 1_u32..40, parallel in 1_u32..9, order in prop::collection::vec(0_usize..64, 1..20), restart in 1_usize..30,
    ) {
        let sweep = sweep(SweepMethod::Asha, trials, parallel, 3, 2);
        let mut calm = Simulation::new(&sweep, noisy);
        calm.run(|turn| order[turn % order.len()]);
        // After a restart, only the records are left, and the first look observes nothing new.
        let mut shaken = Simulation::new(&sweep, noisy);
        shaken.look(&[]);
        for turn in 0.. {
            if shaken.end.is_some() {
                break;
            }
            if turn % restart == 0 {
                let before = shaken.trials.clone();
                shaken.look(&[]);
                prop_assert_eq!(&before, &shaken.trials, "nothing is decided twice");
                for trial in &mut shaken.trials {
                    trial.rung_values = TrialRecord::parse_rung_values(&trial.rung_values_text()).unwrap();
                }
            }
            let running = shaken.running();
            shaken.look(&[running[order[turn % order.len()] % running.len()]]);
        }
        prop_assert_eq!(calm.trials, shaken.trials);
        prop_assert_eq!(calm.promotions, shaken.promotions);
    }
}

#[test]
fn asha_needs_a_part_of_the_steps_of_a_full_search() {
    let sweep = sweep(SweepMethod::Asha, 64, 4, 4, 2);
    let mut run = Simulation::new(&sweep, |number, _| f64::from(number % 17));
    run.run(|turn| turn);
    // The shares of a trial's steps up to each rung, in sixteenths.
    let sixteenths: usize = run.trials.iter().map(|trial| [0, 1, 4, 16][trial.rung_values.len()]).sum();
    assert!(sixteenths * 3 <= 64 * 16, "{sixteenths} of {}", 64 * 16);
    let best = run.trials.iter().filter(|trial| trial.state == TrialState::Completed);
    let best = best.map(|trial| trial.rung_values[2].unwrap()).fold(0.0, f64::max);
    assert_eq!(best, 16.0, "the best trial is not lost");
    let stopped = run.trials.iter().find(|trial| trial.state == TrialState::Stopped).unwrap();
    assert_eq!(stopped.reason.code, NOT_PROMOTED);
    assert!(stopped.reason.sentence.starts_with("rank "), "{:?}", stopped.reason);
}

#[test]
fn halving_compares_whole_rungs() {
    let sweep = sweep(SweepMethod::Halving, 9, 9, 3, 2);
    let mut run = Simulation::new(&sweep, |number, _| f64::from(number));
    run.look(&[]);
    run.look(&[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((run.running(), run.count(TrialState::Paused)), (vec![9], 8), "it waits for the last one");
    run.look(&[9]);
    assert_eq!((run.running(), run.count(TrialState::Stopped)), (vec![7, 8, 9], 6));
    run.look(&[8, 9]);
    assert_eq!(run.running(), [7]);
    run.look(&[7]);
    assert_eq!((run.running(), run.count(TrialState::Stopped)), (vec![9], 8));
    run.look(&[9]);
    assert_eq!(run.end, Some((SweepState::Succeeded, StateReason::default())));
}

#[test]
fn a_trial_below_the_median_is_stopped_at_the_step_that_shows_it() {
    let sweep = sweep(SweepMethod::Median, 8, 8, 3, 2);
    let mut run = Simulation::new(&sweep, |_, _| 0.0);
    run.look(&[]);
    let done = |value: f64| {
        let points = vec![(10, value), (20, value + 0.2)];
        let (reason, series) = (StateReason::default(), Vec::new());
        Some(TrialObservation { state: JobState::Succeeded, is_at_rung: false, reason, points, series })
    };
    let finished: BTreeMap<u32, _> =
        (1..=4).map(|n| (n, vec![(10, 0.1 * f64::from(n)), (20, 0.1 * f64::from(n) + 0.2)])).collect();
    let observed = (1..=4).map(|number| (number, done(0.1 * f64::from(number)))).collect();
    run.apply(&observed, &finished);
    let running = |points: Vec<(u64, f64)>| {
        let (reason, series) = (StateReason::default(), Vec::new());
        Some(TrialObservation { state: JobState::Running, is_at_rung: false, reason, points, series })
    };
    // The running means by step 20 are 0.2, 0.3, 0.4 and 0.5, their median 0.35; by step 10 it is 0.25.
    let observed = BTreeMap::from([
        (5, running(vec![(10, 0.26), (20, 0.34)])),
        (6, running(vec![(10, 0.36), (20, 0.1)])),
        (7, running(vec![(10, f64::NAN)])),
        (8, running(vec![(5, 0.0)])),
    ]);
    run.apply(&observed, &finished);
    assert_eq!(run.running(), [6, 8]);
    assert_eq!(run.trials[4].reason.code, BELOW_MEDIAN);
    assert!(run.trials[4].reason.sentence.contains("by step 20"), "{:?}", run.trials[4].reason);
    assert!(run.trials[6].reason.sentence.contains("by step 10"), "a value that is not a number is the worst");
}

#[test]
fn failures_and_missing_metrics_have_stated_outcomes() {
    let sweep = sweep(SweepMethod::Asha, 3, 3, 3, 1);
    let over = |state, points: Vec<(u64, f64)>| {
        let (reason, series) = (StateReason::new("TRAP", "unreachable"), vec!["loss".to_owned()]);
        Some(TrialObservation { state, is_at_rung: false, reason, points, series })
    };
    let decide_with = |observed: [(u32, Option<TrialObservation>); 3]| {
        let mut run = Simulation::new(&sweep, |_, _| 0.0);
        run.look(&[]);
        run.apply(&observed.into(), &BTreeMap::new());
        run
    };
    let failed = || over(JobState::Failed, Vec::new());
    let run = decide_with([(1, failed()), (2, None), (3, over(JobState::Cancelled, Vec::new()))]);
    let (state, reason) = run.end.unwrap();
    assert_eq!((state, reason.code.as_str()), (SweepState::Failed, ALL_TRIALS_FAILED));
    assert!(reason.sentence.contains("trial 3: TRAP unreachable"), "{reason:?}");
    assert_eq!(run.trials[1].reason.code, JOB_REMOVED);
    assert_eq!(run.trials[0].rung_values, [None]);

    let run = decide_with([(1, over(JobState::Succeeded, Vec::new())), (2, None), (3, None)]);
    let (state, reason) = run.end.unwrap();
    assert_eq!((state, reason.code.as_str()), (SweepState::Failed, NO_METRIC));
    assert!(reason.sentence.contains("`validation/accuracy`") && reason.sentence.contains("loss"), "{reason:?}");

    let nan = || over(JobState::Succeeded, vec![(3, f64::NAN)]);
    let run = decide_with([(1, nan()), (2, failed()), (3, failed())]);
    assert_eq!(run.end.unwrap().0, SweepState::Succeeded, "a NaN is a value, the worst");
}

#[test]
fn a_used_up_budget_stops_the_trials_and_keeps_the_reason() {
    let sweep = sweep(SweepMethod::Full, 5, 2, 3, 1);
    let spec = SweepSpec { budget_device_seconds: Some(10.0), ..sweep.spec.clone() };
    let sweep = spec.validate().unwrap();
    let (observed, finished) = (BTreeMap::new(), BTreeMap::new());
    let mut input = SweepInput {
        sweep: &sweep,
        trials: &[],
        observed: &observed,
        finished: &finished,
        elapsed_seconds: 1e9,
        device_seconds: 9.9,
    };
    let started = decide(&input);
    assert_eq!((started.trials.len(), &started.end), (2, &None));
    (input.trials, input.device_seconds) = (&started.trials, 10.0);
    let ended = decide(&input);
    let (state, reason) = ended.end.unwrap();
    assert_eq!((state, reason.code.as_str()), (SweepState::Succeeded, BUDGET));
    assert!(reason.sentence.contains("10 device seconds"), "{reason:?}");
    assert!(ended.trials.iter().all(|trial| trial.state == TrialState::Stopped && trial.reason.code == BUDGET));
}
