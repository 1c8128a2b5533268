//! Micro-kernel: the innermost loop of products. A tile of sums stays in registers, with one multiply-add per column,
//! row and depth.
//!
//! Each sum is one chain over the depth in order, whatever the tile's size. An element therefore has the same bits in
//! any tile.

use crate::cpu::epilogue::BoundBiasClamp;
use crate::cpu::vector::VectorIsa;

/// Maximum number of rows of a tile.
pub(in super::super) const TILE_ROWS_MAX: usize = 12;

/// A tile's rows of the first operand.
#[derive(Clone, Copy)]
pub(in super::super) enum LhsTile<'a> {
    /// Contiguous rows: row `i` of the tile is `depth` elements from `rows[i]` on.
    Rows {
        /// The operand.
        data: &'a [f32],
        /// First element of each row.
        rows: [usize; TILE_ROWS_MAX],
    },
    /// Scattered rows: the element of row `i` at depth `d` is `data[rows[i] + offsets[d]]`.
    Scattered {
        /// The operand.
        data: &'a [f32],
        /// First element of each row.
        rows: [usize; TILE_ROWS_MAX],
        /// Offset of each depth.
        offsets: &'a [u32],
        /// An upper bound of all offsets, exclusive.
        span: usize,
    },
    /// Strided columns: the tile's elements of one depth are contiguous, and the next depth is `stride` elements
    /// further.
    Columns {
        /// The operand, from the tile's first element on.
        data: &'a [f32],
        /// Elements from one depth to the next.
        stride: usize,
    },
    /// Indexed columns: the tile's elements of depth `d` are contiguous from `bases[d]` on.
    Transposed {
        /// The operand, from the tile's first row on.
        data: &'a [f32],
        /// Base of each depth.
        bases: &'a [u32],
    },
}

/// Sums of a tile of `H` rows and `W` vectors.
pub(super) type TileSums<S, const H: usize, const W: usize> = [[<S as VectorIsa>::V; W]; H];

/// Adds the products of `depth` depths to `sums`.
#[inline(always)]
pub(super) fn accumulate<S: VectorIsa, const H: usize, const W: usize>(
    s: S,
    sums: TileSums<S, H, W>,
    left: &LhsTile<'_>,
    b: &[f32],
    depth: usize,
) -> TileSums<S, H, W> {
    match *left {
        LhsTile::Rows { data, rows } => {
            multiply_tile(s, sums, ContiguousRows { slices: row_slices(data, &rows, depth) }, b, depth)
        }
        LhsTile::Scattered { data, rows, offsets, span } => {
            multiply_tile(s, sums, ScatteredRows { slices: row_slices(data, &rows, span), offsets }, b, depth)
        }
        LhsTile::Columns { data, stride } => multiply_tile(s, sums, StridedColumns { data, stride }, b, depth),
        LhsTile::Transposed { data, bases } => multiply_tile(s, sums, IndexedColumns { data, bases }, b, depth),
    }
}

/// The tile's elements of the first operand by depth. A trait and not a closure, because only marked functions are sure
/// to be inlined, and a call in the innermost loop costs three quarters of the speed.
trait LhsFactors<const H: usize> {
    /// Returns the elements of one depth.
    fn at(&self, depth: usize) -> [f32; H];
}

/// Returns `len` elements of each row.
#[inline(always)]
fn row_slices<'a, const H: usize>(data: &'a [f32], rows: &[usize; TILE_ROWS_MAX], len: usize) -> [&'a [f32]; H] {
    let mut slices = [&data[..0]; H];
    for (slice, row) in slices.iter_mut().zip(rows) {
        *slice = &data[*row..][..len];
    }
    slices
}

/// Rows that are each contiguous.
struct ContiguousRows<'a, const H: usize> {
    slices: [&'a [f32]; H],
}

impl<const H: usize> LhsFactors<H> for ContiguousRows<'_, H> {
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "loops over constants are unrolled, iterators are not")]
    fn at(&self, depth: usize) -> [f32; H] {
        let mut factors = [0.0; H];
        for row in 0..H {
            factors[row] = self.slices[row][depth];
        }
        factors
    }
}

/// Rows whose elements are at the same offsets from their bases.
struct ScatteredRows<'a, const H: usize> {
    slices: [&'a [f32]; H],
    offsets: &'a [u32],
}

impl<const H: usize> LhsFactors<H> for ScatteredRows<'_, H> {
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "loops over constants are unrolled, iterators are not")]
    fn at(&self, depth: usize) -> [f32; H] {
        let offset = self.offsets[depth] as usize;
        let mut factors = [0.0; H];
        for row in 0..H {
            factors[row] = self.slices[row][offset];
        }
        factors
    }
}

