//! Runs one attempt of one job in a process that a batch system started, and then ends.

use std::sync::Arc;
use std::time::Instant;

use saggar_store::records::{
    AttemptHost, HostOffer, JobRecord, JobRecords, JobState, QueueSelection, SchedulingRequest,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::JobService;
use crate::batch_task::BatchTask;
use crate::error::JobError;
use crate::host_keeper;
use crate::lease_keeper;
use crate::limits::PART_WAIT_MAX;
use crate::placement::PlacementDecision;
use crate::queue_snapshot::QueueSnapshot;
use crate::rank_keeper::{self, HostParts};
use crate::scheduler::{POLL_INTERVAL, claim_among, forward_stop_requests, start_attempt};
use crate::scheduler_config::{ANY_POOL, JobQueue};
use crate::transport::UnixWorkerListener;

/// The outcome of a process that was to run one attempt.
#[derive(Clone, Debug)]
pub enum SingleAttempt {
    /// The job is not queued: another process runs it, or it is over or paused.
    NotQueued(Box<JobRecord>),
    /// The job has to wait: its limits do not allow it to start, or this host does not fit. The text is the reason.
    MustWait(Box<JobRecord>, String),
    /// The attempt ran, and the job is in this state.
    Ran(Box<JobRecord>),
}

impl JobService {
    /// Claims the job with this name or identifier and runs one attempt of it to its end. If `shutdown` becomes true, the
    /// attempt saves its state and the job is queued again. If the job has several hosts, the first process of a batch job
    /// does that, and the others run the other parts of the attempt.
    ///
    /// # Errors
    /// `NotFound`; `Io` if the attempt's process cannot connect; `Records`.
    pub async fn run_single_attempt(
        &self,
        job: &str,
        task: Option<BatchTask>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<SingleAttempt, JobError> {
        let shared = &self.shared;
        if shared.gateway().is_err() {
            shared.accept_workers(Box::new(UnixWorkerListener::bind()?));
        }
        let record = self.get(job).await?;
        let task = task.filter(|_| record.demand.hosts > 1);
        if let Some(task) = task.as_ref().filter(|task| task.number > 0) {
            return self.run_part(&record, task, shutdown).await;
        }
        if record.state != JobState::Queued || record.is_paused {
            return Ok(SingleAttempt::NotQueued(Box::new(record)));
        }
        self.admit_job(&record.demand);
        // Key limits are read from the key file.
        let selection = QueueSelection::Job(record.id.clone());
        let look = QueueSnapshot::read(shared, selection.clone()).await?;
        let claimed = claim_among(shared, selection, task.map(|task| task.batch_job), |_| true).await?.pop();
        let Some((claim, device)) = claimed else { return self.explain_wait(&record.id, &look).await };
        // Aborted when they are dropped, after the attempt has ended.
        let mut keepers = JoinSet::new();
        if shared.records.is_shared() {
            keepers.spawn(lease_keeper::renew_leases(Arc::clone(shared)));
            keepers.spawn(host_keeper::keep_registered(Arc::clone(shared)));
        }
        let mut attempt = tokio::spawn(start_attempt(shared, claim, device));
        let mut look = tokio::time::interval(POLL_INTERVAL);
        let mut is_stopping = *shutdown.borrow();
        loop {
            if is_stopping {
                shared.close();
                self.shared.update_control(&record.id, |control| control.stop = true);
            }
            forward_stop_requests(shared).await;
            tokio::select! {
                ended = &mut attempt => {
                    ended.map_err(std::io::Error::other)?;
                    break;
                }
                _ = look.tick() => {}
                changed = shutdown.changed(), if !is_stopping => is_stopping = changed.is_err() || *shutdown.borrow(),
            }
        }
        drop(keepers);
        if shared.records.is_shared() {
            host_keeper::unregister(shared).await;
        }
        Ok(SingleAttempt::Ran(Box::new(self.get(&record.id).await?)))
    }

    /// Runs a part of an attempt that another process of the batch job leads.
    async fn run_part(
        &self,
        record: &JobRecord,
        task: &BatchTask,
        shutdown: watch::Receiver<bool>,
    ) -> Result<SingleAttempt, JobError> {
        let shared = &self.shared;
        self.admit_job(&record.demand);
        let began = Instant::now();
        while !self.take_part(record, task).await? {
            if *shutdown.borrow() || began.elapsed() >= PART_WAIT_MAX {
                let record = Box::new(self.get(&record.id).await?);
                return Ok(match record.state {
                    JobState::Queued => SingleAttempt::MustWait(record, "the first process claimed nothing".to_owned()),
                    _ => SingleAttempt::NotQueued(record),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let mut keepers = JoinSet::new();
        keepers.spawn(host_keeper::keep_registered(Arc::clone(shared)));
        let (mut parts, mut left_at) = (HostParts::default(), None);
        loop {
            let listed = rank_keeper::list_parts(shared).await?;
            if listed.is_empty() || left_at.is_some_and(|at: Instant| at.elapsed() >= shared.stop_grace()) {
                break;
            }
            parts.follow(shared, &listed);
            if *shutdown.borrow() && left_at.is_none() {
                rank_keeper::leave_parts(shared).await;
                left_at = Some(Instant::now());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        drop((parts, keepers));
        host_keeper::unregister(shared).await;
        Ok(SingleAttempt::Ran(Box::new(self.get(&record.id).await?)))
    }

    /// Takes the part of a process of a batch job. Returns `false` if the first process has not claimed the job yet.
    async fn take_part(&self, record: &JobRecord, task: &BatchTask) -> Result<bool, JobError> {
        let config = self.shared.scheduler_config();
        let queue = config.queues.get(&record.demand.queue);
        let pool = queue.and_then(|queue| queue.pools.iter().find_map(|name| config.pools.get(name)));
        let device = pool.map_or_else(|| record.demand.device.clone(), |pool| pool.device_for(&record.demand.device));
        let server = self.shared.server().clone();
        let host = AttemptHost { host_id: server.id, host: server.name, pool: String::new(), device };
        let (id, task) = (record.id.clone(), task.clone());
        let take = move |records: &dyn JobRecords| records.take_part(&id, &task.batch_job, task.number, &host);
        Ok(self.shared.with_records(take).await?.is_some())
    }

    /// Gives the job's queue and pools what it needs: the batch system has granted it the resources.
    fn admit_job(&self, demand: &SchedulingRequest) {
        self.shared.change_scheduler_config(|config| {
            if !config.queues.contains_key(&demand.queue) {
                let queue = JobQueue { pools: vec![ANY_POOL.to_owned()], spill: true, max_running_jobs: None };
                config.queues.insert(demand.queue.clone(), queue);
            }
            for pool in config.pools.values_mut() {
                pool.slots_milli = pool.slots_milli.max(demand.slots_milli);
            }
        });
        self.set_host_offer(HostOffer::clone(&self.shared.host_offer()));
    }

    /// Returns why a job was not claimed.
    async fn explain_wait(&self, id: &str, look: &QueueSnapshot) -> Result<SingleAttempt, JobError> {
        let record = self.get(id).await?;
        if record.state != JobState::Queued || record.is_paused {
            return Ok(SingleAttempt::NotQueued(Box::new(record)));
        }
        let decisions = look.decisions();
        let decided =
            look.state.waiting.iter().zip(&decisions).find(|(job, _)| job.id == id).map(|(_, decision)| decision);
        let reason = match decided {
            Some(PlacementDecision::Wait { reason, .. }) => format!("{}: {}", reason.code, reason.sentence),
            Some(PlacementDecision::Start { .. }) | None => "another process takes its slot".to_owned(),
        };
        Ok(SingleAttempt::MustWait(Box::new(record), reason))
    }
}
