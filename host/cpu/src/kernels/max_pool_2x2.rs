//! Max pooling by adjacent 2x2 windows, the most common kind, as vectorised loops.
//!
//! Neighbours are first separated into streams, so that the comparing loops have contiguous operands.

use super::im2col::WindowGeometry;
use crate::element::{BinaryOperator, Max};
use crate::simd::SimdWork;

/// Outputs computed at a time.
const CHUNK: usize = 32;

/// Returns whether windows are 2x2, adjacent and without padding.
pub(crate) fn is_2x2_pooling(windows: &WindowGeometry) -> bool {
    windows.window == [2, 2]
        && windows.strides == [2, 2]
        && windows.dilations == [1, 1]
        && windows.padding == [0, 0]
        && (0..2).all(|axis| windows.output[axis] * 2 <= windows.input[axis])
}

/// Returns whether `value` is a window's first largest element so far. NaN counts as largest.
#[inline(always)]
pub(crate) fn is_new_max(value: f32, best: f32) -> bool {
    (value > best) | (value.is_nan() & !best.is_nan())
}

/// Separates the even and odd elements of a row, from output `first` on.
#[inline(always)]
fn deinterleave(row: &[f32], first: usize, count: usize, even: &mut [f32; CHUNK], odd: &mut [f32; CHUNK]) {
    let pairs = row[2 * first..][..2 * count].as_chunks::<2>().0;
    for ((even, odd), pair) in even.iter_mut().zip(odd).zip(pairs) {
        *even = pair[0];
        *odd = pair[1];
    }
}

/// Reverses [`deinterleave`].
#[inline(always)]
fn interleave(row: &mut [f32], first: usize, count: usize, even: &[f32; CHUNK], odd: &[f32; CHUNK]) {
    let pairs = row[2 * first..][..2 * count].as_chunks_mut::<2>().0;
    for ((even, odd), pair) in even.iter().zip(odd).zip(pairs) {
        *pair = [*even, *odd];
    }
}

/// Outputs of one vector.
const LANES: usize = 8;

#[inline(always)]
fn max(a: f32, b: f32) -> f32 {
    <Max as BinaryOperator<f32, f32>>::apply(a, b)
}

/// Returns the larger of each pair of neighbours.
#[inline(always)]
fn pairwise_max(row: &[f32; 2 * LANES]) -> [f32; LANES] {
    let [mut even, mut odd] = [[0.0; LANES]; 2];
    for ((even, odd), pair) in even.iter_mut().zip(&mut odd).zip(row.as_chunks::<2>().0) {
        [*even, *odd] = *pair;
    }
    for (even, odd) in even.iter_mut().zip(odd) {
        *even = max(*even, odd);
    }
    even
}

/// Max pooling of several planes.
pub(crate) struct MaxPool2x2<'a> {
    /// The geometry, for which [`is_2x2_pooling`] must hold.
    pub(crate) windows: &'a WindowGeometry,
    /// The input planes. More elements can follow them.
    pub(crate) x: &'a [f32],
    /// The output planes.
    pub(crate) out: &'a mut [f32],
}

impl SimdWork for MaxPool2x2<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ([height, width], [rows, columns]) = (self.windows.input, self.windows.output);
        for plane in 0..self.out.len() / (rows * columns) {
            for row in 0..rows {
                let top = &self.x[(plane * height + 2 * row) * width..];
                let out = &mut self.out[(plane * rows + row) * columns..];
                pool_row(top, &top[width..], out, columns);
            }
        }
    }
}

/// Computes the first `columns` outputs of two rows, rounded up to a whole vector if all slices have room. The outputs
/// of the next rows overwrite the rest.
#[inline(always)]
fn pool_row(top: &[f32], bottom: &[f32], out: &mut [f32], columns: usize) {
    for first in (0..columns).step_by(LANES) {
        let (top, bottom, out) = (&top[2 * first..], &bottom[2 * first..], &mut out[first..]);
        match (top.first_chunk(), bottom.first_chunk(), out.first_chunk_mut::<LANES>()) {
            (Some(top), Some(bottom), Some(out)) => {
                let (top, bottom) = (pairwise_max(top), pairwise_max(bottom));
                for ((out, top), bottom) in out.iter_mut().zip(top).zip(bottom) {
                    *out = max(top, bottom);
                }
            }
            (None | Some(_), None | Some(_), None | Some(_)) => {
                let pairs = top.as_chunks::<2>().0.iter().zip(bottom.as_chunks::<2>().0);
                for (out, (top, bottom)) in out.iter_mut().take(columns - first).zip(pairs) {
                    *out = max(max(top[0], top[1]), max(bottom[0], bottom[1]));
                }
            }
        }
    }
}

/// Gradient of max pooling: each window's gradient goes to its first largest element.
pub(crate) struct MaxPool2x2Grad<'a> {
    /// The geometry, for which [`is_2x2_pooling`] must hold.
    pub(crate) windows: &'a WindowGeometry,
    /// The input plane.
    pub(crate) x: &'a [f32],
    /// Gradient of the output plane.
    pub(crate) dy: &'a [f32],
    /// Gradient of the input plane. Zero outside all windows.
    pub(crate) dx: &'a mut [f32],
}

impl SimdWork for MaxPool2x2Grad<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (width, columns) = (self.windows.input[1], self.windows.output[1]);
        let [mut a, mut b, mut c, mut d, mut given] = [[0.0f32; CHUNK]; 5];
        let rows = self.x.chunks(2 * width).zip(self.dx.chunks_mut(2 * width));
        for (dy, (x, dx)) in self.dy.chunks(columns).zip(rows) {
            let (top, bottom) = x.split_at(width);
            let (dx_top, dx_bottom) = dx.split_at_mut(width);
            for (chunk, dy) in dy.chunks(CHUNK).enumerate() {
                let first = chunk * CHUNK;
                deinterleave(top, first, dy.len(), &mut a, &mut b);
                deinterleave(bottom, first, dy.len(), &mut c, &mut d);
                given[..dy.len()].copy_from_slice(dy);
                for i in 0..CHUNK {
                    let second = is_new_max(b[i], a[i]);
                    let upper = if second { b[i] } else { a[i] };
                    let third = is_new_max(c[i], upper);
                    let best = if third { c[i] } else { upper };
                    let fourth = is_new_max(d[i], best);
                    let (second, third) = (second & !third & !fourth, third & !fourth);
                    a[i] = if second | third | fourth { 0.0 } else { given[i] };
                    b[i] = if second { given[i] } else { 0.0 };
                    c[i] = if third { given[i] } else { 0.0 };
                    d[i] = if fourth { given[i] } else { 0.0 };
                }
                interleave(dx_top, first, dy.len(), &a, &b);
                interleave(dx_bottom, first, dy.len(), &c, &d);
            }
        }
    }
}
