//! The numbers beside an axis: multiples of 1, 2 and 5 times a power of ten, and powers of ten on a logarithmic axis.

use crate::numbers::{exponent_of, format_number, format_tick};

/// A labelled place of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisTick {
    /// The value.
    pub value: f64,
    /// The value as text, with the digits that the axis needs.
    pub label: String,
}

/// Returns at most `count_max` + 1 ticks from `low` to `high`, a whole number apart if `is_whole`.
pub(crate) fn linear_ticks(low: f64, high: f64, count_max: usize, is_whole: bool) -> Vec<AxisTick> {
    let count = count_max.max(1) as f64;
    // Halved, because the difference of two finite numbers can be infinite.
    let rough = (high / 2.0 - low / 2.0) / count * 2.0;
    let power = 10f64.powi(exponent_of(rough));
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    let step = if is_whole { (factor * power).max(1.0) } else { factor * power };
    let size_max = low.abs().max(high.abs());
    // Numbers that are closer than their precision have no multiples between them.
    if !(step.is_normal() && step > size_max * f64::EPSILON) {
        let label = |value| AxisTick { value, label: format_number(value) };
        return vec![label(low), label(high)];
    }
    let first = (low / step - 1e-9).ceil();
    let values =
        (0..=count_max).map(|index| (first + index as f64) * step).filter(|value| *value <= high + step * 1e-9);
    values.map(|value| AxisTick { value, label: format_tick(value, step, size_max) }).collect()
}

/// Returns the labelled and the unlabelled places of a logarithmic axis from `low`, above 0, to `high`.
pub(crate) fn log_ticks(low: f64, high: f64, count_max: usize) -> (Vec<AxisTick>, Vec<f64>) {
    let decades = high.log10() - low.log10();
    if decades < 1.0 {
        return (linear_ticks(low, high, count_max, false), Vec::new());
    }
    let (first, last) = (exponent_of(low), exponent_of(high));
    let is_inside = |value: &f64| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(value);
    let multiples = |factors: &'static [f64]| {
        (first..=last).flat_map(move |power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
    };
    let tick = |value: f64| AxisTick { value, label: format_number(value) };
    if decades <= 2.0 && count_max >= 4 {
        let minor = multiples(&[3.0, 4.0, 6.0, 7.0, 8.0, 9.0]).filter(is_inside).collect();
        return (multiples(&[1.0, 2.0, 5.0]).filter(is_inside).map(tick).collect(), minor);
    }
    let (count, count_max) = (last - first + 1, i32::try_from(count_max.max(1)).unwrap_or(i32::MAX));
    let stride = [1, 2, 3, 5, 10, 20, 50, 100].into_iter().find(|stride| count / stride <= count_max).unwrap_or(200);
    let powers = (first..=last).filter(|power| power.rem_euclid(stride) == 0);
    let major = powers.map(|power| 10f64.powi(power)).filter(is_inside).map(tick).collect();
    let is_dense = decades > 6.0;
    let minor = multiples(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]).filter(is_inside);
    (major, if is_dense { Vec::new() } else { minor.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[AxisTick]) -> String {
        ticks.iter().map(|tick| tick.label.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        for (low, high, count, expected) in [
            (0.0, 1.0, 5, "0 0.2 0.4 0.6 0.8 1.0"),
            (-0.3, 2.31, 6, "0 0.5 1.0 1.5 2.0"),
            (0.0, 0.00042, 5, "0 1e-4 2e-4 3e-4 4e-4"),
            (0.99991, 0.99995, 4, "0.99991 0.99992 0.99993 0.99994 0.99995"),
            (0.0, 23_456.0, 5, "0 5k 10k 15k 20k"),
            (-1e300, 1e300, 4, "-1.0e300 -5e299 0 5e299 1.0e300"),
            (-1.7e308, 1.7e308, 4, "-1e308 0 1e308"),
            (5.0, 5.0, 4, "5 5"),
        ] {
            assert_eq!(labels(&linear_ticks(low, high, count, false)), expected, "{low} {high}");
        }
    }

    #[test]
    fn ticks_of_steps_are_whole_numbers() {
        assert_eq!(labels(&linear_ticks(0.0, 3.0, 8, true)), "0 1 2 3");
        assert_eq!(labels(&linear_ticks(0.0, 100_000.0, 5, true)), "0 20k 40k 60k 80k 100k");
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_or_parts_of_them() {
        assert_eq!(labels(&log_ticks(0.003, 40.0, 8).0), "0.01 0.1 1 10");
        assert_eq!(labels(&log_ticks(0.02, 1.0, 8).0), "0.02 0.05 0.1 0.2 0.5 1");
        assert_eq!(labels(&log_ticks(2.0, 5.0, 4).0), "2 3 4 5");
        assert_eq!(labels(&log_ticks(1e-300, 1e300, 6).0), "1e-300 1e-200 1e-100 1 1e100 1e200 1e300");
    }
}
