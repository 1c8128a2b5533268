//! A confidence interval for the ratio of two means, by the bootstrap.

use super::counter_random::CounterRandom;

/// How often both series are resampled.
const RESAMPLES: usize = 4000;
/// The share of resampled ratios in the interval.
pub(super) const CONFIDENCE: f64 = 0.95;
/// The fewest samples of each series for an interval.
pub(super) const SAMPLES_MIN: usize = 3;
/// The method, for people and documents.
pub(super) const METHOD: &str = "percentile bootstrap of the ratio of means (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13)";

/// The ratio of two means, and an interval for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RatioEstimate {
    /// The mean of the second series divided by that of the first.
    pub(super) ratio: f64,
    /// The ends of the interval, or `None` if a series has fewer than [`SAMPLES_MIN`] samples.
    pub(super) interval: Option<[f64; 2]>,
}

/// Returns the mean; NaN if there are no samples.
pub(super) fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Estimates the mean of `after` divided by the mean of `before`. Samples are drawn with replacement from each series;
/// `seed` determines which. Returns `None` if a series is empty or the mean of `before` is 0.
pub(super) fn estimate_ratio(before: &[f64], after: &[f64], seed: u64) -> Option<RatioEstimate> {
    let ratio = mean(after) / mean(before);
    if !ratio.is_finite() {
        return None;
    }
    if before.len() < SAMPLES_MIN || after.len() < SAMPLES_MIN {
        return Some(RatioEstimate { ratio, interval: None });
    }
    let mut random = CounterRandom::new(seed, 0);
    let mut resampled_mean = |samples: &[f64]| {
        samples.iter().map(|_| samples[random.next_below(samples.len())]).sum::<f64>() / samples.len() as f64
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| resampled_mean(after) / resampled_mean(before)).collect();
    // A resample of zeros alone has no ratio; it counts as infinitely large.
    ratios.iter_mut().filter(|ratio| ratio.is_nan()).for_each(|ratio| *ratio = f64::INFINITY);
    Some(RatioEstimate { ratio, interval: Some(central_interval(ratios)) })
}

/// Returns the ends of the central [`CONFIDENCE`] of `values`, which are not empty.
pub(super) fn central_interval(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    [at((1.0 - CONFIDENCE) / 2.0), at((1.0 + CONFIDENCE) / 2.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `count` samples around `mean`, spread evenly by up to `spread` of it.
    fn samples(mean: f64, spread: f64, count: usize) -> Vec<f64> {
        let at = |index: usize| (index as f64 + 0.5) / count as f64 * 2.0 - 1.0;
        (0..count).map(|index| mean * (1.0 + spread * at(index * 7 % count))).collect()
    }

    #[test]
    fn the_interval_contains_the_ratio_and_narrows_with_more_samples() {
        let width = |count| {
            let (before, after) = (samples(100.0, 0.1, count), samples(90.0, 0.1, count));
            let estimate = estimate_ratio(&before, &after, 1).unwrap();
            let [low, high] = estimate.interval.unwrap();
            assert!((estimate.ratio - 0.9).abs() < 1e-9 && low < 0.9 && 0.9 < high, "{estimate:?}");
            high - low
        };
        let (few, many) = (width(5), width(80));
        // The width is proportional to one over the root of the number of samples: four times here.
        assert!((3.0..5.5).contains(&(few / many)), "{few} {many}");
        // A normal interval of the ratio: 1.96 * 0.9 * sqrt(2 / 80) * 0.1 / sqrt(3) on either side.
        let normal = 2.0 * 1.96 * 0.9 * (2.0f64 / 80.0).sqrt() * 0.1 / 3.0f64.sqrt();
        assert!((many / normal - 1.0).abs() < 0.1, "{many} {normal}");
    }

    #[test]
    fn equal_seeds_give_equal_intervals() {
        let (before, after) = (samples(1.0, 0.5, 9), samples(1.0, 0.5, 7));
        assert_eq!(estimate_ratio(&before, &after, 5), estimate_ratio(&before, &after, 5));
        assert_ne!(estimate_ratio(&before, &after, 5), estimate_ratio(&before, &after, 6));
    }

    #[test]
    fn few_samples_have_no_interval() {
        assert_eq!(estimate_ratio(&[2.0], &[4.0], 1), Some(RatioEstimate { ratio: 2.0, interval: None }));
        assert_eq!(estimate_ratio(&[], &[4.0], 1), None);
        assert_eq!(estimate_ratio(&[0.0; 4], &[4.0; 4], 1), None);
    }
}
