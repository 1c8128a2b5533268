//! What a load came to: latencies in histograms of bounded size, answers in each interval, failures by cause.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ureq::http::{HeaderMap, HeaderValue};

use super::load_connection::FailureCause;
use super::server_timing::{PHASES, read_phases};

/// The smallest latency that is distinguished from 0.
const LATENCY_MIN_NS: u64 = 100;
/// The largest latency that is distinguished; longer ones count as this.
const LATENCY_MAX_NS: u64 = 1_000_000_000_000;
/// Significant digits of a latency.
const SIGNIFICANT_DIGITS: u8 = 3;
/// The intervals of a measurement, whose figures are compared by `saggar bench diff`.
pub(super) const INTERVALS: usize = 20;
/// Maximum number of causes that are distinguished.
const CAUSES_MAX: usize = 64;
/// Maximum number of versions that are distinguished.
const VERSIONS_MAX: usize = 64;

/// A distribution of times, to three significant digits, from 100 ns to 1000 s.
#[derive(Clone, Debug)]
pub(super) struct LatencyHistogram(Histogram<u64>);

impl LatencyHistogram {
    pub(super) fn new() -> LatencyHistogram {
        let histogram = Histogram::new_with_bounds(LATENCY_MIN_NS, LATENCY_MAX_NS, SIGNIFICANT_DIGITS);
        LatencyHistogram(histogram.expect("the bounds are in order"))
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn add(&mut self, other: &LatencyHistogram) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the seconds that a share of all times does not exceed, or `None` if there are no times.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64 / 1e9)
    }

    /// Returns the mean in seconds, or `None` if there are no times.
    pub(super) fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean() / 1e9)
    }

    /// Returns the longest time in seconds, or `None` if there are no times.
    pub(super) fn max(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.max() as f64 / 1e9)
    }
}

/// The time that is measured, after the warm-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredWindow {
    pub(super) start: Instant,
    pub(super) length: Duration,
}

impl MeasuredWindow {
    pub(super) fn end(&self) -> Instant {
        self.start + self.length
    }

    /// Returns the interval that contains `at`, or `None` if it is outside.
    fn interval_at(&self, at: Instant) -> Option<usize> {
        let offset = at.checked_duration_since(self.start)?;
        let interval = (offset.as_secs_f64() / self.length.as_secs_f64() * INTERVALS as f64) as usize;
        (at < self.end()).then_some(interval.min(INTERVALS - 1))
    }
}

/// The answers that were completed in one interval.
#[derive(Clone, Debug)]
pub(super) struct LoadInterval {
    pub(super) answered: u64,
    pub(super) latency: LatencyHistogram,
}

/// The requests that began in the warm-up, and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts {
    pub(super) answered: u64,
    pub(super) failed: u64,
}

/// Records requests. A request belongs to the measurement if it was due in the measured window, however late its answer
/// was; the rate is that of the answers that were complete in the window, whenever their requests were due.
#[derive(Clone, Debug)]
pub(super) struct LoadRecorder {
    window: MeasuredWindow,
    pub(super) latency: LatencyHistogram,
    pub(super) intervals: Vec<LoadInterval>,
    /// Durations of each of [`PHASES`].
    pub(super) phases: Vec<LatencyHistogram>,
    pub(super) failures: BTreeMap<FailureCause, u64>,
    pub(super) warm_up: RequestCounts,
    pub(super) measured: RequestCounts,
    /// The versions that answered, as `digits@3 sha256:...`.
    pub(super) versions: BTreeSet<String>,
    last_version: Option<(HeaderValue, HeaderValue)>,
    /// How the last request of the load ended, or `None` if it was answered.
    pub(super) last_failure: Option<(Instant, FailureCause)>,
    last_answer: Option<Instant>,
}

