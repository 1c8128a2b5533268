//! The matrix product: packed panels, tiles in registers, and the widest vectors of the processor.
//!
//! Every element is one chain of multiply-adds in each block of depth, and blocks are added in order. So its bits depend
//! on its row, its column and the depth alone: not on how many rows or columns there are beside it, nor on which thread
//! computes which of them.

pub(super) mod pack;
pub(super) mod product;
pub(super) mod tile;

#[cfg(test)]
mod tests;

use pack::Layout;
use product::{Columns, Packed, Product, Right, Rows};

use super::ending::Ends;
use super::words::Words;

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a> {
    /// Its elements, from the first row's first on.
    pub(super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(super) row: usize,
    /// Elements from one column to the next.
    pub(super) column: usize,
}

impl<'a> Matrix<'a> {
    /// `rows x columns`, row-major, or stored `columns x rows` where `transposed`.
    pub(super) fn new(data: &'a [f32], columns: usize, rows: usize, transposed: bool) -> Matrix<'a> {
        if transposed { Matrix { data, row: 1, column: rows } } else { Matrix { data, row: columns, column: 1 } }
    }

    /// The same matrix without its first `rows` rows.
    pub(super) fn below(self, rows: usize) -> Matrix<'a> {
        Matrix { data: self.data.get(rows * self.row..).unwrap_or(&[]), ..self }
    }

    /// The same matrix without its first `columns` columns.
    pub(super) fn right_of(self, columns: usize) -> Matrix<'a> {
        Matrix { data: self.data.get(columns * self.column..).unwrap_or(&[]), ..self }
    }
}

/// Buffers that a product on one thread needs: for panels, and for rows of the first operand that are not contiguous.
pub(super) type Buffers = [Words; 2];

/// `c = a b`, or `c += a b` where `add`, on this thread: `c` is dense `m x n`, `a` is `m x k`, `b` is `k x n`.
pub(super) fn multiply(
    c: &mut [f32],
    [m, n, k]: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    add: bool,
    buffers: &mut Buffers,
) {
    multiply_by(&mut c[..m * n], a, Right::Plain(Layout::new(k, n), b), add, None, buffers);
}

/// As [`multiply`], with what is to become of each element.
pub(super) fn multiply_by(
    c: &mut [f32],
    a: Matrix<'_>,
    b: Right<'_>,
    add: bool,
    ends: Option<Ends<'_>>,
    words: &mut Buffers,
) {
    if c.is_empty() {
        return;
    }
    let layout = b.layout();
    let rows = c.chunks_exact_mut(layout.columns);
    let panels = Columns { first: 0, end: layout.panels() };
    let mut run = move |c: &mut [&mut [f32]]| Product { c, a: Rows::Matrix(a), b, panels, add, ends, words }.run();
    // Small products are many: an allocation for each would be felt.
    let count = rows.len();
    if count > FEW_ROWS {
        let mut rows: Vec<&mut [f32]> = rows.collect();
        return run(&mut rows);
    }
    let mut few: [&mut [f32]; FEW_ROWS] = std::array::from_fn(|_| Default::default());
    few.iter_mut().zip(rows).for_each(|(few, row)| *few = row);
    run(&mut few[..count]);
}

/// `c = a b`, on this thread, for all panels of `b`: `c` are the rows, wherever they are.
pub(super) fn multiply_rows(c: &mut [&mut [f32]], a: Matrix<'_>, b: Packed<'_>, words: &mut Buffers) {
    let panels = Columns { first: 0, end: b.layout.panels() };
    Product { c, a: Rows::Matrix(a), b: Right::Packed(b), panels, add: false, ends: None, words }.run();
}

/// Rows that need no allocation.
const FEW_ROWS: usize = 64;

/// The twin of all products, in the plainest way, in `f64`.
#[cfg(test)]
pub(super) fn multiply_plain(c: &mut [f32], [m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, add: bool) {
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
