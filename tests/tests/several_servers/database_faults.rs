//! Two servers with one database that is killed, stopped and full, while jobs train and predictions are sent: no attempt ends, no
//! prediction fails, and what users change is recorded as soon as the database is back.
//!
//! `make database-faults` runs a long form: `SAGGAR_DATABASE_KILLS` is the number of kills, and `SAGGAR_DATABASE_PAUSE_SECONDS`
//! the time for which all processes of the database are stopped.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saggar_tests::postgres::TestServerOptions;
use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, SteadyJob, binary, guest};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time from the moment at which the database answers again until a change is recorded.
const RECORDED_TIME_MAX: Duration = Duration::from_secs(5);
/// The small disk of a database whose tables fill it.
const SMALL_DISK_MIB: u32 = 64;

/// Two servers with shared files on one database, which serve the model `echo` and run a job each.
struct FaultServers {
    servers: [ServerProcess; 2],
    jobs: [String; 2],
    database: PostgresServer,
    _directory: TempDir,
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

impl FaultServers {
    /// Returns `None` if PostgreSQL is not installed and not required.
    fn start(options: TestServerOptions) -> Option<FaultServers> {
        let (database, directory) = (PostgresServer::start_with(options)?, tempfile::tempdir().unwrap());
        let servers = ["a", "b"].map(|name| {
            let home = directory.path().join(name);
            std::fs::create_dir(&home).unwrap();
            if name == "b" {
                for shared in ["objects", "datasets", "jobs", "models"] {
                    symlink(directory.path().join("a").join(shared), home.join(shared)).unwrap();
                }
            }
            let mut command = Command::new(binary());
            command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", name, "--home"]).arg(&home);
            command.env("SAGGAR_DATABASE_URL", database.url());
            ServerProcess::from_command(command, &home)
        });
        servers[0].saggar_ok(&["models", "push", "echo", guest("echo").to_str().unwrap()]);
        servers.iter().for_each(|server| server.wait_for_version("echo", 1));
        let jobs = [0, 1].map(|at: usize| SteadyJob::with_steps(100_000_000).submit(&servers[at]));
        jobs.iter().for_each(|job| drop(servers[0].wait_for_step(job, 10)));
        Some(FaultServers { servers, jobs, database, _directory: directory })
    }

