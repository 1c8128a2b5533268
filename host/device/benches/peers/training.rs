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
    let mut peers = Vec::new();
    for way in Way::all(task) {
        let peer = open(stage, task, batch, way, &start.file("errors.txt"));
        peers.push((way, peer.map_err(|reason| format!("{}: {reason}", way.name(&version)))?));
    }
    let ours = Loaded::new(&stage.backend, &graph, &|name| tensors.bytes(name))?;
    compare(&ours, peers.iter().map(|(_, peer)| peer))?;
    let mut contenders = vec![ours.contender()];
    for (way, peer) in &mut peers {
        contenders.push(Contender { name: way.name(&version), turn: Box::new(|seconds| peer.run(seconds)) });
    }
    let result = take(&mut contenders, stage)?;
    drop(contenders);
    let (counted, others): (Vec<_>, Vec<_>) =
        peers.iter().map(|(way, _)| *way).zip(result.timings[1..].iter().copied()).partition(|(way, _)| counts(*way));
    let named = |ways: Vec<(Way, Timing)>| -> Vec<(String, Timing)> {
        ways.into_iter().map(|(way, timing)| (way.name(&version), timing)).collect()
    };
    let mut rows = Row::beside(figure, result.timings[0], &named(counted), goal);
    rows.extend(Row::beside(figure, result.timings[0], &named(others), goal).into_iter().map(Row::without_goal));
    Ok(rows.into_iter().map(|row| row.among(result.others)).collect())
}

fn open(stage: &Stage, task: &Task, batch: usize, way: Way, errors: &Path) -> Result<Peer, String> {
    let mut command = stage.environment()?.program("torch_peer.py", stage.threads);
    command.args([task.name, &batch.to_string(), &stage.threads.to_string()]).args(way.arguments()).arg("train");
    command.env("TORCHINDUCTOR_CACHE_DIR", stage.folder.join("compiled"));
    Peer::start(&mut command, errors)
}

/// Refuses peers whose first losses are others than ours.
fn compare<'a>(ours: &Loaded, peers: impl Iterator<Item = &'a Peer>) -> Result<(), String> {
    let mut losses = Vec::new();
    for peer in peers {
        let said = peer.ready["losses"].as_array().ok_or("no losses")?;
        let theirs: Vec<f32> = said.iter().filter_map(|loss| Some(loss.as_f64()? as f32)).collect();
        while losses.len() < theirs.len() {
            losses.push(ours.result()?[0]);
        }
        agree(&losses, &theirs, TOLERANCE)?;
    }
    Ok(())
}
