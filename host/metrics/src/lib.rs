//! Every metric family saggar exposes, in one table: name, help, kind, labels. Labels take values from closed sets,
//! except `job` and `model`, whose series are removed with what they describe.

mod families;
mod jobs;

pub use families::{FAMILIES, Families, Family};
pub use jobs::{JOB_SERIES_MAX, JobSeries};

use prometheus::{Encoder, Registry, TextEncoder};
pub use prometheus::{Histogram, IntCounter, IntGauge};

/// One registry with every family. One a process; share it by reference.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// The families' handles.
    pub families: Families,
}

impl Metrics {
    /// A registry with all families and no series but `saggar_build_info`.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let families = Families::register(&registry);
        families.build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        Metrics { registry, families }
    }

    /// The exposition text (Prometheus text format 0.0.4).
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        let families = self.registry.gather();
        TextEncoder::new().encode(&families, &mut text).expect("gathered families are well formed");
        String::from_utf8(text).expect("metric names, labels and help are UTF-8")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect_file;
    use std::fmt::Write;

    #[test]
    fn names_types_and_labels_are_frozen() {
        let mut table = String::new();
        for family in FAMILIES {
            writeln!(table, "{} {} {}", family.name, family.kind, family.labels.join(",")).unwrap();
        }
        expect_file!["families.golden"].assert_eq(&table);
    }

    #[test]
    fn names_follow_the_prometheus_guide() {
        for family in FAMILIES {
            assert!(family.name.starts_with("saggar_"), "{}", family.name);
            let counter = family.kind.contains("Counter");
            assert_eq!(counter, family.name.ends_with("_total"), "{}", family.name);
            assert!(!family.help.is_empty(), "{}", family.name);
        }
    }

    #[test]
    fn a_job_leaves_no_series_behind() {
        let metrics = Metrics::new();
        let before = metrics.render();
        let mut series = JobSeries::default();
        series.begin(&metrics.families, "digits-1", "cpu", true);
        series.usage(&metrics.families, "digits-1", 1.5, 2.5, 4096);
        series.progress(&metrics.families, "digits-1", 10, 100);
        series.samples(&metrics.families, "digits-1", 640, 320.0);
        series.metric(&metrics.families, "digits-1", "loss", 0.5);
        assert!(
            metrics
                .render()
                .contains("saggar_job_gpu_seconds_total{device=\"cpu\",estimated=\"true\",job=\"digits-1\"} 1.5")
        );
        series.forget(&metrics.families, "digits-1");
        assert_eq!(metrics.render(), before);
    }

    #[test]
    fn job_series_are_bounded() {
        let metrics = Metrics::new();
        let mut series = JobSeries::default();
        for job in 0..1000 {
            let job = format!("digits-{job}");
            series.begin(&metrics.families, &job, "cpu", true);
            for name in 0..100 {
                series.metric(&metrics.families, &job, &format!("series-{name}"), 1.0);
            }
        }
        let text = metrics.render();
        let count = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!(count("saggar_train_step{"), JOB_SERIES_MAX);
        assert_eq!(count("saggar_train_metric{"), JOB_SERIES_MAX * jobs::METRIC_NAMES_MAX);
    }
}
