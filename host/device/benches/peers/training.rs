//! Training steps, beside PyTorch's.

use std::path::Path;

use crate::child::Peer;
use crate::loaded::Loaded;
use crate::stage::Stage;
use crate::table::{Figure, Goal, Row};
use crate::task::Task;
use crate::tensors::{Tensors, agree};
use crate::turns::{Contender, Timing, take};

/// The first losses may differ by so much of the largest.
const TOLERANCE: f32 = 1e-4;

/// How many losses are compared; as many as `torch_peer.py` says.
const LOSSES: usize = 4;

/// How PyTorch trains: whether compiled, and whether with channels last.
#[derive(Clone, Copy)]
struct Way {
    compiled: bool,
    channels_last: bool,
}

impl Way {
    /// All ways of a task; each is somebody's advice.
    fn all(task: &Task) -> Vec<Way> {
        let layouts = if task.channels_last { vec![false, true] } else { vec![false] };
        let of = |compiled| layouts.iter().map(move |&channels_last| Way { compiled, channels_last });
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

/// LeNet: the goal is about the compiled ones.
///
/// # Errors
/// Why there is no figure.
pub(crate) fn lenet(stage: &Stage, batch: usize) -> Result<Vec<Row>, String> {
    let figure = Figure::PerSecond { amount: batch as f64, unit: "samples/s" };
    measure(stage, &crate::task::LENET, batch, figure, Goal::SpeedAtLeast(2.0), |way| way.compiled)
}

/// The transformer: the goal is about the fastest.
///
/// # Errors
/// Why there is no figure.
pub(crate) fn seq2seq(stage: &Stage) -> Result<Vec<Row>, String> {
    let figure = Figure::PerSecond { amount: 1.0, unit: "steps/s" };
    measure(stage, &crate::task::SEQ2SEQ, 64, figure, Goal::SpeedAtLeast(1.5), |_| true)
}

fn measure(
    stage: &Stage,
    task: &Task,
    batch: usize,
    figure: Figure,
    goal: Goal,
    counts: fn(Way) -> bool,
) -> Result<Vec<Row>, String> {
    let version = stage.environment()?.version("torch")?;
    let start = stage.start(task.name, batch, false)?;
    let tensors = Tensors::open(&start.file("start.safetensors"))?;
    let graph = task.graph(&tensors).map_err(|error| error.to_string())?;
    let ours = Loaded::new(&stage.backend, &graph, &|name| tensors.bytes(name))?;
    let losses = (0..LOSSES).map(|_| Ok(ours.result()?[0])).collect::<Result<Vec<f32>, String>>()?;
    if stage.kernels {
        ours.tell_kernels()?;
    }
    let (mut peers, mut rows) = (Vec::new(), Vec::new());
    for way in Way::all(task) {
        let name = way.name(&version);
        match open(stage, task, batch, way, &start.file("errors.txt")).and_then(|peer| compare(&losses, peer)) {
            Ok(peer) => peers.push((way, name, peer)),
            Err(reason) => rows.push(Row::without_figures(&format!("{name}: {reason}"))),
        }
    }
    let mut contenders = vec![ours.contender()];
    for (_, name, peer) in &mut peers {
        contenders.push(Contender { name: name.clone(), turn: Box::new(|seconds| peer.run(seconds)) });
    }
    let result = take(&mut contenders, stage)?;
    drop(contenders);
    let (mut counted, mut others) = (Vec::new(), Vec::new());
    for ((way, name, _), &timing) in peers.into_iter().zip(&result.timings[1..]) {
        if counts(way) { &mut counted } else { &mut others }.push((name, timing));
    }
    let beside = |peers: &[(String, Timing)]| Row::beside(figure, result.timings[0], peers, goal);
    let all = beside(&counted).into_iter().chain(beside(&others).into_iter().map(Row::without_goal));
    rows.extend(all.map(|row| row.among(result.others)));
    Ok(rows)
}

fn open(stage: &Stage, task: &Task, batch: usize, way: Way, errors: &Path) -> Result<Peer, String> {
    let mut command = stage.environment()?.program("torch_peer.py", stage.threads);
    command.args([task.name, &batch.to_string(), &stage.threads.to_string()]).args(way.arguments()).arg("train");
    command.env("TORCHINDUCTOR_CACHE_DIR", stage.folder.join("compiled"));
    Peer::start(&mut command, errors)
}

/// The peer, if its first losses are ours.
fn compare(ours: &[f32], peer: Peer) -> Result<Peer, String> {
    let said = peer.ready["losses"].as_array().ok_or("no losses")?;
    let theirs: Vec<f32> = said.iter().filter_map(|loss| Some(loss.as_f64()? as f32)).collect();
    agree(ours, &theirs, TOLERANCE)?;
    Ok(peer)
}
