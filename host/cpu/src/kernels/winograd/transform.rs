//! Winograd transforms of a tile: from its elements to the domain in which a convolution is a product, and from the
//! sums there to results (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, arXiv 1509.09308).
//!
//! The polynomials of the tile and the filter are multiplied by their values at a few points and at infinity. Tiles of
//! six elements per side use the points 0, ±√½ and ±√2, whose powers stay near 1, and lose about one digit compared
//! with a sum of products. Tiles of four elements use 0 and ±1, and lose next to nothing.
//!
//! Along a side, let `V` be the evaluation of a polynomial at the points, `f` one factor per point, and `B` the rest of
//! the interpolation. The convolution of a tile `x` with taps `w` is then `Vᵀ (f V w ∘ Bᵀ x)`. Its adjoints use the
//! same matrices: in the tile `B (f V w ∘ V dy)`, and in the taps `Vᵀ f (Bᵀ x ∘ V dy)`.

use crate::vector::VectorIsa;

/// Elements per side of the larger tile.
pub(super) const SIDE_MAX: usize = 6;

/// Vectors of one line of a tile. A smaller tile uses the first ones.
type TileLine<V> = [V; SIDE_MAX];

/// A tile of vectors.
pub(super) type TileSquare<V> = [TileLine<V>; SIDE_MAX];

/// The points of one tile size.
pub(super) trait WinogradPoints {
    /// Number of points, and elements per side.
    const SIDE: usize;
    /// For each point, one over the product of its distances from the others.
    const FACTORS: [f64; SIDE_MAX];
    /// Powers of each point from exponent 0 on. The last point is infinity.
    const POWERS: [[f64; TAPS_MAX]; SIDE_MAX];

    /// Applies `Bᵀ` to a line of elements.
    fn input_line<S: VectorIsa>(s: S, line: TileLine<S::V>) -> TileLine<S::V>;
    /// Applies `B` to a line of sums, which gives their contribution to each element.
    fn input_grad_line<S: VectorIsa>(s: S, line: TileLine<S::V>) -> TileLine<S::V>;
    /// Applies `V` to the first `count` values of a line.
    fn output_grad_line<S: VectorIsa>(s: S, line: TileLine<S::V>, count: usize) -> TileLine<S::V>;
    /// Applies `Vᵀ` to a line of sums, which gives `count` results.
    fn output_line<S: VectorIsa>(s: S, line: TileLine<S::V>, count: usize) -> TileLine<S::V>;
}

/// Maximum number of taps per side.
pub(super) const TAPS_MAX: usize = 5;

/// The points 0, ±√½, ±√2 and infinity.
pub(super) struct SixPoints;

/// The points 0, ±1 and infinity.
pub(super) struct FourPoints;

/// The inner points: ±√½, whose square is ½, and ±√2, whose square is 2.
const NEAR: f64 = std::f64::consts::FRAC_1_SQRT_2;
const FAR: f64 = std::f64::consts::SQRT_2;

impl WinogradPoints for SixPoints {
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
    fn input_line<S: VectorIsa>(s: S, [a, b, c, d, e, f]: TileLine<S::V>) -> TileLine<S::V> {
        // Even and odd parts, which opposite points share.
        let (even_near, odd_near) = (scaled_add(s, -2.0, c, e), scaled_add(s, -2.0, b, d));
        let (even_far, odd_far) = (scaled_add(s, -0.5, c, e), scaled_add(s, -0.5, b, d));
        [
            scaled_add(s, -2.5, c, s.add(a, e)),
            scaled_add(s, NEAR, odd_near, even_near),
            scaled_add(s, -NEAR, odd_near, even_near),
            scaled_add(s, FAR, odd_far, even_far),
            scaled_add(s, -FAR, odd_far, even_far),
            scaled_add(s, -2.5, d, s.add(b, f)),
        ]
    }

    #[inline(always)]
    fn input_grad_line<S: VectorIsa>(s: S, [a, b, c, d, e, f]: TileLine<S::V>) -> TileLine<S::V> {
        let zero = s.splat(0.0);
        let (near, far) = (s.add(b, c), s.add(d, e));
        let near_odd = scaled_add(s, NEAR, subtract(s, b, c), zero);
        let far_odd = scaled_add(s, FAR, subtract(s, d, e), zero);
        [
            a,
            scaled_add(s, -2.0, near_odd, scaled_add(s, -0.5, far_odd, f)),
            scaled_add(s, -2.5, a, scaled_add(s, -2.0, near, scaled_add(s, -0.5, far, zero))),
            scaled_add(s, -2.5, f, s.add(near_odd, far_odd)),
            s.add(a, s.add(near, far)),
            f,
        ]
    }

