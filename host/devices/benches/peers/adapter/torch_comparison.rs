//! Comparison of one graph with PyTorch's modes in one run: first the results, then the times.

use std::cell::RefCell;

use saggar_tensor::{GraphError, VerifiedGraph};
use serde_json::Value as Json;

use crate::environment::run_to_success;
use crate::interleaved_runs::{BenchContender, Timing, take_turns};
use crate::loaded_graph::BenchProgram;
use crate::measurement_context::{BenchContext, WorkFolder};
use crate::peer_process::PeerProcess;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::tensors::{SafetensorsFile, check_close};

/// The subject of a comparison.
pub(super) struct TorchComparison<'a> {
    /// Arguments of `device_peer.py`: the kind, the network or type, and the batch or size.
    pub(super) peer: [&'a str; 3],
    pub(super) figure: FigureUnit,
    /// Whether each run is waited for, as for a prediction, or only stretches of runs.
    pub(super) wait_for_each: bool,
    /// Runs whose results are compared.
    pub(super) compared_runs: usize,
    /// Tolerance of a mode's results, relative to their largest number.
    pub(super) tolerance: fn(&TorchMode) -> f32,
    pub(super) goal: &'a dyn Fn(&TorchMode) -> Option<PerformanceGoal>,
    /// A remark on our side in every row.
    pub(super) remark: &'a str,
}

/// One of PyTorch's modes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TorchMode {
    pub(super) compiled: bool,
    pub(super) tf32: bool,
}

impl TorchMode {
    fn from_json(said: &Json) -> TorchMode {
        let is = |name: &str| said[name].as_bool().unwrap_or_default();
        TorchMode { compiled: is("compiled"), tf32: is("tf32") }
    }

    /// Returns the name used in rows and means.
    pub(super) fn name(self) -> String {
        let how = if self.compiled { "torch.compile" } else { "eager" };
        format!("{how}, TF32 {}", if self.tf32 { "on" } else { "off" })
    }
}

/// Returns the rows of a subject: one per mode.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn compare_with_torch(
    stage: &BenchContext,
    subject: &TorchComparison<'_>,
    build: &dyn Fn(&SafetensorsFile) -> Result<VerifiedGraph, GraphError>,
) -> Result<Vec<ComparisonRow>, String> {
    let files = stage.create_folder(&subject.peer.join("-"))?;
    let mut peer = start_peer(stage, subject.peer, &files)?;
    let begin = SafetensorsFile::open(&files.file("start.safetensors"))?;
    let graph = build(&begin).map_err(|error| error.to_string())?;
    let ours = BenchProgram::new(&stage.backend, &graph, &|name| begin.bytes(name))?;
    let results = (0..subject.compared_runs).map(|_| ours.first_output()).collect::<Result<Vec<_>, String>>()?.concat();
    if stage.kernels {
        ours.print_kernel_times()?;
    }
    let facts = peer.ready.take();
    let (mut ways, mut rows) = (Vec::new(), Vec::new());
    for (number, said) in facts["ways"].as_array().ok_or("no ways")?.iter().enumerate() {
        let way = TorchMode::from_json(said);
        let compare = || match said["error"].as_str() {
            Some(reason) => Err(reason.to_owned()),
            None => {
                let theirs = SafetensorsFile::open(&files.file(&format!("result-{number}.safetensors")))?;
                let theirs = theirs.all_numbers("result")?;
                let theirs = theirs.get(..results.len()).unwrap_or(&theirs);
                check_close(&results, theirs, (subject.tolerance)(&way))
            }
        };
        match compare() {
            Ok(()) => ways.push((number, way)),
            Err(reason) => rows.push(ComparisonRow::without_figures(&format!("{}: {reason}", peer_name(&facts, way)))),
        }
    }
    let timings = run_turns(stage, subject, &ours, &ways, peer)?;
    for ((_, way), timing) in ways.iter().zip(&timings.1[1..]) {
        rows.push(comparison_row(stage, subject, &facts, *way, [timings.1[0], *timing]).with_other_load(timings.0));
    }
    Ok(rows)
}

/// Starts the peer of a subject. It writes the initial tensors of both sides and its first results.
///
/// # Errors
/// Returns an error if it cannot be started.
pub(super) fn start_peer(
    stage: &BenchContext,
    arguments: [&str; 3],
    files: &WorkFolder,
) -> Result<PeerProcess, String> {
    let mut command = stage.environment()?.python_command("device_peer.py", stage.threads);
    command.args(arguments).arg(files.folder()).args(stage.small.then_some("small"));
    command.env("TORCHINDUCTOR_CACHE_DIR", stage.folder.join("compiled"));
    PeerProcess::start(&mut command, &files.file("errors.txt"))
}

/// Writes the initial tensors of a network and its training to a file.
///
/// # Errors
/// Returns Python's error.
pub(super) fn write_initial_tensors(
    stage: &BenchContext,
    [name, batch]: [&str; 2],
    files: &WorkFolder,
) -> Result<(), String> {
    let mut command = stage.environment()?.python_command("device_peer.py", stage.threads);
    run_to_success(command.args(["start", name, batch]).arg(files.folder()).args(stage.small.then_some("small")))
}

/// Runs the turns. Returns the share of the cores that other processes took, our timing, and those of the modes.
fn run_turns(
    stage: &BenchContext,
    subject: &TorchComparison<'_>,
    ours: &BenchProgram,
    ways: &[(usize, TorchMode)],
    peer: PeerProcess,
) -> Result<(f64, Vec<Timing>), String> {
    let peer = &RefCell::new(peer);
    let mut contenders = vec![ours.submitting_contender(subject.wait_for_each)];
    for &(number, way) in ways {
        let turn = move |seconds| peer.borrow_mut().run_mode(number, seconds);
        contenders.push(BenchContender { name: way.name(), turn: Box::new(turn) });
    }
    let outcome = take_turns(&mut contenders, stage)?;
    Ok((outcome.others, outcome.timings))
}

fn comparison_row(
    stage: &BenchContext,
    subject: &TorchComparison<'_>,
    facts: &Json,
    way: TorchMode,
    [ours, theirs]: [Timing; 2],
) -> ComparisonRow {
    let [kind, what, _] = subject.peer;
    stage.peer_has_cuda.set(facts["cuda"].as_bool().unwrap_or_default());
    stage.ratios.borrow_mut().push((format!("{kind}-{what}, {}", way.name()), ours.median / theirs.median));
    let goal = (subject.goal)(&way);
    let row = ComparisonRow::new(
        subject.figure,
        ours,
        &peer_name(facts, way),
        theirs,
        goal.unwrap_or(PerformanceGoal::TimeAtMost(1.0)),
    );
    let row = if goal.is_some() { row } else { row.without_goal() };
    row.with_remark(subject.remark).mark_unjudged(reason_not_judged(stage, facts["cuda"] == true))
}

/// Returns the reason why goals are not judged, or `None` if they are.
pub(super) fn reason_not_judged(stage: &BenchContext, cuda: bool) -> Option<&'static str> {
    let software = stage.backend.info().software || stage.backend.info().backend == "cpu";
    match (stage.small, software, cuda) {
        (true, ..) => Some("small"),
        (_, true, _) => Some("software"),
        (.., false) => Some("no CUDA"),
        (false, false, true) => None,
    }
}

fn peer_name(facts: &Json, way: TorchMode) -> String {
    let version = facts["version"].as_str().unwrap_or("?");
    let on = if facts["cuda"] == true { "CUDA" } else { "the CPU" };
    format!("PyTorch {version} on {on}, {}", way.name())
}
