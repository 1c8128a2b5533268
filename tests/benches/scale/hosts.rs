//! Hosts that do with the records what servers do: look, claim, renew, finish.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use saggar_jobs::SchedulerConfig;
use saggar_jobs::placement::{PlacementDecision, PlacementInput, has_room, place_jobs};
use saggar_store::RecordError;
use saggar_store::records::{
    self, HostOffer, JobLease, JobPlacements, JobRecords, JobState, LEASE_RENEWAL_INTERVAL, PlacedJob, PlacementQuery,
    PlacementState, QueueSelection, ServerIdentity, StateReason,
};

use crate::samples::LatencySamples;
use crate::{STORAGE, job};

/// Number of hosts.
pub(crate) const HOSTS: usize = 1_000;
/// Threads that simulate them. Each has its own connections, of which it uses one at a time.
const THREADS: usize = 16;
/// How often a host looks at the queue.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The time of the shortest and of the longest job. A thousand hosts then end about a hundred jobs a second.
const JOB_TIME: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// The time over which the hosts begin, so that jobs end all the time from then on. All at once would be a thousand claims in a
/// second.
const START_TIME: Duration = Duration::from_secs(10);

/// What the hosts measured.
#[derive(Debug, Default)]
pub(crate) struct HostFigures {
    pub(crate) look: LatencySamples,
    pub(crate) claim: LatencySamples,
    pub(crate) renew: LatencySamples,
    pub(crate) claimed: usize,
    /// Jobs that were taken away because their lease was not renewed in time.
    pub(crate) lost: usize,
}

/// The hosts at work.
#[derive(Debug)]
pub(crate) struct HostLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<HostFigures>>,
}

impl HostLoad {
    /// Starts the hosts.
    pub(crate) fn start(database: &str) -> HostLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..THREADS)
            .map(|thread| {
                let (records, stop) = (records::open(database).unwrap(), Arc::clone(&stop));
                std::thread::spawn(move || run_hosts(&*records, thread, &stop))
            })
            .collect();
        HostLoad { stop, threads }
    }

    /// Stops the hosts and returns what they measured.
    pub(crate) fn stop(self) -> HostFigures {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = HostFigures::default();
        for thread in self.threads {
            let figures = thread.join().unwrap();
            all.look.add_all(&figures.look);
            all.claim.add_all(&figures.claim);
            all.renew.add_all(&figures.renew);
            all.claimed += figures.claimed;
            all.lost += figures.lost;
        }
        all
    }
}

/// A host with one slot.
struct SimulatedHost {
    identity: ServerIdentity,
    running: Option<(JobLease, Instant)>,
    next_look: Instant,
    next_renewal: Instant,
    /// Number of jobs so far.
    turn: u32,
}

/// Runs the hosts of a thread in turn.
fn run_hosts(records: &dyn JobRecords, thread: usize, stop: &AtomicBool) -> HostFigures {
    let (mut figures, started) = (HostFigures::default(), Instant::now());
    let host = |number: usize| {
        let id = format!("host-{number}");
        let delay = START_TIME.mul_f64(number as f64 / HOSTS as f64);
        SimulatedHost {
            identity: ServerIdentity { name: id.clone(), id, storage: STORAGE.to_owned() },
            running: None,
            next_look: started + delay,
            next_renewal: started + delay,
            turn: 0,
        }
    };
    let mut hosts: Vec<SimulatedHost> = (thread..HOSTS).step_by(THREADS).map(host).collect();
    let layout = SchedulerConfig::single_queue(1);
    while !stop.load(Ordering::Relaxed) {
        hosts.iter_mut().for_each(|host| host.step(records, &layout, &mut figures));
        std::thread::sleep(Duration::from_millis(2));
    }
    figures
}

impl SimulatedHost {
    fn step(&mut self, records: &dyn JobRecords, layout: &SchedulerConfig, figures: &mut HostFigures) {
        let now = Instant::now();
        if let Some((lease, _)) = self.running.take_if(|(_, end)| *end <= now) {
            match records.finish_job(&lease, JobState::Succeeded, &StateReason::default(), unix_ms()) {
                Ok(_) => {}
                // The machine was too slow for the renewals.
                Err(RecordError::Fenced { .. }) => figures.lost += 1,
                Err(error) => panic!("{error}"),
            }
            // The queue keeps its length.
            records.submit(&job(u64::from(self.turn)), unix_ms()).unwrap();
            // A scheduler looks as soon as a job ends.
            self.next_look = now;
        }
        if let Some((lease, _)) = &self.running
            && self.next_renewal <= now
        {
            figures.renew.time(|| records.renew_leases(std::slice::from_ref(lease)).unwrap());
            self.next_renewal = now + LEASE_RENEWAL_INTERVAL;
        }
        if self.next_look > now {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        let now_ms = unix_ms();
        let server = &self.identity;
        let (with_common_pools, with_other_servers, with_usage) = (false, false, false);
        let query =
            |selection| PlacementQuery { server, selection, with_common_pools, with_other_servers, with_usage, now_ms };
        let place = |state: &PlacementState| {
            let decisions = place_jobs(&placement_input(layout, state, server, now_ms));
            let start = |(job, decision): (&records::QueuedJob, PlacementDecision)| match decision {
                PlacementDecision::Start { pool, hosts, .. } => Some(PlacedJob { id: job.id.clone(), pool, hosts }),
                PlacementDecision::Wait { .. } => None,
            };
            let start = state.waiting.iter().zip(decisions).filter_map(start).collect();
            JobPlacements { start, preempt: Vec::new() }
        };
        let running = figures.look.time(|| records.placement_state(&query(&QueueSelection::None)).unwrap());
        if !has_room(&placement_input(layout, &running, server, now_ms)) {
            return;
        }
        let query = query(&QueueSelection::First);
        let state = figures.look.time(|| records.placement_state(&query).unwrap());
        // Every job is alike, so one of the first starts.
        assert!(!place(&state).start.is_empty() || state.waiting.is_empty(), "a job can start");
        let claimed = figures.claim.time(|| records.claim_placed(&query, &place).unwrap());
        for placed in claimed {
            figures.claimed += 1;
            self.turn += 1;
            let share = f64::from(self.turn * 37 % 100) / 100.0;
            let time = JOB_TIME.0 + (JOB_TIME.1 - JOB_TIME.0).mul_f64(share);
            self.running = Some((placed.claim.lease, now + time));
            self.next_renewal = now + LEASE_RENEWAL_INTERVAL;
        }
    }
}

fn placement_input<'a>(
    layout: &'a SchedulerConfig,
    state: &'a PlacementState,
    server: &'a ServerIdentity,
    now_ms: u64,
) -> PlacementInput<'a> {
    static HOST: LazyLock<HostOffer> = LazyLock::new(HostOffer::default);
    PlacementInput { layout, state, server, host: &HOST, hosts: &[], batch_job: None, now_ms }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
