//! The parameters of a copy in a population: those of its parent, each perturbed or drawn from its range. Source: Jaderberg
//! et al. 2017, "Population Based Training of Neural Networks", section 3, function `explore`, with both of its variants:
//! a parameter is resampled with a probability, and else multiplied by a factor.
//!
//! The result is a pure function of the seed, the number of the copy and the parent's parameters. Random numbers are
//! counter-based, as those of [`SearchSpace::draw`].

use saggar_tensor::interp::philox4x32_10;
use serde_json::{Map, Value};

use crate::limits::PERTURBATIONS_MAX;
use crate::space::{ParameterRange, SearchSpace, unit_interval};
use crate::spec::PopulationSettings;

/// The last word of the counter; [`SearchSpace::draw`] has 0 and the estimator of `tpe` has 1.
const DOMAIN: u32 = 2;
/// The second word of the counter for the selection of a parent, which no parameter has.
const PARENT: u32 = u32::MAX;

/// Returns which of `count` candidates is the parent of the copy with this number. `count` is not 0.
pub(crate) fn draw_parent(seed: u64, copy: u32, count: usize) -> usize {
    let [high, low, ..] = philox4x32_10([copy, PARENT, 0, DOMAIN], key(seed));
    ((unit_interval(high, low) * count as f64) as usize).min(count - 1)
}

/// Returns the parameters of the copy with this number.
///
/// `siblings` are the parameters with which other trials continue from the same state: to train with one of them would only
/// repeat that trial. Of several draws, the first that is not among them is the result, or the first one if all are.
pub(crate) fn perturb(
    space: &SearchSpace,
    settings: &PopulationSettings,
    (seed, copy): (u64, u32),
    parent: &Map<String, Value>,
    siblings: &[Map<String, Value>],
) -> Map<String, Value> {
    let draw = |attempt: u32| -> Map<String, Value> {
        let one = |(index, (name, range)): (usize, (&String, &ParameterRange))| {
            let [chance, choice, high, low] = philox4x32_10([copy, index as u32, attempt, DOMAIN], key(seed));
            let factor = ((unit_interval(choice, 0) * settings.perturb_factors.len() as f64) as usize)
                .min(settings.perturb_factors.len() - 1);
            let value = match parent.get(name) {
                Some(value) if unit_interval(chance, 0) >= settings.resample_probability => {
                    scaled(range, value, settings.perturb_factors[factor])
                }
                _ => range.at(unit_interval(high, low)),
            };
            (name.clone(), value)
        };
        space.ranges().iter().enumerate().map(one).collect()
    };
    let first = draw(0);
    if !siblings.contains(&first) {
        return first;
    }
    (1..PERTURBATIONS_MAX).map(draw).find(|drawn| !siblings.contains(drawn)).unwrap_or(first)
}

fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// Returns a neighbour of a value: the product with the factor within the range, and at least the next whole number; of
/// listed numbers the next larger or smaller one. Other listed values have no order and stay.
fn scaled(range: &ParameterRange, value: &Value, factor: f64) -> Value {
    let Some(number) = value.as_f64() else { return value.clone() };
    match range {
        ParameterRange::Log { .. } | ParameterRange::Uniform { .. } => range.nearest(number * factor),
        ParameterRange::Int { .. } if (number * factor).round() == number => {
            let by = if factor > 1.0 { 1.0 } else { -1.0 };
            range.nearest(if factor == 1.0 { number } else { number + by })
        }
        ParameterRange::Int { .. } => range.nearest(number * factor),
        ParameterRange::Choice(values) => {
            let numbers: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
            let Some(numbers) = numbers else { return value.clone() };
            let is_beyond = |other: f64| if factor < 1.0 { other < number } else { other > number };
            let beyond = numbers.iter().enumerate().filter(|(_, other)| is_beyond(**other));
            let nearest = beyond.min_by(|one, other| (one.1 - number).abs().total_cmp(&(other.1 - number).abs()));
            nearest.map_or_else(|| value.clone(), |(index, _)| values[index].clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn space(ranges: &[(&str, &str)]) -> SearchSpace {
        let ranges: BTreeMap<String, String> =
            ranges.iter().map(|(name, range)| ((*name).to_owned(), (*range).to_owned())).collect();
        SearchSpace::parse(&ranges).unwrap()
    }

    fn settings(resample_probability: f64) -> PopulationSettings {
        PopulationSettings {
            generations: 4,
            exploit_quantile: 0.2,
            perturb_factors: vec![0.8, 1.2],
            resample_probability,
        }
    }

    #[test]
    fn numbers_are_multiplied_within_their_range_and_names_stay() {
        let of =
            |range: &str, value: Value, factor: f64| scaled(&ParameterRange::parse(range).unwrap(), &value, factor);
        for (range, value, factor, expected) in [
            ("log(1e-4,1)", json!(0.01), 0.8, json!(0.008)),
            ("log(1e-4,1)", json!(0.01), 1.2, json!(0.012)),
            ("log(1e-4,1)", json!(0.9), 1.2, json!(1.0)),
            ("uniform(-2,2)", json!(-1.0), 1.2, json!(-1.2)),
            ("uniform(-2,2)", json!(0.0), 1.2, json!(0.0)),
            ("int(1,100)", json!(50), 0.8, json!(40)),
            ("int(1,100)", json!(2), 1.2, json!(3)),
            ("int(1,100)", json!(2), 0.8, json!(1)),
            ("int(1,100)", json!(1), 0.8, json!(1)),
            ("int(1,100)", json!(2), 1.0, json!(2)),
            ("64,8,32", json!(8), 1.2, json!(32)),
            ("64,8,32", json!(64), 1.2, json!(64)),
            ("64,8,32", json!(64), 0.8, json!(32)),
            ("choice(sgd,adam)", json!("sgd"), 1.2, json!("sgd")),
            ("true,false", json!(true), 0.8, json!(true)),
        ] {
            assert_eq!(of(range, value.clone(), factor), expected, "{range} {value} {factor}");
        }
    }

    #[test]
    fn a_parameter_is_resampled_with_its_probability() {
        let space = space(&[("kind", "choice(a,b,c,d)"), ("lr", "log(1e-4,1)")]);
        let parent = json!({"kind": "a", "lr": 0.01}).as_object().cloned().unwrap();
        let copies = |probability: f64| {
            (1..400).map(|copy| perturb(&space, &settings(probability), (7, copy), &parent, &[])).collect::<Vec<_>>()
        };
        for copy in copies(0.0) {
            assert_eq!(copy["kind"], "a");
            assert!(copy["lr"] == 0.008 || copy["lr"] == 0.012, "{copy:?}");
        }
        let resampled = copies(0.25).iter().filter(|copy| copy["lr"] != 0.008 && copy["lr"] != 0.012).count();
        assert!((60..140).contains(&resampled), "{resampled} of 399, about a quarter");
        assert!(copies(1.0).iter().any(|copy| copy["kind"] == "d"));
        assert_eq!(copies(0.25), copies(0.25));
    }

    #[test]
    fn a_copy_does_not_repeat_its_parent_while_the_range_has_another_value() {
        let space = space(&[("lr", "log(1e-4,1)")]);
        let parent = json!({"lr": 1.0}).as_object().cloned().unwrap();
        let mut siblings = vec![parent.clone()];
        for copy in 1..200 {
            let drawn = perturb(&space, &settings(0.0), (3, copy), &parent, &siblings[..1]);
            assert_eq!(drawn["lr"], 0.8, "the other factor leads beyond the range");
        }
        siblings.push(json!({"lr": 0.8}).as_object().cloned().unwrap());
        let drawn = perturb(&space, &settings(0.25), (3, 1), &parent, &siblings);
        assert!(!siblings.contains(&drawn), "{drawn:?}");
    }

    #[test]
    fn each_candidate_can_be_the_parent() {
        let drawn: std::collections::BTreeSet<usize> = (1..200).map(|copy| draw_parent(5, copy, 4)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!((1..100).all(|copy| draw_parent(5, copy, 1) == 0));
    }
}
