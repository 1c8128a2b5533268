//! Networks that answer, beside ONNX Runtime.

use saggar_tensor::{GraphError, NodeId, verify};

use crate::child::Peer;
use crate::layers::Layers;
use crate::loaded::Loaded;
use crate::stage::{Stage, Start};
use crate::table::{Figure, Goal, Row};
use crate::tensors::{Tensors, agree, floats};
use crate::turns::{Contender, take};

/// Results may differ by so much of their largest number.
const TOLERANCE: f32 = 1e-4;

/// A network, here and in `models.py`.
pub(crate) struct Network {
    name: &'static str,
    build: fn(&mut Layers<'_>) -> Result<NodeId, GraphError>,
    /// Files of the network for the peer, and what is said of each.
    files: &'static [(&'static str, &'static str)],
    goal: Goal,
}

const PLAIN: (&str, &str) = ("model.onnx", "");

pub(crate) const LENET: Network =
    Network { name: "lenet", build: crate::lenet::logits, files: &[PLAIN], goal: Goal::TimeAtMost(0.9) };

pub(crate) const RESNET18: Network =
    Network { name: "resnet18", build: crate::resnet::logits, files: &[PLAIN], goal: Goal::TimeAtMost(1.0) };

pub(crate) const BERT: Network = Network {
    name: "bert",
    build: crate::bert::hidden,
    files: &[PLAIN, ("optimised.onnx", ", its optimizer for transformers")],
    goal: Goal::TimeAtMost(0.85),
};

/// # Errors
/// Why there is no figure.
pub(crate) fn measure(stage: &Stage, network: &Network, batch: usize) -> Result<Vec<Row>, String> {
    let version = stage.environment()?.version("onnxruntime")?;
    let start = stage.start(network.name, batch, true)?;
    let ours = load(stage, network, &start)?;
    let result = ours.result()?;
    let (mut peers, mut rows) = (Vec::new(), Vec::new());
    for (file, remark) in network.files {
        let name = format!("ONNX Runtime {version}{remark}");
        match open(stage, &start, file, &result) {
            Ok(peer) => peers.push((name, peer)),
            Err(reason) => rows.push(Row::without_figures(&format!("{name}: {reason}"))),
        }
    }
    let mut contenders = vec![ours.contender()];
    for (name, peer) in &mut peers {
        contenders.push(Contender { name: name.clone(), turn: Box::new(|seconds| peer.run(seconds)) });
    }
    let result = take(&mut contenders, stage)?;
    drop(contenders);
    let theirs: Vec<_> = peers.into_iter().map(|(name, _)| name).zip(result.timings[1..].iter().copied()).collect();
    let measured = Row::beside(Figure::Milliseconds, result.timings[0], &theirs, network.goal);
    rows.extend(measured.into_iter().map(|row| row.among(result.others)));
    Ok(rows)
}

fn load(stage: &Stage, network: &Network, start: &Start) -> Result<Loaded, String> {
    let tensors = Tensors::open(&start.file("start.safetensors"))?;
    let build = || {
        let mut layers = Layers::new(&tensors);
        let result = (network.build)(&mut layers)?;
        layers.g.output("result", result)?;
        verify(layers.g.finish())
    };
    let graph = build().map_err(|error| error.to_string())?;
    let loaded = Loaded::new(&stage.backend, &graph, &|name| tensors.bytes(name))?;
    if stage.kernels {
        loaded.tell_kernels()?;
    }
    Ok(loaded)
}

/// A peer that computes what we do.
fn open(stage: &Stage, start: &Start, file: &str, ours: &[f32]) -> Result<Peer, String> {
    let result = start.file("result.safetensors");
    let mut command = stage.environment()?.program("onnxruntime_peer.py", stage.threads);
    command.arg(start.file(file)).arg(start.file("start.safetensors")).arg(&result).arg(stage.threads.to_string());
    let peer = Peer::start(&mut command, &start.file("errors.txt"))?;
    let theirs = Tensors::open(&result)?.bytes("result")?.ok_or("no result")?;
    agree(ours, &floats(&theirs), TOLERANCE)?;
    Ok(peer)
}
