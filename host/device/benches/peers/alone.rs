//! What is measured in a process of its own: the first step of a training, and the memory that steps need.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::child::Peer;
use crate::loaded::Loaded;
use crate::stage::{Stage, open};
use crate::table::{Figure, Goal, Row};
use crate::task::Task;
use crate::tensors::Tensors;
use crate::turns::{Timing, together};

const FIRST: Goal = Goal::SecondsAtMost(0.5);
const MEMORY: Goal = Goal::MemoryAtMost(0.6);

/// Steps after which memory is looked at.
const STEPS: usize = 8;

/// What the process is for.
#[derive(Clone, Debug)]
pub(crate) struct Alone {
    /// `first` or `memory`.
    what: String,
    task: String,
    start: PathBuf,
    threads: usize,
    device: Option<String>,
}

impl Alone {
    /// From the arguments that [`Alone::command`] gives.
    pub(crate) fn read(mut given: impl Iterator<Item = String>) -> Option<Alone> {
        let (what, task, start) = (given.next()?, given.next()?, given.next()?.into());
        Some(Alone { what, task, start, threads: given.next()?.parse().ok()?, device: given.next() })
    }

    /// The first step of a training on a stage's device.
    pub(crate) fn first(task: &str, start: &Path, stage: &Stage) -> Alone {
        Alone {
            what: "first".to_owned(),
            task: task.to_owned(),
            start: start.to_owned(),
            threads: stage.threads,
            device: stage.device.clone(),
        }
    }

    pub(crate) fn command(&self) -> Result<Command, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args(["--alone", &self.what, &self.task]).arg(&self.start).arg(self.threads.to_string());
        command.args(&self.device);
        Ok(command)
    }

    /// Measures, in this process, and says what the harness reads.
    ///
    /// # Errors
    /// Why there is no figure.
    pub(crate) fn run(&self) -> Result<Value, String> {
        let task = Task::named(&self.task).ok_or_else(|| format!("no task {}", self.task))?;
        let backend = open(self.device.as_deref(), self.threads)?;
        let start = Tensors::open(&self.start)?;
        let load = || {
            let graph = task.graph(&start).map_err(|error| error.to_string())?;
            Loaded::new(&backend, &graph, &|name| start.bytes(name))
        };
        if self.what == "first" {
            let begun = Instant::now();
            load()?.result()?;
            return Ok(json!({ "figure": begun.elapsed().as_secs_f64() }));
        }
        forget_peak();
        let before = resident("VmRSS")?;
        let loaded = load()?;
        for _ in 0..STEPS {
            loaded.result()?;
        }
        Ok(json!({ "figure": resident("VmHWM")? - before }))
    }
}

/// The first step, from the graph's first node on: several processes, and as many of the peer's.
///
/// # Errors
/// Why there is no figure.
pub(crate) fn first_step(stage: &Stage, task: &Task, batch: usize) -> Result<Vec<Row>, String> {
    measure(stage, task, batch, ["first", "compiled"], (Figure::Milliseconds, FIRST))
}

/// The most memory that a process needs for training, beyond what it had before.
///
/// # Errors
/// Why there is no figure.
pub(crate) fn memory(stage: &Stage, task: &Task, batch: usize) -> Result<Vec<Row>, String> {
    measure(stage, task, batch, ["memory", "eager"], (Figure::Megabytes, MEMORY))
}

fn measure(
    stage: &Stage,
    task: &Task,
    batch: usize,
    [what, how]: [&str; 2],
    (figure, goal): (Figure, Goal),
) -> Result<Vec<Row>, String> {
    let version = stage.environment()?.version("torch")?;
    let start = stage.start(task.name, batch, false)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let alone = Alone {
        what: what.to_owned(),
        task: task.name.to_owned(),
        start: start.file("start.safetensors"),
        threads: stage.threads,
        device: None,
    };
    let errors = start.file("errors.txt");
    for _ in 0..stage.rounds {
        ours.push(said(&mut alone.command()?, &errors).map_err(|reason| format!("saggar: {reason}"))?);
        let mut command = stage.environment()?.program("torch_peer.py", stage.threads);
        command.args([task.name, &batch.to_string(), &stage.threads.to_string(), how, "first", what]);
        // What was compiled before must not help.
        command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1");
        command.env("TORCHINDUCTOR_CACHE_DIR", start.file("compiled"));
        theirs.push(said(&mut command, &errors).map_err(|reason| format!("PyTorch: {reason}"))?);
        let _ = std::fs::remove_dir_all(start.file("compiled"));
    }
    let name = format!("PyTorch {version}, {}", if how == "eager" { "eager" } else { "torch.compile" });
    Ok(vec![Row::new(figure, together(&ours), &name, together(&theirs), goal)])
}

/// The figure that a process says.
///
/// # Errors
/// It does not start, or says none.
pub(crate) fn said(command: &mut Command, errors: &Path) -> Result<Timing, String> {
    let ready = &Peer::start(command, errors)?.ready;
    let figure = ready["figure"].as_f64().ok_or_else(|| format!("{ready} has no figure"))?;
    Ok(Timing { best: figure, median: figure })
}

/// Bytes of this process: `VmRSS` now, `VmHWM` at most.
fn resident(field: &str) -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or_else(|| format!("no {field} in /proc/self/status"))
}

/// Has the system forget the most so far; where it refuses, that is part of the figure.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
