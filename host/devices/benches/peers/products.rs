//! Square matrix products, compared with the `gemm` crate.

use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, Shape, VerifiedGraph, verify};

use crate::gemm::GemmProduct;
use crate::interleaved_runs::{BenchContender, measure_runs as time, take_turns};
use crate::loaded_graph::BenchProgram;
use crate::measurement_context::BenchContext;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::tensors::check_close;

const GOAL: PerformanceGoal = PerformanceGoal::SpeedAtLeast(0.95);
const TOLERANCE: f32 = 1e-4;

/// Measures products of `n` by `n` matrices.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(crate) fn measure(stage: &BenchContext, n: usize) -> Result<Vec<ComparisonRow>, String> {
    let (a, b) = (numbers(n * n, 1), numbers(n * n, 2));
    let graph = graph(n).map_err(|error| error.to_string())?;
    let ours = BenchProgram::new(&stage.backend, &graph, &|name| Ok(Some(bytes(if name == "a" { &a } else { &b }))))?;
    let mut theirs = GemmProduct::new(stage.threads, n, a, b)?;
    theirs.run();
    check_close(&ours.first_output()?, &theirs.c, TOLERANCE)?;
    let turn = |seconds| {
        time(seconds, || {
            theirs.run();
            Ok(())
        })
    };
    let name = "gemm".to_owned();
    let mut contenders = [ours.contender(), BenchContender { name, turn: Box::new(turn) }];
    let result = take_turns(&mut contenders, stage)?;
    let figure = FigureUnit::PerSecond { amount: 2.0 * (n as f64).powi(3) / 1e9, unit: "GFLOP/s" };
    let [ours, theirs] = [result.timings[0], result.timings[1]];
    Ok(vec![
        ComparisonRow::new(figure, ours, &format!("gemm {}", version()), theirs, GOAL).with_other_load(result.others),
    ])
}

/// Returns the crate's version in the workspace's lock file, with which the device is built.
fn version() -> &'static str {
    let lock = include_str!("../../../../Cargo.lock");
    let after = lock.split_once("name = \"gemm\"\nversion = \"").map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).unwrap_or("?")
}

fn graph(n: usize) -> Result<VerifiedGraph, GraphError> {
    let mut g = GraphBuilder::new();
    let matrix = Descriptor::new(DType::F32, Shape::new([n, n])?);
    let a = g.input("a", matrix.clone())?;
    let b = g.input("b", matrix)?;
    let product = g.matmul(a, b)?;
    g.output("product", product)?;
    verify(g.finish())
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}
