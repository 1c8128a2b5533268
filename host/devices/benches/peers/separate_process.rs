//! Measurements that need a separate process: the first training step, and the memory that steps need.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::interleaved_runs::{Timing, combine_turns};
use crate::loaded_graph::BenchProgram;
use crate::measurement_context::{BenchContext, open_device};
use crate::peer_process::PeerProcess;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::task::TrainingTask;
use crate::tensors::SafetensorsFile;

const FIRST_STEP_GOAL: PerformanceGoal = PerformanceGoal::SecondsAtMost(0.5);
const MEMORY_GOAL: PerformanceGoal = PerformanceGoal::MemoryAtMost(0.6);

/// Steps after which memory is measured.
const STEPS: usize = 8;

/// The measurement that a separate process runs.
#[derive(Clone, Debug)]
pub(crate) struct IsolatedRun {
    /// `first` (the first step) or `memory` (the peak memory).
    what: String,
    task: String,
    start: PathBuf,
    threads: usize,
    device: Option<String>,
}

impl IsolatedRun {
    /// Parses the arguments that [`IsolatedRun::command`] passes.
    pub(crate) fn from_arguments(mut given: impl Iterator<Item = String>) -> Option<IsolatedRun> {
        let (what, task, start) = (given.next()?, given.next()?, given.next()?.into());
        Some(IsolatedRun { what, task, start, threads: given.next()?.parse().ok()?, device: given.next() })
    }

    /// Returns a measurement of the first training step on the context's device.
    pub(crate) fn for_first_step(task: &str, start: &Path, stage: &BenchContext) -> IsolatedRun {
        IsolatedRun {
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

    /// Runs the measurement in this process and returns the JSON that the harness reads.
    ///
    /// # Errors
    /// Returns the reason why there is no figure.
    pub(crate) fn run(&self) -> Result<Value, String> {
        let task = TrainingTask::by_name(&self.task).ok_or_else(|| format!("no task {}", self.task))?;
        let backend = open_device(self.device.as_deref(), self.threads)?;
        let start = SafetensorsFile::open(&self.start)?;
        let load = || {
            let graph = task.training_graph(&start).map_err(|error| error.to_string())?;
            BenchProgram::new(&backend, &graph, &|name| start.bytes(name))
        };
        if self.what == "first" {
            let begun = Instant::now();
            load()?.first_output()?;
            return Ok(json!({ "figure": begun.elapsed().as_secs_f64() }));
        }
        reset_peak_memory();
        let before = resident_bytes("VmRSS")?;
        let loaded = load()?;
        for _ in 0..STEPS {
            loaded.first_output()?;
        }
        Ok(json!({ "figure": resident_bytes("VmHWM")? - before }))
    }
}

/// Measures the first step, starting with the construction of the graph, in several processes each of ours and of the
/// peer.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(crate) fn first_step(
    stage: &BenchContext,
    task: &TrainingTask,
    batch: usize,
) -> Result<Vec<ComparisonRow>, String> {
    measure(stage, task, batch, ["first", "compiled"], (FigureUnit::Milliseconds, FIRST_STEP_GOAL))
}

/// Measures the peak memory that training adds to a process.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(crate) fn peak_memory(
    stage: &BenchContext,
    task: &TrainingTask,
    batch: usize,
) -> Result<Vec<ComparisonRow>, String> {
    measure(stage, task, batch, ["memory", "eager"], (FigureUnit::Megabytes, MEMORY_GOAL))
}

fn measure(
    stage: &BenchContext,
    task: &TrainingTask,
    batch: usize,
    [what, how]: [&str; 2],
    (figure, goal): (FigureUnit, PerformanceGoal),
) -> Result<Vec<ComparisonRow>, String> {
    let version = stage.environment()?.version("torch")?;
    let start = stage.exported_folder(task.name, batch, false)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let alone = IsolatedRun {
        what: what.to_owned(),
        task: task.name.to_owned(),
        start: start.file("start.safetensors"),
        threads: stage.threads,
        device: None,
    };
    let errors = start.file("errors.txt");
    for _ in 0..stage.rounds {
        ours.push(read_figure(&mut alone.command()?, &errors).map_err(|reason| format!("saggar: {reason}"))?);
        let mut command = stage.environment()?.python_command("torch_peer.py", stage.threads);
        command.args([task.name, &batch.to_string(), &stage.threads.to_string(), how, "first", what]);
        // Do not reuse earlier compilations.
        command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1");
        command.env("TORCHINDUCTOR_CACHE_DIR", start.file("compiled"));
        theirs.push(read_figure(&mut command, &errors).map_err(|reason| format!("PyTorch: {reason}"))?);
        let _ = std::fs::remove_dir_all(start.file("compiled"));
    }
    let name = format!("PyTorch {version}, {}", if how == "eager" { "eager" } else { "torch.compile" });
    Ok(vec![ComparisonRow::new(figure, combine_turns(&ours), &name, combine_turns(&theirs), goal)])
}

/// Starts a process and returns the figure it reports.
///
/// # Errors
/// Returns an error if it does not start or reports no figure.
pub(crate) fn read_figure(command: &mut Command, errors: &Path) -> Result<Timing, String> {
    let ready = &PeerProcess::start(command, errors)?.ready;
    let figure = ready["figure"].as_f64().ok_or_else(|| format!("{ready} has no figure"))?;
    Ok(Timing { best: figure, median: figure })
}

/// Returns the resident bytes of this process: `VmRSS` is the current, `VmHWM` the peak value.
fn resident_bytes(field: &str) -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or_else(|| format!("no {field} in /proc/self/status"))
}

/// Resets the kernel's record of peak memory. If the kernel refuses, the figure includes earlier memory.
fn reset_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
