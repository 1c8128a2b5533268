//! Durations of one kind of call.

use std::fmt;
use std::time::{Duration, Instant};

use crate::statistics::percentile;

/// The durations of calls, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct LatencySamples {
    milliseconds: Vec<f64>,
}

impl LatencySamples {
    /// Runs a call, and adds how long it took.
    pub(crate) fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let value = call();
        self.milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        value
    }

    pub(crate) fn add_all(&mut self, other: &LatencySamples) {
        self.milliseconds.extend(&other.milliseconds);
    }

    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        percentile(self.milliseconds.clone(), percent)
    }

    pub(crate) fn per_second(&self, time: Duration) -> f64 {
        self.milliseconds.len() as f64 / time.as_secs_f64()
    }
}

impl fmt::Display for LatencySamples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |percent| self.percentile(percent);
        formatter.pad(&format!("{:.1} / {:.1} / {:.1}", at(50.0), at(99.0), at(100.0)))
    }
}
