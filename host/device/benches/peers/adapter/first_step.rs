//! The first step of a training in a process of its own, from the graph's first node on: what the compiler and the driver need.

use std::path::Path;
use std::process::Command;

use super::torch_comparison::{self, reason_not_judged};
use crate::alone::{IsolatedRun, read_figure};
use crate::stage::{BenchContext, WorkFolder};
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::task::LENET;
use crate::turns::combine_turns;

const BATCH: &str = "64";
const COLD: PerformanceGoal = PerformanceGoal::SecondsAtMost(1.0);
const WARM: PerformanceGoal = PerformanceGoal::SecondsAtMost(0.2);

/// Nothing is left from processes before: neither the driver's compiled shaders nor ours.
///
/// # Errors
/// Why there is no figure.
pub(super) fn cold(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let files = stage.create_folder("first-step-lenet")?;
    let mut command = stage.environment()?.python_command("device_peer.py", stage.threads);
    command.args(["first", LENET.name, BATCH]).arg(files.folder());
    // What was compiled before must not help.
    command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1").env("TORCHINDUCTOR_CACHE_DIR", files.file("compiled"));
    let theirs = crate::child::PeerProcess::start(&mut command, &files.file("errors.txt"))?.ready.take();
    let figure = theirs["figure"].as_f64().ok_or("PyTorch says no figure")?;
    let name = format!(
        "PyTorch {} on {}, torch.compile",
        theirs["version"].as_str().unwrap_or("?"),
        if theirs["cuda"] == true { "CUDA" } else { "the CPU" }
    );
    let ours = time_rounds(stage, &files, None)?;
    let theirs_once = crate::turns::Timing { best: figure, median: figure };
    let row = ComparisonRow::new(FigureUnit::Milliseconds, ours, &name, theirs_once, COLD)
        .with_remark("no shader kept from before");
    Ok(vec![row.mark_unjudged(reason_not_judged(stage, true))])
}

/// The process before has left what is kept on disk: by the driver, and by the device where it keeps anything.
///
/// # Errors
/// Why there is no figure.
pub(super) fn warm(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let files = stage.create_folder("first-step-lenet")?;
    torch_comparison::write_initial_tensors(stage, [LENET.name, BATCH], &files)?;
    let kept = files.file("kept");
    std::fs::create_dir_all(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    time_first_step(stage, &files, Some(&kept))?;
    let ours = time_rounds(stage, &files, Some(&kept))?;
    let row = ComparisonRow::without_peer(FigureUnit::Milliseconds, ours, WARM)
        .with_remark("after a process that left its shaders on disk");
    Ok(vec![row.mark_unjudged(reason_not_judged(stage, true))])
}

fn time_rounds(stage: &BenchContext, files: &WorkFolder, kept: Option<&Path>) -> Result<crate::turns::Timing, String> {
    let timings = (0..stage.rounds).map(|_| time_first_step(stage, files, kept)).collect::<Result<Vec<_>, String>>()?;
    Ok(combine_turns(&timings))
}

fn time_first_step(
    stage: &BenchContext,
    files: &WorkFolder,
    kept: Option<&Path>,
) -> Result<crate::turns::Timing, String> {
    let alone = IsolatedRun::for_first_step(LENET.name, &files.file("start.safetensors"), stage);
    let mut command = alone.command()?;
    set_shader_cache(&mut command, kept);
    read_figure(&mut command, &files.file("errors.txt"))
}

/// Has a process keep compiled shaders in a folder, or none. A driver knows its own variable and passes over the others'; what
/// the device itself keeps is told here too, once it does.
fn set_shader_cache(command: &mut Command, folder: Option<&Path>) {
    let Some(folder) = folder else {
        command.env("__GL_SHADER_DISK_CACHE", "0").env("MESA_SHADER_CACHE_DISABLE", "true");
        return;
    };
    command.env("__GL_SHADER_DISK_CACHE", "1").env("__GL_SHADER_DISK_CACHE_PATH", folder);
    command.env("MESA_SHADER_CACHE_DISABLE", "false").env("MESA_SHADER_CACHE_DIR", folder);
}
