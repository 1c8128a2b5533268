//! The loop that drives the runs of a server, each in its own task.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::driver::RunDriver;
use crate::schedules;
use crate::service::PipelineService;

/// How often runs are driven without a notification, for what a failed try left undone.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long changes of jobs are collected before the runs are driven.
const CHANGES_INTERVAL: Duration = Duration::from_millis(100);

impl PipelineService {
    /// Drives all runs until `shutdown` is true. `changes` is notified of every change of a job. Runs continue where
    /// they are when a server starts again.
    pub async fn run(&self, mut changes: watch::Receiver<u64>, mut shutdown: watch::Receiver<bool>) {
        let Some(driver) = self.driver() else { return };
        let mut drivers = RunDrivers { driver, tasks: JoinSet::new(), driven: HashMap::new() };
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*shutdown.borrow() {
            tokio::select! {
                () = self.wait_for_command() => self.drive_all(&mut drivers).await,
                _ = poll.tick() => {
                    schedules::start_due_runs(self).await;
                    self.drive_all(&mut drivers).await;
                }
                Ok(()) = changes.changed() => {
                    // A change can be a log line: many together are one reason to look.
                    tokio::time::sleep(CHANGES_INTERVAL).await;
                    changes.mark_unchanged();
                    self.drive_all(&mut drivers).await;
                }
                Some(ended) = drivers.tasks.join_next(), if !drivers.tasks.is_empty() => drivers.finish(ended),
                _ = shutdown.changed() => {}
            }
        }
        drivers.tasks.shutdown().await;
    }

    /// Drives every run that is not over.
    async fn drive_all(&self, drivers: &mut RunDrivers) {
        match self.with_records(|records| records.unfinished_runs()).await {
            Ok(runs) => {
                self.metrics().set_running(runs.len());
                runs.into_iter().for_each(|run| drivers.drive(run.id));
            }
            Err(error) => tracing::error!(%error, "pipeline runs cannot be read; trying again"),
        }
    }
}

/// The tasks that drive runs, at most one for each run.
struct RunDrivers {
    driver: RunDriver,
    tasks: JoinSet<String>,
    /// The runs that are driven, each with whether something changed since its driver began.
    driven: HashMap<String, bool>,
}

impl RunDrivers {
    fn drive(&mut self, id: String) {
        if let Some(has_changed) = self.driven.get_mut(&id) {
            *has_changed = true;
            return;
        }
        self.driven.insert(id.clone(), false);
        let driver = self.driver.clone();
        self.tasks.spawn(async move {
            if let Err(error) = driver.drive(&id).await {
                tracing::error!(run = id, %error, "a pipeline run cannot advance; trying again");
            }
            id
        });
    }

    /// Forgets a driver that ended, or starts another one if something changed meanwhile.
    fn finish(&mut self, ended: Result<String, JoinError>) {
        match ended {
            Ok(id) => {
                if self.driven.remove(&id) == Some(true) {
                    self.drive(id);
                }
            }
            Err(error) => {
                tracing::error!(%error, "the driver of a pipeline run panicked");
                // Which one is unknown. Two drivers of one run do no harm: each change is made once.
                self.driven.clear();
            }
        }
    }
}
