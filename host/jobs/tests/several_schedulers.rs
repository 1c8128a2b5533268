//! Schedules of three servers with one database: each due time submits one job.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_clock::ManualClock;
use saggar_jobs::{JobError, JobService, JobSpec, LaunchRequest, SchedulerConfig, WorkerHandle, WorkerLauncher};
use saggar_metrics::MetricsRegistry;
use saggar_store::digest::Digest;
use saggar_store::records::{self, JobFilter, JobRecord, JobRecords, ServerIdentity};
use saggar_store::{AccessRights, LocalJobFiles};
use tokio::sync::watch;

#[path = "../../store/src/records/postgres/tests/test_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests of the records use the rest, and export it")]
mod test_server;

/// 2026-11-21T12:00:00Z.
const NOON: u64 = 1_795_262_400_000;
const MINUTE: u64 = 60_000;
const DUE_TIMES: u64 = 100;
/// Maximum time until the job of a due time has ended.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Starts no worker, so that each job ends at once.
#[derive(Debug)]
struct RefusingLauncher;

impl WorkerLauncher for RefusingLauncher {
    fn launch(&self, _: &LaunchRequest) -> Result<Box<dyn WorkerHandle>, JobError> {
        Err(JobError::Override { reason: "no worker is started in this test".to_owned() })
    }
}

/// A server with its own clock.
struct TestServerOfMany {
    jobs: JobService,
    clock: Arc<ManualClock>,
    shutdown: watch::Sender<bool>,
    _directory: tempfile::TempDir,
}

impl TestServerOfMany {
    fn start(url: &str, name: &str, now_ms: u64) -> TestServerOfMany {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(now_ms));
        let (metrics, files) = (Arc::new(MetricsRegistry::new()), Arc::new(LocalJobFiles::new(directory.path())));
        let (records, config) = (records::open(url).unwrap(), SchedulerConfig::single_queue(1));
        let launcher = Arc::new(RefusingLauncher);
        let clock_of_jobs = Arc::<ManualClock>::clone(&clock);
        let identity = ServerIdentity { name: name.to_owned(), id: format!("{name}-id"), storage: "files".to_owned() };
        let jobs = JobService::new(records, clock_of_jobs, metrics, launcher, files, config).with_server(identity);
        let (shutdown, stop_requests) = watch::channel(false);
        let runs = jobs.clone();
        tokio::spawn(async move { runs.run(stop_requests).await.unwrap() });
        TestServerOfMany { jobs, clock, shutdown, _directory: directory }
    }
}

impl Drop for TestServerOfMany {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
    }
}

fn all_jobs(records: &dyn JobRecords) -> Vec<JobRecord> {
    records.list(&JobFilter { limit: 1000, ..JobFilter::default() }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_100_due_times_submits_one_job_on_one_of_three_servers() {
    let Some(database) = test_server::TestServer::start() else { return };
    let url = database.create_database();
    // Their clocks differ by less than a second.
    let servers =
        [("a", 0), ("b", 300), ("c", 700)].map(|(name, ahead)| TestServerOfMany::start(&url, name, NOON + ahead));
    let records = records::open(&url).unwrap();
    let spec = JobSpec::new("often", Digest::of(b"plugin").to_string());
    servers[0].jobs.set_schedule("often", "* * * * *", &spec, AccessRights::default()).await.unwrap();
    for due in 1..=DUE_TIMES {
        servers.iter().for_each(|server| server.clock.advance(MINUTE));
        let (began, due_ms) = (Instant::now(), NOON + due * MINUTE);
        loop {
            let schedule = records.schedules().unwrap().remove(0);
            let jobs = all_jobs(&*records);
            assert!(jobs.len() as u64 <= due, "{} jobs after {due} due times", jobs.len());
            if schedule.settled_ms >= due_ms && jobs.iter().all(|job| job.state.is_final()) {
                break;
            }
            assert!(began.elapsed() < WAIT_TIME_MAX, "due time {due}: {schedule:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let jobs = all_jobs(&*records);
    assert_eq!(jobs.len() as u64, DUE_TIMES);
    assert!(jobs.iter().all(|job| job.attempts == 1), "each was claimed once");
    let mut owners: Vec<&str> = jobs.iter().map(|job| job.server.as_str()).collect();
    owners.sort_unstable();
    owners.dedup();
    assert!(owners.len() > 1, "several servers run jobs: {owners:?}");
}
