//! The transforms of a tile: those of its elements into the domain where a convolution is a product, and of the sums
//! there back into results (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, arXiv 1509.09308).
//!
//! Polynomials of the tile and the filter are multiplied by their values at a few points and at infinity. Six elements a
//! side take the points 0, ±√½ and ±√2, whose powers stay near 1, and lose about one digit to a sum of products; four
//! elements take 0 and ±1, and lose next to nothing.
//!
//! Along a side, with `V` the values of a polynomial at the points, `f` one factor a point, and `B` what is left of their
//! interpolation, a convolution of a tile `x` by taps `w` is `Vᵀ (f V w ∘ Bᵀ x)`. Its adjoints are made of the same: in
//! the tile `B (f V w ∘ V dy)`, and in the taps `Vᵀ f (Bᵀ x ∘ V dy)`.

use crate::cpu::vector::Vectors;

/// Values of the larger tile along one side.
pub(super) const SIDE_MAX: usize = 6;

/// Vectors of one line of a tile, of which a smaller tile uses the first ones.
type Line<V> = [V; SIDE_MAX];

/// A tile of vectors.
pub(super) type Square<V> = [Line<V>; SIDE_MAX];

/// The points of one size of tile.
pub(super) trait Points {
    /// How many there are, and elements along a side.
    const SIDE: usize;
    /// One over the product of each point's distances from the others.
    const FACTORS: [f64; SIDE_MAX];
    /// Powers of each point, from the first on; the last point is infinity.
    const POWERS: [[f64; TAPS_MAX]; SIDE_MAX];

    /// `Bᵀ`, of a line of elements.
    fn enter<S: Vectors>(s: S, line: Line<S::V>) -> Line<S::V>;
    /// `B`, of a line of sums: its part in each element.
    fn spread<S: Vectors>(s: S, line: Line<S::V>) -> Line<S::V>;
    /// `V`, of the first `count` of a line.
    fn values<S: Vectors>(s: S, line: Line<S::V>, count: usize) -> Line<S::V>;
    /// `Vᵀ`, of a line of sums: `count` results.
    fn sums<S: Vectors>(s: S, line: Line<S::V>, count: usize) -> Line<S::V>;
}

/// Taps along a side, at most.
pub(super) const TAPS_MAX: usize = 5;

/// 0, ±√½, ±√2 and infinity.
pub(super) struct Six;

/// 0, ±1 and infinity.
pub(super) struct Four;

/// The inner points: ±√½, whose square is ½, and ±√2, whose square is 2.
const NEAR: f64 = std::f64::consts::FRAC_1_SQRT_2;
const FAR: f64 = std::f64::consts::SQRT_2;

impl Points for Six {
    const SIDE: usize = 6;
    const FACTORS: [f64; SIDE_MAX] = [1.0, -2.0 / 3.0, -2.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0, 1.0];
    const POWERS: [[f64; TAPS_MAX]; SIDE_MAX] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, NEAR, 0.5, NEAR / 2.0, 0.25],
        [1.0, -NEAR, 0.5, -NEAR / 2.0, 0.25],
        [1.0, FAR, 2.0, 2.0 * FAR, 4.0],
        [1.0, -FAR, 2.0, -2.0 * FAR, 4.0],
        [0.0; TAPS_MAX],
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
    fn spread<S: Vectors>(s: S, [a, b, c, d, e, f]: Line<S::V>) -> Line<S::V> {
        let zero = s.splat(0.0);
        let (near, far) = (s.add(b, c), s.add(d, e));
        let near_odd = times(s, NEAR, less(s, b, c), zero);
        let far_odd = times(s, FAR, less(s, d, e), zero);
        [
            a,
            times(s, -2.0, near_odd, times(s, -0.5, far_odd, f)),
            times(s, -2.5, a, times(s, -2.0, near, times(s, -0.5, far, zero))),
            times(s, -2.5, f, s.add(near_odd, far_odd)),
            s.add(a, s.add(near, far)),
            f,
        ]
    }

    #[inline(always)]
    fn values<S: Vectors>(s: S, line: Line<S::V>, count: usize) -> Line<S::V> {
        let [a, b, c, d, ..] = line;
        let (even_near, odd_near, even_far, odd_far) = match count {
            2 => (a, b, a, b),
            _ => (times(s, 0.5, c, a), times(s, 0.5, d, b), times(s, 2.0, c, a), times(s, 2.0, d, b)),
        };
        [
            a,
            times(s, NEAR, odd_near, even_near),
            times(s, -NEAR, odd_near, even_near),
            times(s, FAR, odd_far, even_far),
            times(s, -FAR, odd_far, even_far),
            line[count - 1],
        ]
    }

    #[inline(always)]
    fn sums<S: Vectors>(s: S, [a, b, c, d, e, f]: Line<S::V>, count: usize) -> Line<S::V> {
        let zero = s.splat(0.0);
        let (near, near_odd) = (s.add(b, c), less(s, b, c));
        let (far, far_odd) = (s.add(d, e), less(s, d, e));
        let mut infinity = [zero; SIDE_MAX];
        infinity[count - 1] = f;
        [
            s.add(a, s.add(near, far)),
            times(s, NEAR, near_odd, times(s, FAR, far_odd, infinity[1])),
            times(s, 0.5, near, times(s, 2.0, far, infinity[2])),
            times(s, NEAR / 2.0, near_odd, times(s, 2.0 * FAR, far_odd, infinity[3])),
            times(s, 0.25, near, times(s, 4.0, far, infinity[4])),
            zero,
        ]
    }
}

