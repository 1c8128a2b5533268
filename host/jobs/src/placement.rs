//! Job placement: which waiting job runs next, where, and why the others wait. It is a pure function of the waiting
//! jobs, the running jobs, the configuration and the usage. The scheduler acts on it; a listing shows it.
//!
//! Jobs are considered in order of priority, then non-preemptible before preemptible, then age. A job takes slots of
//! the first pool of its queue that accepts its device and has enough free; with `spill` off, only the first accepting
//! pool counts. A job that must wait for slots reserves them, so that jobs that need few slots cannot starve one that
//! needs many. If no pool has enough free slots, a job can preempt preemptible jobs: those of lower priority, and those
//! of equal priority if it is not preemptible itself. Only one server at a time preempts jobs for a waiting one. A job with
//! several hosts gets all of them at once ([`gang`]).

use std::collections::{BTreeMap, HashMap};

use saggar_clock::UnixMillis;
use saggar_store::records::{
    ActiveJob, AttemptHost, HostOffer, HostRecord, JobState, PlacementState, QueuedJob, ROOM_CLAIM_MS, RoomClaim,
    SchedulingRequest, ServerIdentity, StateReason, UsageTotal,
};

use crate::scheduler_config::{JobQueue, ResourceQuota, SchedulerConfig, SlotPool};
use crate::spec::OVER_BUDGET;

mod gang;
mod host_match;
#[cfg(test)]
mod tests;

/// The input of a placement.
#[derive(Clone, Copy, Debug)]
pub struct PlacementInput<'a> {
    /// The pools, queues and limits.
    pub layout: &'a SchedulerConfig,
    /// The waiting jobs in scheduling order, the running jobs and the earlier resource usage. Limits count the running
    /// jobs of all servers, and slots those of this server.
    pub state: &'a PlacementState,
    /// This server.
    pub server: &'a ServerIdentity,
    /// What this host offers.
    pub host: &'a HostOffer,
    /// All hosts of the records, for jobs with several hosts and the reasons of waits. Can be empty if no job needs it.
    pub hosts: &'a [HostRecord],
    /// The batch job whose first process this is; its other processes take the other parts of a job with several hosts.
    /// `None` if this is a server or a worker, which places such a job on hosts.
    pub batch_job: Option<&'a str>,
    /// The current time.
    pub now_ms: UnixMillis,
}

/// The code of a wait for a server that has the job's files.
pub const OTHER_STORAGE: &str = "OTHER_STORAGE";

/// The decision about a waiting job.
#[derive(Clone, Debug, PartialEq)]
pub enum PlacementDecision {
    /// The job runs, with slots of this pool, on this device.
    Start {
        /// The pool.
        pool: String,
        /// The device.
        device: String,
        /// Its hosts, in the order of their ranks, if it has several. The first one is this server.
        hosts: Vec<AttemptHost>,
    },
    /// The job waits.
    Wait {
        /// The position among the waiting jobs of its queue, from 1.
        position: u64,
        /// The reason of the wait.
        reason: StateReason,
        /// Jobs to preempt so that this one can run.
        evict: Vec<String>,
    },
}

/// Returns the decision for each waiting job, in scheduling order. It ends early where a job that was not read could be
/// the next one: once the last job that was read of a group starts.
pub fn place_jobs(situation: &PlacementInput<'_>) -> Vec<PlacementDecision> {
    let mut floor = SlotLedger::new(situation);
    let mut positions: HashMap<&str, u64> = HashMap::new();
    let mut verdicts = Vec::with_capacity(situation.state.waiting.len());
    for job in &situation.state.waiting {
        verdicts.push(match floor.decide(job, situation) {
            JobPlacement::Start { pool, device, hosts } => PlacementDecision::Start { pool, device, hosts },
            JobPlacement::Wait { code, sentence, evict } => {
                let position = positions.entry(&job.demand.queue).or_default();
                *position += 1;
                PlacementDecision::Wait { position: *position, reason: StateReason::new(code, sentence), evict }
            }
        });
        // Jobs that an engine starts stay in the queue until their workers claim them.
        let starts = matches!(verdicts.last(), Some(PlacementDecision::Start { pool, .. }) if !situation.layout.engine_pools.contains(pool));
        if starts && situation.state.unread_after.contains(&job.id) {
            break;
        }
    }
    verdicts
}

