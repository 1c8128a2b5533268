//! A process that saves checkpoints and records is killed at arbitrary instants: everything that was acknowledged as
//! durable exists, and everything that exists is complete.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use saggar_store::records::{MetricPoint, NewJob};
use saggar_store::{
    Checkpoint, CheckpointStore, JobRecords, ObjectStorage, Retention, SavedVariable, VariableKind,
    checkpoint::DatasetPosition,
};
use saggar_tensor::{DType, Descriptor, Shape};

/// The directory, in the environment of the process that is killed.
const CHILD: &str = "SAGGAR_STORE_KILL_TEST";
/// Number of kills in each test. `SAGGAR_STORE_KILLS=2000` tries more.
const KILLS: u32 = 100;

fn kills() -> u32 {
    std::env::var("SAGGAR_STORE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

/// Returns a directory for a test. Memory is enough, because a kill loses nothing that was written.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Starts the test with this name as the process that is killed. Its output lines are what was acknowledged as durable.
fn start(test: &str, home: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, home)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// Returns the next number that the process printed.
fn next_number(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<u64> {
    lines.find_map(|line| line.ok()?.split_once("durable ")?.1.parse().ok())
}

/// Waits a fraction of a period. Successive kills cover all fractions.
fn wait_part_of(kill: u32, period: Duration) {
    let until = Instant::now() + period.mul_f64(f64::from(kill) * 0.618 % 1.25);
    while Instant::now() < until {
        std::thread::yield_now();
    }
}

/// Returns the checkpoint of a step, so that a mixture of two is detected.
fn checkpoint(step: u64) -> Checkpoint {
    let variable = |name: &str, size: usize| SavedVariable {
        name: name.to_owned(),
        kind: VariableKind::Parameter,
        descriptor: Descriptor::new(DType::U8, Shape::new([size]).expect("a small shape")),
        bytes: Bytes::from(step.to_le_bytes().repeat(size / 8 + 1)).slice(..size),
    };
    Checkpoint {
        step,
        variables: vec![variable("large", 3 << 19), variable("small", 1000), variable("tiny", 1)],
        positions: vec![DatasetPosition { item: step, ..DatasetPosition::default() }],
        metrics: std::collections::BTreeMap::new(),
        state: step.to_le_bytes().to_vec(),
        plugin_digest: "p".to_owned(),
        device: "cpu".to_owned(),
        build: "test".to_owned(),
        kernel_tuning: Default::default(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

fn open(home: &Path) -> (CheckpointStore, Arc<dyn JobRecords>) {
    let records = saggar_store::records::open(home.join("saggar.db")).expect("records");
    (CheckpointStore::new(ObjectStorage::local(&home.join("objects")).expect("objects")), records)
}

/// The process that is killed: resumes from the latest checkpoint, and prints what is durable.
#[test]
fn child() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    let (checkpoints, records) = open(Path::new(&home));
    let lease = match records.jobs_left_active().unwrap().first() {
        Some(job) => records.take_over(&job.id, 0).unwrap(),
        None => {
            let id = &records.queued_jobs().unwrap()[0].id;
            records.claim(id, "any", 0).unwrap().unwrap().lease
        }
    };
    let runtime = runtime();
    runtime.block_on(checkpoints.claim("j", lease.epoch)).unwrap();
    let latest = runtime.block_on(checkpoints.latest("j", "p")).unwrap();
    assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
    let start = latest.found.map_or(0, |(_, found)| found.step);
    let mut output = std::io::stdout().lock();
    for step in start + 1.. {
        runtime.block_on(checkpoints.save("j", lease.epoch, &checkpoint(step))).unwrap();
        let point = MetricPoint { name: "loss".to_owned(), step, value: 1.0, at_ms: 0 };
        records.record_metrics(&lease, &[point]).unwrap();
        writeln!(output, "durable {step}").unwrap();
        runtime.block_on(checkpoints.prune("j", lease.epoch, &Retention::last(2))).unwrap();
    }
}

/// Returns a state directory with one job.
fn home_with_a_job() -> (tempfile::TempDir, String) {
    let home = scratch();
    std::fs::create_dir(home.path().join("objects")).unwrap();
    let (_, records) = open(home.path());
    let id = records.submit(&new_job(), 0).unwrap().id;
    (home, id)
}

fn new_job() -> NewJob {
    NewJob { project: "p".into(), task: "t".into(), spec: "{}".into(), ..NewJob::default() }
}

/// Checks what a resume finds after a kill: an intact checkpoint, at least of the durable step, with its metric.
fn check_resume(home: &Path, id: &str, durable: u64) -> u64 {
    let (checkpoints, records) = open(home);
    let latest = runtime().block_on(checkpoints.latest("j", "p")).unwrap();
    assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
    let step = latest.found.map_or(0, |(_, found)| {
        assert_eq!(found, checkpoint(found.step));
        found.step
    });
    assert!(step >= durable, "step {durable} was durable, found {step}");
    let has_metric = |step| records.series(id, "loss", step, 0).unwrap().iter().any(|point| point.step == step);
    assert!(durable == 0 || has_metric(durable));
    step
}

#[test]
fn kills_during_saves_and_prunes_lose_nothing_durable() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let (home, id) = home_with_a_job();
    let (mut durable, mut grown) = (0, 0);
    let mut period = None;
    for kill in 0..kills() {
        let (mut child, mut lines) = start("child", home.path());
        let first = next_number(&mut lines).expect("the child saves something before it is killed");
        durable = durable.max(first);
        // Spread the kills over the duration of a save and a pruning, which the first child measures.
        let period = *period.get_or_insert_with(|| {
            let begun = Instant::now();
            durable = durable.max(next_number(&mut lines).expect("the first child saves twice"));
            begun.elapsed()
        });
        wait_part_of(kill, period);
        child.kill().unwrap();
        child.wait().unwrap();
        durable = durable.max(std::iter::from_fn(|| next_number(&mut lines)).max().unwrap_or(0));
        let found = check_resume(home.path(), &id, durable);
        assert!(found <= durable + 1);
        grown += u64::from(found > first);
    }
    assert!(durable >= u64::from(kills()));
    assert!(grown > 0, "no kill came later than the first save");
    let (checkpoints, _) = open(home.path());
    runtime().block_on(checkpoints.claim("j", u64::from(kills()) + 2)).unwrap();
    assert_eq!(temporary_files(&home.path().join("objects")), 0, "a claim takes away what kills left");
}

#[test]
fn kills_during_resume_lose_nothing_durable() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let (home, id) = home_with_a_job();
    // The first child measures the time to start, claim, load and save once.
    let begun = Instant::now();
    let (mut child, mut lines) = start("child", home.path());
    let mut durable = next_number(&mut lines).unwrap();
    let period = begun.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut early, mut seen) = (0, 0);
    for kill in 0..kills() {
        durable = durable.max(std::iter::from_fn(|| next_number(&mut lines)).max().unwrap_or(0));
        let found = check_resume(home.path(), &id, durable);
        assert!(found >= seen, "step {seen} was found before, and {found} now");
        seen = found;
        (child, lines) = start("child", home.path());
        wait_part_of(kill, period);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut confirmed = std::iter::from_fn(|| next_number(&mut lines)).peekable();
        early += u32::from(confirmed.peek().is_none());
        durable = durable.max(confirmed.max().unwrap_or(0));
    }
    check_resume(home.path(), &id, durable);
    assert!(early > 0, "no kill came before the first save");
}

/// The process that is killed: submits jobs, each with a separate idempotency key, and prints which were acknowledged.
#[test]
fn submitting_child() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    let (_, records) = open(Path::new(&home));
    let done: u64 = records.count_by_state().unwrap().iter().map(|(_, count)| count).sum();
    let mut output = std::io::stdout().lock();
    // Repeat the last one, because its result is possibly lost.
    for number in done.max(1).. {
        let key = Some(format!("key-{number}"));
        let job = records.submit(&NewJob { idempotency_key: key, ..new_job() }, number).unwrap();
        assert_eq!(job.number, number);
        writeln!(output, "durable {number}").unwrap();
    }
}

#[test]
fn kills_during_submission_lose_no_acknowledged_job() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let home = scratch();
    std::fs::create_dir(home.path().join("objects")).unwrap();
    let mut durable = 0;
    for kill in 0..kills() / 2 {
        let (mut child, mut lines) = start("submitting_child", home.path());
        durable = durable.max(next_number(&mut lines).expect("the child submits something before it is killed"));
        wait_part_of(kill, Duration::from_millis(5));
        child.kill().unwrap();
        child.wait().unwrap();
        durable = durable.max(std::iter::from_fn(|| next_number(&mut lines)).max().unwrap_or(0));
        let (_, records) = open(home.path());
        let there: u64 = records.count_by_state().unwrap().iter().map(|(_, count)| count).sum();
        assert!(there == durable || there == durable + 1, "{durable} were acknowledged, {there} are there");
        assert_eq!(records.get(&format!("p-{durable}")).unwrap().number, durable);
    }
}

/// Returns the number of temporary files of the object store, left by a kill.
fn temporary_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let count = |path: std::path::PathBuf| {
        if path.is_dir() { temporary_files(&path) } else { usize::from(path.to_string_lossy().contains('#')) }
    };
    entries.map(count).sum()
}
