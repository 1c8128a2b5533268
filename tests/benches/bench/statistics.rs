//! Medians, percentiles and slopes of a few numbers.

/// Returns the median; NaN if there are no values.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    percentile(values, 50.0)
}

/// Returns the value that `percent` percent of all values do not exceed; NaN if there are no values.
pub(crate) fn percentile(mut values: Vec<f64>, percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Returns the growth of `y` per index: the slope of the least-squares line.
pub(crate) fn slope(y: &[f64]) -> f64 {
    let n = y.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, y.iter().sum::<f64>() / n);
    let around = |at: usize| at as f64 - mean_x;
    let covariance: f64 = y.iter().enumerate().map(|(at, y)| around(at) * (y - mean_y)).sum();
    covariance / (0..y.len()).map(|at| around(at).powi(2)).sum::<f64>()
}
