//! Matrix product (GEMM) on one thread: packed panels, register tiles, and the processor's widest vectors.
//!
//! Every element is one chain of multiply-adds in each block of depth, and blocks are added in order. Its bits
//! therefore depend only on its row, its column and the depth: not on the number of other rows or columns, nor on the
//! thread.

pub(super) mod macro_kernel;
mod matrix;
pub(super) mod micro_kernel;
pub(super) mod pack;
pub(super) mod partition;

#[cfg(test)]
mod tests;

use macro_kernel::{LhsOperand, PackedMatrix, PanelProduct, PanelRange, RhsOperand};
pub(super) use matrix::GemmMatrix;
use pack::PanelLayout;

use super::epilogue::BoundBiasClamp;
use super::thread_scratch::GemmScratch;

/// Computes `c = a b`, or `c += a b` if `add`, on this thread. `c` is dense `m x n`, `a` is `m x k`, `b` is `k x n`.
pub(super) fn multiply(
    c: &mut [f32],
    [m, n, k]: [usize; 3],
    a: GemmMatrix<'_>,
    b: GemmMatrix<'_>,
    add: bool,
    buffers: &mut GemmScratch,
) {
    multiply_with_epilogue(&mut c[..m * n], a, RhsOperand::Unpacked(PanelLayout::new(k, n), b), add, None, buffers);
}

/// Like [`multiply`], with an epilogue for each element.
pub(super) fn multiply_with_epilogue(
    c: &mut [f32],
    a: GemmMatrix<'_>,
    b: RhsOperand<'_>,
    add: bool,
    ends: Option<BoundBiasClamp<'_>>,
    words: &mut GemmScratch,
) {
    if c.is_empty() {
        return;
    }
    let layout = b.layout();
    let rows = c.chunks_exact_mut(layout.columns);
    let panels = PanelRange { first: 0, end: layout.panels() };
    let mut run = move |c: &mut [&mut [f32]]| {
        PanelProduct { c, a: LhsOperand::Matrix(a), b, panels, add, epilogue: ends, words }.run()
    };
    // Small products are frequent, so they avoid an allocation.
    let count = rows.len();
    if count > STACK_ROWS_MAX {
        let mut rows: Vec<&mut [f32]> = rows.collect();
        return run(&mut rows);
    }
    let mut few: [&mut [f32]; STACK_ROWS_MAX] = std::array::from_fn(|_| Default::default());
    few.iter_mut().zip(rows).for_each(|(few, row)| *few = row);
    run(&mut few[..count]);
}

/// Computes `c = a b` on this thread for all panels of `b`. `c` has one slice per row, each anywhere in memory.
pub(super) fn multiply_rows(c: &mut [&mut [f32]], a: GemmMatrix<'_>, b: PackedMatrix<'_>, words: &mut GemmScratch) {
    let panels = PanelRange { first: 0, end: b.layout.panels() };
    PanelProduct { c, a: LhsOperand::Matrix(a), b: RhsOperand::Packed(b), panels, add: false, epilogue: None, words }
        .run();
}

/// Rows up to which a product needs no allocation.
const STACK_ROWS_MAX: usize = 64;

/// The reference for all products in tests, computed in `f64`.
#[cfg(test)]
pub(super) fn multiply_reference(
    c: &mut [f32],
    [m, n, k]: [usize; 3],
    a: GemmMatrix<'_>,
    b: GemmMatrix<'_>,
    add: bool,
) {
    for row in 0..m {
        for column in 0..n {
            let products = (0..k).map(|at| {
                f64::from(a.data[row * a.row + at * a.column]) * f64::from(b.data[at * b.row + column * b.column])
            });
            let before = if add { c[row * n + column] } else { 0.0 };
            c[row * n + column] = (f64::from(before) + products.sum::<f64>()) as f32;
        }
    }
}