impl LoadRecorder {
    pub(super) fn new(window: MeasuredWindow) -> LoadRecorder {
        let interval = || LoadInterval { answered: 0, latency: LatencyHistogram::new() };
        LoadRecorder {
            window,
            latency: LatencyHistogram::new(),
            intervals: (0..INTERVALS).map(|_| interval()).collect(),
            phases: PHASES.iter().map(|_| LatencyHistogram::new()).collect(),
            failures: BTreeMap::new(),
            warm_up: RequestCounts::default(),
            measured: RequestCounts::default(),
            versions: BTreeSet::new(),
            last_version: None,
            last_failure: None,
            last_answer: None,
        }
    }

    /// Records the answer to a request that was due at `due`, complete at `at`.
    pub(super) fn record_answer(&mut self, due: Instant, at: Instant, headers: &HeaderMap) {
        self.last_answer = self.last_answer.max(Some(at));
        let latency = at.saturating_duration_since(due);
        if let Some(interval) = self.window.interval_at(at) {
            self.intervals[interval].answered += 1;
            self.intervals[interval].latency.record(latency);
        }
        if due < self.window.start {
            self.warm_up.answered += 1;
            return;
        }
        self.measured.answered += 1;
        self.latency.record(latency);
        for (histogram, seconds) in self.phases.iter_mut().zip(read_phases(headers)) {
            if let Some(seconds) = seconds {
                histogram.record(Duration::from_secs_f64(seconds));
            }
        }
        self.record_version(headers);
    }

    fn record_version(&mut self, headers: &HeaderMap) {
        let (Some(model), Some(digest)) = (headers.get("x-saggar-model"), headers.get("x-saggar-digest")) else {
            return;
        };
        // Most answers come from the version of the answer before.
        if self.last_version.as_ref().is_some_and(|(last, last_digest)| last == model && last_digest == digest) {
            return;
        }
        if self.versions.len() < VERSIONS_MAX {
            let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            self.versions.insert(format!("{} {}", text(model), text(digest)));
        }
        self.last_version = Some((model.clone(), digest.clone()));
    }

    /// Records that a request which was due at `due` failed at `at`.
    pub(super) fn record_failure(&mut self, due: Instant, at: Instant, cause: FailureCause) {
        self.last_failure = Some((at, cause.clone()));
        if due < self.window.start {
            self.warm_up.failed += 1;
            return;
        }
        self.measured.failed += 1;
        let is_known = self.failures.contains_key(&cause) || self.failures.len() < CAUSES_MAX;
        *self.failures.entry(if is_known { cause } else { FailureCause::Other }).or_default() += 1;
    }

    /// Adds what another recorder of the same window recorded.
    pub(super) fn merge(&mut self, other: LoadRecorder) {
        self.latency.add(&other.latency);
        for (own, other) in self.intervals.iter_mut().zip(&other.intervals) {
            own.answered += other.answered;
            own.latency.add(&other.latency);
        }
        self.phases.iter_mut().zip(&other.phases).for_each(|(own, other)| own.add(other));
        for (cause, count) in other.failures {
            *self.failures.entry(cause).or_default() += count;
        }
        for (own, other) in [(&mut self.warm_up, other.warm_up), (&mut self.measured, other.measured)] {
            own.answered += other.answered;
            own.failed += other.failed;
        }
        self.versions.extend(other.versions);
        self.last_answer = self.last_answer.max(other.last_answer);
        if other.last_failure.as_ref().map(|(at, _)| at) > self.last_failure.as_ref().map(|(at, _)| at) {
            self.last_failure = other.last_failure;
        }
    }

    /// Returns the answers per second that were complete in the window.
    pub(super) fn answers_per_second(&self) -> f64 {
        self.intervals.iter().map(|interval| interval.answered).sum::<u64>() as f64 / self.window.length.as_secs_f64()
    }

    /// Returns the answers per second in each interval.
    pub(super) fn interval_rates(&self) -> Vec<f64> {
        let seconds = self.window.length.as_secs_f64() / INTERVALS as f64;
        self.intervals.iter().map(|interval| interval.answered as f64 / seconds).collect()
    }