impl Points for Four {
    const SIDE: usize = 4;
    const FACTORS: [f64; SIDE_MAX] = [1.0, 0.5, 0.5, 1.0, 0.0, 0.0];
    const POWERS: [[f64; TAPS_MAX]; SIDE_MAX] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [1.0, -1.0, 1.0, -1.0, 1.0],
        [0.0; TAPS_MAX],
        [0.0; TAPS_MAX],
        [0.0; TAPS_MAX],
    ];

    #[inline(always)]
    fn enter<S: Vectors>(s: S, [a, b, c, d, _, _]: Line<S::V>) -> Line<S::V> {
        let zero = s.splat(0.0);
        [less(s, a, c), s.add(b, c), less(s, c, b), less(s, d, b), zero, zero]
    }

    #[inline(always)]
    fn spread<S: Vectors>(s: S, [a, b, c, d, _, _]: Line<S::V>) -> Line<S::V> {
        let zero = s.splat(0.0);
        let sum = s.add(b, c);
        [a, less(s, less(s, b, c), d), less(s, sum, a), d, zero, zero]
    }

    #[inline(always)]
    fn values<S: Vectors>(s: S, line: Line<S::V>, count: usize) -> Line<S::V> {
        let zero = s.splat(0.0);
        debug_assert_eq!(count, 2, "four points have room for two results beside three taps");
        let [a, b, ..] = line;
        [a, s.add(a, b), less(s, a, b), b, zero, zero]
    }

    #[inline(always)]
    fn sums<S: Vectors>(s: S, [a, b, c, d, _, _]: Line<S::V>, count: usize) -> Line<S::V> {
        let zero = s.splat(0.0);
        let (even, odd) = (s.add(b, c), less(s, b, c));
        let second = if count == 2 { s.add(odd, d) } else { odd };
        [s.add(a, even), second, s.add(even, d), zero, zero, zero]
    }
}

// Functions, not closures: only these are sure to be inlined, and so compiled for the processor.
/// `factor x + sum`.
#[inline(always)]
fn times<S: Vectors>(s: S, factor: f64, x: S::V, sum: S::V) -> S::V {
    s.mul_add(s.splat(factor as f32), x, sum)
}

/// `a - b`.
#[inline(always)]
fn less<S: Vectors>(s: S, a: S::V, b: S::V) -> S::V {
    times(s, -1.0, b, a)
}

/// A tile in memory: places side by side, in rows.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    /// From the first place's first channel on.
    pub(super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(super) pitch: usize,
    /// Elements from one place to the next.
    pub(super) step: usize,
    /// Channels of a place.
    pub(super) channels: usize,
}

impl Places<'_> {
    /// The first `count` places of column `x`, the channels from `channel` on.
    #[inline(always)]
    fn column<S: Vectors>(&self, s: S, x: usize, count: usize, channel: usize) -> Line<S::V> {
        let mut line = [s.splat(0.0); SIDE_MAX];
        let rest = self.channels - channel;
        for y in 0..count {
            let from = &self.data[y * self.pitch + x * self.step + channel..];
            line[y] = if rest >= S::LANES { s.load(from) } else { s.load_part(&from[..rest]) };
        }
        line
    }
}

