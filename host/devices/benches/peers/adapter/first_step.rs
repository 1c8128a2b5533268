//! Time of the first training step in a new process, starting with the construction of the graph: the cost of compiler
//! and driver.

use std::path::Path;
use std::process::Command;

use super::torch_comparison::{self, reason_not_judged};
use crate::interleaved_runs::combine_turns;
use crate::measurement_context::{BenchContext, WorkFolder};
use crate::separate_process::{IsolatedRun, read_figure};
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::task::LENET;

const BATCH: &str = "64";
const COLD: PerformanceGoal = PerformanceGoal::SecondsAtMost(1.0);
const WARM: PerformanceGoal = PerformanceGoal::SecondsAtMost(0.2);

/// Measures without any cached shaders, neither the driver's nor ours.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn cold(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let files = stage.create_folder("first-step-lenet")?;
    let mut command = stage.environment()?.python_command("device_peer.py", stage.threads);
    command.args(["first", LENET.name, BATCH]).arg(files.folder());
    // Do not reuse earlier compilations.
    command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1").env("TORCHINDUCTOR_CACHE_DIR", files.file("compiled"));
    let theirs = crate::peer_process::PeerProcess::start(&mut command, &files.file("errors.txt"))?.ready.take();
    let figure = theirs["figure"].as_f64().ok_or("PyTorch reports no figure")?;
    let name = format!(
        "PyTorch {} on {}, torch.compile",
        theirs["version"].as_str().unwrap_or("?"),
        if theirs["cuda"] == true { "CUDA" } else { "the CPU" }
    );
    let ours = time_rounds(stage, &files, None)?;
    let theirs_once = crate::interleaved_runs::Timing { best: figure, median: figure };
    let row = ComparisonRow::new(FigureUnit::Milliseconds, ours, &name, theirs_once, COLD)
        .with_remark("without cached shaders");
    Ok(vec![row.mark_unjudged(reason_not_judged(stage, true))])
}

/// Measures after a previous process has filled the caches on disk: the driver's, and the device's if it has one.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn warm(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let files = stage.create_folder("first-step-lenet")?;
    torch_comparison::write_initial_tensors(stage, [LENET.name, BATCH], &files)?;
    let shader_cache = files.file("kept");
    std::fs::create_dir_all(&shader_cache).map_err(|error| format!("{}: {error}", shader_cache.display()))?;
    time_first_step(stage, &files, Some(&shader_cache))?;
    let ours = time_rounds(stage, &files, Some(&shader_cache))?;
    let row = ComparisonRow::without_peer(FigureUnit::Milliseconds, ours, WARM)
        .with_remark("with shaders cached by an earlier process");
    Ok(vec![row.mark_unjudged(reason_not_judged(stage, true))])
}

fn time_rounds(
    stage: &BenchContext,
    files: &WorkFolder,
    shader_cache: Option<&Path>,
) -> Result<crate::interleaved_runs::Timing, String> {
    let timings =
        (0..stage.rounds).map(|_| time_first_step(stage, files, shader_cache)).collect::<Result<Vec<_>, String>>()?;
    Ok(combine_turns(&timings))
}

fn time_first_step(
    stage: &BenchContext,
    files: &WorkFolder,
    shader_cache: Option<&Path>,
) -> Result<crate::interleaved_runs::Timing, String> {
    let alone = IsolatedRun::for_first_step(LENET.name, &files.file("start.safetensors"), stage);
    let mut command = alone.command()?;
    set_shader_cache(&mut command, shader_cache);
    read_figure(&mut command, &files.file("errors.txt"))
}

/// Sets the folder of a process's shader cache, or disables the cache. Each driver reads its own variable and ignores
/// the others'. If the device gets a cache too, set it here.
fn set_shader_cache(command: &mut Command, folder: Option<&Path>) {
    let Some(folder) = folder else {
        command.env("__GL_SHADER_DISK_CACHE", "0").env("MESA_SHADER_CACHE_DISABLE", "true");
        return;
    };
    command.env("__GL_SHADER_DISK_CACHE", "1").env("__GL_SHADER_DISK_CACHE_PATH", folder);
    command.env("MESA_SHADER_CACHE_DISABLE", "false").env("MESA_SHADER_CACHE_DIR", folder);
}
