//! The innermost loop of products: a tile of sums that stays in registers, one multiply-add a column, row and depth.
//!
//! Each sum is one chain over the depth in order, whatever the tile's size: so an element has the same bits in any tile.

use crate::cpu::epilogue::BoundBiasClamp;
use crate::cpu::vector::VectorIsa;

/// Rows of a tile, at most.
pub(in super::super) const TILE_ROWS_MAX: usize = 12;

/// Where a tile's rows of the first operand are.
#[derive(Clone, Copy)]
pub(in super::super) enum LhsTile<'a> {
    /// Row `i` of the tile is `depth` elements from `rows[i]` on.
    Rows {
        /// The operand.
        data: &'a [f32],
        /// First element of each row.
        rows: [usize; TILE_ROWS_MAX],
    },
    /// The element of row `i` at depth `d` is `data[rows[i] + offsets[d]]`.
    Scattered {
        /// The operand.
        data: &'a [f32],
        /// First element of each row.
        rows: [usize; TILE_ROWS_MAX],
        /// One a depth.
        offsets: &'a [u32],
        /// More than any offset.
        span: usize,
    },
    /// The tile's elements of one depth lie side by side, those of the next `stride` further.
    Columns {
        /// The operand, from the tile's first element on.
        data: &'a [f32],
        /// Elements from one depth to the next.
        stride: usize,
    },
    /// The tile's elements of depth `d` lie side by side from `bases[d]` on.
    Transposed {
        /// The operand, from the tile's first row on.
        data: &'a [f32],
        /// One a depth.
        bases: &'a [u32],
    },
}

/// Sums of a tile of `H` rows and `W` vectors.
pub(super) type TileSums<S, const H: usize, const W: usize> = [[<S as VectorIsa>::V; W]; H];

/// Adds to `sums` the products of `depth` depths.
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

/// The tile's elements of the first operand, depth by depth. A trait, not closures: only what is marked so is sure to be
/// inlined, and a call in the innermost loop costs three quarters of the speed.
trait LhsFactors<const H: usize> {
    /// Those of one depth.
    fn at(&self, depth: usize) -> [f32; H];
}

/// `len` elements of each row.
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

/// Rows whose elements are where the same offsets say.
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

/// Elements side by side, the next depth's a stride further.
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

/// Elements side by side, from a base for each depth on.
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

// Loops over constants are unrolled, so the sums stay in registers; iterators over them are not.
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

/// Where a tile goes.
pub(in super::super) struct TileDestination<'p, 'c> {
    /// Its rows of the result.
    pub(in super::super) rows: &'p mut [&'c mut [f32]],
    /// The tile's first column in them.
    pub(in super::super) column: usize,
    /// Its columns; the rest of its vectors are nothing.
    pub(in super::super) columns: usize,
    /// Whether it is added to what is there.
    pub(in super::super) add: bool,
    /// What becomes of each element, where this is all of its sum; `epilogue` are for the rows' first column.
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

/// What is to be stored for a vector of sums.
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

/// Writes the elements of a vector that there are columns for.
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
