//! The vertical range of a panel: automatic without outliers, automatic with every value, or set by keys and flags.

/// The share of values that can be outliers.
const OUTLIER_SHARE: f64 = 0.02;
/// Minimum values of a series among which outliers are looked for.
const VALUES_MIN: usize = 10;
/// A value this many times the spread of the others away from them is an outlier.
const FENCE: f64 = 3.0;
/// This many values in a row are no outliers.
const RUN_MIN: usize = 3;
/// The share of the range that stays free beside the extremes.
const MARGIN: f64 = 0.05;
/// The share of the range by which a key pans.
const PAN_SHARE: f64 = 0.2;

/// How a panel's range is chosen. A bound that is set wins over the automatic one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RangeSetting {
    /// The lower bound.
    pub low: Option<f64>,
    /// The upper bound.
    pub high: Option<f64>,
    /// Whether the automatic range has every value, outliers included.
    pub has_outliers: bool,
}

/// The lowest and the highest value that a panel shows. `low` is below `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl RangeSetting {
    /// Returns the range of some series, each with its values by rising time.
    pub fn resolve(&self, series: &[Vec<f64>]) -> ValueRange {
        let automatic = automatic_range(series, self.has_outliers);
        let (low, high) = (self.low.unwrap_or(automatic.low), self.high.unwrap_or(automatic.high));
        if low < high {
            return ValueRange { low, high };
        }
        // One bound is set, beyond every value.
        let width = (automatic.high - automatic.low).max(f64::MIN_POSITIVE);
        match (self.low, self.high) {
            (None, Some(high)) => ValueRange { low: high - width, high },
            _ => ValueRange { low, high: low + width },
        }
    }

    /// Sets the range that is a share of `range` higher or, if `steps` is negative, lower.
    pub fn pan(&mut self, range: ValueRange, steps: f64) {
        let by = (range.high - range.low) * PAN_SHARE * steps;
        self.set(range.low + by, range.high + by);
    }

    /// Sets the range to a multiple of `range` with the same centre.
    pub fn zoom(&mut self, range: ValueRange, factor: f64) {
        let (centre, half) = (range.low / 2.0 + range.high / 2.0, (range.high / 2.0 - range.low / 2.0) * factor);
        self.set(centre - half, centre + half);
    }

    fn set(&mut self, low: f64, high: f64) {
        // A range of which nothing is left, or without an end, stays as it is.
        if low.is_finite() && high.is_finite() && high - low > low.abs().max(high.abs()) * f64::EPSILON * 16.0 {
            (self.low, self.high) = (Some(low), Some(high));
        }
    }
}

/// Returns the range of the values, with a margin. Without values it is from 0 to 1.
fn automatic_range(series: &[Vec<f64>], has_outliers: bool) -> ValueRange {
    let mut extremes: Option<(f64, f64)> = None;
    for values in series {
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let fence = if has_outliers { None } else { outlier_fence(&finite) };
        for value in finite {
            if fence.is_some_and(|(low, high)| value < low || value > high) {
                continue;
            }
            let (low, high) = extremes.unwrap_or((value, value));
            extremes = Some((low.min(value), high.max(value)));
        }
    }
    let Some((low, high)) = extremes else { return ValueRange { low: 0.0, high: 1.0 } };
    if low == high {
        let by = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
        // Values that are never negative have no axis below 0.
        return ValueRange { low: if low >= 0.0 { (low - by).max(0.0) } else { low - by }, high: high + by };
    }
    let margin = (high - low) * MARGIN;
    let below = low - margin;
    ValueRange { low: if low >= 0.0 && below < 0.0 { 0.0 } else { below }, high: high + margin }
}

