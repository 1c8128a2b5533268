//! Rates and quantiles from the counters of two refreshes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::documents::{DeviceFigures, ModelFigures};
use crate::metrics_text::{MetricSample, MetricSamples};

/// Sets the figures of models from the samples of this refresh and of the one before, `elapsed` earlier. A model with
/// samples that is not in the list is left out.
pub(crate) fn set_model_figures(
    models: &mut [ModelFigures],
    now: &MetricSamples,
    before: Option<(&MetricSamples, Duration)>,
) {
    for model in models {
        let own = |sample: &&MetricSample| sample.label("model") == model.name;
        let sum = |samples: &MetricSamples, metric: &str, is_counted: &dyn Fn(&MetricSample) -> bool| -> f64 {
            samples.of(metric).iter().filter(own).filter(|sample| is_counted(sample)).map(|sample| sample.value).sum()
        };
        let any = |_: &MetricSample| true;
        let is_queued = now.of("saggar_predict_queue_length").iter().any(|sample| own(&sample));
        model.queue_length = is_queued.then(|| sum(now, "saggar_predict_queue_length", &any));
        let Some((before, elapsed)) = before else { continue };
        let growth = |metric: &str, is_counted: &dyn Fn(&MetricSample) -> bool| {
            growth(sum(before, metric, is_counted), sum(now, metric, is_counted))
        };
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let failed = |sample: &MetricSample| sample.label("outcome") != "success";
        model.requests_per_second = growth("saggar_predict_requests_total", &any).map(|count| count / seconds);
        model.errors_per_second = growth("saggar_predict_requests_total", &failed).map(|count| count / seconds);
        let batches = growth("saggar_predict_executions_total", &any).filter(|count| *count > 0.0);
        model.batch_items =
            batches.zip(growth("saggar_predict_items_total", &any)).map(|(batches, items)| items / batches);
        let buckets = bucket_growth(&model.name, now, before);
        model.p50_seconds = bucket_quantile(&buckets, 0.5);
        model.p99_seconds = bucket_quantile(&buckets, 0.99);
    }
}

/// Sets the figures of devices, as [`set_model_figures`] those of models.
pub(crate) fn set_device_figures(
    devices: &mut [DeviceFigures],
    now: &MetricSamples,
    before: Option<(&MetricSamples, Duration)>,
) {
    for device in devices {
        let own = |sample: &&MetricSample| sample.label("device") == device.name;
        let memory = now.of("saggar_device_memory_bytes").iter().filter(own).filter(|sample| sample.value > 0.0);
        device.memory_bytes = memory.map(|sample| (sample.label("owner").to_owned(), sample.value as u64)).collect();
        let busy = |samples: &MetricSamples| {
            samples.of("saggar_device_busy_seconds_total").iter().find(own).map(|sample| sample.value)
        };
        device.busy_percent = before.and_then(|(before, elapsed)| {
            let seconds = growth(busy(before)?, busy(now)?)?;
            Some((seconds / elapsed.as_secs_f64().max(1e-3) * 100.0).clamp(0.0, 100.0))
        });
    }
}

/// Returns how much a counter grew, or `None` if it restarted.
fn growth(before: f64, now: f64) -> Option<f64> {
    (now >= before).then_some(now - before)
}

/// Returns the growth of each bucket of a model's prediction times, by upper bound, all versions added.
fn bucket_growth(model: &str, now: &MetricSamples, before: &MetricSamples) -> Vec<(f64, f64)> {
    let counts = |samples: &MetricSamples| {
        let mut counts: BTreeMap<u64, f64> = BTreeMap::new();
        for sample in samples.of("saggar_predict_seconds_bucket").iter().filter(|it| it.label("model") == model) {
            // Bounds above 0 are in the order of their bits.
            let bound = sample.label("le").parse::<f64>().unwrap_or(f64::INFINITY);
            *counts.entry(bound.to_bits()).or_default() += sample.value;
        }
        counts
    };
    let earlier = counts(before);
    let grown =
        |(bound, count): (u64, f64)| (f64::from_bits(bound), count - earlier.get(&bound).copied().unwrap_or(0.0));
    counts(now).into_iter().map(grown).collect()
}

