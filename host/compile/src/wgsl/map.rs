//! Fused element-wise kernels: one invocation for each point.

use super::expression::{Point, expression, stores, wanted};
use crate::expr::Expr;
use crate::program::Store;
use crate::wgsl::writer::Writer;

/// `stores` of `expr` over `dims`.
pub(super) fn map(w: &mut Writer<'_>, dims: &[usize], expr: &Expr, to: &[Store]) {
    let count = dims.iter().product();
    if count == 0 {
        return;
    }
    w.each(count);
    let coordinates = w.coordinates(dims, "id", "c", &wanted(expr, dims, true));
    let point = Point { dims, coordinates: &coordinates, linear: Some("id"), accumulated: &[], prefix: "r" };
    expression(w, expr, &point);
    stores(w, to, "id", "r")
}
