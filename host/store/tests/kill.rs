//! A process that saves checkpoints and records is killed at arbitrary instants: what it was told
//! is durable is there, and whatever is there is whole.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use saggar_store::records::{MetricPoint, NewJob};
use saggar_store::{
    Checkpoint, Checkpoints, Objects, Records, SavedVariable, SqliteRecords, VariableKind, checkpoint::Position,
};
use saggar_tensor::{DType, Descriptor, Shape};

/// Set in the process that is killed: its directory.
const CHILD: &str = "SAGGAR_STORE_KILL_TEST";
const KILLS: u32 = 40;

/// What step `step` looks like, so that a checkpoint can be told from a mixture of two.
fn checkpoint(step: u64) -> Checkpoint {
    let variable = |name: &str, size: usize| SavedVariable {
        name: name.to_owned(),
        kind: VariableKind::Parameter,
        descriptor: Descriptor::new(DType::U8, Shape::new([size]).expect("a small shape")),
        bytes: (0..size).map(|at| (at as u64 ^ step.wrapping_mul(0x9e37)) as u8).collect(),
    };
    Checkpoint {
        step,
        variables: vec![variable("large", 3 << 19), variable("small", 1000), variable("tiny", 1)],
        positions: vec![Position { item: step, ..Position::default() }],
        state: step.to_le_bytes().to_vec(),
        plugin_digest: "p".to_owned(),
        device: "cpu".to_owned(),
        build: "test".to_owned(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

fn open(home: &Path) -> (Checkpoints, SqliteRecords) {
    let records = SqliteRecords::open(&home.join("saggar.db")).expect("records");
    (Checkpoints::new(Objects::local(&home.join("objects")).expect("objects")), records)
}

/// The process that is killed: goes on from where it was, and says what is durable.
#[test]
fn child() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    let (checkpoints, records) = open(Path::new(&home));
    let lease = match records.jobs_left_running().unwrap().first() {
        Some(job) => records.take_over(&job.id, 0).unwrap(),
        None => records.claim_next(0).unwrap().unwrap().lease,
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
        runtime.block_on(checkpoints.prune("j", 2)).unwrap();
    }
}

#[test]
fn nothing_durable_is_lost_and_nothing_is_torn() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("objects")).unwrap();
    let (_, records) = open(home.path());
    let job = NewJob { project: "p".into(), task: "t".into(), spec: "{}".into(), ..NewJob::default() };
    let id = records.submit(&job, 0).unwrap().id;
    drop(records);
    let (mut durable, mut grown) = (0, 0);
    let mut period = None;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(CHILD, home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut step_of =
            || -> Option<u64> { lines.by_ref().find_map(|line| line.ok()?.split_once("durable ")?.1.parse().ok()) };
        let said = step_of().expect("the child saves something before it is killed");
        durable = durable.max(said);
        // Spread the kills over what a save and a pruning take: the first child shows how long.
        let period = *period.get_or_insert_with(|| {
            let begun = Instant::now();
            durable = durable.max(step_of().expect("the first child saves twice"));
            begun.elapsed()
        });
        let until = Instant::now() + period.mul_f64(f64::from(kill) * 0.618 % 1.25);
        while Instant::now() < until {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while let Some(step) = step_of() {
            durable = durable.max(step);
        }
        let (checkpoints, records) = open(home.path());
        let latest = runtime().block_on(checkpoints.latest("j", "p")).unwrap();
        let (_, found) = latest.found.expect("a checkpoint was durable");
        assert!(found.step >= durable, "step {durable} was durable, found {}", found.step);
        assert!(found.step <= durable + 1);
        assert_eq!(found, checkpoint(found.step));
        assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
        assert!(records.series(&id, "loss", durable, 0).unwrap().iter().any(|point| point.step == durable));
        grown += u64::from(found.step > said);
    }
    assert!(durable >= u64::from(KILLS));
    assert!(grown > 0, "no kill came later than the first save");
    let (checkpoints, _) = open(home.path());
    runtime().block_on(checkpoints.claim("j", u64::from(KILLS) + 2)).unwrap();
    assert_eq!(half_written(&home.path().join("objects")), 0, "a claim takes away what kills left");
}

/// The number of files that the object store was writing when it was killed.
fn half_written(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let count = |path: std::path::PathBuf| {
        if path.is_dir() { half_written(&path) } else { usize::from(path.to_string_lossy().contains('#')) }
    };
    entries.map(count).sum()
}
