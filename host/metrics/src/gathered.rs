//! The present values of families, for the history.

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::proto::MetricType;

use crate::MetricsRegistry;

/// A series of a family: its label values in the family's order, and its value.
type LabelledValue = (Vec<String>, f64);

/// Returns the present values of a family of gauges or counters. Label values are in the order of `labels`.
fn values_of(family: &impl Collector, labels: &[&str]) -> Vec<LabelledValue> {
    let collected = family.collect();
    let metrics = collected.iter().flat_map(|family| {
        let is_counter = family.get_field_type() == MetricType::COUNTER;
        family.get_metric().iter().map(move |metric| (metric, is_counter))
    });
    metrics
        .map(|(metric, is_counter)| {
            let of_label = |name: &&str| {
                let found = metric.get_label().iter().find(|label| label.name() == *name);
                found.map(|label| label.value().to_owned()).unwrap_or_default()
            };
            let value = if is_counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
            (labels.iter().map(of_label).collect(), value)
        })
        .collect()
}

/// Adds the values of the series that have the same first label.
fn summed_by_first_label(values: Vec<LabelledValue>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in values {
        *sums.entry(labels.into_iter().next().unwrap_or_default()).or_default() += value;
    }
    sums
}

impl MetricsRegistry {
    /// Returns the predictions that wait for their batch, by model.
    pub fn queued_predictions(&self) -> BTreeMap<String, f64> {
        summed_by_first_label(values_of(&self.families.predict_queue_length, &["model"]))
    }

    /// Returns the seconds that each device worked.
    pub fn device_busy_seconds(&self) -> BTreeMap<String, f64> {
        summed_by_first_label(values_of(&self.families.device_busy_seconds, &["device"]))
    }

    /// Returns the device bytes that models hold, by device.
    pub fn model_memory_bytes(&self) -> BTreeMap<String, f64> {
        summed_by_first_label(values_of(&self.families.device_memory, &["device"]))
    }

    /// Returns the device bytes that jobs hold, by device and job.
    pub fn job_memory_bytes(&self) -> BTreeMap<(String, String), f64> {
        let values = values_of(&self.families.job_gpu_memory, &["device", "job"]);
        let pair = |labels: Vec<String>| {
            let mut labels = labels.into_iter();
            (labels.next().unwrap_or_default(), labels.next().unwrap_or_default())
        };
        values.into_iter().map(|(labels, value)| (pair(labels), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_model_or_device_are_added() {
        let metrics = MetricsRegistry::new();
        let families = &metrics.families;
        families.predict_queue_length.with_label_values(&["digits", "1"]).set(2);
        families.predict_queue_length.with_label_values(&["digits", "2"]).set(3);
        families.device_busy_seconds.with_label_values(&["cpu"]).inc_by(1.5);
        families.device_memory.with_label_values(&["cpu", "models"]).set(4096.0);
        families.job_gpu_memory.with_label_values(&["digits-1", "cpu"]).set(64.0);
        let one = |name: &str, value: f64| BTreeMap::from([(name.to_owned(), value)]);
        assert_eq!(metrics.queued_predictions(), one("digits", 5.0));
        assert_eq!(metrics.device_busy_seconds(), one("cpu", 1.5));
        assert_eq!(metrics.model_memory_bytes(), one("cpu", 4096.0));
        assert_eq!(metrics.job_memory_bytes(), BTreeMap::from([(("cpu".to_owned(), "digits-1".to_owned()), 64.0)]));
    }
}
