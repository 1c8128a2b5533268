//! A ring of samples at one interval.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{HISTORY_SERIES_MAX, HistoryKey, HistoryQuantity, HistorySamples, HistorySnapshot, HistorySubject};
use crate::model_traffic::TrafficCounts;

/// A timer is not exact: a snapshot that comes this much too early is the one that is due.
const TIMER_SLACK: Duration = Duration::from_millis(100);

/// The values of one series. The last belongs to the ring's newest sample, the one before to the sample before, and so on.
#[derive(Debug)]
struct RingSeries {
    /// NaN where there was no value.
    values: VecDeque<f32>,
    /// The number of the last sample that had a value.
    last_sample: u64,
}

/// The sum and the count of a gauge's values since the last sample.
#[derive(Clone, Copy, Debug, Default)]
struct GaugeMean {
    sum: f64,
    count: u32,
}

/// A ring of samples.
#[derive(Debug)]
pub(super) struct HistoryRing {
    interval: Duration,
    samples_max: usize,
    /// The time of each sample.
    times: VecDeque<Duration>,
    series: BTreeMap<HistoryKey, RingSeries>,
    /// The number of samples that were ever taken.
    sample_count: u64,
    gauges: BTreeMap<HistoryKey, GaugeMean>,
    /// The state at the last sample.
    before: Option<(Duration, BTreeMap<String, TrafficCounts>)>,
    /// The seconds that devices had worked at the last samples, oldest first.
    busy_before: VecDeque<(Duration, BTreeMap<String, f64>)>,
    busy_samples: usize,
    left_out: usize,
}

impl HistoryRing {
    /// Creates a ring of `samples_max` samples. The share of the time in which a device worked is that of the last
    /// `busy_samples` intervals.
    pub(super) fn new(interval: Duration, samples_max: usize, busy_samples: usize) -> HistoryRing {
        HistoryRing {
            interval,
            samples_max,
            times: VecDeque::with_capacity(samples_max),
            series: BTreeMap::new(),
            sample_count: 0,
            gauges: BTreeMap::new(),
            before: None,
            busy_before: VecDeque::new(),
            busy_samples,
            left_out: 0,
        }
    }

    /// Adds a snapshot, and takes a sample if one is due.
    pub(super) fn add(&mut self, snapshot: &HistorySnapshot) {
        let Some((then, before)) = &self.before else {
            self.remember(snapshot);
            return;
        };
        for (key, value) in &snapshot.gauges {
            let mean = self.gauges.entry(key.clone()).or_default();
            (mean.sum, mean.count) = (mean.sum + value, mean.count + 1);
        }
        let passed = snapshot.elapsed.saturating_sub(*then);
        if passed + TIMER_SLACK < self.interval {
            return;
        }
        let mut values = traffic_values(before, &snapshot.traffic, passed.as_secs_f64());
        values.extend(self.busy_values(snapshot));
        let means = std::mem::take(&mut self.gauges).into_iter();
        values.extend(means.map(|(key, mean)| (key, mean.sum / f64::from(mean.count))));
        self.push(snapshot.elapsed, values);
        self.remember(snapshot);
    }

    fn remember(&mut self, snapshot: &HistorySnapshot) {
        self.before = Some((snapshot.elapsed, snapshot.traffic.clone()));
        self.busy_before.push_back((snapshot.elapsed, snapshot.device_busy_seconds.clone()));
        if self.busy_before.len() > self.busy_samples {
            self.busy_before.pop_front();
        }
    }

    /// Returns the share of the last intervals in which each device worked.
    fn busy_values(&self, snapshot: &HistorySnapshot) -> Vec<(HistoryKey, f64)> {
        let Some((then, before)) = self.busy_before.front() else { return Vec::new() };
        let passed = snapshot.elapsed.saturating_sub(*then).as_secs_f64();
        let share = |(device, seconds): (&String, &f64)| {
            let worked = seconds - before.get(device).copied().unwrap_or(0.0);
            let key = (HistoryQuantity::DeviceBusy, HistorySubject::Device(device.clone()));
            (key, (worked / passed).clamp(0.0, 1.0))
        };
        snapshot.device_busy_seconds.iter().map(share).collect()
    }

