//! Parallel coordinates: an axis for each parameter and one for the metric, on which each trial has a place.

use crate::axis::AxisScale;
use crate::label_text::clean_label;
use crate::numbers::format_number;
use crate::ticks::AxisTick;

/// Texts of an axis that are labelled.
const TEXTS_LABELLED_MAX: usize = 12;
/// The share of an axis' height below its lowest value, where trials without a value are.
const MISSING_SHARE: f64 = 0.12;

/// A chart of trials by their parameters and their metric.
#[derive(Clone, Debug, Default)]
pub struct ParallelChart {
    /// The title.
    pub title: String,
    /// The names of the parameters, in the order of their axes.
    pub parameters: Vec<String>,
    /// The name of the metric, the last axis.
    pub metric: String,
    /// Whether the lowest value of the metric is the best one.
    pub is_lowest_best: bool,
    /// The trials.
    pub trials: Vec<TrialLine>,
}

/// A trial: a line through all axes.
#[derive(Clone, Debug, Default)]
pub struct TrialLine {
    /// Its name, such as `trial 7`.
    pub name: String,
    /// Its parameters, one for each of the chart's.
    pub values: Vec<TrialValue>,
    /// The value of its metric. One that is not finite is missing.
    pub score: Option<f64>,
}

/// The value of a parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TrialValue {
    /// A number. One that is not finite is missing.
    Number(f64),
    /// A text, or another value as text.
    Text(String),
    /// The trial has no value.
    #[default]
    Missing,
}

impl TrialValue {
    /// Returns the value on an axis: `None` if it has no place there.
    fn known(&self) -> Option<&TrialValue> {
        match self {
            TrialValue::Number(number) if number.is_finite() => Some(self),
            TrialValue::Text(_) => Some(self),
            TrialValue::Number(_) | TrialValue::Missing => None,
        }
    }

    fn to_text(&self) -> String {
        match self {
            TrialValue::Number(number) => format_number(*number),
            TrialValue::Text(text) => clean_label(text),
            TrialValue::Missing => String::new(),
        }
    }
}

/// An axis of parallel coordinates.
#[derive(Clone, Debug)]
pub(crate) struct ParallelAxis {
    pub(crate) name: String,
    values: AxisValues,
    /// The share of the height that is kept for missing values.
    missing_share: f64,
}

#[derive(Clone, Debug)]
enum AxisValues {
    /// Different numbers.
    Numbers { scale: AxisScale, low: f64, high: f64 },
    /// Texts, sorted; or the only number.
    Texts(Vec<String>),
}

impl ParallelAxis {
    /// Returns the axis of some values. Different numbers over two or more powers of ten have a logarithmic axis.
    pub(crate) fn of_values(name: &str, values: &[TrialValue]) -> ParallelAxis {
        let known: Vec<&TrialValue> = values.iter().filter_map(TrialValue::known).collect();
        let numbers = known.iter().map(|value| match value {
            TrialValue::Number(number) => Some(*number),
            TrialValue::Text(_) | TrialValue::Missing => None,
        });
        let numbers: Option<Vec<f64>> = numbers.collect();
        let range = numbers.map(|numbers| {
            (numbers.iter().copied().fold(f64::MAX, f64::min), numbers.iter().copied().fold(f64::MIN, f64::max))
        });
        let values_of_axis = match range {
            Some((low, high)) if low < high => {
                let is_log = low > 0.0 && high / low >= 100.0;
                AxisValues::Numbers { scale: AxisScale::between(low, high, is_log), low, high }
            }
            _ => {
                let mut texts: Vec<String> = known.iter().map(|value| value.to_text()).collect();
                texts.sort_unstable();
                texts.dedup();
                AxisValues::Texts(texts)
            }
        };
        let missing_share = if known.len() < values.len() { MISSING_SHARE } else { 0.0 };
        ParallelAxis { name: clean_label(name), values: values_of_axis, missing_share }
    }

    /// Returns where a value is: 0 at the lower end, where missing values are if there are any, 1 at the upper end.
    pub(crate) fn place(&self, value: &TrialValue) -> f64 {
        let Some(known) = value.known() else { return 0.0 };
        let place = match (&self.values, known) {
            (AxisValues::Numbers { scale, .. }, TrialValue::Number(number)) => scale.place(*number),
            (AxisValues::Texts(texts), value) => place_of_text(texts, &value.to_text()),
            (AxisValues::Numbers { .. }, TrialValue::Text(_) | TrialValue::Missing) => 0.0,
        };
        self.missing_share + place * (1.0 - self.missing_share)
    }

