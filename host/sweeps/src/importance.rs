//! The importance of parameters: how strongly each one and the metric are related over the trials.
//!
//! The measure is Spearman's rank correlation (Spearman 1904, "The Proof and Measurement of Association between Two
//! Things"), with mean ranks for equal values, because it does not depend on the scale of a parameter: the ranks of a
//! learning rate and of its logarithm are the same. For parameters that are no numbers it is the correlation ratio of the
//! metric's ranks (Pearson 1905): the root of the share of their variance that lies between the parameter's values. Both
//! are from 0, unrelated, to 1. They show no interaction of parameters, and no relation that rises and falls equally.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Minimum number of trials with a finite value; fewer show nothing.
const TRIALS_MIN: usize = 4;

/// The importance of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterImportance {
    /// The parameter.
    pub parameter: String,
    /// From 0, unrelated to the metric, to 1.
    pub importance: f64,
    /// Spearman's rank correlation of the parameter with the metric's value, from -1 to 1; `None` if it is no number.
    pub correlation: Option<f64>,
}

/// Returns the importance of each parameter, the most important first, from the parameters and the metric's value of
/// each trial. Trials without a finite value are ignored. Empty if fewer than four are left.
pub fn parameter_importance(trials: &[(Map<String, Value>, f64)]) -> Vec<ParameterImportance> {
    let trials: Vec<&(Map<String, Value>, f64)> = trials.iter().filter(|(_, value)| value.is_finite()).collect();
    if trials.len() < TRIALS_MIN {
        return Vec::new();
    }
    let values: Vec<f64> = trials.iter().map(|(_, value)| *value).collect();
    let ranks = mean_ranks(&values);
    let mut found: Vec<ParameterImportance> = Vec::new();
    for parameter in trials[0].0.keys() {
        let column: Vec<&Value> =
            trials.iter().map(|(chosen, _)| chosen.get(parameter).unwrap_or(&Value::Null)).collect();
        let numbers: Option<Vec<f64>> = column.iter().map(|value| value.as_f64()).collect();
        let correlation = numbers.map(|numbers| correlation(&mean_ranks(&numbers), &ranks));
        let importance = correlation.map_or_else(|| correlation_ratio(&column, &ranks), f64::abs);
        found.push(ParameterImportance { parameter: parameter.clone(), importance, correlation });
    }
    found.sort_by(|one, other| other.importance.total_cmp(&one.importance));
    found
}

/// Returns the rank of each value, from 1; equal values have the mean of their ranks.
fn mean_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let equal = order[start..].iter().take_while(|index| values[**index] == values[order[start]]).count().max(1);
        for index in &order[start..start + equal] {
            ranks[*index] = start as f64 + (equal as f64 + 1.0) / 2.0;
        }
        start += equal;
    }
    ranks
}

/// Returns Pearson's correlation, or 0 if one side does not vary.
fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let (one_mean, other_mean) = (mean(one), mean(other));
    let sum = |pair: fn(f64, f64) -> f64| -> f64 {
        one.iter().zip(other).map(|(one, other)| pair(one - one_mean, other - other_mean)).sum()
    };
    let (both, first, second) = (sum(|a, b| a * b), sum(|a, _| a * a), sum(|_, b| b * b));
    if first == 0.0 || second == 0.0 { 0.0 } else { both / (first * second).sqrt() }
}

/// Returns the correlation ratio of `ranks` over the groups of equal values, or 0 if the ranks do not vary.
fn correlation_ratio(column: &[&Value], ranks: &[f64]) -> f64 {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    column.iter().zip(ranks).for_each(|(value, rank)| groups.entry(value.to_string()).or_default().push(*rank));
    let whole = mean(ranks);
    let total: f64 = ranks.iter().map(|rank| (rank - whole).powi(2)).sum();
    let between: f64 = groups.values().map(|group| group.len() as f64 * (mean(group) - whole).powi(2)).sum();
    if total == 0.0 { 0.0 } else { (between / total).sqrt() }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trials(rows: &[(Value, f64)]) -> Vec<(Map<String, Value>, f64)> {
        rows.iter().map(|(chosen, value)| (chosen.as_object().cloned().unwrap(), *value)).collect()
    }

    #[test]
    fn a_monotonic_parameter_is_more_important_than_an_unrelated_one() {
        let rows: Vec<(Value, f64)> = (1..=16)
            .map(|n| (json!({"lr": f64::from(n).exp(), "noise": n * 7 % 16, "same": 1}), -f64::from(n * n)))
            .collect();
        let found = parameter_importance(&trials(&rows));
        assert_eq!(found[0].parameter, "lr");
        assert!((found[0].importance - 1.0).abs() < 1e-12 && (found[0].correlation.unwrap() + 1.0).abs() < 1e-12);
        assert!(found[1].importance < 0.5, "{found:?}");
        assert_eq!((found[2].parameter.as_str(), found[2].importance), ("same", 0.0));
    }

    #[test]
    fn the_importance_of_names_is_a_correlation_ratio() {
        let name = |name: &str, value: f64| (json!({"kind": name}), value);
        let rows = [name("a", 1.0), name("a", 2.0), name("b", 3.0), name("b", 4.0)];
        let found = parameter_importance(&trials(&rows));
        // Ranks 1 to 4: the groups' means are 1.5 and 3.5, so 4 of the total of 5 lie between them.
        assert!((found[0].importance - (4.0_f64 / 5.0).sqrt()).abs() < 1e-12, "{found:?}");
        assert_eq!(found[0].correlation, None);
    }

    #[test]
    fn equal_values_have_their_mean_rank_and_few_trials_show_nothing() {
        assert_eq!(mean_ranks(&[2.0, 1.0, 2.0, 3.0]), [2.5, 1.0, 2.5, 4.0]);
        let rows: Vec<(Value, f64)> = (0..8).map(|n| (json!({"lr": n}), if n < 3 { 1.0 } else { f64::NAN })).collect();
        assert!(parameter_importance(&trials(&rows)).is_empty());
    }
}