/// Returns whether any job could start now or preempt others: whether a pool of this host has free slots, or any pool has
/// preemptible jobs. It does not depend on the waiting jobs.
pub fn has_room(situation: &PlacementInput<'_>) -> bool {
    let ledger = SlotLedger::new(situation);
    let is_own = |pool: &str| !situation.layout.engine_pools.contains(pool);
    let has_free_slots = ledger.free.iter().any(|(pool, free)| is_own(pool) && *free > 0);
    has_free_slots || !ledger.evictable.is_empty()
}

/// Returns the running jobs whose project or key has used up its device seconds; they are preempted.
pub fn jobs_over_budget(situation: &PlacementInput<'_>) -> Vec<String> {
    let over = |job: &&ActiveJob| {
        let project = quota_of(&situation.layout.projects, Some(&job.project));
        let owner = quota_of(&situation.layout.owners, job.owner.as_deref());
        let of_project = sum_gpu_seconds(&situation.state.spent, |spent| spent.project == job.project);
        let of_owner = sum_gpu_seconds(&situation.state.spent, |spent| spent.owner == job.owner);
        project.gpu_seconds.is_some_and(|most| of_project >= most)
            || owner.gpu_seconds.is_some_and(|most| of_owner >= most)
    };
    situation.state.running.iter().filter(over).map(|job| job.id.clone()).collect()
}

enum JobPlacement {
    Start { pool: String, device: String, hosts: Vec<AttemptHost> },
    Wait { code: &'static str, sentence: String, evict: Vec<String> },
}

fn waiting_for(code: &'static str, sentence: impl Into<String>) -> JobPlacement {
    JobPlacement::Wait { code, sentence: sentence.into(), evict: Vec::new() }
}

/// The free slots and running jobs. Each decision updates it for those that follow.
struct SlotLedger<'a> {
    /// Free thousandths of slots, by pool.
    free: BTreeMap<&'a str, u32>,
    /// Thousandths of slots of jobs that are ending, by pool.
    releasing: BTreeMap<&'a str, u32>,
    /// Preemptible jobs with their pools on this host, in the order of preemption.
    evictable: Vec<(&'a str, &'a ActiveJob)>,
    /// Thousandths of slots that jobs with several hosts take or reserve on other hosts, by host and pool.
    taken_elsewhere: HashMap<(String, String), u32>,
    running_by_queue: HashMap<&'a str, u32>,
    running_by_project: HashMap<&'a str, u32>,
    running_by_owner: HashMap<&'a str, u32>,
}

