//! Training and inference of networks.

use std::time::Instant;

use saggar_compile::compile as compiled;

use super::torch_comparison::{self, TorchComparison, TorchMode};
use crate::measurement_context::BenchContext;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::task::{DECODER, LENET, RESNET50, TRANSFORMER, TrainingTask, inference_graph};
use crate::tensors::SafetensorsFile;

/// Losses compared; at most as many as `device_peer.py` writes.
const LOSSES: usize = 4;

/// Losses compared if rounding errors grow fast. With batch statistics of four images, ResNet-50's third loss differs
/// by 7 % between PyTorch's own single and double precision. The second loss, which follows one update, differs by 0.1
/// % while the loss falls from 7.0 to 2.2.
const LOSSES_OF_FEW_IMAGES: usize = 2;

/// Measures training. A step returns before it is done and reads nothing back; the device is waited for at the end of a
/// stretch of steps.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn train(stage: &BenchContext, task: &TrainingTask, batch: usize) -> Result<Vec<ComparisonRow>, String> {
    let is_judged = task.name == LENET.name;
    let is_of_few_images = task.name == RESNET50.name;
    let subject = TorchComparison {
        peer: ["train", task.name, &batch.to_string()],
        figure: FigureUnit::Milliseconds,
        wait_for_each: false,
        compared_runs: if is_of_few_images { LOSSES_OF_FEW_IMAGES } else { LOSSES },
        // TF32 rounds factors to 11 bits, and the effect on the loss grows from step to step.
        tolerance: if is_of_few_images {
            |way| if way.tf32 { 5e-2 } else { 1e-2 }
        } else {
            |way| if way.tf32 { 3e-2 } else { 1e-3 }
        },
        goal: &|way: &TorchMode| (is_judged && !way.compiled && !way.tf32).then_some(PerformanceGoal::TimeAtMost(0.5)),
        remark: "",
    };
    torch_comparison::compare_with_torch(stage, &subject, &|begin| task.training_graph(begin))
}

/// Measures predictions. Each prediction is waited for, as a client would.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn infer(stage: &BenchContext, task: &TrainingTask, batch: usize) -> Result<Vec<ComparisonRow>, String> {
    let subject = TorchComparison {
        peer: ["infer", task.name, &batch.to_string()],
        figure: FigureUnit::Milliseconds,
        wait_for_each: true,
        compared_runs: 1,
        // TF32 rounds factors to 11 bits, in dozens of consecutive layers.
        tolerance: |way| if way.tf32 { 3e-2 } else { 1e-3 },
        goal: &|_| None,
        remark: "",
    };
    torch_comparison::compare_with_torch(stage, &subject, &|begin| inference_graph(task, begin))
}

/// Measures the compiler for each training step, without a driver; nothing is executed.
///
/// # Errors
/// Returns an error if a graph is invalid or cannot be compiled.
pub(super) fn compile(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let tasks = [(&LENET, 64), (&RESNET50, 4), (&DECODER, 1), (&TRANSFORMER, 16)];
    tasks.into_iter().map(|(task, batch)| compile_task(stage, task, batch)).collect()
}

fn compile_task(stage: &BenchContext, task: &TrainingTask, batch: usize) -> Result<ComparisonRow, String> {
    let files = stage.create_folder(&format!("compile-{}", task.name))?;
    torch_comparison::write_initial_tensors(stage, [task.name, &batch.to_string()], &files)?;
    let begin = SafetensorsFile::open(&files.file("start.safetensors"))?;
    let begun = Instant::now();
    let graph = task.training_graph(&begin).map_err(|error| error.to_string())?;
    let built = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let program = compiled(&graph, &stage.backend.target()).map_err(|error| error.to_string())?;
    let took = begun.elapsed().as_secs_f64();
    let kernels = program.kernels.len();
    let said = format!("graph {:.1} ms, compiler {:.1} ms, {kernels} kernels", built * 1e3, took * 1e3);
    Ok(ComparisonRow::remark_only(&said, task.name))
}
