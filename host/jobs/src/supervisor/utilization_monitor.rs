//! Detects an attempt that leaves its device idle.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::spec::UtilizationPolicy;

/// Maximum samples of a window, which set its time resolution as a fraction of its length.
const SAMPLES_MAX: u32 = 240;

/// The device utilization in the last time window.
#[derive(Debug)]
pub(super) struct UtilizationMonitor {
    policy: UtilizationPolicy,
    window: Duration,
    /// Device seconds used at each sample, the oldest first: that of the window's beginning and those since.
    samples: VecDeque<(Instant, f64)>,
}

impl UtilizationMonitor {
    pub(super) fn new(wanted: UtilizationPolicy) -> UtilizationMonitor {
        let window = Duration::from_secs_f64(wanted.window_seconds.clamp(0.0, 3.2e9));
        UtilizationMonitor { policy: wanted, window, samples: VecDeque::new() }
    }

    /// Records the device seconds used until now. Returns the utilization if a whole window has passed and it is below
    /// the minimum, else `None`.
    pub(super) fn idle_share(&mut self, now: Instant, device_seconds: f64) -> Option<f64> {
        let far = |last: Instant| now.duration_since(last) >= self.window / SAMPLES_MAX;
        if self.samples.back().is_none_or(|(last, _)| far(*last)) {
            self.samples.push_back((now, device_seconds));
        }
        // Keep the sample before the window's beginning, because the window is complete only with it.
        while self.samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= self.window) {
            self.samples.pop_front();
        }
        let (since, before) = self.samples.front()?;
        let passed = now.duration_since(*since);
        let share = (device_seconds - before) / passed.as_secs_f64().max(1e-9);
        (passed >= self.window && share < self.policy.min_gpu).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> UtilizationMonitor {
        UtilizationMonitor::new(UtilizationPolicy { min_gpu: 0.1, window_seconds: 60.0 })
    }

    #[test]
    fn a_busy_device_is_not_reported_idle() {
        let (mut busy, start) = (busy(), Instant::now());
        for half in 0..1000_u32 {
            let seconds = f64::from(half) / 2.0;
            assert_eq!(busy.idle_share(start + Duration::from_secs_f64(seconds), seconds * 0.2), None, "{seconds}");
        }
        assert!(busy.samples.len() <= SAMPLES_MAX as usize + 2, "{}", busy.samples.len());
    }

    #[test]
    fn device_seconds_before_the_window_do_not_count() {
        let (mut busy, start) = (busy(), Instant::now());
        let used = |seconds: f64| seconds.min(100.0);
        let first = (0..1000_u32).map(|half| f64::from(half) / 2.0).find_map(|seconds| {
            let share = busy.idle_share(start + Duration::from_secs_f64(seconds), used(seconds))?;
            Some((seconds, share))
        });
        // A tenth of a minute is six seconds, which are used up when the window begins at 94 s.
        let (seconds, share) = first.unwrap();
        assert!((154.0..155.5).contains(&seconds) && share < 0.1, "{seconds} {share}");
    }

    #[test]
    fn idleness_is_not_reported_before_a_full_window() {
        let (mut busy, start) = (busy(), Instant::now());
        assert_eq!(busy.idle_share(start, 0.0), None);
        assert_eq!(busy.idle_share(start + Duration::from_secs(59), 0.0), None);
        assert_eq!(busy.idle_share(start + Duration::from_secs(60), 0.0), Some(0.0));
    }
}