    /// Sends predictions to both servers until `work` is done. Returns their number; each must succeed.
    fn predict_during(&self, work: impl FnOnce()) -> u64 {
        let (is_done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for server in &self.servers {
                let (is_done, sent) = (&is_done, &sent);
                scope.spawn(move || {
                    while !is_done.load(Ordering::Relaxed) {
                        let input = json!({ "x": [1, 2, 3, 4] });
                        let answer = server.request("POST", "/models/echo/predict", HttpPayload::Json(&input));
                        assert_eq!(answer.status, 200, "{}", answer.text);
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // Ends the threads also if the work fails.
            let ended = EndOfWork(&is_done);
            work();
            drop(ended);
        });
        sent.into_inner()
    }

    /// Writes a note about a job through a server, and returns the response.
    fn write_note(&self, at: usize, note: &str) -> (u16, String) {
        let change = json!({ "note": note });
        let path = format!("/api/v1/jobs/{}/annotate", self.jobs[at]);
        let answer = self.servers[at].request("POST", &path, HttpPayload::Json(&change));
        (answer.status, answer.text)
    }

    /// Waits until a change through each server is recorded, and returns the longer time.
    fn time_until_recorded(&self, note: &str) -> Duration {
        let began = Instant::now();
        for at in 0..2 {
            loop {
                let (status, text) = self.write_note(at, note);
                if status == 200 {
                    break;
                }
                assert_eq!(status, 503, "{text}");
                assert!(began.elapsed() < Duration::from_secs(60), "{text}");
            }
        }
        began.elapsed()
    }

    fn steps(&self) -> [u64; 2] {
        self.jobs.each_ref().map(|job| self.servers[0].job(job)["step"].as_u64().unwrap())
    }

    /// Waits until both jobs have trained on, in their first attempts.
    fn check_attempts(&self, steps: [u64; 2]) {
        for (job, step) in self.jobs.iter().zip(steps) {
            self.servers[0].wait_for_step(job, step + 20);
            let job: Value = self.servers[1].job(job);
            assert_eq!((&job["attempt"], &job["state"]), (&json!(1), &json!("RUNNING")), "{job}");
        }
    }

    fn stop_jobs(&self) {
        for job in &self.jobs {
            self.servers[1].saggar_ok(&["stop", job]);
            assert_eq!(self.servers[0].wait_for_job(job)["state"], "CANCELLED");
        }
    }
}

struct EndOfWork<'a>(&'a AtomicBool);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_database_that_is_killed_under_load_loses_no_attempt_and_no_prediction() {
    let Some(servers) = FaultServers::start(TestServerOptions::default()) else { return };
    let kills = number("SAGGAR_DATABASE_KILLS", 3);
    let mut times = Vec::new();
    let sent = servers.predict_during(|| {
        for round in 0..kills {
            let steps = servers.steps();
            servers.database.kill_and_restart();
            times.push(servers.time_until_recorded(&format!("after kill {round}")));
            servers.check_attempts(steps);
        }
    });
    let longest = times.iter().max().copied().unwrap_or_default();
    println!(
        "{kills} kills: 0 attempts lost, 0 of {sent} predictions failed, changes are recorded at most {:.2} s after the database \
         is back",
        longest.as_secs_f64()
    );
    assert!(longest <= RECORDED_TIME_MAX, "{times:?}");
    assert!(sent > 0);
    servers.stop_jobs();
}

#[test]
fn a_database_whose_processes_are_stopped_loses_no_attempt_and_no_prediction() {
    let Some(servers) = FaultServers::start(TestServerOptions::default()) else { return };
    let pause = Duration::from_secs(number("SAGGAR_DATABASE_PAUSE_SECONDS", 10));
    let steps = servers.steps();
    let mut recorded = Duration::ZERO;
    let sent = servers.predict_during(|| {
        servers.database.server().pause();
        // The fault itself takes this time.
        std::thread::sleep(pause);
        servers.database.server().resume();
        recorded = servers.time_until_recorded("after the pause");
        servers.check_attempts(steps);
    });
    println!(
        "stopped for {} s: 0 attempts lost, 0 of {sent} predictions failed, changes are recorded {:.2} s after",
        pause.as_secs(),
        recorded.as_secs_f64()
    );
    assert!(recorded <= RECORDED_TIME_MAX, "{recorded:?}");
    servers.stop_jobs();
}

#[test]
fn a_database_with_a_full_disk_refuses_changes_with_that_reason_and_continues_when_there_is_space() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can mount the small disk");
        return;
    }
    let options = TestServerOptions { small_disk_mib: Some(SMALL_DISK_MIB), ..TestServerOptions::default() };
    let Some(servers) = FaultServers::start(options) else { return };
    let steps = servers.steps();
    let (mut refused, mut recorded, mut tries) = (String::new(), Duration::ZERO, 0);
    let sent = servers.predict_during(|| {
        servers.database.server().fill_small_disk();
        // Changes use what the tables have left first.
        refused = loop {
            tries += 1;
            let submitted = SteadyJob::with_steps(100_000_000).post(&servers.servers[0]);
            let (status, text) = (submitted.status, submitted.text);
            if status != 201 {
                assert_eq!(status, 503, "{text}");
                break text;
            }
            assert!(tries < 500, "the disk is not full");
        };
        servers.database.server().free_small_disk();
        recorded = servers.time_until_recorded("after the disk was full");
        servers.check_attempts(steps);
    });
    println!(
        "full disk: refused after {tries} changes; 0 attempts lost, 0 of {sent} predictions failed, changes are recorded {:.2} s \
         after there is space",
        recorded.as_secs_f64()
    );
    assert!(
        refused.contains("database_unavailable") && refused.contains("the disk of the database is full"),
        "{refused}"
    );
    assert!(recorded <= RECORDED_TIME_MAX, "{recorded:?}");
}