    /// Returns whether the load ended with broken connections, after which nothing was answered.
    pub(super) fn lost_server(&self) -> bool {
        self.last_failure
            .as_ref()
            .is_some_and(|(at, cause)| cause.is_connection() && self.last_answer.is_none_or(|answer| answer < *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> MeasuredWindow {
        MeasuredWindow { start: Instant::now() + Duration::from_secs(1), length: Duration::from_secs(20) }
    }

    #[test]
    fn latency_counts_from_the_due_time_and_the_warm_up_is_excluded() {
        let (window, headers) = (window(), HeaderMap::new());
        let mut recorder = LoadRecorder::new(window);
        let at = |ms: u64| window.start + Duration::from_millis(ms);
        // Due in the warm-up: counts for the rate of the window only.
        recorder.record_answer(window.start - Duration::from_millis(500), at(100), &headers);
        // One second of waiting for a connection, and 10 ms of an answer.
        recorder.record_answer(at(1000), at(2010), &headers);
        // Due in the window, complete after it.
        recorder.record_answer(at(19_990), at(20_020), &headers);
        recorder.record_failure(window.start - Duration::from_millis(1), at(5), FailureCause::Timeout);
        recorder.record_failure(at(3000), at(4000), FailureCause::Timeout);
        assert_eq!(recorder.warm_up, RequestCounts { answered: 1, failed: 1 });
        assert_eq!(recorder.measured, RequestCounts { answered: 2, failed: 1 });
        assert_eq!(recorder.latency.count(), 2);
        let max = recorder.latency.max().unwrap();
        assert!((max / 1.01 - 1.0).abs() < 1e-3, "{max}");
        assert_eq!(recorder.answers_per_second(), 2.0 / 20.0);
        let rates = recorder.interval_rates();
        assert_eq!((rates[0], rates[2], rates[19]), (1.0, 1.0, 0.0));
    }

    #[test]
    fn quantiles_have_three_significant_digits() {
        let mut histogram = LatencyHistogram::new();
        assert_eq!((histogram.quantile(0.5), histogram.max(), histogram.mean()), (None, None, None));
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        for (share, expected) in [(0.5, 500e-6), (0.95, 950e-6), (0.99, 990e-6), (1.0, 1000e-6)] {
            let quantile = histogram.quantile(share).unwrap();
            assert!((quantile / expected - 1.0).abs() < 1e-3, "{share}: {quantile}");
        }
        histogram.record(Duration::MAX);
        assert!(histogram.max().unwrap() > 999.0);
    }

    #[test]
    fn recorders_of_threads_are_merged() {
        let window = window();
        let [mut first, mut second] = [0, 1].map(|_| LoadRecorder::new(window));
        let mut headers = HeaderMap::new();
        headers.insert("server-timing", HeaderValue::from_static("queue;dur=1"));
        headers.insert("x-saggar-model", HeaderValue::from_static("digits@3"));
        headers.insert("x-saggar-digest", HeaderValue::from_static("sha256:ab"));
        first.record_answer(window.start, window.start, &headers);
        second.record_answer(window.start, window.start, &headers);
        second.record_failure(window.start, window.end(), FailureCause::ConnectionLost);
        assert!(second.lost_server() && !first.lost_server());
        first.merge(second);
        assert_eq!((first.latency.count(), first.phases[2].count(), first.phases[0].count()), (2, 2, 0));
        assert_eq!(first.failures, BTreeMap::from([(FailureCause::ConnectionLost, 1)]));
        assert_eq!(first.versions, BTreeSet::from(["digits@3 sha256:ab".to_owned()]));
    }

    #[test]
    fn causes_of_failures_are_bounded() {
        let mut recorder = LoadRecorder::new(window());
        let due = recorder.window.start;
        for number in 0..200 {
            recorder.record_failure(due, due, FailureCause::Status { status: 500, code: format!("code{number}") });
        }
        assert_eq!(recorder.failures.len(), CAUSES_MAX + 1);
        assert_eq!(recorder.failures[&FailureCause::Other], 200 - CAUSES_MAX as u64);
    }
}
