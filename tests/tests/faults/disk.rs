//! A full disk, and a read-only state directory, on machines where tests cannot mount: simulated by `/dev/full`, by
//! limits on the size of files, and by file permissions.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use saggar_tests::{ServerProcess, SteadyJob, binary, command_as_user};
use serde_json::{Value, json};

/// The limit on bytes of a file while the disk is simulated as full.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Starts a server that gets an error if a file grows too large, like that of a full disk, instead of being killed.
fn serve(home: &Path) -> ServerProcess {
    let mut command = Command::new("sh");
    let script = "trap '' XFSZ; exec \"$0\" serve --addr 127.0.0.1:0 --device cpu --jobs 1 --home \"$1\"";
    command.args(["-c", script]).arg(binary()).arg(home);
    ServerProcess::from_command(command, home)
}

/// Limits the file size of the server and of workers started from now on, or removes the limit.
fn limit_files(server: &ServerProcess, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

/// Submits a job that is queued behind another one. Returns the names of the other job and of the queued one, and the
/// directory of the queued one.
fn submit_behind_running_job(server: &ServerProcess, home: &Path, job: &SteadyJob) -> (String, String, PathBuf) {
    let first = SteadyJob::with_steps(1_000_000).submit(server);
    server.wait_for_step(&first, 1);
    let name = job.submit(server);
    let id = server.job(&name)["id"].as_str().unwrap().to_owned();
    let directory = home.join("jobs").join(id);
    std::fs::create_dir_all(&directory).unwrap();
    (first, name, directory)
}

fn events(server: &ServerProcess, job: &str, kind: &str) -> Vec<String> {
    let events = server.get(&format!("/api/v1/jobs/{job}/events"))["events"].as_array().unwrap().clone();
    let texts = events.iter().filter(|event| event["kind"] == kind).map(|event| event["text"].as_str().unwrap());
    texts.map(str::to_owned).collect()
}

#[test]
fn a_job_that_cannot_write_its_log_completes_and_reports_the_lost_lines() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path());
    let (first, name, directory) = submit_behind_running_job(&server, home.path(), &SteadyJob::with_steps(50));
    // Every write to this device fails because no space is left.
    std::os::unix::fs::symlink("/dev/full", directory.join("attempt-1.log")).unwrap();
    server.saggar_ok(&["stop", &first]);
    let job = server.wait_for_job(&name);
    assert_eq!((&job["state"], &job["attempt"], &job["step"]), (&json!("SUCCEEDED"), &json!(1), &json!(50)), "{job}");
    let lost = events(&server, &name, "LOG_LINES_LOST");
    let [note] = &lost[..] else { panic!("{lost:?}") };
    let (count, rest) = note.split_once(' ').unwrap();
    assert_eq!(rest, "lines of attempt 1's log could not be written: No space left on device (os error 28)");
    // At least one line per step.
    assert!(count.parse::<u64>().unwrap() > 50, "{count}");
    server.wait_for_log("the job's log cannot be written");
    // The next job has space and loses no lines.
    let next = SteadyJob::with_steps(5).submit(&server);
    assert_eq!(server.wait_for_job(&next)["state"], "SUCCEEDED");
    assert_eq!(events(&server, &next, "LOG_LINES_LOST"), [""; 0]);
}