impl<'a> SlotLedger<'a> {
    fn new(situation: &PlacementInput<'a>) -> SlotLedger<'a> {
        let mut floor = SlotLedger {
            free: situation.layout.pools.iter().map(|(name, pool)| (name.as_str(), pool.slots_milli)).collect(),
            releasing: BTreeMap::new(),
            evictable: Vec::new(),
            taken_elsewhere: HashMap::new(),
            running_by_queue: HashMap::new(),
            running_by_project: HashMap::new(),
            running_by_owner: HashMap::new(),
        };
        for count in &situation.state.running_elsewhere {
            floor.count_running(&count.queue, &count.project, count.owner.as_deref(), count.jobs);
        }
        for job in &situation.state.running {
            floor.count_running(&job.demand.queue, &job.project, job.owner.as_deref(), 1);
            // Another server's pools are its own, also if they have the same names. Those of an engine are common.
            let is_engines = situation.layout.engine_pools.contains(&job.pool);
            let pool = if is_engines { Some(job.pool.as_str()) } else { job.pool_on(&situation.server.id) };
            let Some(pool) = pool else { continue };
            let slots = slots_needed(&job.demand, pool, situation);
            if let Some(free) = floor.free.get_mut(pool) {
                *free = free.saturating_sub(slots);
            }
            if is_releasing(job) {
                *floor.releasing.entry(pool).or_default() += slots;
            } else if job.demand.preemptible {
                floor.evictable.push((pool, job));
            }
        }
        floor.evictable.sort_by_key(|(_, job)| preemption_order(job));
        floor
    }

    fn count_running(&mut self, queue: &'a str, project: &'a str, owner: Option<&'a str>, jobs: u32) {
        *self.running_by_queue.entry(queue).or_default() += jobs;
        *self.running_by_project.entry(project).or_default() += jobs;
        if let Some(owner) = owner {
            *self.running_by_owner.entry(owner).or_default() += jobs;
        }
    }

    fn decide(&mut self, job: &'a QueuedJob, situation: &PlacementInput<'a>) -> JobPlacement {
        let demand = &job.demand;
        let Some(queue) = situation.layout.queues.get(&demand.queue) else {
            let known = situation.layout.queues.keys().cloned().collect::<Vec<_>>().join(", ");
            return waiting_for("NO_SUCH_QUEUE", format!("there is no queue {}; there are: {known}", demand.queue));
        };
        // If the clock was set back, the remaining wait can exceed the requested delay; the delay then counts as over.
        let wait_ms = job.not_before_ms.saturating_sub(situation.now_ms);
        if wait_ms > 0 && wait_ms <= job.backoff_ms {
            let seconds = wait_ms.div_ceil(1000);
            return waiting_for("BACKOFF", format!("{} s until the next attempt: {}", seconds, job.reason.sentence));
        }
        if !job.storage.is_empty() && job.storage != situation.server.storage {
            return waiting_for(OTHER_STORAGE, "its files are in the storage of another server, which has to run it");
        }
        if let Some(outcome) = self.check_quotas(job, queue, situation) {
            return outcome;
        }
        let pools = host_match::pools_on_host(job, queue, situation);
        if demand.hosts > 1 && situation.batch_job.is_none() {
            // An engine starts all its workers together.
            let mut engines = pools.unwrap_or_default();
            engines.retain(|(name, _)| situation.layout.engine_pools.contains(*name));
            if engines.is_empty() {
                return gang::place_gang(self, job, queue, situation);
            }
            return self.place_in_pools(job, &engines, situation);
        }
        match pools {
            Ok(pools) => self.place_in_pools(job, &pools, situation),
            Err((code, sentence)) => waiting_for(code, sentence),
        }
    }

    /// Returns the free slots of a pool of `slots_milli` on a host, and those that become free.
    fn slots_on_host(
        &self,
        host: &HostRecord,
        pool: &str,
        slots_milli: u32,
        situation: &PlacementInput<'_>,
    ) -> (u32, u32) {
        if host.id == situation.server.id {
            let of = |slots: &BTreeMap<&str, u32>| slots.get(pool).copied().unwrap_or(0);
            return (of(&self.free), of(&self.releasing));
        }
        let mut used = self.taken_elsewhere.get(&(host.id.clone(), pool.to_owned())).copied().unwrap_or(0);
        let mut releasing = 0;
        for job in situation.state.running.iter().filter(|job| job.pool_on(&host.id) == Some(pool)) {
            used = used.saturating_add(job.demand.slots_milli);
            if is_releasing(job) {
                releasing += job.demand.slots_milli;
            }
        }
        (slots_milli.saturating_sub(used), releasing)
    }

    /// Takes slots of a pool on a host for a job that starts.
    fn take_on_host(&mut self, host_id: &str, pool: &str, slots_milli: u32, situation: &PlacementInput<'_>) {
        if host_id != situation.server.id {
            *self.taken_elsewhere.entry((host_id.to_owned(), pool.to_owned())).or_default() += slots_milli;
        } else if let Some(free) = self.free.get_mut(pool) {
            *free = free.saturating_sub(slots_milli);
        }
    }

    /// Reserves slots of a pool on a host for a job that waits: those that become free first, then free ones.
    fn reserve_on_host(&mut self, host_id: &str, pool: &str, slots_milli: u32, situation: &PlacementInput<'_>) {
        let mut left = slots_milli;
        if host_id == situation.server.id
            && let Some(coming) = self.releasing.get_mut(pool)
        {
            let from_coming = (*coming).min(left);
            (*coming, left) = (*coming - from_coming, left - from_coming);
        }
        self.take_on_host(host_id, pool, left, situation);
    }

    /// Returns a wait if a limit keeps the job from running.
    fn check_quotas(&self, job: &QueuedJob, queue: &JobQueue, situation: &PlacementInput<'_>) -> Option<JobPlacement> {
        let of = |running: &HashMap<&str, u32>, name: &str| running.get(name).copied().unwrap_or(0);
        let project = quota_of(&situation.layout.projects, Some(&job.project));
        let owner = quota_of(&situation.layout.owners, job.owner.as_deref());
        let key = job.owner.as_deref().unwrap_or_default();
        let jobs = [
            ("queue", job.demand.queue.as_str(), queue.max_running_jobs, of(&self.running_by_queue, &job.demand.queue)),
            ("project", job.project.as_str(), project.max_running_jobs, of(&self.running_by_project, &job.project)),
            ("key", key, owner.max_running_jobs, of(&self.running_by_owner, key)),
        ];
        for (kind, name, limit, used) in jobs {
            if let Some(limit) = limit.filter(|limit| used >= *limit) {
                let sentence = format!("{kind} {name} runs {used} jobs of at most {limit} (max_running_jobs)");
                return Some(waiting_for("QUOTA_RUNNING_JOBS", sentence));
            }
        }
        let project_seconds = || sum_gpu_seconds(&situation.state.spent, |spent| spent.project == job.project);
        let owner_seconds = || sum_gpu_seconds(&situation.state.spent, |spent| spent.owner == job.owner);
        let budgets: [(_, _, _, &dyn Fn() -> f64); 2] = [
            ("project", job.project.as_str(), project.gpu_seconds, &project_seconds),
            ("key", key, owner.gpu_seconds, &owner_seconds),
        ];
        for (kind, name, limit, used) in budgets {
            let Some(limit) = limit else { continue };
            let used = used();
            if used >= limit {
                let sentence = format!("{kind} {name} used {used:.0} of its {limit:.0} GPU seconds (gpu_seconds)");
                return Some(waiting_for(OVER_BUDGET, sentence));
            }
        }
        None
    }

    /// Finds free slots in one of the pools, or preempts jobs for them, or reserves slots for the job.
    fn place_in_pools(
        &mut self,
        job: &'a QueuedJob,
        pools: &[(&'a str, &'a SlotPool)],
        situation: &PlacementInput<'a>,
    ) -> JobPlacement {
        for &(name, pool) in pools {
            let needed = slots_needed(&job.demand, name, situation);
            let free = self.free.entry(name).or_default();
            if *free >= needed {
                *free -= needed;
                self.count_running(&job.demand.queue, &job.project, job.owner.as_deref(), 1);
                let hosts = gang::parts_of_batch_job(job, (name, pool), situation);
                let device = pool.device_for(&job.demand.device);
                return JobPlacement::Start { pool: name.to_owned(), device, hosts };
            }
        }
        let needed = job.demand.slots_milli;
        if let Some(room) = job.room.as_ref().filter(|room| is_made_elsewhere(room, situation)) {
            let host = host_match::host_name(&room.server_id, situation.hosts);
            return waiting_for("WAITING_FOR_SLOT", format!("a job of {host} makes room for it"));
        }
        for &(name, _) in pools {
            if let Some(evict) = self.victims(job, name) {
                // Free slots and slots that become free in this pool are reserved for this job, so that later jobs do
                // not take them.
                let coming = self.releasing.entry(name).or_default();
                let from_coming = (*coming).min(needed);
                *coming -= from_coming;
                let freed: u32 = evict.iter().map(|victim| victim.demand.slots_milli).sum();
                let free = self.free.entry(name).or_default();
                *free = (*free + freed).saturating_sub(needed - from_coming).min(*free);
                // It counts like a running job, so that nothing is preempted for a job that it will keep waiting.
                self.count_running(&job.demand.queue, &job.project, job.owner.as_deref(), 1);
                self.evictable.retain(|(_, job)| evict.iter().all(|victim| victim.id != job.id));
                let names: Vec<&str> = evict.iter().map(|victim| victim.name.as_str()).collect();
                let sentence = match names.as_slice() {
                    [] => format!("a job of pool {name} is saving its state"),
                    names => format!("{} in pool {name} makes room for it", names.join(", ")),
                };
                let evict = evict.into_iter().map(|victim| victim.id.clone()).collect();
                return JobPlacement::Wait { code: "WAITING_FOR_SLOT", sentence, evict };
            }
        }
        for &(name, _) in pools {
            // Slots that become free there are reserved for this job.
            self.free.insert(name, 0);
            self.releasing.insert(name, 0);
        }
        let running = situation.state.running.iter();
        let users = |pool: &str| {
            let is_user = |job: &&ActiveJob| job.pool_on(&situation.server.id) == Some(pool);
            let names: Vec<&str> = running.clone().filter(is_user).map(|job| job.name.as_str()).take(8).collect();
            if names.is_empty() { String::new() } else { format!(", used by {}", names.join(", ")) }
        };
        let pools: Vec<String> = pools.iter().map(|(name, _)| format!("pool {name}{}", users(name))).collect();
        waiting_for("WAITING_FOR_SLOT", format!("{} of {}", count_slots(needed), pools.join("; or of ")))
    }

    /// Returns the jobs to preempt in a pool so that, with the free slots and those that become free, this job fits;
    /// `None` if they would not suffice.
    fn victims(&self, job: &QueuedJob, pool: &str) -> Option<Vec<&'a ActiveJob>> {
        let room = self.free.get(pool).copied().unwrap_or(0) + self.releasing.get(pool).copied().unwrap_or(0);
        let others = self.evictable.iter().filter(|(held, other)| *held == pool && outranks(job, other));
        enough_victims(job, room, others.map(|(_, other)| *other))
    }
}

