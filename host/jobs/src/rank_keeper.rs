//! Runs the ranks of this host for attempts that other hosts lead.
//!
//! The records say which parts of attempts a host has. It starts the ranks of a part once rank 0 waits for them, and ends them
//! when the part is over: the job has another attempt, another epoch, or none. The ranks end by themselves with rank 0 and
//! with this process. If one ends, rank 0 notices, and the attempt fails; nothing is started again under the same epoch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_store::records::{HostOffer, HostPart, JobOrder, JobRecords, StateReason};
use saggar_telemetry::RepeatedFailure;
use tokio::io::BufReader;
use tokio::task::JoinSet;

use crate::error::JobError;
use crate::launcher::WorkerHandle;
use crate::limits::EVENT_BYTES_MAX;
use crate::line_reader::{LineRead, LineStream};
use crate::rank_network::{RankCredentials, RankIdentity};
use crate::shared::SharedState;
use crate::spec::{HOST_SHUTDOWN, JobSpec};

/// Time between two looks at the parts of this host.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Which attempt a part is of: job, attempt and epoch.
type PartKey = (String, u32, u64);

/// The parts that this host runs.
#[derive(Default)]
pub(crate) struct HostParts {
    /// The tasks of the ranks of each part. Dropping them kills the ranks.
    running: HashMap<PartKey, JoinSet<()>>,
    /// Parts that were started and are still in the records.
    started: HashSet<PartKey>,
}

fn key_of(part: &HostPart) -> PartKey {
    (part.job.clone(), part.attempt, part.epoch)
}

/// Runs the parts of this host until the task is aborted.
pub(crate) async fn keep_ranks(shared: Arc<SharedState>) {
    let mut parts = HostParts::default();
    let failure = RepeatedFailure::new("the parts of attempts that this host has cannot be read");
    loop {
        // If it fails, rank 0 ends the ranks of an attempt that is over.
        let listed = list_parts(&shared).await;
        failure.log(listed.map(|listed| parts.follow(&shared, &listed)));
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Returns the parts of this host.
pub(crate) async fn list_parts(shared: &Arc<SharedState>) -> Result<Vec<HostPart>, JobError> {
    let id = shared.server().id.clone();
    let parts = shared.with_records(move |records: &dyn JobRecords| records.parts_of_host(&id)).await?;
    *shared.led_elsewhere.lock() = parts.iter().map(|part| part.job.clone()).collect();
    Ok(parts)
}

impl HostParts {
    /// Ends the parts that are over, and starts those whose rank 0 waits for them.
    pub(crate) fn follow(&mut self, shared: &Arc<SharedState>, listed: &[HostPart]) {
        let current: HashSet<PartKey> = listed.iter().map(key_of).collect();
        self.running.retain(|key, _| current.contains(key));
        self.started.retain(|key| current.contains(key));
        for part in listed {
            if part.meeting_point.is_none() || self.started.contains(&key_of(part)) || shared.is_closing() {
                continue;
            }
            self.started.insert(key_of(part));
            match start_ranks(shared, part) {
                Ok(ranks) => {
                    tracing::info!(job = part.name, attempt = part.attempt, ranks = ranks.len(), "ranks start");
                    self.running.insert(key_of(part), ranks);
                }
                // Rank 0 stops waiting after a while, and the attempt is repeated.
                Err(error) => tracing::error!(job = part.name, %error, "the ranks of a part cannot be started"),
            }
        }
    }
}

/// Starts the ranks of a part, each followed by a task.
fn start_ranks(shared: &Arc<SharedState>, part: &HostPart) -> Result<JoinSet<()>, JobError> {
    let spec: JobSpec = serde_json::from_str(&part.spec).map_err(|error| JobError::Io(error.into()))?;
    let point = part.meeting_point.clone().ok_or_else(|| JobError::Io(std::io::ErrorKind::NotConnected.into()))?;
    let on_each_host = spec.replicas_on_each_host();
    let mut ranks = JoinSet::new();
    for rank in part.part * on_each_host..(part.part + 1) * on_each_host {
        let (job, attempt, epoch) = key_of(part);
        let identity = RankIdentity { job, attempt, epoch, rank };
        let credentials = RankCredentials { identity, device: part.device.clone(), meeting_point: point.clone() };
        let worker = shared.launcher.launch_rank(&credentials)?;
        ranks.spawn(follow_rank(worker, part.name.clone(), rank));
    }
    Ok(ranks)
}

/// Writes what a rank prints to the log of this host until it ends. Dropping the future kills the rank.
async fn follow_rank(mut worker: Box<dyn WorkerHandle>, job: String, rank: u32) {
    let mut output = LineStream::new(worker.take_output().map(BufReader::new));
    while output.is_open() {
        let read = output.read(EVENT_BYTES_MAX).await;
        let line = output.take_line();
        if !line.is_empty() {
            tracing::warn!(job, rank, "{}", String::from_utf8_lossy(&line));
        }
        if read == LineRead::EndOfStream {
            output.close();
        }
    }
    match worker.wait().await {
        Ok(exit) => tracing::info!(job, rank, exit_code = exit.code, "a rank has ended"),
        Err(error) => tracing::warn!(job, rank, %error, "the end of a rank cannot be observed"),
    }
}

/// Asks the leaders of the attempts that this host has parts of to save their state and queue the jobs again.
pub(crate) async fn leave_parts(shared: &Arc<SharedState>) {
    let jobs = shared.led_elsewhere.lock().clone();
    for job in jobs {
        let sentence = format!("host {} takes no more jobs", shared.server().name);
        let order = JobOrder::Preempt(StateReason::new(HOST_SHUTDOWN, sentence));
        let id = job.clone();
        if let Err(error) = shared.with_records(move |records: &dyn JobRecords| records.order(&id, &order)).await {
            // It has ended meanwhile, or its ranks end with this process, which its leader notices.
            tracing::warn!(job, %error, "a job with a part on this host was not asked to leave it");
        }
    }
}

/// Leaves the parts of this host when it shuts down, and waits until they are over, at most as long as attempts may take.
pub(crate) async fn leave_for_shutdown(shared: &Arc<SharedState>) {
    // No new parts are placed here from the next renewal of this host's row on.
    shared.set_host_offer(HostOffer { pools: Default::default(), ..HostOffer::clone(&shared.host_offer()) });
    leave_parts(shared).await;
    let began = Instant::now();
    while began.elapsed() < shared.stop_grace() && list_parts(shared).await.is_ok_and(|parts| !parts.is_empty()) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
