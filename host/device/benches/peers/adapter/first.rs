//! The first step of a training in a process of its own, from the graph's first node on: what the compiler and the driver need.

use std::path::Path;
use std::process::Command;

use super::beside::{self, unjudged};
use crate::alone::{Alone, said};
use crate::stage::{Stage, Start};
use crate::table::{Figure, Goal, Row};
use crate::task::LENET;
use crate::turns::together;

const BATCH: &str = "64";
const COLD: Goal = Goal::SecondsAtMost(1.0);
const WARM: Goal = Goal::SecondsAtMost(0.2);

/// Nothing is left from processes before: neither the driver's compiled shaders nor ours.
///
/// # Errors
/// Why there is no figure.
pub(super) fn cold(stage: &Stage) -> Result<Vec<Row>, String> {
    let files = stage.files("first-step-lenet")?;
    let mut command = stage.environment()?.program("device_peer.py", stage.threads);
    command.args(["first", LENET.name, BATCH]).arg(files.folder());
    // What was compiled before must not help.
    command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1").env("TORCHINDUCTOR_CACHE_DIR", files.file("compiled"));
    let theirs = crate::child::Peer::start(&mut command, &files.file("errors.txt"))?.ready.take();
    let figure = theirs["figure"].as_f64().ok_or("PyTorch says no figure")?;
    let name = format!(
        "PyTorch {} on {}, torch.compile",
        theirs["version"].as_str().unwrap_or("?"),
        if theirs["cuda"] == true { "CUDA" } else { "the CPU" }
    );
    let ours = rounds(stage, &files, None)?;
    let theirs_once = crate::turns::Timing { best: figure, median: figure };
    let row = Row::new(Figure::Milliseconds, ours, &name, theirs_once, COLD).noting("no shader kept from before");
    Ok(vec![row.unjudged(unjudged(stage, true))])
}

/// The process before has left what is kept on disk: by the driver, and by the device where it keeps anything.
///
/// # Errors
/// Why there is no figure.
pub(super) fn warm(stage: &Stage) -> Result<Vec<Row>, String> {
    let files = stage.files("first-step-lenet")?;
    beside::begin(stage, [LENET.name, BATCH], &files)?;
    let kept = files.file("kept");
    std::fs::create_dir_all(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    step(stage, &files, Some(&kept))?;
    let ours = rounds(stage, &files, Some(&kept))?;
    let row = Row::alone(Figure::Milliseconds, ours, WARM).noting("after a process that left its shaders on disk");
    Ok(vec![row.unjudged(unjudged(stage, true))])
}

fn rounds(stage: &Stage, files: &Start, kept: Option<&Path>) -> Result<crate::turns::Timing, String> {
    let timings = (0..stage.rounds).map(|_| step(stage, files, kept)).collect::<Result<Vec<_>, String>>()?;
    Ok(together(&timings))
}

fn step(stage: &Stage, files: &Start, kept: Option<&Path>) -> Result<crate::turns::Timing, String> {
    let alone = Alone::first(LENET.name, &files.file("start.safetensors"), stage);
    let mut command = alone.command()?;
    keep(&mut command, kept);
    said(&mut command, &files.file("errors.txt"))
}

/// Has a process keep compiled shaders in a folder, or none. A driver knows its own variable and passes over the others'; what
/// the device itself keeps is told here too, once it does.
fn keep(command: &mut Command, folder: Option<&Path>) {
    let Some(folder) = folder else {
        command.env("__GL_SHADER_DISK_CACHE", "0").env("MESA_SHADER_CACHE_DISABLE", "true");
        return;
    };
    command.env("__GL_SHADER_DISK_CACHE", "1").env("__GL_SHADER_DISK_CACHE_PATH", folder);
    command.env("MESA_SHADER_CACHE_DISABLE", "false").env("MESA_SHADER_CACHE_DIR", folder);
}
