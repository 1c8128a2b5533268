//! The recent past: samples of devices, models and jobs since the process began, in memory of a fixed size.
//!
//! There are two rings: one with a sample each second for ten minutes, and one with a sample each minute for a day. The
//! samples of both are computed from the same snapshots, so a percentile of a minute is that of all its requests. Nothing
//! is stored on disk: a longer past is the job of a monitoring system that scrapes `/metrics`.
//!
//! A ring holds at most [`HISTORY_SERIES_MAX`] series. Values have four bytes, so the history takes at most
//! [`HISTORY_BYTES_MAX`], about 8 MiB, whatever the number of models and jobs.
//!
//! Time is the elapsed time since the process began, which never jumps. The wall clock of the newest snapshot gives the
//! times that are shown.

mod ring;

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::model_traffic::TrafficCounts;
use ring::HistoryRing;

/// The number of samples with a second between them.
pub const SECOND_SAMPLES_MAX: usize = 600;
/// The number of samples with a minute between them.
pub const MINUTE_SAMPLES_MAX: usize = 1440;
/// Series of a ring. Past this, one without a present value is replaced, and else a new one is left out.
pub const HISTORY_SERIES_MAX: usize = 1024;
/// Bytes of all values.
pub const HISTORY_BYTES_MAX: usize = HISTORY_SERIES_MAX * (SECOND_SAMPLES_MAX + MINUTE_SAMPLES_MAX) * size_of::<f32>();
/// Snapshots over which the seconds that a device worked are averaged: jobs report them every half second, so the
/// difference of two snapshots would vary.
const BUSY_SNAPSHOTS: usize = 5;

const _: () = assert!(HISTORY_BYTES_MAX <= 8 << 20);

/// A quantity that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistoryQuantity {
    /// Requests of a model that ended, in each second.
    ModelRequests,
    /// Requests that the model or the server failed to answer, in each second.
    ModelErrors,
    /// The median duration of the requests that ended.
    ModelLatencyP50,
    /// The 99th percentile of their durations.
    ModelLatencyP99,
    /// The mean number of items of a batch.
    ModelBatchItems,
    /// Predictions that wait for their batch.
    ModelQueueLength,
    /// The share of the time in which a device worked, from 0 to 1.
    DeviceBusy,
    /// Bytes of a device that an owner holds.
    DeviceMemory,
    /// Jobs that start, run or stop.
    JobsRunning,
    /// Jobs that wait.
    JobsQueued,
}

impl HistoryQuantity {
    /// Every quantity.
    pub const ALL: [HistoryQuantity; 10] = [
        HistoryQuantity::ModelRequests,
        HistoryQuantity::ModelErrors,
        HistoryQuantity::ModelLatencyP50,
        HistoryQuantity::ModelLatencyP99,
        HistoryQuantity::ModelBatchItems,
        HistoryQuantity::ModelQueueLength,
        HistoryQuantity::DeviceBusy,
        HistoryQuantity::DeviceMemory,
        HistoryQuantity::JobsRunning,
        HistoryQuantity::JobsQueued,
    ];

    /// Returns its name, whose last part is the unit.
    pub const fn name(self) -> &'static str {
        match self {
            HistoryQuantity::ModelRequests => "model_requests_per_second",
            HistoryQuantity::ModelErrors => "model_errors_per_second",
            HistoryQuantity::ModelLatencyP50 => "model_latency_p50_seconds",
            HistoryQuantity::ModelLatencyP99 => "model_latency_p99_seconds",
            HistoryQuantity::ModelBatchItems => "model_batch_items",
            HistoryQuantity::ModelQueueLength => "model_queue_length",
            HistoryQuantity::DeviceBusy => "device_busy_ratio",
            HistoryQuantity::DeviceMemory => "device_memory_bytes",
            HistoryQuantity::JobsRunning => "jobs_running",
            HistoryQuantity::JobsQueued => "jobs_queued",
        }
    }
}

/// What a series is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistorySubject {
    /// A model.
    Model(String),
    /// A device.
    Device(String),
    /// The memory of a device that all models hold.
    ModelMemory(String),
    /// The memory of a device that a job holds.
    JobMemory {
        /// The device.
        device: String,
        /// The job's name.
        job: String,
        /// Its project.
        project: String,
    },
    /// The jobs of a project.
    Project(String),
}

