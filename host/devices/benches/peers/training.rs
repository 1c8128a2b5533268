//! Training steps, compared with PyTorch.

use std::path::Path;

use crate::interleaved_runs::{BenchContender, Timing, take_turns};
use crate::loaded_graph::BenchProgram;
use crate::measurement_context::BenchContext;
use crate::peer_process::PeerProcess;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::task::TrainingTask;
use crate::tensors::{SafetensorsFile, check_close};

/// Tolerance of the first losses, relative to the largest.
const TOLERANCE: f32 = 1e-4;

/// Losses compared; as many as `torch_peer.py` reports.
const LOSSES: usize = 4;

/// A mode in which PyTorch trains: compiled or eager, channels first or last.
#[derive(Clone, Copy)]
struct TorchTrainingMode {
    compiled: bool,
    channels_last: bool,
}

impl TorchTrainingMode {
    /// Returns all modes for a task; each is a common recommendation.
    fn all_for(task: &TrainingTask) -> Vec<TorchTrainingMode> {
        let layouts = if task.channels_last { vec![false, true] } else { vec![false] };
        let of = |compiled| layouts.iter().map(move |&channels_last| TorchTrainingMode { compiled, channels_last });
        of(false).chain(of(true)).collect()
    }

    fn name(self, version: &str) -> String {
        let how = if self.compiled { "torch.compile" } else { "eager" };
        format!("PyTorch {version}, {how}{}", if self.channels_last { ", channels last" } else { "" })
    }

    fn arguments(self) -> [&'static str; 2] {
        let how = if self.compiled { "compiled" } else { "eager" };
        [how, if self.channels_last { "last" } else { "first" }]
    }
}

/// Measures LeNet; the goal applies to the compiled modes.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(crate) fn lenet(stage: &BenchContext, batch: usize) -> Result<Vec<ComparisonRow>, String> {
    let figure = FigureUnit::PerSecond { amount: batch as f64, unit: "samples/s" };
    measure(stage, &crate::task::LENET, batch, figure, PerformanceGoal::SpeedAtLeast(2.0), |way| way.compiled)
}

/// Measures the transformer; the goal applies to the fastest mode.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(crate) fn seq2seq(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let figure = FigureUnit::PerSecond { amount: 1.0, unit: "steps/s" };
    measure(stage, &crate::task::SEQ2SEQ, 64, figure, PerformanceGoal::SpeedAtLeast(1.5), |_| true)
}

fn measure(
    stage: &BenchContext,
    task: &TrainingTask,
    batch: usize,
    figure: FigureUnit,
    goal: PerformanceGoal,
    counts: fn(TorchTrainingMode) -> bool,
) -> Result<Vec<ComparisonRow>, String> {
    let version = stage.environment()?.version("torch")?;
    let start = stage.exported_folder(task.name, batch, false)?;
    let tensors = SafetensorsFile::open(&start.file("start.safetensors"))?;
    let graph = task.training_graph(&tensors).map_err(|error| error.to_string())?;
    let ours = BenchProgram::new(&stage.backend, &graph, &|name| tensors.bytes(name))?;
    let losses = (0..LOSSES).map(|_| Ok(ours.first_output()?[0])).collect::<Result<Vec<f32>, String>>()?;
    if stage.kernels {
        ours.print_kernel_times()?;
    }
    let (mut peers, mut rows) = (Vec::new(), Vec::new());
    for way in TorchTrainingMode::all_for(task) {
        let name = way.name(&version);
        match start_peer(stage, task, batch, way, &start.file("errors.txt"))
            .and_then(|peer| check_losses(&losses, peer))
        {
            Ok(peer) => peers.push((way, name, peer)),
            Err(reason) => rows.push(ComparisonRow::without_figures(&format!("{name}: {reason}"))),
        }
    }
    let mut contenders = vec![ours.contender()];
    for (_, name, peer) in &mut peers {
        contenders.push(BenchContender { name: name.clone(), turn: Box::new(|seconds| peer.run(seconds)) });
    }
    let result = take_turns(&mut contenders, stage)?;
    drop(contenders);
    let (mut counted, mut others) = (Vec::new(), Vec::new());
    for ((way, name, _), &timing) in peers.into_iter().zip(&result.timings[1..]) {
        if counts(way) { &mut counted } else { &mut others }.push((name, timing));
    }
    let beside = |peers: &[(String, Timing)]| ComparisonRow::rows_beside_peers(figure, result.timings[0], peers, goal);
    let all = beside(&counted).into_iter().chain(beside(&others).into_iter().map(ComparisonRow::without_goal));
    rows.extend(all.map(|row| row.with_other_load(result.others)));
    Ok(rows)
}

fn start_peer(
    stage: &BenchContext,
    task: &TrainingTask,
    batch: usize,
    way: TorchTrainingMode,
    errors: &Path,
) -> Result<PeerProcess, String> {
    let mut command = stage.environment()?.python_command("torch_peer.py", stage.threads);
    command.args([task.name, &batch.to_string(), &stage.threads.to_string()]).args(way.arguments()).arg("train");
    command.env("TORCHINDUCTOR_CACHE_DIR", stage.folder.join("compiled"));
    PeerProcess::start(&mut command, errors)
}

/// Returns the peer if its first losses match ours.
fn check_losses(ours: &[f32], peer: PeerProcess) -> Result<PeerProcess, String> {
    let said = peer.ready["losses"].as_array().ok_or("no losses")?;
    let theirs: Vec<f32> = said.iter().filter_map(|loss| Some(loss.as_f64()? as f32)).collect();
    check_close(ours, &theirs, TOLERANCE)?;
    Ok(peer)
}
