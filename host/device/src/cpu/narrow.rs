//! Products with few columns: blocks of `b` that stay in the first-level cache are used in place, without packing.
//!
//! Every element is one chain of multiply-adds from the first depth to the last. So its bits do not depend on how many
//! rows there are, and a request has the bits alone that it has in a batch.

use super::gemm::Matrix;
use super::simd::{FusedWork, MulAdd};

/// Columns for which this is at least as fast as packing.
const COLUMNS: std::ops::RangeInclusive<usize> = 8..=64;
/// Elements of `b` that stay in the second-level cache.
const ELEMENTS_MAX: usize = 1 << 17;
/// Depth that any number of columns may have, and the number of columns that may have more.
const DEPTH_MAX: usize = 512;
const COLUMNS_DEEP: usize = 32;
/// Rows of a tile at most: with two vectors of columns, their sums, a vector of each and a factor are fifteen of sixteen
/// registers.
const HEIGHT_MAX: usize = 6;
/// Columns of a tile of that height.
const WIDTH: usize = 16;
/// Elements of a block of `b`: half of the first-level cache.
const BLOCK_ELEMENTS: usize = 4096;
/// Rows of a block at most.
const BLOCK_ROWS_MAX: usize = 128;

/// `c += a b` with rows of `a` and `b` in order, where [`is_narrow`] holds.
pub(super) struct Narrow<'a> {
    /// `m x n`, dense.
    pub(super) c: &'a mut [f32],
    /// `m`, `n`, `k`.
    pub(super) sizes: [usize; 3],
    /// `m x k`.
    pub(super) a: Matrix<'a>,
    /// `k x n`.
    pub(super) b: Matrix<'a>,
}

/// Whether a product of `columns` and `depth` is computed here. Its number of rows has no say.
///
/// Measured on one core of an EPYC (AVX2), in GFLOP/s of packing and of this: 28 and 36 for 1x1568x64, 72 and 77 for
/// 8x1568x64, 89 and 85 for 32x1568x64; but 75 and 45 for 256x2304x16, where rows of `a` are taken in many short pieces.
pub(super) fn is_narrow(columns: usize, depth: usize, a: Matrix<'_>, b: Matrix<'_>) -> bool {
    let fits = columns * depth <= ELEMENTS_MAX && (columns >= COLUMNS_DEEP || depth <= DEPTH_MAX);
    COLUMNS.contains(&columns) && fits && a.column == 1 && b.column == 1
}

impl FusedWork for Narrow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let Narrow { c, sizes: [m, n, k], a, b } = self;
        if m == 0 {
            return;
        }
        let rows = (BLOCK_ELEMENTS / n).min(BLOCK_ROWS_MAX);
        let mut rest = [[0.0; WIDTH]; BLOCK_ROWS_MAX];
        for depth in (0..k).step_by(rows) {
            let rows = rows.min(k - depth);
            let b = Matrix { data: &b.data[depth * b.row..], ..b };
            let whole = n - n % WIDTH;
            if whole < n {
                for (row, rest) in rest[..rows].iter_mut().enumerate() {
                    rest[..n - whole].copy_from_slice(&b.data[row * b.row + whole..][..n - whole]);
                }
            }
            let block = Block { a: &a.data[depth..], a_row: a.row, b: b.data, b_row: b.row, rows, n, rest: &rest };
            let bands = m.div_ceil(HEIGHT_MAX);
            let mut row = 0;
            for band in 0..bands {
                // Bands of nearly the same height: one of few rows would wait for each multiply-add.
                let height = (m - row).div_ceil(bands - band);
                match height {
                    1 => block.band::<M, 1, { 4 * WIDTH }>(row, c),
                    2 => block.band::<M, 2, { 2 * WIDTH }>(row, c),
                    3 => block.band::<M, 3, WIDTH>(row, c),
                    4 => block.band::<M, 4, WIDTH>(row, c),
                    5 => block.band::<M, 5, WIDTH>(row, c),
                    HEIGHT_MAX => block.band::<M, HEIGHT_MAX, WIDTH>(row, c),
                    _ => unreachable!("bands are as many as needed"),
                }
                row += height;
            }
        }
    }
}

