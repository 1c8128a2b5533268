//! Samples the state of the server for its history, once a second.

use std::time::Instant;

use saggar_metrics::history::HistoryResolution;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::app::AppState;

impl AppState {
    /// Samples the server for its history until it stops.
    pub async fn sample_history(self, mut shutdown: watch::Receiver<bool>) {
        let began = Instant::now();
        let mut changes = self.jobs().subscribe_changes();
        // The first sample needs the jobs of before.
        changes.mark_changed();
        let mut ticks = tokio::time::interval(HistoryResolution::Second.interval());
        // After a suspension of the machine one sample covers it.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = shutdown.wait_for(|&stop| stop) => return,
            }
            if changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                self.history().read_jobs(self.jobs()).await;
            }
            self.history().add_snapshot(self.metrics(), self.now_ms(), began.elapsed());
        }
    }
}
