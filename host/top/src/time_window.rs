//! The visible time: how long it is, and where it ends.

use std::time::Duration;

/// The share of the window by which a key pans.
const PAN_SHARE: f64 = 0.2;
/// The shortest and the longest window.
const WINDOW_MIN: Duration = Duration::from_secs(5);
const WINDOW_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The visible time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWindow {
    length: Duration,
    /// How far before the newest refresh it ends; zero follows the refreshes.
    behind: Duration,
}

impl TimeWindow {
    /// Returns a window that follows the refreshes.
    pub(crate) fn new(length: Duration) -> TimeWindow {
        TimeWindow { length: length.clamp(WINDOW_MIN, WINDOW_MAX), behind: Duration::ZERO }
    }

    /// Returns its length.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Returns its start and its end in Unix milliseconds.
    pub(crate) fn bounds_ms(&self, newest_ms: u64) -> (u64, u64) {
        let end = newest_ms.saturating_sub(millis(self.behind));
        (end.saturating_sub(millis(self.length)), end)
    }

    /// Moves it to earlier times, or to later ones, at most to the newest refresh.
    pub(crate) fn pan(&mut self, is_earlier: bool) {
        let by = self.length.mul_f64(PAN_SHARE);
        self.behind = if is_earlier { (self.behind + by).min(WINDOW_MAX) } else { self.behind.saturating_sub(by) };
    }

    /// Makes it half as long, or twice as long.
    pub(crate) fn zoom(&mut self, is_longer: bool) {
        let length = if is_longer { self.length * 2 } else { self.length / 2 };
        self.length = length.clamp(WINDOW_MIN, WINDOW_MAX);
    }

    /// Lets it follow the refreshes again.
    pub(crate) fn follow(&mut self) {
        self.behind = Duration::ZERO;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A labelled time: Unix milliseconds, and how long before `now` it is.
pub(crate) type TimeTick = (u64, String);

/// Returns at most `count_max` + 1 labelled times from `start_ms` to `end_ms`, as times before `now_ms`: `-30m`.
pub(crate) fn time_ticks(start_ms: u64, end_ms: u64, now_ms: u64, count_max: usize) -> Vec<TimeTick> {
    const STEPS: [u64; 22] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800,
        345_600, 864_000, 1_728_000,
    ];
    let length = end_ms.saturating_sub(start_ms);
    let fits = |step: &&u64| length / (*step * 1000) <= count_max.max(1) as u64;
    let step = STEPS.iter().find(fits).copied().unwrap_or(1_728_000) * 1000;
    let (first, last) = (now_ms.saturating_sub(end_ms).div_ceil(step), now_ms.saturating_sub(start_ms) / step);
    (first..=last).rev().map(|count| (now_ms - count * step, age_label(count * step / 1000))).collect()
}

/// Formats seconds before now: `now`, `-90s`, `-30m`, `-1h30m`, `-2d`.
fn age_label(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, 0) => "now".to_owned(),
        (0, 0, 0, _) | (0, 0, 1, 1..) => format!("-{seconds}s"),
        (0, 0, minutes, 0) => format!("-{minutes}m"),
        (0, 0, minutes, seconds) => format!("-{minutes}m{seconds:02}s"),
        (0, hours, 0, _) => format!("-{hours}h"),
        (0, hours, minutes, _) => format!("-{hours}h{minutes:02}m"),
        (days, 0, ..) => format!("-{days}d"),
        (days, hours, ..) => format!("-{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_pan_by_a_fifth_and_never_into_the_future() {
        let mut window = TimeWindow::new(Duration::from_secs(60));
        assert_eq!(window.bounds_ms(100_000), (40_000, 100_000));
        window.pan(true);
        assert_eq!(window.bounds_ms(100_000), (28_000, 88_000));
        window.pan(false);
        window.pan(false);
        assert_eq!(window.bounds_ms(100_000), (40_000, 100_000));
        window.zoom(true);
        assert_eq!(window.length(), Duration::from_secs(120));
        (0..9).for_each(|_| window.zoom(false));
        assert_eq!(window.length(), WINDOW_MIN);
        assert_eq!(window.bounds_ms(1000), (0, 1000));
    }

    #[test]
    fn times_are_labelled_by_their_age() {
        let labels = |length: u64, behind: u64, count| {
            let now = 1_000_000_000;
            let ticks = time_ticks(now - behind - length, now - behind, now, count);
            ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(60_000, 0, 4), "-1m -45s -30s -15s now");
        assert_eq!(labels(3_600_000, 0, 4), "-1h -45m -30m -15m now");
        assert_eq!(labels(60_000, 42_000, 3), "-90s -1m");
        assert_eq!(labels(345_600_000, 0, 4), "-4d -3d -2d -1d now");
        assert_eq!(labels(500, 0, 4), "now");
    }
}
