//! Cost of one dispatch in a recorded step: a chain of tiny kernels that each wait for the previous one.

use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, Shape, VerifiedGraph, verify};

use super::torch_comparison::reason_not_judged;
use crate::interleaved_runs::{Timing, take_turns};
use crate::loaded_graph::BenchProgram;
use crate::measurement_context::BenchContext;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};

/// Products in the chain, and rows and columns of their matrices.
const LENGTH: usize = 400;
const SIDE: usize = 16;

const GOAL: PerformanceGoal = PerformanceGoal::SecondsAtMost(2e-6);

/// Measures the time per dispatch.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn measure(stage: &BenchContext) -> Result<Vec<ComparisonRow>, String> {
    let graph = chain().map_err(|error| error.to_string())?;
    // A reflection keeps the size of numbers, however often it is applied.
    let reflection = |at: usize| f32::from(u8::from(at / SIDE == at % SIDE)) - 2.0 / SIDE as f32;
    let number = |at: usize| ((at * 7919) % 2003) as f32 / 1001.5 - 1.0;
    let bytes = |of: &dyn Fn(usize) -> f32| (0..SIDE * SIDE).flat_map(|at| of(at).to_le_bytes()).collect::<Vec<u8>>();
    let start = |name: &str| Ok(Some(if name == "x" { bytes(&number) } else { bytes(&reflection) }));
    let ours = BenchProgram::new(&stage.backend, &graph, &start)?;
    let (before, found) = (ours.meter.dispatches(), ours.first_output()?);
    let dispatches = (ours.meter.dispatches() - before) as f64;
    let wanted: Vec<f32> = (0..SIDE * SIDE).map(number).collect();
    // An even number of reflections is the identity.
    crate::tensors::check_close(&found, &wanted, 1e-3)?;
    let outcome = take_turns(&mut [ours.submitting_contender(false)], stage)?;
    let Timing { best, median } = outcome.timings[0];
    let one = Timing { best: best / dispatches, median: median / dispatches };
    let remark = format!("a step of {dispatches} dispatches, each waits for the previous one");
    let row = ComparisonRow::without_peer(FigureUnit::Microseconds, one, GOAL).with_remark(&remark);
    Ok(vec![row.mark_unjudged(reason_not_judged(stage, true)).with_other_load(outcome.others)])
}

fn chain() -> Result<VerifiedGraph, GraphError> {
    let mut g = GraphBuilder::new();
    let matrix = Descriptor::new(DType::F32, Shape::new([SIDE, SIDE])?);
    let mut x = g.input("x", matrix.clone())?;
    let reflection = g.input("reflection", matrix)?;
    for _ in 0..LENGTH {
        x = g.matmul(x, reflection)?;
    }
    g.output("x", x)?;
    verify(g.finish())
}
