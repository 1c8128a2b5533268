//! Square matrix products, compared with cuBLAS as PyTorch calls it.

use saggar_tensor::{GraphBuilder, GraphError, VerifiedGraph, verify};

use super::torch_comparison::{self, TorchComparison, TorchMode};
use crate::measurement_context::BenchContext;
use crate::table::{ComparisonRow, FigureUnit, PerformanceGoal};
use crate::tensors::SafetensorsFile;

/// The data type of the matrices, with its tolerance and goal.
pub(super) struct MatMulPrecision {
    name: &'static str,
    tolerance: fn(&TorchMode) -> f32,
    goal: PerformanceGoal,
    remark: &'static str,
}

pub(super) const F32: MatMulPrecision = MatMulPrecision {
    name: "f32",
    // TF32 rounds factors to 11 bits.
    tolerance: |way| if way.tf32 { 2e-3 } else { 1e-5 },
    goal: PerformanceGoal::SpeedAtLeast(0.65),
    remark: "",
};

/// Factors and result are half precision, sums single precision, on both sides.
pub(super) const F16: MatMulPrecision = MatMulPrecision {
    name: "f16",
    // Results are rounded to 11 bits, and sums in another order can round to the neighbouring number.
    tolerance: |_| 2e-3,
    goal: PerformanceGoal::SpeedAtLeast(0.3),
    remark: "f16 tensors, f32 sums, f16 result",
};

/// The matrix size to which goals apply.
const JUDGED: usize = 4096;
/// The matrix size with `--small`.
const SMALL: usize = 96;

/// Measures products of `n` by `n` matrices.
///
/// # Errors
/// Returns the reason why there is no figure.
pub(super) fn measure(stage: &BenchContext, kind: MatMulPrecision, n: usize) -> Result<Vec<ComparisonRow>, String> {
    let size = if stage.small { SMALL } else { n };
    let is_judged = n == JUDGED;
    let goal = kind.goal;
    let subject = TorchComparison {
        peer: ["matmul", kind.name, &size.to_string()],
        figure: FigureUnit::PerSecond { amount: 2.0 * (size as f64).powi(3) / 1e9, unit: "GFLOP/s" },
        wait_for_each: false,
        compared_runs: 1,
        tolerance: kind.tolerance,
        goal: &|way| (is_judged && !way.tf32).then_some(goal),
        remark: kind.remark,
    };
    torch_comparison::compare_with_torch(stage, &subject, &graph)
}

fn graph(begin: &SafetensorsFile) -> Result<VerifiedGraph, GraphError> {
    let mut g = GraphBuilder::new();
    let matrix = begin.descriptor("a").unwrap_or_else(|| panic!("the peer writes a")).clone();
    let a = g.input("a", matrix.clone())?;
    let b = g.input("b", matrix)?;
    let product = g.matmul(a, b)?;
    g.output("product", product)?;
    verify(g.finish())
}