/// Contiguous elements per depth, with a fixed stride between depths.
struct StridedColumns<'a> {
    data: &'a [f32],
    stride: usize,
}

impl<const H: usize> LhsFactors<H> for StridedColumns<'_> {
    #[inline(always)]
    fn at(&self, depth: usize) -> [f32; H] {
        *self.data[depth * self.stride..].first_chunk::<H>().expect("a number for every row")
    }
}

/// Contiguous elements per depth, with a base for each depth.
struct IndexedColumns<'a> {
    data: &'a [f32],
    bases: &'a [u32],
}

impl<const H: usize> LhsFactors<H> for IndexedColumns<'_> {
    #[inline(always)]
    fn at(&self, depth: usize) -> [f32; H] {
        *self.data[self.bases[depth] as usize..].first_chunk::<H>().expect("a number for every row")
    }
}

// Loops over constants are unrolled, so the sums stay in registers. Iterators over them are not.
#[inline(always)]
fn multiply_tile<S: VectorIsa, const H: usize, const W: usize>(
    s: S,
    mut sums: TileSums<S, H, W>,
    a: impl LhsFactors<H>,
    b: &[f32],
    depth: usize,
) -> TileSums<S, H, W> {
    let width = W * S::LANES;
    for (depth, b) in b[..depth * width].chunks_exact(width).enumerate() {
        let mut columns = [s.splat(0.0); W];
        for column in 0..W {
            columns[column] = s.load(&b[column * S::LANES..]);
        }
        let factors = a.at(depth);
        for row in 0..H {
            let factor = s.splat(factors[row]);
            for column in 0..W {
                sums[row][column] = s.mul_add(factor, columns[column], sums[row][column]);
            }
        }
    }
    sums
}

/// The destination of a tile.
pub(in super::super) struct TileDestination<'p, 'c> {
    /// Its rows of the result.
    pub(in super::super) rows: &'p mut [&'c mut [f32]],
    /// The tile's first column in them.
    pub(in super::super) column: usize,
    /// Number of its columns. Further elements of its vectors are discarded.
    pub(in super::super) columns: usize,
    /// Whether the tile is added to the result.
    pub(in super::super) add: bool,
    /// The epilogue of each element, if the tile completes its sum. Its channels start at the rows' first column.
    pub(in super::super) epilogue: Option<BoundBiasClamp<'p>>,
}

impl TileDestination<'_, '_> {
    /// Writes a tile.
    #[inline(always)]
    pub(super) fn write<S: VectorIsa, const H: usize, const W: usize>(&mut self, s: S, sums: &TileSums<S, H, W>) {
        let rows: &mut [&mut [f32]; H] = self.rows.first_chunk_mut().expect("a row of the result for each of the tile");
        if self.columns == W * S::LANES && !self.add && self.epilogue.is_none() {
            for row in 0..H {
                let out = &mut rows[row][self.column..][..W * S::LANES];
                for column in 0..W {
                    s.store(&mut out[column * S::LANES..], sums[row][column]);
                }
            }
            return;
        }
        for row in 0..H {
            let out = &mut rows[row][self.column..][..self.columns];
            for column in 0..W {
                let first = column * S::LANES;
                let sums = sums[row][column];
                if first + S::LANES <= self.columns {
                    let out = &mut out[first..][..S::LANES];
                    let value = apply_epilogue(s, sums, out, self.add, self.epilogue, self.column + first);
                    s.store(out, value);
                } else {
                    write_partial_vector(s, sums, &mut out[first..], self.add, self.epilogue, self.column + first);
                }
            }
        }
    }
}

/// Returns the value to store for a vector of sums.
#[inline(always)]
fn apply_epilogue<S: VectorIsa>(
    s: S,
    sums: S::V,
    out: &[f32],
    add: bool,
    ends: Option<BoundBiasClamp<'_>>,
    column: usize,
) -> S::V {
    let mut value = if add { s.add(s.load(out), sums) } else { sums };
    if let Some(ends) = ends {
        if let Some(bias) = ends.bias {
            value = s.add(value, s.load(&bias[column..]));
        }
        value = s.at_least(value, s.splat(ends.least));
    }
    value
}

/// Writes the elements of a vector that have a column in `out`.
#[inline(always)]
fn write_partial_vector<S: VectorIsa>(
    s: S,
    sums: S::V,
    out: &mut [f32],
    add: bool,
    ends: Option<BoundBiasClamp<'_>>,
    column: usize,
) {
    let mut value = if add { s.add(s.load_part(out), sums) } else { sums };
    if let Some(ends) = ends {
        if let Some(bias) = ends.bias {
            value = s.add(value, s.load_part(&bias[column..][..out.len()]));
        }
        value = s.at_least(value, s.splat(ends.least));
    }
    s.store_part(out, value);
}
