//! The transforms of a tile: those of its elements into the domain where a convolution is a product, and of the sums
//! there back into results (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, arXiv 1509.09308).
//!
//! Polynomials of the tile and the filter are multiplied by their values at a few points and at infinity. Four results a
//! side take the points 0, ±√½ and ±√2, whose powers stay near 1, and lose about one digit to a sum of products; two
//! results take 0 and ±1, and lose next to nothing.

use crate::cpu::vector::Vectors;

/// Values of the larger tile along one side.
pub(super) const SIDE_MAX: usize = 6;

/// Vectors of one line of a tile, of which a smaller tile uses the first ones.
type Line<V> = [V; SIDE_MAX];

/// The transforms of one size of tile.
pub(super) trait Tile {
    /// Elements along a side.
    const SIDE: usize;
    /// Results along a side.
    const STEP: usize;
    /// What a filter's three taps along a side give at each point.
    const FILTER: [[f64; 3]; SIDE_MAX];

    /// A line of elements.
    fn enter<S: Vectors>(s: S, line: Line<S::V>) -> Line<S::V>;
    /// A line of sums; the first ones of what it gives are results.
    fn leave<S: Vectors>(s: S, line: Line<S::V>) -> Line<S::V>;
}

/// Four results a side of six elements.
pub(super) struct Four;

/// Two results a side of four elements.
pub(super) struct Two;

/// The inner points: ±√½, whose square is ½, and ±√2, whose square is 2.
const NEAR: f64 = std::f64::consts::FRAC_1_SQRT_2;
const FAR: f64 = std::f64::consts::SQRT_2;

impl Tile for Four {
    const SIDE: usize = 6;
    const STEP: usize = 4;
    // Powers of each point over the product of its distances from the others.
    const FILTER: [[f64; 3]; SIDE_MAX] = [
        [1.0, 0.0, 0.0],
        [-2.0 / 3.0, -2.0 / 3.0 * NEAR, -1.0 / 3.0],
        [-2.0 / 3.0, 2.0 / 3.0 * NEAR, -1.0 / 3.0],
        [1.0 / 6.0, 1.0 / 6.0 * FAR, 1.0 / 3.0],
        [1.0 / 6.0, -1.0 / 6.0 * FAR, 1.0 / 3.0],
        [0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn enter<S: Vectors>(s: S, [a, b, c, d, e, f]: Line<S::V>) -> Line<S::V> {
        // Even and odd parts, which opposite points share.
        let (even_near, odd_near) = (times(s, -2.0, c, e), times(s, -2.0, b, d));
        let (even_far, odd_far) = (times(s, -0.5, c, e), times(s, -0.5, b, d));
        [
            times(s, -2.5, c, s.add(a, e)),
            times(s, NEAR, odd_near, even_near),
            times(s, -NEAR, odd_near, even_near),
            times(s, FAR, odd_far, even_far),
            times(s, -FAR, odd_far, even_far),
            times(s, -2.5, d, s.add(b, f)),
        ]
    }

    #[inline(always)]
    fn leave<S: Vectors>(s: S, [a, b, c, d, e, f]: Line<S::V>) -> Line<S::V> {
        let zero = s.splat(0.0);
        let (near, near_odd) = (s.add(b, c), times(s, -1.0, c, b));
        let (far, far_odd) = (s.add(d, e), times(s, -1.0, e, d));
        [
            s.add(a, s.add(near, far)),
            times(s, NEAR, near_odd, times(s, FAR, far_odd, zero)),
            times(s, 0.5, near, times(s, 2.0, far, zero)),
            times(s, NEAR / 2.0, near_odd, times(s, 2.0 * FAR, far_odd, f)),
            zero,
            zero,
        ]
    }
}

impl Tile for Two {
    const SIDE: usize = 4;
    const STEP: usize = 2;
    const FILTER: [[f64; 3]; SIDE_MAX] =
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0], [0.0; 3], [0.0; 3]];

    #[inline(always)]
    fn enter<S: Vectors>(s: S, [a, b, c, d, _, _]: Line<S::V>) -> Line<S::V> {
        let zero = s.splat(0.0);
        [times(s, -1.0, c, a), s.add(b, c), times(s, -1.0, b, c), times(s, -1.0, b, d), zero, zero]
    }