/// Returns whether the slots of a running job become free soon.
fn is_releasing(job: &ActiveJob) -> bool {
    job.state == JobState::Stopping || job.orders.preempt.is_some()
}

/// Sorts jobs as they are preempted: the lowest priority first, then the shortest running time.
fn preemption_order(job: &ActiveJob) -> (i32, std::cmp::Reverse<UnixMillis>) {
    (job.demand.priority, std::cmp::Reverse(job.started_ms))
}

/// Returns the first of the others that have to be preempted so that a job fits beside `room` slots, in thousandths; `None` if
/// all of them would not suffice.
fn enough_victims<'a>(
    job: &QueuedJob,
    mut room: u32,
    others: impl Iterator<Item = &'a ActiveJob>,
) -> Option<Vec<&'a ActiveJob>> {
    let mut victims = Vec::new();
    for other in others {
        if room >= job.demand.slots_milli {
            break;
        }
        room += other.demand.slots_milli;
        victims.push(other);
    }
    (room >= job.demand.slots_milli).then_some(victims)
}

/// Returns whether another server makes room for a job. If the clock was set back, its claim counts as over.
fn is_made_elsewhere(room: &RoomClaim, situation: &PlacementInput<'_>) -> bool {
    let left_ms = room.until_ms.saturating_sub(situation.now_ms);
    room.server_id != situation.server.id && left_ms > 0 && left_ms <= ROOM_CLAIM_MS
}