/// What some depths add to the result.
struct Block<'a> {
    /// From the first of these depths of the first row on.
    a: &'a [f32],
    a_row: usize,
    /// From the first of these depths on.
    b: &'a [f32],
    b_row: usize,
    /// How many depths.
    rows: usize,
    n: usize,
    /// The last columns of `b`, fewer than a tile's.
    rest: &'a [[f32; WIDTH]; BLOCK_ROWS_MAX],
}

impl Block<'_> {
    /// Adds to rows `row..row + HEIGHT` of `c`.
    #[inline(always)]
    fn band<M: MulAdd, const HEIGHT: usize, const BROAD: usize>(&self, row: usize, c: &mut [f32]) {
        let c = &mut c[row * self.n..];
        let mut column = 0;
        while column + BROAD <= self.n {
            self.tile::<M, HEIGHT, BROAD>(row, &self.b[column..], self.b_row, &mut c[column..], BROAD);
            column += BROAD;
        }
        while column + WIDTH <= self.n {
            self.tile::<M, HEIGHT, WIDTH>(row, &self.b[column..], self.b_row, &mut c[column..], WIDTH);
            column += WIDTH;
        }
        if column < self.n {
            let count = self.n - column;
            self.tile::<M, HEIGHT, WIDTH>(row, self.rest.as_flattened(), WIDTH, &mut c[column..], count);
        }
    }

    // Loops over constants are unrolled, so the sums stay in registers; iterators over them are not.
    #[inline(always)]
    fn tile<M: MulAdd, const HEIGHT: usize, const BROAD: usize>(
        &self,
        row: usize,
        b: &[f32],
        b_row: usize,
        c: &mut [f32],
        count: usize,
    ) {
        let mut factors = [&self.a[..0]; HEIGHT];
        let mut sums = [[0.0f32; BROAD]; HEIGHT];
        for index in 0..HEIGHT {
            factors[index] = &self.a[(row + index) * self.a_row..][..self.rows];
            sums[index][..count].copy_from_slice(&c[index * self.n..][..count]);
        }
        for depth in 0..self.rows {
            let b = b[depth * b_row..].first_chunk::<BROAD>().expect("tiles lie in the block");
            for index in 0..HEIGHT {
                let factor = factors[index][depth];
                for column in 0..BROAD {
                    sums[index][column] = M::mul_add(b[column], factor, sums[index][column]);
                }
            }
        }
        for (index, sums) in sums.iter().enumerate() {
            c[index * self.n..][..count].copy_from_slice(&sums[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gemm::multiply_plain;
    use super::super::simd::{Twice, dispatch_fused};
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    #[test]
    fn rows_have_the_bits_they_have_alone() {
        for n in [8, 10, 16, 31, 33, 48, 63, 64] {
            for k in [1, 7, 64, 128, 129, 500] {
                let m = 14;
                let (a, b) = (numbers(m * k, 3), numbers(k * n, 4));
                let (a, b) = (Matrix::new(&a, k, 0, false), Matrix::new(&b, n, 0, false));
                assert!(is_narrow(n, k, a, b));
                let product = |rows: usize, below: usize| {
                    let mut c = vec![0.0; rows * n];
                    dispatch_fused(Narrow { c: &mut c, sizes: [rows, n, k], a: a.below(below), b });
                    c
                };
                let all = product(m, 0);
                for rows in 1..m {
                    assert!(product(rows, 0) == all[..rows * n], "{rows} {n} {k}");
                    assert!(product(1, rows) == all[rows * n..][..n], "row {rows} {n} {k}");
                }
                let (mut plain, mut narrow) = (vec![0.0; m * n], vec![0.0; m * n]);
                multiply_plain(&mut plain, [m, n, k], a, b, false);
                Narrow { c: &mut narrow, sizes: [m, n, k], a, b }.run::<Twice>();
                for ((x, y), z) in all.iter().zip(&plain).zip(&narrow) {
                    let allowed = 1e-6 * (k as f32 + 2.0);
                    assert!((x - y).abs() <= allowed && (z - y).abs() <= allowed, "{n} {k}: {x} {y} {z}");
                }
            }
        }
    }
}