#[test]
fn a_log_that_can_be_written_again_reports_the_lost_lines() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path());
    let job = SteadyJob::with_steps(1_000_000)
        .with_field("checkpoint_every", json!({ "steps": 1_000_000 }))
        .with_parameter("words", 8000);
    let name = job.submit(&server);
    server.wait_for_step(&name, 10);
    limit_files(&server, Some(FILE_BYTES_MAX));
    let log = home.path().join("jobs").join(server.job(&name)["id"].as_str().unwrap()).join("attempt-1.log");
    let log_bytes = || std::fs::metadata(&log).unwrap().len();
    server.wait_for_log("the job's log cannot be written");
    let full = log_bytes();
    assert!(full <= FILE_BYTES_MAX && full > FILE_BYTES_MAX - (64 << 10), "{full} bytes");
    // The training continues, and so do other requests. The log contains no partial line.
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.ends_with('\n'));
    let step: u64 = text.lines().rev().find_map(|line| line[25..].strip_prefix("step ")?.parse().ok()).unwrap();
    server.wait_for_step(&name, step + 200);
    limit_files(&server, None);
    server.wait_for("more of the log", |_| (log_bytes() > full + 1_000_000).then_some(()));
    server.saggar_ok(&["stop", &name]);
    let job = server.wait_for_job(&name);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("CANCELLED"), &json!(1)), "{job}");
    let text = std::fs::read_to_string(&log).unwrap();
    let counts: Vec<u64> = text
        .lines()
        .filter_map(|line| line[25..].strip_suffix(" lines before this one could not be written"))
        .map(|count| count.parse().unwrap())
        .collect();
    // The lines in the log and those reported missing add up to two lines per step. Short lines fit where long ones do
    // not.
    let there = text.lines().filter(|line| line[25..].starts_with("step ") || line[25..].starts_with("www"));
    let (there, missing) = (there.count() as u64, counts.iter().sum::<u64>());
    assert!(missing >= 200, "{missing}");
    assert_eq!(there + missing, 2 * job["step"].as_u64().unwrap(), "{there} + {missing}");
    assert_eq!(events(&server, &name, "LOG_LINES_LOST"), [""; 0], "its log says it");
}

#[test]
fn an_output_on_a_full_disk_fails_only_its_job() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path());
    assert_eq!(server.wait_for_job(&SteadyJob::with_steps(5).submit(&server))["state"], "SUCCEEDED");
    limit_files(&server, Some(FILE_BYTES_MAX));
    let fills = SteadyJob::with_steps(20).with_parameter("write", "a.bin=1000000 b.bin=20000000");
    let full = server.wait_for_job(&fills.submit(&server));
    assert_eq!((&full["state"], &full["attempt"]), (&json!("FAILED"), &json!(1)), "{full}");
    assert!(full["message"].as_str().unwrap().contains("File too large"), "{full}");
    let name = full["name"].as_str().unwrap();
    let files = server.get(&format!("/api/v1/jobs/{name}/output"))["files"].clone();
    let paths: Vec<&Value> = files.as_array().unwrap().iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, [&json!("a.bin")], "what had room is there, and not half of the other");
    assert_eq!(server.wait_for_job(&SteadyJob::with_steps(20).submit(&server))["state"], "SUCCEEDED");
}

/// Removes everybody's write permission, or restores the owner's.
fn set_writable(directory: &Path, writable: bool) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            set_writable(&path, writable);
        } else if path.is_file() {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(if writable { 0o600 } else { 0o444 })).unwrap();
        }
    }
    std::fs::set_permissions(directory, PermissionsExt::from_mode(if writable { 0o700 } else { 0o555 })).unwrap();
}

/// Returns the output of a server that is started over `home` by a user without write permission.
fn serve_as_other_user(home: &Path) -> std::process::Output {
    let serve = ["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"];
    if !rustix::process::geteuid().is_root() {
        return Command::new(binary()).args(serve).arg(home).output().unwrap();
    }
    // Root can write everywhere, so another user is needed, who must be able to execute the program.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.path().join("saggar");
    std::fs::copy(binary(), &program).unwrap();
    command_as_user(54321).arg(&program).args(serve).arg(home).output().unwrap()
}

#[test]
fn a_read_only_state_directory_is_refused_by_name_and_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.wait_for_job(&SteadyJob::with_steps(5).submit(&server));
    drop(server);
    let listed = || {
        let found = Command::new("find").arg(home.path()).args(["-printf", "%P %s %T@\n"]).output().unwrap();
        let mut lines: Vec<String> = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    set_writable(home.path(), false);
    let before = listed();
    let output = serve_as_other_user(home.path());
    let after = listed();
    set_writable(home.path(), true);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied") && said.contains(home.path().to_str().unwrap()), "{said}");
    assert_eq!(after, before);
    let server = ServerProcess::start(home.path());
    assert_eq!(server.job("steady-1")["state"], "SUCCEEDED");
}
