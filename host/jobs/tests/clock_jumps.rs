//! Clock jumps of an hour back and a day forward while the scheduler runs: no job is lost, none runs twice, and none
//! ends because of a jump. Workers are threads that follow the protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use saggar_clock::ManualClock;
use saggar_jobs::outcome::WorkerExit;
use saggar_jobs::protocol::{PROTOCOL_VERSION, WorkerCommand, WorkerHello};
use saggar_jobs::{
    JobError, JobService, JobSpec, JobSubmission, LaunchRequest, RetryCause, SchedulerConfig, WorkerCredentials,
    WorkerHandle, WorkerLauncher, WorkerSignal, transport,
};
use saggar_metrics::MetricsRegistry;
use saggar_store::records::{self, JobFilter, JobRecord};
use saggar_store::{AccessRights, JobState, LocalJobFiles};
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// 2026-11-21T12:00:00Z.
const NOON: u64 = 1_795_262_400_000;
/// Maximum time of a wait before a test fails.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Records that an attempt of its project began, then follows the marker files of the directory named after the
/// project: waits as long as `PROJECT.hold` exists, and fails if `PROJECT.fail` exists. Returns the exit code.
fn run_worker(directory: &Path, credentials: &WorkerCredentials) -> io::Result<i32> {
    let mut stream = transport::connect(&credentials.address)?;
    let mut commands = BufReader::new(stream.try_clone_stream()?);
    let mut send = |line: String| stream.write_all((line + "\n").as_bytes());
    let (lease, token) = (credentials.lease.clone(), credentials.token.clone());
    send(serde_json::to_string(&WorkerHello { protocol: PROTOCOL_VERSION, lease, token })?)?;
    let mut line = String::new();
    commands.read_line(&mut line)?;
    let WorkerCommand::Start(start) = serde_json::from_str(&line)? else { panic!("{line}") };
    let project = start.spec.project;
    send(
        r#"{"event":"started","device":"cpu","adapter":"a","driver":"d","exact_seconds":true,"choice":"c"}"#.to_owned(),
    )?;
    // One write a line: `writeln!` makes one of the name and one of the line's end, and two workers' would mix.
    let mut begun = OpenOptions::new().create(true).append(true).open(directory.join("begun"))?;
    begun.write_all(format!("{project}\n").as_bytes())?;
    while directory.join(format!("{project}.hold")).exists() {
        send(r#"{"event":"alive"}"#.to_owned())?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let code = if directory.join(format!("{project}.fail")).exists() {
        send(r#"{"event":"failed","reason":"PLUGIN_ERROR","message":"as requested"}"#.to_owned())?;
        20
    } else {
        send(r#"{"event":"progress","step":5,"of":5}"#.to_owned())?;
        send(r#"{"event":"finished","stopped":false}"#.to_owned())?;
        0
    };
    stream.shutdown_write()?;
    io::copy(&mut commands, &mut io::sink())?;
    Ok(code)
}

#[derive(Debug)]
struct ThreadLauncher(PathBuf);

impl WorkerLauncher for ThreadLauncher {
    fn launch(&self, request: &LaunchRequest) -> Result<Box<dyn WorkerHandle>, JobError> {
        let (directory, credentials) = (self.0.clone(), request.credentials.clone());
        // A worker whose scheduler is gone cannot report its error.
        let run = move || run_worker(&directory, &credentials).unwrap_or(75);
        Ok(Box::new(WorkerThread { thread: tokio::task::spawn_blocking(run), code: None }))
    }
}

/// A worker that is a thread of the test. It ends with its connection.
#[derive(Debug)]
struct WorkerThread {
    thread: JoinHandle<i32>,
    code: Option<i32>,
}

#[async_trait]
impl WorkerHandle for WorkerThread {
    fn description(&self) -> String {
        "a thread".to_owned()
    }

    fn take_output(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>> {
        None
    }

    fn signal(&mut self, _signal: WorkerSignal) -> io::Result<()> {
        Ok(())
    }

    async fn wait(&mut self) -> io::Result<WorkerExit> {
        if self.code.is_none() {
            self.code = Some((&mut self.thread).await?);
        }
        Ok(WorkerExit { code: self.code, signal: None, memory_ran_out: false })
    }
}

/// A running scheduler.
struct TestScheduler {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    jobs: JobService,
    shutdown: watch::Sender<bool>,
}

impl TestScheduler {
    async fn start(now_ms: u64) -> TestScheduler {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(now_ms));
        let records = records::open(directory.path().join("records.db")).unwrap();
        let launcher = Arc::new(ThreadLauncher(directory.path().to_owned()));
        let metrics = Arc::new(MetricsRegistry::new());
        let job_files = Arc::new(LocalJobFiles::new(directory.path()));
        let jobs = JobService::new(
            records,
            Arc::<ManualClock>::clone(&clock),
            metrics,
            launcher,
            job_files,
            SchedulerConfig::single_queue(8),
        );
        let (shutdown, stop_requests) = watch::channel(false);
        let runs = jobs.clone();
        tokio::spawn(async move { runs.run(stop_requests).await.unwrap() });
        TestScheduler { directory, clock, jobs, shutdown }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Creates or removes a marker file of a project.
    fn set_marker(&self, project: &str, what: &str, is_so: bool) {
        let file = self.path().join(format!("{project}.{what}"));
        if is_so { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
    }

    async fn submit(&self, spec: JobSpec) -> String {
        let submission = JobSubmission {
            spec,
            owner: None,
            rights: AccessRights::default(),
            pause: None,
            idempotency_key: None,
            trace: None,
        };
        self.jobs.submit(submission).await.unwrap().name
    }

    async fn wait_for_job(&self, name: &str, is_there: impl Fn(&JobRecord) -> bool) -> JobRecord {
        let began = Instant::now();
        loop {
            let job = self.jobs.get(name).await.unwrap();
            if is_there(&job) {
                return job;
            }
            assert!(began.elapsed() < WAIT_TIME_MAX, "timed out: {job:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sets the clock, and waits until the scheduler has used it: the second of two jobs is started by a pass that
    /// began after the first job had ended.
    async fn set_clock(&self, now_ms: u64) {
        self.clock.set(now_ms);
        for _ in 0..2 {
            let marker = self.submit(spec("marker")).await;
            let job = self.wait_for_job(&marker, |job| job.state.is_final()).await;
            assert_eq!(job.state, JobState::Succeeded, "{job:?}");
        }
    }

    /// Returns the number of attempts of the project's jobs that workers began.
    fn attempts_begun(&self, project: &str) -> usize {
        let begun = std::fs::read_to_string(self.path().join("begun")).unwrap_or_default();
        begun.lines().filter(|line| *line == project).count()
    }

    /// Returns the jobs of a project.
    async fn jobs_of_project(&self, project: &str) -> Vec<JobRecord> {
        let filter = JobFilter { project: Some(project.to_owned()), ..JobFilter::default() };
        self.jobs.list(filter).await.unwrap()
    }
}

impl Drop for TestScheduler {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
    }
}

fn spec(project: &str) -> JobSpec {
    JobSpec { device: "cpu".to_owned(), ..JobSpec::new(project, "0".repeat(64)) }
}

/// The times of the jumps, from noon.
const JUMPS: [u64; 6] = [NOON - HOUR, NOON + DAY, NOON, NOON - DAY, 0, NOON];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_job_keeps_its_lease_when_the_clock_jumps() {
    let scheduler = TestScheduler::start(NOON).await;
    scheduler.set_marker("long", "hold", true);
    let limited =
        JobSpec { max_runtime_seconds: Some(1800.0), max_attempt_runtime_seconds: Some(1200.0), ..spec("long") };
    let name = scheduler.submit(limited).await;
    let before = scheduler.wait_for_job(&name, |job| job.state == JobState::Running).await;
    for now_ms in JUMPS {
        scheduler.set_clock(now_ms).await;
        let job = scheduler.jobs.get(&name).await.unwrap();
        assert_eq!((job.state, job.attempts, job.epoch), (JobState::Running, 1, before.epoch), "at {now_ms}: {job:?}");
        assert_eq!(scheduler.attempts_begun("long"), 1, "at {now_ms}");
    }
    scheduler.set_marker("long", "hold", false);
    let job = scheduler.wait_for_job(&name, |job| job.state.is_final()).await;
    assert_eq!((job.state, job.attempts, job.step), (JobState::Succeeded, 1, 5), "{job:?}");
    let attempts = scheduler.jobs.attempts(&job.id).await.unwrap();
    assert!(attempts[0].usage.wall_seconds < 600.0, "by a clock that does not jump: {attempts:?}");
    let markers = scheduler.jobs_of_project("marker").await;
    assert_eq!(markers.len(), scheduler.attempts_begun("marker"), "each ran once");
    assert!(markers.iter().all(|job| job.state == JobState::Succeeded && job.attempts == 1), "{markers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_in_backoff_gets_its_next_attempt_when_the_clock_jumps() {
    let scheduler = TestScheduler::start(NOON).await;
    let retried = |project: &str| JobSpec { retry_on: vec![RetryCause::Error], ..spec(project) };
    for (project, jump) in [("back", NOON - HOUR), ("back-a-day", NOON - DAY), ("forward", NOON + DAY)] {
        scheduler.set_clock(NOON).await;
        scheduler.set_marker(project, "fail", true);
        let name = scheduler.submit(retried(project)).await;
        let waits = |job: &JobRecord| job.state == JobState::Queued && job.attempts == 1;
        scheduler.wait_for_job(&name, waits).await;
        scheduler.set_marker(project, "fail", false);
        // As long as the clock does not move, the job waits.
        scheduler.set_clock(NOON).await;
        let job = scheduler.jobs.get(&name).await.unwrap();
        assert!(waits(&job), "{job:?}");
        let wait = scheduler.jobs.queue_waits(|_| true).await.unwrap()[&job.id].reason.clone();
        assert_eq!(wait.code, "BACKOFF", "{wait:?}");
        // Neither an hour nor a day must be added to its second.
        scheduler.set_clock(jump).await;
        let job = scheduler.wait_for_job(&name, |job| job.state.is_final()).await;
        assert_eq!((job.state, job.attempts), (JobState::Succeeded, 2), "{project}: {job:?}");
        assert_eq!(scheduler.attempts_begun(project), 2, "{project}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_schedule_time_submits_one_job_even_if_the_clock_repeats_it() {
    let scheduler = TestScheduler::start(NOON + 30 * MINUTE).await;
    scheduler.jobs.set_schedule("hourly", "0 * * * *", &spec("timed"), AccessRights::default()).await.unwrap();
    for (now_ms, jobs) in [
        (NOON + 40 * MINUTE, 0),
        // One o'clock, twice.
        (NOON + HOUR + MINUTE, 1),
        (NOON + 30 * MINUTE, 1),
        (NOON + HOUR + MINUTE, 1),
        // Two o'clock, after an hour that came twice.
        (NOON + 2 * HOUR + MINUTE, 2),
        // A day ahead: only the last of all the times in between.
        (NOON + DAY + 2 * HOUR + 30 * MINUTE, 3),
        // After the jump back, the schedule continues at its previous times.
        (NOON + 2 * HOUR + 40 * MINUTE, 3),
        (NOON + 3 * HOUR + MINUTE, 4),
        (NOON + 4 * HOUR + MINUTE, 5),
        // The time that the clock showed too early has already had its job.
        (NOON + DAY + HOUR + 30 * MINUTE, 6),
        (NOON + DAY + 2 * HOUR + MINUTE, 6),
        (NOON + DAY + 3 * HOUR + MINUTE, 7),
    ] {
        scheduler.set_clock(now_ms).await;
        let timed = scheduler.jobs_of_project("timed").await;
        assert_eq!(timed.len(), jobs, "{} minutes after noon", (now_ms - NOON) / MINUTE);
        for job in &timed {
            scheduler.wait_for_job(&job.name, |job| job.state.is_final()).await;
        }
    }
    assert_eq!(scheduler.attempts_begun("timed"), 7);
    let timed = scheduler.jobs_of_project("timed").await;
    assert!(timed.iter().all(|job| job.state == JobState::Succeeded && job.attempts == 1), "{timed:?}");
}
