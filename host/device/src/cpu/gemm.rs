//! The matrix product, on one thread: the `gemm` crate's packed kernels, or loops of ours where packing costs more.

use super::narrow::{Narrow, is_narrow};
use super::simd::{self, Work};

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

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// Products with fewer multiply-adds than this are done by the plain loop.
const PACKED_MIN: usize = 512;

/// Products of up to so many rows are done row by row: packing `b` for them costs more than it saves.
const ROWS_MAX: usize = 3;

/// `c = a b`, or `c += a b` where `add`: `c` is dense `m x n`, `a` is `m x k`, `b` is `k x n`.
pub(super) fn multiply(c: &mut [f32], [m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, add: bool) {
    assert!(c.len() == m * n && a.holds(m, k) && b.holds(k, n), "operands hold the product's sizes");
    if m <= ROWS_MAX && b.column == 1 {
        if !add {
            c.fill(0.0);
        }
        for (row, out) in c.chunks_exact_mut(n.max(1)).enumerate() {
            simd::dispatch(Row { out, factors: a.below(row), b, k });
        }
    } else if m * n * k < PACKED_MIN {
        multiply_plain(c, [m, n, k], a, b, add);
    } else {
        multiply_packed(c, [m, n, k], a, b, add);
    }
}

/// `c = a b` as [`multiply`] does it, but where there are few columns a row's bits do not depend on the other rows.
pub(super) fn multiply_rows(c: &mut [f32], [m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) {
    assert!(c.len() == m * n && a.holds(m, k) && b.holds(k, n), "operands hold the product's sizes");
    if is_narrow(n, k, a, b) {
        c.fill(0.0);
        simd::dispatch_fused(Narrow { c, sizes: [m, n, k], a, b });
    } else {
        multiply(c, [m, n, k], a, b, false);
    }
}

#[expect(unsafe_code, reason = "the gemm crate takes pointers")]
fn multiply_packed(c: &mut [f32], [m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, add: bool) {
    let stride = |elements: usize| isize::try_from(elements).expect("tensors have at most 2^31 elements");
    let beta = if add { 1.0 } else { 0.0 };
    // SAFETY: `multiply` has asserted that `c` has `m * n` elements, and that every element of `a` (`m x k`) and `b`
    // (`k x n`) that these strides reach lies in its slice; `c` is borrowed alone, so it overlaps neither.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            stride(n),
            add,
            a.data.as_ptr(),
            stride(a.column),
            stride(a.row),
            b.data.as_ptr(),
            stride(b.column),
            stride(b.row),
            beta,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Adds to a row of the result the rows of `b`, each times its factor.
struct Row<'a> {
    out: &'a mut [f32],
    factors: Matrix<'a>,
    b: Matrix<'a>,
    k: usize,
}

impl Work for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Row { out, factors, b, k } = self;
        let n = out.len();
        let factor = |depth: usize| factors.data[depth * factors.column];
        let row = |depth: usize| &b.data[depth * b.row..][..n];
        let mut depth = 0;
        // Four at a time: the result is loaded and stored once for them.
        while depth + 4 <= k {
            let [f0, f1, f2, f3] = [factor(depth), factor(depth + 1), factor(depth + 2), factor(depth + 3)];
            let [b0, b1, b2, b3] = [row(depth), row(depth + 1), row(depth + 2), row(depth + 3)];
            for ((((out, x0), x1), x2), x3) in out.iter_mut().zip(b0).zip(b1).zip(b2).zip(b3) {
                *out += (f0 * x0 + f1 * x1) + (f2 * x2 + f3 * x3);
            }
            depth += 4;
        }
        for depth in depth..k {
            let factor = factor(depth);
            for (out, x) in out.iter_mut().zip(row(depth)) {
                *out += factor * x;
            }
        }
    }
}

/// The safe twin.
pub(super) fn multiply_plain(c: &mut [f32], [m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, add: bool) {
    if !add {
        c.fill(0.0);
    }
    for row in 0..m {
        let out = &mut c[row * n..][..n];
        for depth in 0..k {
            let factor = a.data[row * a.row + depth * a.column];
            for (column, out) in out.iter_mut().enumerate() {
                *out += factor * b.data[depth * b.row + column * b.column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_and_plain_products_agree() {
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
        };
        let sizes = [1, 2, 3, 7, 16, 33, 130];
        for m in sizes {
            for n in sizes {
                for k in [0, 1, 2, 5, 64, 301] {
                    for transposes in 0..4 {
                        let (a, b) = (numbers(m * k, m), numbers(k * n, n + 1));
                        let a = Matrix::new(&a, k, m, transposes & 1 == 1);
                        let b = Matrix::new(&b, n, k, transposes & 2 == 2);
                        let mut packed = numbers(m * n, 5);
                        let mut plain = packed.clone();
                        let add = (m + n + k) % 2 == 0;
                        multiply_packed(&mut packed, [m, n, k], a, b, add);
                        multiply_plain(&mut plain, [m, n, k], a, b, add);
                        let mut chosen = numbers(m * n, 5);
                        multiply(&mut chosen, [m, n, k], a, b, add);
                        for (x, y) in chosen.iter().zip(&plain) {
                            assert!((x - y).abs() <= 1e-6 * (k as f32 + 2.0), "{m} {n} {k} {transposes}: {x} {y}");
                        }
                        if !add {
                            let mut rows = numbers(m * n, 5);
                            multiply_rows(&mut rows, [m, n, k], a, b);
                            for (x, y) in rows.iter().zip(&plain) {
                                assert!((x - y).abs() <= 1e-6 * (k as f32 + 2.0), "{m} {n} {k} {transposes}: {x} {y}");
                            }
                        }
                        for (x, y) in packed.iter().zip(&plain) {
                            assert!((x - y).abs() <= 1e-6 * (k as f32 + 2.0), "{m} {n} {k} {transposes}: {x} {y}");
                        }
                    }
                }
            }
        }
    }
}