    #[inline(always)]
    fn output_grad_line<S: VectorIsa>(s: S, line: TileLine<S::V>, count: usize) -> TileLine<S::V> {
        let [a, b, c, d, ..] = line;
        let (even_near, odd_near, even_far, odd_far) = match count {
            2 => (a, b, a, b),
            _ => {
                (scaled_add(s, 0.5, c, a), scaled_add(s, 0.5, d, b), scaled_add(s, 2.0, c, a), scaled_add(s, 2.0, d, b))
            }
        };
        [
            a,
            scaled_add(s, NEAR, odd_near, even_near),
            scaled_add(s, -NEAR, odd_near, even_near),
            scaled_add(s, FAR, odd_far, even_far),
            scaled_add(s, -FAR, odd_far, even_far),
            line[count - 1],
        ]
    }

    #[inline(always)]
    fn output_line<S: VectorIsa>(s: S, [a, b, c, d, e, f]: TileLine<S::V>, count: usize) -> TileLine<S::V> {
        let zero = s.splat(0.0);
        let (near, near_odd) = (s.add(b, c), subtract(s, b, c));
        let (far, far_odd) = (s.add(d, e), subtract(s, d, e));
        let mut infinity = [zero; SIDE_MAX];
        infinity[count - 1] = f;
        [
            s.add(a, s.add(near, far)),
            scaled_add(s, NEAR, near_odd, scaled_add(s, FAR, far_odd, infinity[1])),
            scaled_add(s, 0.5, near, scaled_add(s, 2.0, far, infinity[2])),
            scaled_add(s, NEAR / 2.0, near_odd, scaled_add(s, 2.0 * FAR, far_odd, infinity[3])),
            scaled_add(s, 0.25, near, scaled_add(s, 4.0, far, infinity[4])),
            zero,
        ]
    }
}

impl WinogradPoints for FourPoints {
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
    fn input_line<S: VectorIsa>(s: S, [a, b, c, d, _, _]: TileLine<S::V>) -> TileLine<S::V> {
        let zero = s.splat(0.0);
        [subtract(s, a, c), s.add(b, c), subtract(s, c, b), subtract(s, d, b), zero, zero]
    }

    #[inline(always)]
    fn input_grad_line<S: VectorIsa>(s: S, [a, b, c, d, _, _]: TileLine<S::V>) -> TileLine<S::V> {
        let zero = s.splat(0.0);
        let sum = s.add(b, c);
        [a, subtract(s, subtract(s, b, c), d), subtract(s, sum, a), d, zero, zero]
    }

    #[inline(always)]
    fn output_grad_line<S: VectorIsa>(s: S, line: TileLine<S::V>, count: usize) -> TileLine<S::V> {
        let zero = s.splat(0.0);
        debug_assert_eq!(count, 2, "four points give two results with three taps");
        let [a, b, ..] = line;
        [a, s.add(a, b), subtract(s, a, b), b, zero, zero]
    }

    #[inline(always)]
    fn output_line<S: VectorIsa>(s: S, [a, b, c, d, _, _]: TileLine<S::V>, count: usize) -> TileLine<S::V> {
        let zero = s.splat(0.0);
        let (even, odd) = (s.add(b, c), subtract(s, b, c));
        let second = if count == 2 { s.add(odd, d) } else { odd };
        [s.add(a, even), second, s.add(even, d), zero, zero, zero]
    }
}

// Functions and not closures: only functions are sure to be inlined, and so compiled for the processor.
/// Returns `factor x + sum`.
#[inline(always)]
fn scaled_add<S: VectorIsa>(s: S, factor: f64, x: S::V, sum: S::V) -> S::V {
    s.mul_add(s.splat(factor as f32), x, sum)
}

/// Returns `a - b`.
#[inline(always)]
fn subtract<S: VectorIsa>(s: S, a: S::V, b: S::V) -> S::V {
    scaled_add(s, -1.0, b, a)
}

/// A tile in memory: rows of adjacent places.
#[derive(Clone, Copy)]
pub(super) struct TileView<'a> {
    /// Elements, starting with the first channel of the first place.
    pub(super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(super) pitch: usize,
    /// Elements from one place to the next.
    pub(super) step: usize,
    /// Channels of a place.
    pub(super) channels: usize,
}

impl TileView<'_> {
    /// Returns the first `count` places of column `x`, with the channels from `channel` on.
    #[inline(always)]
    fn column<S: VectorIsa>(&self, s: S, x: usize, count: usize, channel: usize) -> TileLine<S::V> {
        let mut line = [s.splat(0.0); SIDE_MAX];
        let rest = self.channels - channel;
        for y in 0..count {
            let from = &self.data[y * self.pitch + x * self.step + channel..];
            line[y] = if rest >= S::LANES { s.load(from) } else { s.load_part(&from[..rest]) };
        }
        line
    }
}

