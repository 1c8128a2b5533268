//! The matrix product: packed panels, tiles in registers, and the widest vectors of the processor.
//!
//! Every element is one chain of multiply-adds in each block of depth, and blocks are added in order. So its bits depend
//! on its row, its column and the depth alone: not on how many rows or columns there are beside it, nor on which thread
//! computes which of them.

pub(super) mod macro_kernel;
pub(super) mod micro_kernel;
pub(super) mod pack;

#[cfg(test)]
mod tests;

use macro_kernel::{LhsOperand, PackedMatrix, PanelProduct, PanelRange, RhsOperand};
use pack::PanelLayout;

use super::aligned_buffer::AlignedBuffer;
use super::epilogue::BoundBiasClamp;

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct GemmMatrix<'a> {
    /// Its elements, from the first row's first on.
    pub(super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(super) row: usize,
    /// Elements from one column to the next.
    pub(super) column: usize,
}

impl<'a> GemmMatrix<'a> {
    /// `rows x columns`, row-major, or stored `columns x rows` where `transposed`.
    pub(super) fn new(data: &'a [f32], columns: usize, rows: usize, transposed: bool) -> GemmMatrix<'a> {
        if transposed {
            GemmMatrix { data, row: 1, column: rows }
        } else {
            GemmMatrix { data, row: columns, column: 1 }
        }
    }

    /// The same matrix without its first `rows` rows.
    pub(super) fn skip_rows(self, rows: usize) -> GemmMatrix<'a> {
        GemmMatrix { data: self.data.get(rows * self.row..).unwrap_or(&[]), ..self }
    }

    /// The same matrix without its first `columns` columns.
    pub(super) fn skip_columns(self, columns: usize) -> GemmMatrix<'a> {
        GemmMatrix { data: self.data.get(columns * self.column..).unwrap_or(&[]), ..self }
    }
}

/// Buffers that a product on one thread needs: for panels, and for rows of the first operand that are not contiguous.
pub(super) type GemmScratch = [AlignedBuffer; 2];

/// `c = a b`, or `c += a b` where `add`, on this thread: `c` is dense `m x n`, `a` is `m x k`, `b` is `k x n`.
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

/// As [`multiply`], with what is to become of each element.
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
    // Small products are many: an allocation for each would be felt.
    let count = rows.len();
    if count > STACK_ROWS_MAX {
        let mut rows: Vec<&mut [f32]> = rows.collect();
        return run(&mut rows);
    }
    let mut few: [&mut [f32]; STACK_ROWS_MAX] = std::array::from_fn(|_| Default::default());
    few.iter_mut().zip(rows).for_each(|(few, row)| *few = row);
    run(&mut few[..count]);
}

/// `c = a b`, on this thread, for all panels of `b`: `c` are the rows, wherever they are.
pub(super) fn multiply_rows(c: &mut [&mut [f32]], a: GemmMatrix<'_>, b: PackedMatrix<'_>, words: &mut GemmScratch) {
    let panels = PanelRange { first: 0, end: b.layout.panels() };
    PanelProduct { c, a: LhsOperand::Matrix(a), b: RhsOperand::Packed(b), panels, add: false, epilogue: None, words }
        .run();
}

/// Rows that need no allocation.
const STACK_ROWS_MAX: usize = 64;

/// The twin of all products, in the plainest way, in `f64`.
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
