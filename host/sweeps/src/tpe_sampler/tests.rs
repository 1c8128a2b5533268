//! The estimator against random search, and with results that teach nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn space(ranges: &[(&str, &str)]) -> SearchSpace {
    let ranges: BTreeMap<String, String> =
        ranges.iter().map(|(name, range)| ((*name).to_owned(), (*range).to_owned())).collect();
    SearchSpace::parse(&ranges).unwrap()
}

/// A training-like objective over all kinds of ranges: a narrow optimum of the learning rate, a flat one of the momentum,
/// and a better and a worse optimizer.
fn mixed_space() -> SearchSpace {
    space(&[
        ("lr", "log(1e-5,1)"),
        ("momentum", "uniform(0,0.99)"),
        ("layers", "int(1,8)"),
        ("optimizer", "choice(sgd,adam,rmsprop)"),
    ])
}

fn mixed_loss(parameters: &Map<String, Value>) -> f64 {
    let number = |name: &str| parameters[name].as_f64().unwrap();
    let optimizer = match parameters["optimizer"].as_str().unwrap() {
        "adam" => 0.0,
        "rmsprop" => 0.3,
        _ => 0.6,
    };
    (number("lr").log10() + 2.5).powi(2)
        + (number("momentum") - 0.8).powi(2)
        + (number("layers") - 5.0).abs() / 8.0
        + optimizer
}

/// Returns the results of `trials` trials, of which `parallel` run at once: a proposal sees the results of those before
/// the last `parallel` ones.
fn run(space: &SearchSpace, seed: u64, trials: u32, parallel: u32, learns: bool) -> Vec<TrialResult> {
    let mut done: Vec<TrialResult> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for trial in 1..=trials {
        let visible = &done[..done.len().saturating_sub(parallel as usize - 1)];
        let tried: Vec<&str> = texts.iter().map(String::as_str).collect();
        let parameters = match learns && has_enough_results(visible) {
            true => propose(space, seed, trial, visible, &tried),
            false => space.draw(seed, trial),
        };
        texts.push(recorded_text(&parameters));
        done.push(TrialResult { score: -mixed_loss(&parameters), parameters });
    }
    done
}