/// Writes `Bᵀ x B` of a tile's elements to all points of `out`, for the channels from `channel` on.
#[inline(always)]
pub(super) fn input_transform<S: VectorIsa, P: WinogradPoints>(
    s: S,
    from: TileView<'_>,
    channel: usize,
    out: &mut [f32],
) {
    let mut columns = zero_square(s);
    for x in 0..P::SIDE {
        columns[x] = P::input_line(s, from.column(s, x, P::SIDE, channel));
    }
    for y in 0..P::SIDE {
        store::<S, P>(s, out, y, channel, P::input_line(s, row(&columns, y)));
    }
}

/// Writes `V dy Vᵀ` of `count` by `count` gradients to all points of `out`, for the channels from `channel` on.
#[inline(always)]
pub(super) fn output_grad_transform<S: VectorIsa, P: WinogradPoints>(
    s: S,
    from: TileView<'_>,
    count: usize,
    channel: usize,
    out: &mut [f32],
) {
    let mut columns = zero_square(s);
    for x in 0..count {
        columns[x] = P::output_grad_line(s, from.column(s, x, count, channel), count);
    }
    for y in 0..P::SIDE {
        store::<S, P>(s, out, y, channel, P::output_grad_line(s, row(&columns, y), count));
    }
}

/// Returns `B m Bᵀ` of a tile's sums: their contribution to its elements, for the channels from `channel` on.
#[inline(always)]
pub(super) fn input_grad_transform<S: VectorIsa, P: WinogradPoints>(
    s: S,
    from: TileView<'_>,
    channel: usize,
) -> TileSquare<S::V> {
    let (mut columns, mut rows) = (zero_square(s), zero_square(s));
    for x in 0..P::SIDE {
        columns[x] = P::input_grad_line(s, from.column(s, x, P::SIDE, channel));
    }
    for y in 0..P::SIDE {
        rows[y] = P::input_grad_line(s, row(&columns, y));
    }
    rows
}

/// Returns `Vᵀ m V` of a tile's sums: `count` by `count` results, for the channels from `channel` on.
#[inline(always)]
pub(super) fn output_transform<S: VectorIsa, P: WinogradPoints>(
    s: S,
    from: TileView<'_>,
    count: usize,
    channel: usize,
) -> TileSquare<S::V> {
    let (mut columns, mut rows) = (zero_square(s), zero_square(s));
    for x in 0..P::SIDE {
        columns[x] = P::output_line(s, from.column(s, x, P::SIDE, channel), count);
    }
    for y in 0..count {
        rows[y] = P::output_line(s, row(&columns, y), count);
    }
    rows
}

/// Returns `Vᵀ f m f V` of the sums over all tiles: `count` by `count` taps of a filter gradient, for the channels from
/// `channel` on.
#[inline(always)]
pub(super) fn filter_grad_transform<S: VectorIsa, P: WinogradPoints>(
    s: S,
    from: TileView<'_>,
    count: usize,
    channel: usize,
) -> TileSquare<S::V> {
    let (mut columns, mut rows) = (zero_square(s), zero_square(s));
    for x in 0..P::SIDE {
        columns[x] = P::output_line(s, apply_factors::<S, P>(s, from.column(s, x, P::SIDE, channel)), count);
    }
    for y in 0..count {
        rows[y] = P::output_line(s, apply_factors::<S, P>(s, row(&columns, y)), count);
    }
    rows
}

#[inline(always)]
fn apply_factors<S: VectorIsa, P: WinogradPoints>(s: S, mut line: TileLine<S::V>) -> TileLine<S::V> {
    for point in 0..P::SIDE {
        line[point] = scaled_add(s, P::FACTORS[point], line[point], s.splat(0.0));
    }
    line
}

/// Writes a row of points, for the channels from `channel` on.
#[inline(always)]
fn store<S: VectorIsa, P: WinogradPoints>(s: S, out: &mut [f32], y: usize, channel: usize, line: TileLine<S::V>) {
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
fn zero_square<S: VectorIsa>(s: S) -> TileSquare<S::V> {
    [[s.splat(0.0); SIDE_MAX]; SIDE_MAX]
}

/// Returns the elements of all columns at `y`.
#[inline(always)]
fn row<V: Copy>(columns: &TileSquare<V>, y: usize) -> TileLine<V> {
    let mut line = columns[0];
    for x in 0..SIDE_MAX {
        line[x] = columns[x][y];
    }
    line
}
