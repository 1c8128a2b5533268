//! Whether an attempt keeps its device busy.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::spec::Utilization;

/// Moments of a window that are remembered: what it knows of time is a share of the window, whatever its length.
const MOMENTS_MAX: u32 = 240;

/// Device seconds over the last window of time.
#[derive(Debug)]
pub(super) struct Busy {
    wanted: Utilization,
    window: Duration,
    /// Device seconds used by then, the oldest first: that of the window's beginning and those since.
    moments: VecDeque<(Instant, f64)>,
}

impl Busy {
    pub(super) fn new(wanted: Utilization) -> Busy {
        let window = Duration::from_secs_f64(wanted.window_seconds.clamp(0.0, 3.2e9));
        Busy { wanted, window, moments: VecDeque::new() }
    }

    /// Takes the device seconds used by now. The share of the window that the device was busy, where a whole window has
    /// passed and that is less than is wanted.
    pub(super) fn idle(&mut self, now: Instant, device_seconds: f64) -> Option<f64> {
        let far = |last: Instant| now.duration_since(last) >= self.window / MOMENTS_MAX;
        if self.moments.back().is_none_or(|(last, _)| far(*last)) {
            self.moments.push_back((now, device_seconds));
        }
        // The one before the window's beginning stays: the window is whole only with it.
        while self.moments.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= self.window) {
            self.moments.pop_front();
        }
        let (since, before) = self.moments.front()?;
        let passed = now.duration_since(*since);
        let share = (device_seconds - before) / passed.as_secs_f64().max(1e-9);
        (passed >= self.window && share < self.wanted.min_gpu).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Busy {
        Busy::new(Utilization { min_gpu: 0.1, window_seconds: 60.0 })
    }

    #[test]
    fn a_device_that_is_used_enough_is_not_idle() {
        let (mut busy, start) = (busy(), Instant::now());
        for half in 0..1000_u32 {
            let seconds = f64::from(half) / 2.0;
            assert_eq!(busy.idle(start + Duration::from_secs_f64(seconds), seconds * 0.2), None, "{seconds}");
        }
        assert!(busy.moments.len() <= MOMENTS_MAX as usize + 2, "{}", busy.moments.len());
    }

    #[test]
    fn what_was_used_before_the_window_does_not_count() {
        let (mut busy, start) = (busy(), Instant::now());
        let used = |seconds: f64| seconds.min(100.0);
        let first = (0..1000_u32).map(|half| f64::from(half) / 2.0).find_map(|seconds| {
            let share = busy.idle(start + Duration::from_secs_f64(seconds), used(seconds))?;
            Some((seconds, share))
        });
        // A tenth of a minute is six seconds: they are used up when the window begins at 94 s.
        let (seconds, share) = first.unwrap();
        assert!((154.0..155.5).contains(&seconds) && share < 0.1, "{seconds} {share}");
    }

    #[test]
    fn nothing_is_said_before_a_window_has_passed() {
        let (mut busy, start) = (busy(), Instant::now());
        assert_eq!(busy.idle(start, 0.0), None);
        assert_eq!(busy.idle(start + Duration::from_secs(59), 0.0), None);
        assert_eq!(busy.idle(start + Duration::from_secs(60), 0.0), Some(0.0));
    }
}
