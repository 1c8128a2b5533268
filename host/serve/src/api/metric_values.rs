//! Metric values in JSON, which represents neither infinities nor NaN.

use std::collections::BTreeMap;

/// Returns the value, or `None` if it is infinite or NaN.
pub(super) fn finite_value(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Returns the values by name, with `None` for those that are infinite or NaN.
pub(super) fn finite_metrics(metrics: &BTreeMap<String, f64>) -> BTreeMap<String, Option<f64>> {
    metrics.iter().map(|(name, value)| (name.clone(), finite_value(*value))).collect()
}
