//! When an idle notebook is warned about and stopped.

use std::time::{Duration, Instant};

use crate::activity::NotebookActivity;
use crate::limits::IDLE_WARNING_MAX;

/// What has to happen because of a notebook's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleAction {
    /// Nothing.
    Nothing,
    /// The log has to say that the notebook will stop.
    Warn {
        /// The time without activity.
        idle: Duration,
        /// The time until the stop.
        left: Duration,
    },
    /// The notebook was warned about, and is active again.
    Resumed,
    /// The notebook has to stop.
    Stop {
        /// The time without activity.
        idle: Duration,
    },
}

/// Measures how long a notebook has been idle.
#[derive(Debug)]
pub struct IdleMonitor {
    timeout: Duration,
    active_at: Instant,
    activity: Option<NotebookActivity>,
    is_warned: bool,
}

impl IdleMonitor {
    /// Starts to measure at `now`. A notebook stops after `timeout` without activity.
    pub fn start(timeout: Duration, now: Instant) -> IdleMonitor {
        IdleMonitor { timeout, active_at: now, activity: None, is_warned: false }
    }

    /// Observes the activity at `now`. A warning is returned once for each time without activity.
    pub fn observe(&mut self, activity: NotebookActivity, now: Instant) -> IdleAction {
        let is_active = activity.is_busy || self.activity.as_ref().is_some_and(|before| *before != activity);
        self.activity = Some(activity);
        if is_active {
            self.active_at = now;
            return if std::mem::take(&mut self.is_warned) { IdleAction::Resumed } else { IdleAction::Nothing };
        }
        let idle = now.saturating_duration_since(self.active_at);
        let left = self.timeout.saturating_sub(idle);
        if left.is_zero() && self.is_warned {
            return IdleAction::Stop { idle };
        }
        // The warning comes before the stop even if nothing was observed for a long time.
        if left <= self.warning_time() && !self.is_warned {
            self.is_warned = true;
            return IdleAction::Warn { idle, left };
        }
        IdleAction::Nothing
    }

    /// Returns how long before the stop the warning comes.
    fn warning_time(&self) -> Duration {
        (self.timeout / 5).min(IDLE_WARNING_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(is_busy: bool, marks: &str) -> NotebookActivity {
        NotebookActivity { is_busy, marks: vec![marks.to_owned()] }
    }

    #[test]
    fn an_idle_notebook_is_warned_about_once_and_then_stopped() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut monitor = IdleMonitor::start(Duration::from_secs(100), began);
        assert_eq!(monitor.observe(activity(false, "a"), at(79)), IdleAction::Nothing);
        let (idle, left) = (Duration::from_secs(85), Duration::from_secs(15));
        assert_eq!(monitor.observe(activity(false, "a"), at(85)), IdleAction::Warn { idle, left });
        assert_eq!(monitor.observe(activity(false, "a"), at(99)), IdleAction::Nothing);
        assert_eq!(monitor.observe(activity(false, "a"), at(101)), IdleAction::Stop { idle: Duration::from_secs(101) });
    }

    #[test]
    fn activity_and_running_cells_keep_a_notebook() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut monitor = IdleMonitor::start(Duration::from_secs(100), began);
        assert_eq!(monitor.observe(activity(false, "a"), at(0)), IdleAction::Nothing);
        assert!(matches!(monitor.observe(activity(false, "a"), at(90)), IdleAction::Warn { .. }));
        assert_eq!(monitor.observe(activity(false, "b"), at(95)), IdleAction::Resumed);
        assert_eq!(monitor.observe(activity(false, "b"), at(120)), IdleAction::Nothing);
        for second in [150, 300, 600] {
            assert_eq!(monitor.observe(activity(true, "b"), at(second)), IdleAction::Nothing);
        }
        // The end of a cell is activity.
        assert_eq!(monitor.observe(activity(false, "b"), at(900)), IdleAction::Nothing);
        assert!(matches!(monitor.observe(activity(false, "b"), at(999)), IdleAction::Warn { .. }));
        assert!(matches!(monitor.observe(activity(false, "b"), at(1000)), IdleAction::Stop { .. }));
    }

    #[test]
    fn a_warning_comes_at_most_five_minutes_before_the_stop() {
        let began = Instant::now();
        let mut monitor = IdleMonitor::start(Duration::from_secs(36_000), began);
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(monitor.observe(activity(false, "a"), at(35_600)), IdleAction::Nothing);
        assert!(matches!(monitor.observe(activity(false, "a"), at(35_701)), IdleAction::Warn { .. }));
    }
}