/// `Bᵀ x B` of a tile's elements, written to all points of `out`: the channels from `channel` on.
#[inline(always)]
pub(super) fn enter<S: Vectors, P: Points>(s: S, from: Places<'_>, channel: usize, out: &mut [f32]) {
    let mut columns = nothing(s);
    for x in 0..P::SIDE {
        columns[x] = P::enter(s, from.column(s, x, P::SIDE, channel));
    }
    for y in 0..P::SIDE {
        store::<S, P>(s, out, y, channel, P::enter(s, row(&columns, y)));
    }
}

/// `V dy Vᵀ` of `count` by `count` numbers, written to all points of `out`: the channels from `channel` on.
#[inline(always)]
pub(super) fn values<S: Vectors, P: Points>(s: S, from: Places<'_>, count: usize, channel: usize, out: &mut [f32]) {
    let mut columns = nothing(s);
    for x in 0..count {
        columns[x] = P::values(s, from.column(s, x, count, channel), count);
    }
    for y in 0..P::SIDE {
        store::<S, P>(s, out, y, channel, P::values(s, row(&columns, y), count));
    }
}

/// `B m Bᵀ` of a tile's sums: its part in its elements. The channels from `channel` on.
#[inline(always)]
pub(super) fn spread<S: Vectors, P: Points>(s: S, from: Places<'_>, channel: usize) -> Square<S::V> {
    let (mut columns, mut rows) = (nothing(s), nothing(s));
    for x in 0..P::SIDE {
        columns[x] = P::spread(s, from.column(s, x, P::SIDE, channel));
    }
    for y in 0..P::SIDE {
        rows[y] = P::spread(s, row(&columns, y));
    }
    rows
}

/// `Vᵀ m V` of a tile's sums: `count` by `count` results. The channels from `channel` on.
#[inline(always)]
pub(super) fn sums<S: Vectors, P: Points>(s: S, from: Places<'_>, count: usize, channel: usize) -> Square<S::V> {
    let (mut columns, mut rows) = (nothing(s), nothing(s));
    for x in 0..P::SIDE {
        columns[x] = P::sums(s, from.column(s, x, P::SIDE, channel), count);
    }
    for y in 0..count {
        rows[y] = P::sums(s, row(&columns, y), count);
    }
    rows
}

/// `Vᵀ f m f V` of the sums of all tiles: `count` by `count` taps of a filter's gradient.
#[inline(always)]
pub(super) fn taps<S: Vectors, P: Points>(s: S, from: Places<'_>, count: usize, channel: usize) -> Square<S::V> {
    let (mut columns, mut rows) = (nothing(s), nothing(s));
    for x in 0..P::SIDE {
        columns[x] = P::sums(s, scaled::<S, P>(s, from.column(s, x, P::SIDE, channel)), count);
    }
    for y in 0..count {
        rows[y] = P::sums(s, scaled::<S, P>(s, row(&columns, y)), count);
    }
    rows
}

#[inline(always)]
fn scaled<S: Vectors, P: Points>(s: S, mut line: Line<S::V>) -> Line<S::V> {
    for point in 0..P::SIDE {
        line[point] = times(s, P::FACTORS[point], line[point], s.splat(0.0));
    }
    line
}

/// Writes a row of points, the channels from `channel` on.
#[inline(always)]
fn store<S: Vectors, P: Points>(s: S, out: &mut [f32], y: usize, channel: usize, line: Line<S::V>) {
    let channels = out.len() / (P::SIDE * P::SIDE);
    let rest = channels - channel;
    for x in 0..P::SIDE {
        let out = &mut out[(y * P::SIDE + x) * channels + channel..];
        if rest >= S::LANES {
            s.store(out, line[x]);
        } else {
            s.store_part(&mut out[..rest], line[x]);
        }
    }
}

#[inline(always)]
fn nothing<S: Vectors>(s: S) -> Square<S::V> {
    [[s.splat(0.0); SIDE_MAX]; SIDE_MAX]
}

/// The elements of all columns at `y`.
#[inline(always)]
fn row<V: Copy>(columns: &Square<V>, y: usize) -> Line<V> {
    let mut line = columns[0];
    for x in 0..SIDE_MAX {
        line[x] = columns[x][y];
    }
    line
}