/// Returns whether a job can preempt a running preemptible one.
fn outranks(job: &QueuedJob, running: &ActiveJob) -> bool {
    let (own, other) = (&job.demand, &running.demand);
    own.priority > other.priority || (own.priority == other.priority && !own.preemptible)
}

fn quota_of(of: &BTreeMap<String, ResourceQuota>, name: Option<&str>) -> ResourceQuota {
    name.and_then(|name| of.get(name)).copied().unwrap_or_default()
}

fn sum_gpu_seconds(spent: &[UsageTotal], counts: impl Fn(&UsageTotal) -> bool) -> f64 {
    spent.iter().filter(|spent| counts(spent)).map(|spent| spent.gpu_seconds).fold(0.0, |sum, more| sum + more)
}

/// Returns the thousandths of slots of a pool that a job occupies. The slots of an engine's pool are those of all its hosts.
fn slots_needed(demand: &SchedulingRequest, pool: &str, situation: &PlacementInput<'_>) -> u32 {
    let hosts = if situation.layout.engine_pools.contains(pool) { demand.hosts.max(1) } else { 1 };
    demand.slots_milli.saturating_mul(hosts)
}

/// Formats slots: `1`, `0.25`.
fn format_slots(milli: u32) -> String {
    (f64::from(milli) / 1000.0).to_string()
}

/// Formats slots with their unit: `1 slot`, `0.25 slots`.
fn count_slots(milli: u32) -> String {
    format!("{} {}", format_slots(milli), slot_unit(milli))
}

fn slot_unit(milli: u32) -> &'static str {
    if milli == 1000 { "slot" } else { "slots" }
}
