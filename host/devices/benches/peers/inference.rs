//! Inference of networks, compared with ONNX Runtime.

use saggar_tensor::{GraphError, NodeId, verify};

use crate::interleaved_runs::{BenchContender, take_turns};
use crate::layers::LayerBuilder;
use crate::loaded_graph::BenchProgram;
use crate::measurement_context::{BenchContext, WorkFolder};
use crate::peer_process::PeerProcess;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::tensors::{SafetensorsFile, check_close, float32_from_bytes};

/// Tolerance of the results, relative to their largest number.
const TOLERANCE: f32 = 1e-4;

/// A network, defined here and in `models.py`.
pub(crate) struct InferenceNetwork {
    name: &'static str,
    build: fn(&mut LayerBuilder<'_>) -> Result<NodeId, GraphError>,
    /// Files of the network for the peer, with a remark on each.
    files: &'static [(&'static str, &'static str)],
    goal: PerformanceGoal,
}

const PLAIN: (&str, &str) = ("model.onnx", "");

pub(crate) const LENET: InferenceNetwork = InferenceNetwork {
    name: "lenet",
    build: crate::lenet::logits,
    files: &[PLAIN],
    goal: PerformanceGoal::TimeAtMost(0.9),
};

pub(crate) const RESNET18: InferenceNetwork = InferenceNetwork {
    name: "resnet18",
    build: crate::resnet::logits,
    files: &[PLAIN],
    goal: PerformanceGoal::TimeAtMost(1.0),
};

pub(crate) const BERT: InferenceNetwork = InferenceNetwork {
    name: "bert",
    build: crate::bert::hidden,
    files: &[PLAIN, ("optimised.onnx", ", its optimizer for transformers")],
    goal: PerformanceGoal::TimeAtMost(0.85),
};

/// Measures a network's predictions.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(crate) fn measure(
    stage: &BenchContext,
    network: &InferenceNetwork,
    batch: usize,
) -> Result<Vec<ComparisonRow>, String> {
    let version = stage.environment()?.version("onnxruntime")?;
    let start = stage.exported_folder(network.name, batch, true)?;
    let ours = load(stage, network, &start)?;
    let result = ours.first_output()?;
    let (mut peers, mut rows) = (Vec::new(), Vec::new());
    for (file, remark) in network.files {
        let name = format!("ONNX Runtime {version}{remark}");
        match start_matching_peer(stage, &start, file, &result) {
            Ok(peer) => peers.push((name, peer)),
            Err(reason) => rows.push(ComparisonRow::without_figures(&format!("{name}: {reason}"))),
        }
    }
    let mut contenders = vec![ours.contender()];
    for (name, peer) in &mut peers {
        contenders.push(BenchContender { name: name.clone(), turn: Box::new(|seconds| peer.run(seconds)) });
    }
    let result = take_turns(&mut contenders, stage)?;
    drop(contenders);
    let theirs: Vec<_> = peers.into_iter().map(|(name, _)| name).zip(result.timings[1..].iter().copied()).collect();
    let measured = ComparisonRow::rows_beside_peers(FigureUnit::Milliseconds, result.timings[0], &theirs, network.goal);
    rows.extend(measured.into_iter().map(|row| row.with_other_load(result.others)));
    Ok(rows)
}

fn load(stage: &BenchContext, network: &InferenceNetwork, start: &WorkFolder) -> Result<BenchProgram, String> {
    let tensors = SafetensorsFile::open(&start.file("start.safetensors"))?;
    let build = || {
        let mut layers = LayerBuilder::new(&tensors);
        let result = (network.build)(&mut layers)?;
        layers.g.output("result", result)?;
        verify(layers.g.finish())
    };
    let graph = build().map_err(|error| error.to_string())?;
    let loaded = BenchProgram::new(&stage.backend, &graph, &|name| tensors.bytes(name))?;
    if stage.kernels {
        loaded.print_kernel_times()?;
    }
    Ok(loaded)
}

/// Starts a peer and checks that it computes the same result.
fn start_matching_peer(
    stage: &BenchContext,
    start: &WorkFolder,
    file: &str,
    ours: &[f32],
) -> Result<PeerProcess, String> {
    let result = start.file("result.safetensors");
    let mut command = stage.environment()?.python_command("onnxruntime_peer.py", stage.threads);
    command.arg(start.file(file)).arg(start.file("start.safetensors")).arg(&result).arg(stage.threads.to_string());
    let peer = PeerProcess::start(&mut command, &start.file("errors.txt"))?;
    let theirs = SafetensorsFile::open(&result)?.bytes("result")?.ok_or("no result")?;
    check_close(ours, &float32_from_bytes(&theirs), TOLERANCE)?;
    Ok(peer)
}
