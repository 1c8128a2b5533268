//! One graph beside the ways in which PyTorch computes the same, in one run: results first, then turns.

use std::cell::RefCell;

use saggar_tensor::{GraphError, VerifiedGraph};
use serde_json::Value as Json;

use crate::child::Peer;
use crate::environment::succeed;
use crate::loaded::Loaded;
use crate::stage::{Stage, Start};
use crate::table::{Figure, Goal, Row};
use crate::tensors::{Tensors, agree};
use crate::turns::{Contender, Timing, take};

/// What is compared.
pub(super) struct Subject<'a> {
    /// What `device_peer.py` is told: the kind, what, and the amount.
    pub(super) peer: [&'a str; 3],
    pub(super) figure: Figure,
    /// Whether each run is waited for, as a prediction is, or only stretches of them.
    pub(super) each: bool,
    /// How many runs' results are compared.
    pub(super) compared: usize,
    /// Results of these ways may differ by so much of the largest number.
    pub(super) tolerance: fn(&Way) -> f32,
    pub(super) goal: &'a dyn Fn(&Way) -> Option<Goal>,
    /// Said of our side in every row.
    pub(super) remark: &'a str,
}

/// One of PyTorch's ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) compiled: bool,
    pub(super) tf32: bool,
}

impl Way {
    fn of(said: &Json) -> Way {
        let is = |name: &str| said[name].as_bool().unwrap_or_default();
        Way { compiled: is("compiled"), tf32: is("tf32") }
    }

    /// As rows and means name it.
    pub(super) fn name(self) -> String {
        let how = if self.compiled { "torch.compile" } else { "eager" };
        format!("{how}, TF32 {}", if self.tf32 { "on" } else { "off" })
    }
}

/// Rows of a subject: one for each way.
///
/// # Errors
/// Why there is no figure.
pub(super) fn measure(
    stage: &Stage,
    subject: &Subject<'_>,
    build: &dyn Fn(&Tensors) -> Result<VerifiedGraph, GraphError>,
) -> Result<Vec<Row>, String> {
    let files = stage.files(&subject.peer.join("-"))?;
    let mut peer = start(stage, subject.peer, &files)?;
    let begin = Tensors::open(&files.file("start.safetensors"))?;
    let graph = build(&begin).map_err(|error| error.to_string())?;
    let ours = Loaded::new(&stage.backend, &graph, &|name| begin.bytes(name))?;
    let results = (0..subject.compared).map(|_| ours.result()).collect::<Result<Vec<_>, String>>()?.concat();
    if stage.kernels {
        ours.tell_kernels()?;
    }
    let facts = peer.ready.take();
    let (mut ways, mut rows) = (Vec::new(), Vec::new());
    for (number, said) in facts["ways"].as_array().ok_or("no ways")?.iter().enumerate() {
        let way = Way::of(said);
        let compare = || match said["error"].as_str() {
            Some(reason) => Err(reason.to_owned()),
            None => {
                let theirs = Tensors::open(&files.file(&format!("result-{number}.safetensors")))?;
                let theirs = theirs.all_numbers("result")?;
                let theirs = theirs.get(..results.len()).unwrap_or(&theirs);
                agree(&results, theirs, (subject.tolerance)(&way))
            }
        };
        match compare() {
            Ok(()) => ways.push((number, way)),
            Err(reason) => rows.push(Row::without_figures(&format!("{}: {reason}", name(&facts, way)))),
        }
    }
    let timings = turns(stage, subject, &ours, &ways, peer)?;
    for ((_, way), timing) in ways.iter().zip(&timings.1[1..]) {
        rows.push(row(stage, subject, &facts, *way, [timings.1[0], *timing]).among(timings.0));
    }
    Ok(rows)
}

/// The peer of a subject, which has written what both sides begin with and its first results.
///
/// # Errors
/// It cannot be started.
pub(super) fn start(stage: &Stage, arguments: [&str; 3], files: &Start) -> Result<Peer, String> {
    let mut command = stage.environment()?.program("device_peer.py", stage.threads);
    command.args(arguments).arg(files.folder()).args(stage.small.then_some("small"));
    command.env("TORCHINDUCTOR_CACHE_DIR", stage.folder.join("compiled"));
    Peer::start(&mut command, &files.file("errors.txt"))
}

/// Has a file written with what a network and its training begin with.
///
/// # Errors
/// What Python says.
pub(super) fn begin(stage: &Stage, [name, batch]: [&str; 2], files: &Start) -> Result<(), String> {
    let mut command = stage.environment()?.program("device_peer.py", stage.threads);
    succeed(command.args(["start", name, batch]).arg(files.folder()).args(stage.small.then_some("small")))
}

/// What others took of the cores; our timing, and those of the ways.
fn turns(
    stage: &Stage,
    subject: &Subject<'_>,
    ours: &Loaded,
    ways: &[(usize, Way)],
    peer: Peer,
) -> Result<(f64, Vec<Timing>), String> {
    let peer = &RefCell::new(peer);
    let mut contenders = vec![ours.submitter(subject.each)];
    for &(number, way) in ways {
        let turn = move |seconds| peer.borrow_mut().run_way(number, seconds);
        contenders.push(Contender { name: way.name(), turn: Box::new(turn) });
    }
    let outcome = take(&mut contenders, stage)?;
    Ok((outcome.others, outcome.timings))
}

fn row(stage: &Stage, subject: &Subject<'_>, facts: &Json, way: Way, [ours, theirs]: [Timing; 2]) -> Row {
    let [kind, what, _] = subject.peer;
    stage.ratios.borrow_mut().push((format!("{kind}-{what}, {}", way.name()), ours.median / theirs.median));
    let goal = (subject.goal)(&way);
    let row = Row::new(subject.figure, ours, &name(facts, way), theirs, goal.unwrap_or(Goal::TimeAtMost(1.0)));
    let row = if goal.is_some() { row } else { row.without_goal() };
    row.noting(subject.remark).unjudged(unjudged(stage, facts["cuda"] == true))
}

/// Why goals are not judged, if they are not.
pub(super) fn unjudged(stage: &Stage, cuda: bool) -> Option<&'static str> {
    let software = stage.backend.info().software || stage.backend.info().backend == "cpu";
    match (stage.small, software, cuda) {
        (true, ..) => Some("small"),
        (_, true, _) => Some("software"),
        (.., false) => Some("no CUDA"),
        (false, false, true) => None,
    }
}

fn name(facts: &Json, way: Way) -> String {
    let version = facts["version"].as_str().unwrap_or("?");
    let on = if facts["cuda"] == true { "CUDA" } else { "the CPU" };
    format!("PyTorch {version} on {on}, {}", way.name())
}