fn best_loss(results: &[TrialResult]) -> f64 {
    results.iter().map(|result| -result.score).fold(f64::INFINITY, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn sixty_trials_beat_the_median_of_random_search() {
    let space = mixed_space();
    for parallel in [1, 4] {
        let best = |learns: bool| -> Vec<f64> {
            (0..40).map(|seed| best_loss(&run(&space, seed, 60, parallel, learns))).collect()
        };
        let random = median(best(false));
        let learned = best(true);
        let wins = learned.iter().filter(|loss| **loss < random).count();
        let figures = format!("parallel {parallel}: random {random:.4}, {wins} of 40: {learned:.4?}");
        assert!(median(learned) < random / 2.0, "{figures}");
        assert!(wins >= 34, "{figures}");
    }
}

#[test]
fn trials_without_a_value_are_avoided_and_never_good() {
    // The lower half of the range fails; there are more failures than good results.
    let space = space(&[("lr", "uniform(0,1)")]);
    let mut results = Vec::new();
    for trial in 1..=60_u32 {
        let parameters = space.draw(3, trial);
        let value = parameters["lr"].as_f64().unwrap();
        let score = if value < 0.75 { [f64::NEG_INFINITY, f64::NAN][trial as usize % 2] } else { -value };
        results.push(TrialResult { parameters, score });
    }
    assert!(has_enough_results(&results));
    let proposed: Vec<f64> =
        (61..=100).map(|trial| propose(&space, 3, trial, &results, &[])["lr"].as_f64().unwrap()).collect();
    let above = proposed.iter().filter(|value| **value >= 0.7).count();
    assert!(above >= 36, "{above} of 40: {proposed:?}");
}

#[test]
fn failures_alone_never_suffice_for_an_estimate() {
    let failed = |trial| TrialResult { parameters: mixed_space().draw(0, trial), score: f64::NEG_INFINITY };
    let results: Vec<TrialResult> = (1..=100).map(failed).collect();
    assert!(!has_enough_results(&results));
    // Even without that rule nothing breaks.
    assert_eq!(propose(&mixed_space(), 0, 101, &results, &[]).len(), 4);
}

#[test]
fn a_proposal_avoids_what_was_tried_and_repeats_it_only_if_nothing_else_is_left() {
    let space = space(&[("a", "choice(x,y)"), ("b", "choice(1,2)")]);
    let all: Vec<Map<String, Value>> = (0..4).map(|index| space.combination(index)).collect();
    let results: Vec<TrialResult> =
        (0..12).map(|index| TrialResult { parameters: all[index % 4].clone(), score: -((index % 4) as f64) }).collect();
    let texts: Vec<String> = all.iter().map(recorded_text).collect();
    let three: Vec<&str> = texts[..3].iter().map(String::as_str).collect();
    let fresh = (1..=40).filter(|trial| propose(&space, 9, *trial, &results, &three) == all[3]).count();
    assert!(fresh >= 10, "{fresh} of 40 proposals are the worst combination, which alone is new");
    let every: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(all.contains(&propose(&space, 9, 1, &results, &every)));
}

#[test]
fn values_and_positions_are_inverse_at_the_bounds_and_for_one_choice() {
    for (range, values) in [
        ("log(1e-300,1e300)", vec![1e-300, 1.0, 1e300]),
        ("uniform(-1e308,1e308)", vec![-1e308, 0.0, 1e308]),
        ("int(-9223372036854775808,9223372036854775807)", vec![-9.0e18, 0.0, 9.0e18]),
        ("int(1,2)", vec![1.0, 2.0]),
    ] {
        let range = ParameterRange::parse(range).unwrap();
        for value in values {
            let drawn = drawn_of(&range, &value.into()).unwrap();
            assert!((0.0..1.0).contains(&drawn), "{range} {value}: {drawn}");
            let back = value_at(&range, drawn).as_f64().unwrap();
            assert!((back - value).abs() <= value.abs() * 1e-5, "{range} {value}: {back}");
        }
    }
    let one = ParameterRange::parse("choice(adam)").unwrap();
    assert_eq!((drawn_of(&one, &"adam".into()), value_at(&one, 0.0)), (Some(0.0), "adam".into()));
    assert_eq!(drawn_of(&one, &"sgd".into()), None);
    // A reader of JSON can return a neighbour of a listed number.
    let listed = ParameterRange::parse("choice(0.49723029136657715,1)").unwrap();
    assert_eq!(drawn_of(&listed, &0.497_230_291_366_577_1.into()), Some(0.0));
}

proptest! {
    #[test]
    fn proposals_are_in_their_ranges_whatever_the_results_are(
        seed: u64, trial in 1_u32..2000, count in 0_usize..40, scores in prop::collection::vec(prop::num::f64::ANY, 40),
        wrong in 0_usize..5,
    ) {
        let space = space(&[
            ("big", "uniform(-1e308,1e308)"), ("huge", "int(-9223372036854775808,9223372036854775807)"),
            ("lr", "log(1e-300,1e300)"), ("one", "choice(a)"), ("pick", "choice(a,1,true,0.5)"), ("small", "int(0,1)"),
        ]);
        let results: Vec<TrialResult> = (0..count).map(|index| {
            let mut parameters = space.draw(seed ^ 1, index as u32);
            // Records of another version can have other values.
            if index % 5 == wrong {
                parameters.insert("pick".to_owned(), Value::Null);
                parameters.insert("big".to_owned(), "text".into());
                parameters.insert("lr".to_owned(), (-1.0).into());
                parameters.remove("small");
            }
            TrialResult { parameters, score: scores[index] }
        }).collect();
        let proposed = propose(&space, seed, trial, &results, &[]);
        prop_assert_eq!(&proposed, &propose(&space, seed, trial, &results, &[]));
        prop_assert!((-1e308..=1e308).contains(&proposed["big"].as_f64().unwrap()));
        prop_assert!((1e-300..=1e300).contains(&proposed["lr"].as_f64().unwrap()));
        prop_assert!(proposed["huge"].is_i64() && [0, 1].contains(&proposed["small"].as_i64().unwrap()));
        prop_assert_eq!(&proposed["one"], &Value::from("a"));
        prop_assert!(space.ranges()["pick"].index_of(&proposed["pick"]).is_some());
    }
}
