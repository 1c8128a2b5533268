//! Workers that exceed the memory of their control group.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use saggar_tests::{HttpPayload, MemoryGroup, ServerProcess, SteadyJob, binary, worker_processes};
use serde_json::{Value, json};

/// The group's initial memory: enough for the server and a worker that uses little.
const GROUP_BYTES: u64 = 512 << 20;
/// The memory that the worker allocates later.
const TAKEN_MIB: u64 = 900;
/// Enough memory for both.
const ROOMY_BYTES: u64 = 4 << 30;
/// The step after which the worker allocates it.
const TAKEN_AFTER: u64 = 40;
/// The error of a worker that the kernel killed for it.
const KILLED: &str = "the worker was killed by signal 9: memory ran out, on the machine or in its control group";

/// Starts a server in the group that serves `digits`, which were trained outside the group.
fn serve_in(group: &MemoryGroup, home: &std::path::Path) -> ServerProcess {
    drop(ServerProcess::start_with_digits(home, &[]));
    let mut command = group.command(&binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(home);
    let server = ServerProcess::from_command(command, home);
    server.wait_for_version("digits", 1);
    server
}

/// Returns a job that has checkpoints before it exceeds the group's memory.
fn memory_hungry_job(retry: u32) -> SteadyJob {
    SteadyJob::with_steps(60)
        .with_parameter("memory_mib", TAKEN_MIB)
        .with_parameter("memory_after", TAKEN_AFTER)
        .with_field("memory_bytes", 2_u64 << 30)
        .with_field("retry", retry)
}

#[test]
fn the_kernel_kills_a_worker_before_its_server_when_memory_is_short() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1_000_000).submit(&server);
    server.wait_for_step(&job, 1);
    let badness = |pid: u32| -> i32 {
        let added = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        added.trim().parse().unwrap()
    };
    let workers = worker_processes(server.pid());
    assert_eq!(workers.len(), 1);
    assert_eq!((badness(workers[0]), badness(server.pid())), (500, badness(std::process::id())));
}

#[test]
fn an_oom_killed_worker_is_retried_and_the_server_keeps_answering() {
    let Some(group) = MemoryGroup::new(GROUP_BYTES) else { return };
    let home = tempfile::tempdir().unwrap();
    let server = serve_in(&group, home.path());
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let digit = json!({ "image": vec![[7; 8]; 8] });
    let (exhausted, resumed) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&digit));
                assert_eq!(answer.status, 200, "{}", answer.text);
                answered.fetch_add(1, Ordering::AcqRel);
            }
        });
        let exhausted = server.wait_for_job(&memory_hungry_job(1).submit(&server));
        let while_killed = answered.load(Ordering::Acquire);
        assert!(while_killed > 0, "nothing was answered while workers were killed");
        // With enough memory, another attempt succeeds.
        let job = memory_hungry_job(1000).submit(&server);
        server.wait_for("a second attempt", |server| (server.job(&job)["attempt"].as_u64() > Some(1)).then_some(()));
        group.set_limit(ROOMY_BYTES);
        let resumed = server.wait_for_job(&job);
        over.store(true, Ordering::Release);
        client.join().unwrap();
        (exhausted, resumed)
    });

    assert_eq!((&exhausted["state"], &exhausted["reason"]), (&json!("FAILED"), &json!("RETRIES_EXHAUSTED")));
    assert_eq!(exhausted["message"], format!("2 attempts were interrupted, the last one: {KILLED}"), "{exhausted}");
    assert_eq!((&resumed["state"], &resumed["step"]), (&json!("SUCCEEDED"), &json!(60)), "{resumed}");
    let attempts: &[Value] = resumed["attempts"].as_array().unwrap();
    let (last, killed) = attempts.split_last().unwrap();
    assert!(!killed.is_empty());
    for attempt in killed {
        assert_eq!((&attempt["reason"], &attempt["message"]), (&json!("WORKER_LOST"), &json!(KILLED)), "{attempt}");
    }
    // A checkpoint is saved every five steps; that of step 40 was possibly interrupted.
    assert!(last["first_step"].as_u64() >= Some(TAKEN_AFTER - 5), "from a checkpoint: {last}");
    assert_eq!(server.request("GET", "/readyz", HttpPayload::Nothing).status, 200, "the server that there was");
}
