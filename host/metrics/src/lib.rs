//! All metric families of saggar in one table: name, help, kind, labels. Label values come from closed sets, except
//! those of `job` and `model`, whose series are removed with the job or model. The registry also has the standard
//! `process_` metrics of Prometheus client libraries.

mod families;
mod gathered;
pub mod history;
mod jobs;
mod latency_histogram;
mod model_traffic;
mod openmetrics;
mod process;
mod renamed;

pub use families::{FAMILIES, MetricDefinition, MetricHandles};
pub use jobs::{JOB_SERIES_MAX, JobSeries};
pub use latency_histogram::{LATENCY_BUCKETS, LatencyCounts, LatencyHistogram};
pub use model_traffic::{ModelTraffic, ModelTrafficTable, TrafficCounts};

use prometheus::{Encoder, Registry, TextEncoder};
pub use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

/// A registry with every family. Create one per process and share it by reference.
#[derive(Debug)]
pub struct MetricsRegistry {
    registry: Registry,
    /// The handles of the families.
    pub families: MetricHandles,
    /// What each model answered, for the history.
    pub traffic: ModelTrafficTable,
}

impl MetricsRegistry {
    /// Creates a registry with all families and the process's metrics. Creates the series that have no labels or only
    /// known label values.
    pub fn new() -> MetricsRegistry {
        let registry = Registry::new();
        let families = MetricHandles::register(&registry);
        process::register(&registry);
        families.build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        MetricsRegistry { registry, families, traffic: ModelTrafficTable::default() }
    }

    fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        renamed::with_old_names(self.registry.gather())
    }

    /// Returns the exposition text in OpenMetrics 1.0.
    pub fn render_openmetrics(&self) -> String {
        openmetrics::render_text(&self.gather())
    }

    /// Returns the exposition text in Prometheus text format 0.0.4.
    pub fn render_prometheus(&self) -> String {
        let mut text = Vec::new();
        let families = self.gather();
        TextEncoder::new().encode(&families, &mut text).expect("gathered families are well formed");
        String::from_utf8(text).expect("metric names, labels and help are UTF-8")
    }
}

impl Default for MetricsRegistry {
    fn default() -> MetricsRegistry {
        MetricsRegistry::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect_file;
    use std::fmt::Write;

    #[test]
    fn metric_names_types_and_labels_match_the_golden_list() {
        let mut table = String::new();
        for family in FAMILIES {
            writeln!(table, "{} {} {}", family.name, family.kind, family.labels.join(",")).unwrap();
        }
        expect_file!["families.golden"].assert_eq(&table);
    }

    #[test]
    fn metric_names_follow_the_prometheus_naming_guide() {
        for family in FAMILIES {
            assert!(family.name.starts_with("saggar_"), "{}", family.name);
            let counter = family.kind.contains("Counter");
            assert_eq!(counter, family.name.ends_with("_total"), "{}", family.name);
            assert!(!family.help.is_empty(), "{}", family.name);
        }
    }

    #[test]
    fn removing_a_job_removes_all_its_series() {
        let metrics = MetricsRegistry::new();
        // The process's metrics change between two renderings.
        let render = || {
            let text = metrics.render_prometheus();
            text.lines().filter(|line| !line.contains("process_")).map(|line| format!("{line}\n")).collect::<String>()
        };
        let before = render();
        let mut series = JobSeries::default();
        series.begin_job(&metrics.families, "digits-1", "cpu", true);
        series.add_usage(&metrics.families, "digits-1", 1.5, 2.5, 4096);
        series.set_progress(&metrics.families, "digits-1", 10, 100);
        series.add_samples(&metrics.families, "digits-1", 640, 320.0);
        series.set_metric(&metrics.families, "digits-1", "loss", 0.5);
        assert!(
            metrics
                .render_prometheus()
                .contains("saggar_job_gpu_seconds_total{device=\"cpu\",estimated=\"true\",job=\"digits-1\"} 1.5")
        );
        series.remove_job(&metrics.families, "digits-1");
        assert_eq!(render(), before);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_metrics_report_resource_usage() {
        let text = MetricsRegistry::new().render_prometheus();
        let value = |name: &str| -> f64 {
            let line =
                text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{name}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 100_000.0 && resident <= value("process_virtual_memory_bytes"), "{text}");
        assert!(value("process_open_fds") >= 1.0 && value("process_open_fds") < value("process_max_fds"), "{text}");
        assert!(value("process_cpu_seconds_total") >= 0.0 && value("process_threads") >= 1.0, "{text}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }

    #[test]
    fn histogram_bucket_counts_are_bounded() {
        let metrics = MetricsRegistry::new();
        metrics.families.predict_phase.with_label_values(&["m", "1", "queue"]);
        metrics.families.http_request_duration.with_label_values(&["/"]);
        let text = metrics.render_prometheus();
        for name in ["saggar_predict_phase_seconds_bucket{", "saggar_http_request_seconds_bucket{"] {
            let count = text.lines().filter(|line| line.starts_with(name)).count();
            assert!((6..=11).contains(&count), "{name}: {count}");
        }
    }

    #[test]
    fn the_number_of_jobs_with_series_is_bounded() {
        let metrics = MetricsRegistry::new();
        let mut series = JobSeries::default();
        for job in 0..1000 {
            let job = format!("digits-{job}");
            series.begin_job(&metrics.families, &job, "cpu", true);
            for name in 0..100 {
                series.set_metric(&metrics.families, &job, &format!("series-{name}"), 1.0);
            }
        }
        let text = metrics.render_prometheus();
        let count = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!(count("saggar_train_step{"), JOB_SERIES_MAX);
        assert_eq!(count("saggar_train_metric{"), JOB_SERIES_MAX * jobs::JOB_METRIC_NAMES_MAX);
    }
}
