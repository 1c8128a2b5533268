//! WGSL for fused element-wise kernels: one invocation per point.

use super::expression::{EvaluationPoint, needed_coordinates, write_expr, write_stores};
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::ResultStore;
use saggar_compile::program::expr::ScalarExpr;

/// Writes a kernel that evaluates `expr` over `dims` and stores the results to `to`.
pub(super) fn map_kernel(w: &mut ShaderWriter<'_>, dims: &[usize], expr: &ScalarExpr, to: &[ResultStore]) {
    let count = dims.iter().product();
    if count == 0 {
        return;
    }
    w.invocation_per_element(count);
    let coordinates = w.coordinates(dims, "id", "c", &needed_coordinates(expr, dims, true));
    let point = EvaluationPoint { dims, coordinates: &coordinates, linear: Some("id"), accumulated: &[], prefix: "r" };
    write_expr(w, expr, &point);
    write_stores(w, to, "id", "r")
}
