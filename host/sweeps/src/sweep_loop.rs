//! The loop over sweeps: observes the jobs of their trials, records what [`crate::decision`] decides, and makes the jobs
//! follow it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use saggar_jobs::JobError;
use saggar_store::JobState;
use saggar_store::records::{SweepDecision, SweepRecord, SweepState, TrialRecord, TrialState};
use tokio::sync::watch;

use crate::decision::{self, SweepInput, TrialObservation};
use crate::error::SweepError;
use crate::limits::{LOOK_INTERVAL_MAX, LOOK_INTERVAL_MIN};
use crate::spec::{SweepMethod, SweepSpec, ValidSweep};
use crate::{SweepService, is_temporary};

/// What the loop knows of a sweep. It can be lost at any instant.
struct FollowedSweep {
    sweep: ValidSweep,
    state: SweepState,
    /// The number of decisions that `trials` include.
    decisions: u64,
    trials: Vec<TrialRecord>,
    /// The numbers of trials whose jobs may not follow the last decision.
    unsettled: BTreeSet<u32>,
    /// The points of completed trials, for the median.
    finished: BTreeMap<u32, Vec<(u64, f64)>>,
    /// The device seconds of trials that are over.
    device_seconds: BTreeMap<u32, f64>,
}

impl FollowedSweep {
    /// Returns the numbers of the unsettled trials, those without a job first, and forgets them.
    fn take_unsettled(&mut self) -> Vec<u32> {
        let without_job: BTreeSet<u32> =
            self.trials.iter().filter(|trial| trial.job.is_none()).map(|trial| trial.number).collect();
        let unsettled = std::mem::take(&mut self.unsettled);
        let (mut first, rest): (Vec<u32>, Vec<u32>) =
            unsettled.into_iter().partition(|number| without_job.contains(number));
        first.extend(rest);
        first
    }

    /// Returns whether a trial must not continue yet, because the job of a copy of its state is not submitted.
    fn has_pending_copy(&self, trial: &TrialRecord) -> bool {
        let is_pending = |copy: &TrialRecord| {
            copy.job.is_none()
                && matches!(copy.state, TrialState::Running | TrialState::Paused)
                && copy.parent.as_ref().is_some_and(|parent| parent.trial == trial.number)
        };
        trial.state == TrialState::Running && self.trials.iter().any(is_pending)
    }

    /// Returns the job of the trial that a trial continues from.
    fn job_of_parent(&self, trial: &TrialRecord) -> Option<String> {
        let parent = trial.parent.as_ref()?.trial;
        self.trials.iter().find(|trial| trial.number == parent)?.job.clone()
    }
}

