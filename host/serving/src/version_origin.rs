//! The origin of a version: its plugin, its weights, and the job that published it.

use std::collections::BTreeMap;

use saggar_store::digest::Digest;

/// Number of measurements in a summary.
const MEASUREMENTS_SHOWN: usize = 3;

/// The origin of a version as recorded in its manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionOrigin {
    /// Digest of the plugin.
    pub plugin: Digest,
    /// Digest of the weights.
    pub weights: Digest,
    /// Time of publication in milliseconds since 1970.
    pub created_ms: u64,
    /// The job that published it, or empty.
    pub source_job: String,
    /// The latest value of each of the job's metric series at publication.
    pub metrics: BTreeMap<String, f64>,
}

impl VersionOrigin {
    /// Returns the most important measurements as text for people: accuracies, then losses, then others, in each group
    /// those on held-out data first. Returns an empty string if there are no measurements.
    pub fn summarize_metrics(&self) -> String {
        let mut metrics: Vec<(&String, &f64)> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| (!is_accuracy(name), !name.contains("loss"), !is_held_out(name)));
        let first_metrics = metrics.into_iter().take(MEASUREMENTS_SHOWN);
        first_metrics
            .map(|(name, value)| format!("{name} {}", format_significant(*value)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns whether this version has a lower accuracy than `other` in a series that both have, preferably one on
    /// held-out data.
    pub fn is_less_accurate_than(&self, other: &VersionOrigin) -> bool {
        let both = self.metrics.iter().filter_map(|(name, value)| Some((name, value, other.metrics.get(name)?)));
        let accuracy = both.filter(|(name, ..)| is_accuracy(name)).min_by_key(|(name, ..)| !is_held_out(name));
        accuracy.is_some_and(|(_, value, other)| value < other)
    }
}

fn is_accuracy(series: &str) -> bool {
    series.contains("acc")
}

fn is_held_out(series: &str) -> bool {
    ["val", "test", "eval"].iter().any(|prefix| series.starts_with(prefix))
}

/// Formats a number with four decimals, or with an exponent if that would show too few significant digits.
fn format_significant(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin_with_metrics(metrics: &[(&str, f64)]) -> VersionOrigin {
        let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let digest = Digest::of(b"");
        VersionOrigin { plugin: digest, weights: digest, created_ms: 0, source_job: String::new(), metrics }
    }

    #[test]
    fn metric_summary_puts_accuracy_first_and_accuracies_are_compared() {
        let good =
            origin_with_metrics(&[("a", 1.0), ("b", 2.0), ("loss", 0.125), ("test_accuracy", 0.98), ("lr", 1e-7)]);
        assert_eq!(good.summarize_metrics(), "test_accuracy 0.9800, loss 0.1250, a 1.0000");
        assert_eq!(origin_with_metrics(&[("lr", 1e-7)]).summarize_metrics(), "lr 1.000e-7");
        let bad = origin_with_metrics(&[("test_accuracy", 0.09), ("loss", 2.3)]);
        assert!(bad.is_less_accurate_than(&good) && !good.is_less_accurate_than(&bad));
        let overfitted = origin_with_metrics(&[("accuracy", 1.0), ("test_accuracy", 0.5)]);
        let general = origin_with_metrics(&[("accuracy", 0.9), ("test_accuracy", 0.8)]);
        assert!(overfitted.is_less_accurate_than(&general) && !general.is_less_accurate_than(&overfitted));
        assert_eq!(general.summarize_metrics(), "test_accuracy 0.8000, accuracy 0.9000");
        assert!(
            !origin_with_metrics(&[("accuracy", 0.0)]).is_less_accurate_than(&good),
            "other series are not compared"
        );
        assert!(!origin_with_metrics(&[]).is_less_accurate_than(&good) && !bad.is_less_accurate_than(&bad));
    }
}