/// Returns the bounds beyond which values are outliers, or `None` without outliers. Outliers are few, each alone or beside
/// one other, and far from all others. Several in a row, such as a load that began, are no outliers.
fn outlier_fence(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < VALUES_MIN {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let few = ((values.len() as f64 * OUTLIER_SHARE) as usize).max(1);
    let (low, high) = (sorted[few], sorted[sorted.len() - 1 - few]);
    // Values that are all equal have no spread.
    let spread = (high - low).max(low.abs().max(high.abs()));
    let fence = (low - FENCE * spread, high + FENCE * spread);
    let is_outside = |value: &f64| *value < fence.0 || *value > fence.1;
    let longest = values.chunk_by(|one, other| is_outside(one) == is_outside(other)).filter(|run| is_outside(&run[0]));
    let is_row = longest.map(<[f64]>::len).max().is_some_and(|length| length >= RUN_MIN);
    let count = values.iter().filter(|value| is_outside(value)).count();
    (!is_row && (1..=few * 2).contains(&count)).then_some(fence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave() -> Vec<f64> {
        (0..100).map(|at| 1.0 + f64::from(at % 7) / 10.0).collect()
    }

    fn automatic(values: &[f64]) -> ValueRange {
        RangeSetting::default().resolve(&[values.to_vec()])
    }

    #[test]
    fn one_outlier_of_100_times_the_values_does_not_change_the_range_unless_asked() {
        let calm = automatic(&wave());
        for at in [0, 50, 99] {
            let mut values = wave();
            values[at] = 130.0;
            assert_eq!(automatic(&values), calm, "{at}");
            let full = RangeSetting { has_outliers: true, ..RangeSetting::default() }.resolve(&[values]);
            assert!(full.high > 130.0, "{full:?}");
        }
        let mut constant = vec![5.0; 20];
        constant[7] = 500.0;
        assert!(automatic(&constant).high < 6.0);
    }

    #[test]
    fn loads_that_begin_and_falling_losses_are_no_outliers() {
        let mut requests = vec![0.0; 1800];
        requests[1700..].fill(300.0);
        assert!(automatic(&requests).high > 300.0);
        requests[1703..].fill(0.0);
        assert!(automatic(&requests).high > 300.0, "three in a row");
        let loss: Vec<f64> = (0..500).map(|step| 2.3 * (-f64::from(step) / 40.0).exp() + 0.02).collect();
        assert!(automatic(&loss).high > 2.3);
        assert!(automatic(&[1.0, 100.0, 1.0]).high > 100.0, "too few to know");
    }

    #[test]
    fn keys_pan_by_a_fifth_and_halve_or_double() {
        let mut setting = RangeSetting::default();
        let range = ValueRange { low: 0.0, high: 10.0 };
        setting.pan(range, 1.0);
        assert_eq!((setting.low, setting.high), (Some(2.0), Some(12.0)));
        setting.pan(range, -2.0);
        assert_eq!((setting.low, setting.high), (Some(-4.0), Some(6.0)));
        setting.zoom(range, 0.5);
        assert_eq!(setting.resolve(&[wave()]), ValueRange { low: 2.5, high: 7.5 });
        setting.zoom(range, 2.0);
        assert_eq!((setting.low, setting.high), (Some(-5.0), Some(15.0)));
        setting.zoom(ValueRange { low: 1.0, high: 1.0 + f64::EPSILON }, 0.5);
        assert_eq!(setting.low, Some(-5.0), "a range of nothing is refused");
    }

    #[test]
    fn a_set_bound_wins_and_no_range_is_empty() {
        let only_high = RangeSetting { high: Some(0.5), ..RangeSetting::default() };
        let range = only_high.resolve(&[wave()]);
        assert!(range.high == 0.5 && range.low < 0.5);
        let only_low = RangeSetting { low: Some(1.2), ..RangeSetting::default() };
        assert_eq!(only_low.resolve(&[wave()]).low, 1.2);
        assert_eq!(automatic(&[]), ValueRange { low: 0.0, high: 1.0 });
        assert_eq!(automatic(&[0.0, 0.0, f64::NAN]), ValueRange { low: 0.0, high: 1.0 });
    }
}
