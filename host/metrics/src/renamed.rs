//! Metrics that have another name now. The old name is exposed beside the new one for one version, so that dashboards and alerts
//! go on working until they are changed.

use prometheus::proto::MetricFamily;

/// A name before and now.
type NameChange = (&'static str, &'static str);

/// The names of metrics before and now, and those of a label that was renamed.
const RENAMED: [(&str, &str, Option<NameChange>); 11] = [
    ("saggar_batch_releases_total", "saggar_batches_dispatched_total", Some(("reason", "trigger"))),
    ("saggar_gpu_info", "saggar_device_info", None),
    ("saggar_gpu_busy_seconds_total", "saggar_device_busy_seconds_total", None),
    ("saggar_gpu_memory_bytes", "saggar_device_memory_bytes", None),
    ("saggar_gpu_submissions_total", "saggar_device_submissions_total", None),
    ("saggar_gpu_dispatches_total", "saggar_device_dispatches_total", None),
    ("saggar_gpu_device_lost_total", "saggar_device_lost_total", None),
    ("saggar_http_request_duration_seconds", "saggar_http_request_seconds", None),
    ("saggar_predict_duration_seconds", "saggar_predict_seconds", None),
    ("saggar_model_swap_duration_seconds", "saggar_model_swap_seconds", None),
    ("saggar_checkpoint_duration_seconds", "saggar_checkpoint_seconds", None),
];

/// Returns `families` with a copy of each renamed one under its old name, sorted by name.
pub(crate) fn with_old_names(mut families: Vec<MetricFamily>) -> Vec<MetricFamily> {
    let mut copies = Vec::new();
    for (before, now, label) in RENAMED {
        let Some(family) = families.iter().find(|family| family.name() == now) else { continue };
        let mut copy = family.clone();
        copy.set_name(before.to_owned());
        copy.set_help(format!("Renamed to {now}: the next version has no metric of this name."));
        if let Some((before, now)) = label {
            for metric in copy.mut_metric() {
                let mut labels = metric.take_label();
                labels
                    .iter_mut()
                    .filter(|label| label.name() == now)
                    .for_each(|label| label.set_name(before.to_owned()));
                metric.set_label(labels);
            }
        }
        copies.push(copy);
    }
    families.extend(copies);
    families.sort_by(|a, b| a.name().cmp(b.name()));
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FAMILIES, MetricsRegistry};

    #[test]
    fn renamed_metrics_have_both_names_for_one_version() {
        let metrics = MetricsRegistry::new();
        metrics.families.device_busy_seconds.with_label_values(&["cpu"]).inc_by(1.5);
        metrics.families.batches_dispatched.with_label_values(&["digits", "1", "idle"]).inc();
        for text in [metrics.render_prometheus(), metrics.render_openmetrics()] {
            for line in [
                "saggar_device_busy_seconds_total{device=\"cpu\"} 1.5",
                "saggar_gpu_busy_seconds_total{device=\"cpu\"} 1.5",
                "saggar_batches_dispatched_total{model=\"digits\",trigger=\"idle\",version=\"1\"} 1",
                "saggar_batch_releases_total{model=\"digits\",reason=\"idle\",version=\"1\"} 1",
                "Renamed to saggar_device_busy_seconds_total",
            ] {
                assert!(text.contains(line), "{line} is missing in\n{text}");
            }
        }
    }

    #[test]
    fn a_renamed_histogram_has_its_buckets_under_both_names() {
        let metrics = MetricsRegistry::new();
        metrics.families.predict_duration.with_label_values(&["digits", "1"]).observe(0.001);
        let text = metrics.render_prometheus();
        for line in [
            "saggar_predict_seconds_count{model=\"digits\",version=\"1\"} 1",
            "saggar_predict_duration_seconds_count{model=\"digits\",version=\"1\"} 1",
            "saggar_predict_duration_seconds_bucket{model=\"digits\",version=\"1\",le=\"0.002\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn current_names_are_metrics_and_old_ones_are_not() {
        for (before, now, _) in RENAMED {
            assert!(FAMILIES.iter().any(|family| family.name == now), "{now}");
            assert!(!FAMILIES.iter().any(|family| family.name == before), "{before}");
        }
    }
}
