//! The range of an axis, linear or logarithmic.

use crate::ticks::{AxisTick, linear_ticks, log_ticks};

/// The share of the range that stays free beside the extremes.
const MARGIN: f64 = 0.05;

/// The values at the two ends of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisScale {
    low: f64,
    high: f64,
    is_log: bool,
    is_whole: bool,
}

impl AxisScale {
    /// Returns the axis of values, with a margin. Without values it is from 0 to 1, on a logarithmic scale from 0.1
    /// to 1. On a logarithmic scale only values above 0 must be given.
    pub(crate) fn of_values(values: impl Iterator<Item = f64>, is_log: bool) -> AxisScale {
        let Some((low, high)) = extremes(values) else {
            return AxisScale { low: if is_log { 0.1 } else { 0.0 }, high: 1.0, is_log, is_whole: false };
        };
        let (low, high) = if is_log { widen_log(low, high) } else { widen(low, high) };
        AxisScale { low, high, is_log, is_whole: false }
    }

    /// Returns the axis of steps, from the first to the last one.
    pub(crate) fn of_steps(steps: impl Iterator<Item = f64>) -> AxisScale {
        let (low, high) = extremes(steps).unwrap_or((0.0, 1.0));
        let (low, high) = if low == high { ((low - 1.0).max(0.0), high + 1.0) } else { (low, high) };
        AxisScale { low, high, is_log: false, is_whole: true }
    }

    /// Returns the axis from the lowest to the highest value, without a margin. `low` is below `high`.
    pub fn between(low: f64, high: f64, is_log: bool) -> AxisScale {
        AxisScale { low, high, is_log, is_whole: false }
    }

    /// Returns where a value is: 0 at the lower end, 1 at the upper end.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.is_log {
            true => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
            // Halved, because the difference of two finite numbers can be infinite.
            false => (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Returns whether a value is within the axis.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the labelled places, and the others that have a line.
    pub fn ticks(&self, count_max: usize) -> (Vec<AxisTick>, Vec<f64>) {
        match self.is_log {
            true => log_ticks(self.low, self.high, count_max),
            false => (linear_ticks(self.low, self.high, count_max, self.is_whole), Vec::new()),
        }
    }
}

fn extremes(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

fn widen(low: f64, high: f64) -> (f64, f64) {
    if low == high {
        let by = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
        return (bounded(low - by), bounded(high + by));
    }
    let margin = (high / 2.0 - low / 2.0) * 2.0 * MARGIN;
    let below = bounded(low - margin);
    // Values that are never negative have no axis below 0.
    (if low >= 0.0 && below < 0.0 { 0.0 } else { below }, bounded(high + margin))
}

fn widen_log(low: f64, high: f64) -> (f64, f64) {
    let factor = if low == high { 2.0 } else { ((high.ln() - low.ln()) * MARGIN).exp() };
    ((low / factor).max(f64::from_bits(1)), bounded(high * factor))
}

fn bounded(value: f64) -> f64 {
    value.clamp(f64::MIN, f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_axis_for_every_finite_range() {
        for (values, is_log) in [
            (vec![0.0, 1.0], false),
            (vec![5.0], false),
            (vec![0.0], false),
            (vec![f64::MIN, f64::MAX], false),
            (vec![f64::MIN_POSITIVE, f64::MAX], true),
            (vec![3.0], true),
            (vec![], true),
        ] {
            let scale = AxisScale::of_values(values.iter().copied(), is_log);
            for value in values {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{scale:?} {value}");
            }
            assert!(!scale.ticks(6).0.is_empty(), "{scale:?}");
        }
    }

    #[test]
    fn an_axis_of_values_above_zero_does_not_go_below() {
        assert_eq!(AxisScale::of_values([0.01, 2.0].into_iter(), false).place(0.0), 0.0);
        assert_eq!(AxisScale::of_steps([7.0].into_iter()).place(7.0), 0.5);
    }
}