    #[inline(always)]
    fn leave<S: Vectors>(s: S, [a, b, c, d, _, _]: Line<S::V>) -> Line<S::V> {
        let zero = s.splat(0.0);
        [s.add(a, s.add(b, c)), s.add(times(s, -1.0, c, b), d), zero, zero, zero, zero]
    }
}

// Functions, not closures: only these are sure to be inlined, and so compiled for the processor.
/// `factor x + sum`.
#[inline(always)]
fn times<S: Vectors>(s: S, factor: f64, x: S::V, sum: S::V) -> S::V {
    s.mul_add(s.splat(factor as f32), x, sum)
}

/// A tile of vectors.
pub(super) type Square<V> = [Line<V>; SIDE_MAX];

/// The columns and then the rows of a tile's elements.
#[inline(always)]
pub(super) fn enter<S: Vectors, T: Tile>(s: S, square: Square<S::V>) -> Square<S::V> {
    let mut columns = [[s.splat(0.0); SIDE_MAX]; SIDE_MAX];
    for (x, line) in columns.iter_mut().enumerate().take(T::SIDE) {
        *line = T::enter(s, column(square, x));
    }
    let mut rows = columns;
    for (y, line) in rows.iter_mut().enumerate().take(T::SIDE) {
        *line = T::enter(s, column(columns, y));
    }
    rows
}

/// The columns and then the rows of a tile's sums.
#[inline(always)]
pub(super) fn leave<S: Vectors, T: Tile>(s: S, square: Square<S::V>) -> Square<S::V> {
    let mut columns = [[s.splat(0.0); SIDE_MAX]; SIDE_MAX];
    for (x, line) in columns.iter_mut().enumerate().take(T::SIDE) {
        *line = T::leave(s, column(square, x));
    }
    let mut rows = columns;
    for (y, line) in rows.iter_mut().enumerate().take(T::STEP) {
        *line = T::leave(s, column(columns, y));
    }
    rows
}

/// A column of a tile.
#[inline(always)]
fn column<V: Copy>(square: Square<V>, x: usize) -> Line<V> {
    let mut line = square[0];
    for y in 0..SIDE_MAX {
        line[y] = square[y][x];
    }
    line
}

/// What a filter of three by three taps, in row-major order, gives at point `[row, column]`.
pub(super) fn filter<T: Tile>(taps: &[f32], [row, column]: [usize; 2]) -> f32 {
    let along = |factors: &[f64; 3], at: [f64; 3]| factors.iter().zip(at).map(|(factor, x)| factor * x).sum::<f64>();
    let rows = [0, 1, 2].map(|y| {
        let taps = &taps[3 * y..];
        along(&T::FILTER[column], [0, 1, 2].map(|x| f64::from(taps[x])))
    });
    along(&T::FILTER[row], rows) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::vector::Plain;

    /// Results of one tile, by way of the transforms and by their meaning.
    fn agree<T: Tile>(most: f64) {
        let number = |i: usize| ((i * 7919) % 2003) as f32 / 1001.5 - 1.0;
        let taps: Vec<f32> = (0..9).map(|i| number(i + 77)).collect();
        let tile: Vec<f32> = (0..T::SIDE * T::SIDE).map(number).collect();
        let s = Plain;
        let mut values = [[s.splat(0.0); SIDE_MAX]; SIDE_MAX];
        for (y, line) in values.iter_mut().enumerate().take(T::SIDE) {
            for (x, value) in line.iter_mut().enumerate().take(T::SIDE) {
                *value = s.splat(tile[y * T::SIDE + x]);
            }
        }
        let mut sums = enter::<_, T>(s, values);
        for (y, line) in sums.iter_mut().enumerate().take(T::SIDE) {
            for (x, value) in line.iter_mut().enumerate().take(T::SIDE) {
                *value = s.mul_add(*value, s.splat(filter::<T>(&taps, [y, x])), s.splat(0.0));
            }
        }
        let results = leave::<_, T>(s, sums);
        for y in 0..T::STEP {
            for x in 0..T::STEP {
                let exact: f64 = (0..9)
                    .map(|tap| f64::from(taps[tap]) * f64::from(tile[(y + tap / 3) * T::SIDE + x + tap % 3]))
                    .sum();
                assert!((f64::from(results[y][x][0]) - exact).abs() < most, "{y} {x}: {} {exact}", results[y][x][0]);
            }
        }
    }

    #[test]
    fn a_tile_is_a_convolution() {
        agree::<Four>(3e-6);
        agree::<Two>(1e-6);
    }
}