/// A series.
pub type HistoryKey = (HistoryQuantity, HistorySubject);

/// The state at one time, of which samples are computed.
#[derive(Clone, Debug, Default)]
pub struct HistorySnapshot {
    /// The time since the process began.
    pub elapsed: Duration,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// What each model answered so far.
    pub traffic: BTreeMap<String, TrafficCounts>,
    /// The seconds that each device worked so far.
    pub device_busy_seconds: BTreeMap<String, f64>,
    /// Values at this time.
    pub gauges: Vec<(HistoryKey, f64)>,
}

/// The time between the samples of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryResolution {
    /// A second, for ten minutes.
    Second,
    /// A minute, for a day.
    Minute,
}

impl HistoryResolution {
    /// Returns the time between two samples.
    pub const fn interval(self) -> Duration {
        match self {
            HistoryResolution::Second => Duration::from_secs(1),
            HistoryResolution::Minute => Duration::from_secs(60),
        }
    }

    /// Returns the time that the ring covers.
    pub fn span(self) -> Duration {
        match self {
            HistoryResolution::Second => self.interval() * SECOND_SAMPLES_MAX as u32,
            HistoryResolution::Minute => self.interval() * MINUTE_SAMPLES_MAX as u32,
        }
    }
}

/// Samples of a ring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistorySamples {
    /// The end of each sample's interval, in milliseconds since 1970, ascending.
    pub times_ms: Vec<u64>,
    /// The series that have a value at any of these times, with one value for each: `None` where there was none.
    pub series: Vec<(HistoryKey, Vec<Option<f32>>)>,
    /// Series that were left out because the ring was full.
    pub left_out: usize,
}

/// The history of a process.
#[derive(Debug)]
pub struct MetricHistory(Mutex<HistoryRings>);

#[derive(Debug)]
struct HistoryRings {
    seconds: HistoryRing,
    minutes: HistoryRing,
    /// The time and the wall clock of the newest snapshot.
    newest: (Duration, u64),
}

impl Default for MetricHistory {
    fn default() -> MetricHistory {
        MetricHistory(Mutex::new(HistoryRings {
            seconds: HistoryRing::new(HistoryResolution::Second.interval(), SECOND_SAMPLES_MAX, BUSY_SNAPSHOTS),
            minutes: HistoryRing::new(HistoryResolution::Minute.interval(), MINUTE_SAMPLES_MAX, 1),
            newest: (Duration::ZERO, 0),
        }))
    }
}

impl MetricHistory {
    /// Adds a snapshot. Rates and percentiles need the one before, so the first gives no sample. Snapshots are to come once
    /// a second, in order; after a pause, the next sample covers it.
    pub fn add(&self, snapshot: &HistorySnapshot) {
        let mut rings = self.0.lock();
        rings.seconds.add(snapshot);
        rings.minutes.add(snapshot);
        rings.newest = (snapshot.elapsed, snapshot.now_ms);
    }

    /// Returns the samples whose time is after `since_ms`, in milliseconds since 1970, of the series that `is_wanted`
    /// returns `true` for.
    pub fn samples_since(
        &self,
        resolution: HistoryResolution,
        since_ms: u64,
        is_wanted: impl Fn(&HistoryKey) -> bool,
    ) -> HistorySamples {
        let rings = self.0.lock();
        let (newest, now_ms) = rings.newest;
        let wall_ms = |elapsed: Duration| {
            let age = u64::try_from(newest.saturating_sub(elapsed).as_millis()).unwrap_or(u64::MAX);
            now_ms.saturating_sub(age)
        };
        let ring = match resolution {
            HistoryResolution::Second => &rings.seconds,
            HistoryResolution::Minute => &rings.minutes,
        };
        ring.samples_since(|elapsed| Some(wall_ms(elapsed)).filter(|&time_ms| time_ms > since_ms), is_wanted)
    }

    /// Returns the number of series of each ring.
    #[cfg(test)]
    fn series_counts(&self) -> (usize, usize) {
        let rings = self.0.lock();
        (rings.seconds.series_count(), rings.minutes.series_count())
    }
}

#[cfg(test)]
mod tests;