    fn push(&mut self, time: Duration, values: Vec<(HistoryKey, f64)>) {
        self.sample_count += 1;
        if self.times.len() == self.samples_max {
            self.times.pop_front();
        }
        self.times.push_back(time);
        for series in self.series.values_mut() {
            if series.values.len() == self.samples_max {
                series.values.pop_front();
            }
            series.values.push_back(f32::NAN);
        }
        // First the series that exist, so that a new one replaces none that has a value now.
        let (known, new): (Vec<_>, Vec<_>) = values.into_iter().partition(|(key, _)| self.series.contains_key(key));
        for (key, value) in known.into_iter().chain(new) {
            if !self.series.contains_key(&key) && !self.insert_series(&key) {
                continue;
            }
            let Some(series) = self.series.get_mut(&key) else { continue };
            series.last_sample = self.sample_count;
            if let Some(newest) = series.values.back_mut() {
                *newest = value as f32;
            }
        }
        let oldest = self.sample_count.saturating_sub(self.samples_max as u64);
        self.series.retain(|_, series| series.last_sample > oldest);
    }

    /// Creates a series whose newest value is missing. If the ring is full, replaces the one whose last value is oldest.
    /// Returns `false` if all others have a present value.
    fn insert_series(&mut self, key: &HistoryKey) -> bool {
        if self.series.len() == HISTORY_SERIES_MAX {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last_sample);
            let oldest = oldest.filter(|(_, series)| series.last_sample < self.sample_count);
            let Some(oldest) = oldest.map(|(oldest, _)| oldest.clone()) else {
                self.left_out += 1;
                return false;
            };
            self.series.remove(&oldest);
        }
        let mut values = VecDeque::with_capacity(self.samples_max);
        values.push_back(f32::NAN);
        self.series.insert(key.clone(), RingSeries { values, last_sample: self.sample_count });
        true
    }

    /// Returns the samples for whose time `time_ms` returns the time to show, of the wanted series.
    pub(super) fn samples_since(
        &self,
        time_ms: impl Fn(Duration) -> Option<u64>,
        is_wanted: impl Fn(&HistoryKey) -> bool,
    ) -> HistorySamples {
        let mut times_ms: Vec<u64> = self.times.iter().rev().map_while(|&time| time_ms(time)).collect();
        times_ms.reverse();
        let count = times_ms.len();
        let wanted = self.series.iter().filter(|(key, _)| is_wanted(key));
        let series = wanted.filter_map(|(key, series)| {
            let newest_first = series.values.iter().rev().copied().chain(std::iter::repeat(f32::NAN));
            let mut values: Vec<Option<f32>> =
                newest_first.take(count).map(|value| value.is_finite().then_some(value)).collect();
            values.reverse();
            values.iter().any(Option::is_some).then(|| (key.clone(), values))
        });
        HistorySamples { series: series.collect(), times_ms, left_out: self.left_out }
    }

    #[cfg(test)]
    pub(super) fn series_count(&self) -> usize {
        self.series.len()
    }
}

/// Returns what each model answered between two states, `seconds` apart. Percentiles and batch sizes are missing if there
/// was no request or no batch.
fn traffic_values(
    before: &BTreeMap<String, TrafficCounts>,
    now: &BTreeMap<String, TrafficCounts>,
    seconds: f64,
) -> Vec<(HistoryKey, f64)> {
    let none = TrafficCounts::default();
    let mut values = Vec::with_capacity(now.len() * 5);
    for (model, counts) in now {
        let earlier = before.get(model).unwrap_or(&none);
        // Lower counts are those of a model that was removed and made again.
        let earlier = if counts.executions < earlier.executions { &none } else { earlier };
        let latencies = counts.latencies.since(&earlier.latencies);
        let errors = counts.errors.saturating_sub(earlier.errors);
        let (items, batches) = (counts.items.saturating_sub(earlier.items), counts.executions - earlier.executions);
        let sampled = [
            (HistoryQuantity::ModelRequests, Some(latencies.total() as f64 / seconds)),
            (HistoryQuantity::ModelErrors, Some(errors as f64 / seconds)),
            (HistoryQuantity::ModelLatencyP50, latencies.quantile(0.5)),
            (HistoryQuantity::ModelLatencyP99, latencies.quantile(0.99)),
            (HistoryQuantity::ModelBatchItems, (batches > 0).then(|| items as f64 / batches as f64)),
        ];
        let present = sampled.into_iter().filter_map(|(quantity, value)| Some((quantity, value?)));
        values.extend(present.map(|(quantity, value)| ((quantity, HistorySubject::Model(model.clone())), value)));
    }
    values
}