/// Returns the value below which a share of the observations lie, by linear interpolation in its bucket. `buckets` are
/// cumulative counts by rising upper bound. Returns `None` without observations. A value in the last bucket, which has no
/// bound, is that of the bound before. Source: `histogram_quantile` of Prometheus.
fn bucket_quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = buckets.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
    let rank = share * total;
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (low, below) = at.checked_sub(1).map_or((0.0, 0.0), |before| buckets[before]);
    let (high, count) = buckets[at];
    if high.is_infinite() {
        return Some(low);
    }
    let inside = count - below;
    Some(if inside > 0.0 { low + (high - low) * ((rank - below) / inside) } else { high })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(requests: [u32; 2], busy: f64, buckets: [u32; 3]) -> MetricSamples {
        MetricSamples::parse(&format!(
            "saggar_predict_requests_total{{model=\"m\",version=\"1\",outcome=\"success\"}} {}\n\
             saggar_predict_requests_total{{model=\"m\",version=\"2\",outcome=\"timeout\"}} {}\n\
             saggar_predict_requests_total{{model=\"other\",version=\"2\",outcome=\"success\"}} 1000\n\
             saggar_predict_items_total{{model=\"m\"}} {}\nsaggar_predict_executions_total{{model=\"m\"}} {}\n\
             saggar_predict_queue_length{{model=\"m\"}} 3\n\
             saggar_device_busy_seconds_total{{device=\"cpu\"}} {busy}\n\
             saggar_device_memory_bytes{{device=\"cpu\",owner=\"model:m\"}} 4096\n\
             saggar_predict_seconds_bucket{{model=\"m\",le=\"0.01\"}} {}\n\
             saggar_predict_seconds_bucket{{model=\"m\",le=\"0.1\"}} {}\n\
             saggar_predict_seconds_bucket{{model=\"m\",le=\"+Inf\"}} {}\n",
            requests[0],
            requests[1],
            requests[0] * 4,
            requests[0],
            buckets[0],
            buckets[1],
            buckets[2]
        ))
    }

    fn model(now: &MetricSamples, before: Option<&MetricSamples>) -> ModelFigures {
        let mut models = [ModelFigures { name: "m".to_owned(), ..ModelFigures::default() }];
        set_model_figures(&mut models, now, before.map(|before| (before, Duration::from_secs(2))));
        models[0].clone()
    }

    #[test]
    fn rates_follow_from_two_refreshes() {
        let (first, second) = (samples([10, 2], 5.0, [10, 10, 12]), samples([30, 6], 6.0, [20, 30, 36]));
        let alone = model(&first, None);
        assert_eq!((alone.requests_per_second, alone.queue_length), (None, Some(3.0)));
        let both = model(&second, Some(&first));
        assert_eq!((both.requests_per_second, both.errors_per_second), (Some(12.0), Some(2.0)));
        assert_eq!(both.batch_items, Some(4.0));
        // 10 of 24 are below 0.01, 20 below 0.1: the twelfth is 2 of 10 into the second bucket.
        assert!((both.p50_seconds.unwrap() - 0.028).abs() < 1e-12, "{both:?}");
        assert_eq!(both.p99_seconds, Some(0.1));
        let mut devices = [DeviceFigures { name: "cpu".to_owned(), ..DeviceFigures::default() }];
        set_device_figures(&mut devices, &second, Some((&first, Duration::from_secs(2))));
        assert_eq!((devices[0].busy_percent, devices[0].memory_total()), (Some(50.0), 4096));
    }

    #[test]
    fn restarted_counters_and_idle_models_have_no_figures() {
        let (first, second) = (samples([10, 2], 5.0, [10, 10, 12]), samples([3, 0], 0.0, [1, 1, 1]));
        let restarted = model(&second, Some(&first));
        assert_eq!((restarted.requests_per_second, restarted.p99_seconds), (None, None));
        let idle = model(&first, Some(&first));
        assert_eq!((idle.requests_per_second, idle.batch_items, idle.p50_seconds), (Some(0.0), None, None));
    }
}