    /// Returns the labels with their places.
    pub(crate) fn labels(&self) -> Vec<(String, f64)> {
        let lifted = |place: f64| self.missing_share + place * (1.0 - self.missing_share);
        let mut labels: Vec<(String, f64)> = match &self.values {
            AxisValues::Numbers { scale, low, high } => {
                let ends = [(format_number(*low), 0.0), (format_number(*high), 1.0)];
                let is_free = |place: &f64| (0.13..=0.87).contains(place);
                let place = |tick: AxisTick| (tick.label, scale.place(tick.value));
                let between = scale.ticks(4).0.into_iter().map(place).filter(|(_, place)| is_free(place));
                ends.into_iter().chain(between).map(|(text, place)| (text, lifted(place))).collect()
            }
            AxisValues::Texts(texts) => {
                let step = texts.len().div_ceil(TEXTS_LABELLED_MAX).max(1);
                let labelled = texts.iter().step_by(step);
                labelled.map(|text| (text.clone(), lifted(place_of_text(texts, text)))).collect()
            }
        };
        if self.missing_share > 0.0 {
            labels.push(("no value".to_owned(), 0.0));
        }
        labels
    }
}

fn place_of_text(texts: &[String], text: &str) -> f64 {
    match (texts.binary_search_by(|known| known.as_str().cmp(text)), texts.len()) {
        (Ok(index), count @ 2..) => index as f64 / (count - 1) as f64,
        _ => 0.5,
    }
}

impl ParallelChart {
    /// Returns how good a trial is among the others, from 0, the worst, to 1, the best; `None` without a score.
    pub(crate) fn quality(&self, metric: &ParallelAxis, trial: &TrialLine) -> Option<f64> {
        trial.score.filter(|score| score.is_finite()).map(|score| {
            let place = metric.place(&TrialValue::Number(score));
            if self.is_lowest_best { 1.0 - place } else { place }
        })
    }

    /// Returns the trial with the best score.
    pub(crate) fn best(&self) -> Option<usize> {
        let scored = self.trials.iter().enumerate();
        let scored = scored.filter_map(|(index, trial)| trial.score.filter(|it| it.is_finite()).map(|it| (index, it)));
        let better = |one: f64, other: f64| if self.is_lowest_best { one < other } else { one > other };
        scored.reduce(|best, next| if better(next.1, best.1) { next } else { best }).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: &[f64]) -> Vec<TrialValue> {
        values.iter().map(|value| TrialValue::Number(*value)).collect()
    }

    #[test]
    fn numbers_over_two_powers_of_ten_are_logarithmic() {
        let axis = ParallelAxis::of_values("lr", &numbers(&[1e-4, 1e-3, 1e-1]));
        assert!((axis.place(&TrialValue::Number(1e-3)) - 1.0 / 3.0).abs() < 1e-9);
        let axis = ParallelAxis::of_values("momentum", &numbers(&[0.0, 0.5, 1.0]));
        assert_eq!(axis.place(&TrialValue::Number(0.5)), 0.5);
    }

    #[test]
    fn values_of_any_kind_have_a_place_and_missing_ones_are_below() {
        let values = [TrialValue::Text("sgd".into()), TrialValue::Number(3.0), TrialValue::Text("adam".into())];
        let axis = ParallelAxis::of_values("optimizer", &values);
        assert_eq!(values.each_ref().map(|value| axis.place(value)), [1.0, 0.0, 0.5]);
        let with_missing =
            [TrialValue::Number(1.0), TrialValue::Number(f64::NAN), TrialValue::Missing, TrialValue::Number(2.0)];
        let axis = ParallelAxis::of_values("x", &with_missing);
        assert_eq!(with_missing.each_ref().map(|value| axis.place(value)), [MISSING_SHARE, 0.0, 0.0, 1.0]);
        assert!(axis.labels().contains(&("no value".to_owned(), 0.0)));
        assert_eq!(ParallelAxis::of_values("x", &numbers(&[5.0, 5.0])).labels(), [("5".to_owned(), 0.5)]);
        assert!(ParallelAxis::of_values("x", &[]).labels().is_empty());
    }

    #[test]
    fn the_best_trial_follows_the_direction() {
        let trial = |score| TrialLine { score, ..TrialLine::default() };
        let trials = vec![trial(None), trial(Some(0.5)), trial(Some(f64::NAN)), trial(Some(0.9))];
        let mut chart = ParallelChart { trials, ..ParallelChart::default() };
        assert_eq!(chart.best(), Some(3));
        chart.is_lowest_best = true;
        assert_eq!(chart.best(), Some(1));
    }
}