impl SweepService {
    /// Follows the sweeps until `shutdown` is true.
    pub async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        let mut changes = self.shared.jobs.subscribe_changes();
        let mut followed: HashMap<String, FollowedSweep> = HashMap::new();
        while !*shutdown.borrow() {
            changes.mark_unchanged();
            if let Err(error) = self.look_at_all(&mut followed).await {
                tracing::error!(%error, "sweeps cannot be read; trying again");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL_MIN) => {}
                _ = shutdown.changed() => continue,
            }
            tokio::select! {
                // Without a sweep, nothing depends on the jobs.
                changed = changes.changed(), if !followed.is_empty() => if changed.is_err() { return },
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(LOOK_INTERVAL_MAX) => {}
                _ = shutdown.changed() => {}
            }
        }
    }

    async fn look_at_all(&self, followed: &mut HashMap<String, FollowedSweep>) -> Result<(), SweepError> {
        let sweeps = self.with_records(|records| records.unsettled_sweeps()).await?;
        followed.retain(|id, _| sweeps.iter().any(|sweep| sweep.id == *id));
        for sweep in sweeps {
            let name = sweep.name.clone();
            if let Err(error) = self.look_at(sweep, followed).await {
                tracing::error!(sweep = name, %error, "a sweep cannot continue; trying again");
            }
        }
        self.shared.metrics.set_unfinished(followed.values().map(|known| (known.state, &known.trials[..])));
        Ok(())
    }

    /// Looks at one sweep.
    async fn look_at(
        &self,
        record: SweepRecord,
        followed: &mut HashMap<String, FollowedSweep>,
    ) -> Result<(), SweepError> {
        let known = followed.remove(&record.id).filter(|known| known.decisions == record.decisions);
        let mut known = match known {
            Some(known) => known,
            None => self.read_sweep(&record).await?,
        };
        let mut record = record;
        if record.state == SweepState::Running {
            let decision = self.decide(&record, &mut known).await?;
            if !decision.is_empty() && !self.record_decision(&mut record, &mut known, decision).await? {
                // Another decision came first, such as a user's stop.
                return Ok(());
            }
        }
        self.settle_jobs(&mut record, &mut known).await?;
        if record.state.is_final() && known.unsettled.is_empty() {
            let id = record.id.clone();
            return self.with_records(move |records| records.settle_sweep(&id)).await;
        }
        known.state = record.state;
        followed.insert(record.id.clone(), known);
        Ok(())
    }

    /// Reads a sweep and its trials. All its jobs are then checked once.
    async fn read_sweep(&self, record: &SweepRecord) -> Result<FollowedSweep, SweepError> {
        let spec: SweepSpec = serde_json::from_str(&record.spec).map_err(std::io::Error::other)?;
        let trials = self.trials(&record.id).await?;
        Ok(FollowedSweep {
            sweep: spec.validate()?,
            state: record.state,
            decisions: record.decisions,
            unsettled: trials.iter().map(|trial| trial.number).collect(),
            trials,
            finished: BTreeMap::new(),
            device_seconds: BTreeMap::new(),
        })
    }

    async fn decide(&self, record: &SweepRecord, known: &mut FollowedSweep) -> Result<SweepDecision, SweepError> {
        let mut observed = BTreeMap::new();
        for trial in known.trials.iter().filter(|trial| trial.state == TrialState::Running) {
            if let Some(job) = &trial.job {
                observed.insert(trial.number, self.observe(&known.sweep, trial, job).await?);
            }
        }
        if known.sweep.spec.method == SweepMethod::Median {
            self.read_finished(known).await?;
        }
        let device_seconds = match known.sweep.spec.budget_device_seconds {
            Some(_) => self.device_seconds(known).await?,
            None => 0.0,
        };
        let elapsed_ms = self.shared.clock.now_ms().saturating_sub(record.created_ms);
        Ok(decision::decide(&SweepInput {
            sweep: &known.sweep,
            trials: &known.trials,
            observed: &observed,
            finished: &known.finished,
            elapsed_seconds: elapsed_ms as f64 / 1000.0,
            device_seconds,
        }))
    }

    /// Returns what the job of a trial has recorded, or `None` if it was removed.
    async fn observe(
        &self,
        sweep: &ValidSweep,
        trial: &TrialRecord,
        job: &str,
    ) -> Result<Option<TrialObservation>, SweepError> {
        let job = match self.shared.jobs.get(job).await {
            Ok(job) => job,
            Err(JobError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let point = sweep.pause_point(trial.rung);
        let is_at_rung = job.is_paused && point.is_some() && job.pause == point;
        let metric = &sweep.metric.metric;
        let (mut points, mut series) = (Vec::new(), Vec::new());
        if sweep.spec.method == SweepMethod::Median {
            points = self.points(&job.id, metric).await?;
        } else if is_at_rung || job.state.is_final() {
            let details = self.shared.jobs.job_details(&job.id).await?;
            let last = details.latest.iter().find(|point| point.name == *metric);
            points.extend(last.map(|point| (point.step, point.value)));
        }
        if points.is_empty() && job.state == JobState::Succeeded {
            series = self.shared.jobs.series_names(&job.id).await?;
        }
        let (state, reason) = (job.state, job.reason);
        Ok(Some(TrialObservation { state, is_at_rung, reason, points, series }))
    }

    async fn points(&self, job: &str, metric: &str) -> Result<Vec<(u64, f64)>, SweepError> {
        let (job, metric) = (job.to_owned(), metric.to_owned());
        let points = self.with_records(move |records| records.series(&job, &metric, 0, 0)).await?;
        Ok(points.into_iter().map(|point| (point.step, point.value)).collect())
    }

    /// Reads the points of completed trials that are not read yet.
    async fn read_finished(&self, known: &mut FollowedSweep) -> Result<(), SweepError> {
        for trial in known.trials.iter().filter(|trial| trial.state == TrialState::Completed) {
            if let Some(job) = &trial.job
                && !known.finished.contains_key(&trial.number)
            {
                let points = self.points(job, &known.sweep.metric.metric).await?;
                known.finished.insert(trial.number, points);
            }
        }
        Ok(())
    }

    /// Returns the device seconds that the trials have used.
    async fn device_seconds(&self, known: &mut FollowedSweep) -> Result<f64, SweepError> {
        let is_counted = |trial: &&TrialRecord| known.device_seconds.contains_key(&trial.number);
        let open: Vec<&TrialRecord> = known.trials.iter().filter(|trial| !is_counted(trial)).collect();
        let ids = open.iter().filter_map(|trial| trial.job.clone()).collect();
        let details = self.shared.jobs.details(ids).await?;
        let mut used: f64 = known.device_seconds.values().sum();
        let mut over = Vec::new();
        for trial in open {
            let Some(job) = trial.job.as_ref().and_then(|job| details.get(job)) else { continue };
            let seconds: f64 = job.attempts.iter().map(|attempt| attempt.usage.gpu_seconds).sum();
            used += seconds;
            if matches!(trial.state, TrialState::Completed | TrialState::Failed) {
                over.push((trial.number, seconds));
            }
        }
        known.device_seconds.extend(over);
        Ok(used)
    }

    /// Records a decision. Returns `false` if another one came first.
    async fn record_decision(
        &self,
        record: &mut SweepRecord,
        known: &mut FollowedSweep,
        decision: SweepDecision,
    ) -> Result<bool, SweepError> {
        let (id, decisions, now_ms) = (record.id.clone(), known.decisions, self.shared.clock.now_ms());
        let recorded = decision.clone();
        let write = move |records: &dyn saggar_store::records::JobRecords| {
            records.record_decision(&id, decisions, &recorded, now_ms)
        };
        if !self.with_records(write).await? {
            return Ok(false);
        }
        known.decisions += 1;
        self.shared.metrics.count_decision(known.sweep.spec.method, &known.trials, &decision);
        for trial in decision.trials {
            tracing::info!(
                sweep = record.name,
                trial = trial.number,
                state = %trial.state,
                rung = trial.rung,
                reason = trial.reason.code,
                "trial"
            );
            known.unsettled.insert(trial.number);
            match known.trials.iter_mut().find(|old| old.number == trial.number) {
                // A decision does not change a trial's job.
                Some(old) => *old = TrialRecord { job: old.job.clone(), ..trial },
                None => known.trials.push(trial),
            }
        }
        if let Some((state, reason)) = decision.end {
            tracing::info!(sweep = record.name, %state, reason = reason.code, "sweep ended");
            (record.state, record.reason) = (state, reason);
        }
        Ok(true)
    }

    /// Makes the jobs of trials follow the decisions. Jobs that cannot be reached now are tried again.
    async fn settle_jobs(&self, record: &mut SweepRecord, known: &mut FollowedSweep) -> Result<(), SweepError> {
        let mut refused = SweepDecision::default();
        for number in known.take_unsettled() {
            let Some(at) = known.trials.iter().position(|trial| trial.number == number) else { continue };
            if known.has_pending_copy(&known.trials[at]) {
                known.unsettled.insert(number);
                continue;
            }
            let parent = known.job_of_parent(&known.trials[at]);
            let trial = &mut known.trials[at];
            match self.settle_trial(record, &known.sweep, trial, parent.as_deref()).await {
                Ok(()) => {}
                Err(error) if is_temporary(&error) || record.state != SweepState::Running => {
                    tracing::error!(sweep = record.name, trial = number, %error, "a trial's job does not follow yet");
                    known.unsettled.insert(number);
                }
                Err(error) => {
                    let reason = saggar_store::records::StateReason::new("REFUSED", error.to_string());
                    let rung_values = trial.rung_values.iter().copied().chain([None]).collect();
                    refused.trials.push(TrialRecord {
                        state: TrialState::Failed,
                        rung_values,
                        reason,
                        ..trial.clone()
                    });
                }
            }
        }
        if !refused.trials.is_empty() {
            self.record_decision(record, known, refused).await?;
            self.shared.wake.notify_one();
        }
        Ok(())
    }
}
