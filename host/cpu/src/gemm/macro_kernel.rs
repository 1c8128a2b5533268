//! Macro-kernel: the product of whole matrices on one thread, by blocks of depth, panels of columns and tiles of rows.

use super::matrix::GemmMatrix;
use super::micro_kernel::{LhsTile, TILE_ROWS_MAX, TileDestination, TileSums, accumulate};
use super::pack::{CopyStridedRows, PanelLayout, pack_panels};
use crate::aligned_buffer::AlignedBuffer;
use crate::cancel;
use crate::epilogue::BoundBiasClamp;
use crate::thread_scratch::{GemmScratch, buffer};
use crate::vector::{self, VectorIsa, VectorWork};

/// Elements of the second operand that stay in the second-level cache while all rows are multiplied with them.
const L2_ELEMENTS: usize = 1 << 17;
/// Mean segment length below which rows are read element by element, because starting a segment costs more.
const SEGMENT_LENGTH_MIN: usize = 16;
/// Elements up to which a transposed first operand is used in place, because it stays in the first-level cache.
const L1_ELEMENTS: usize = 1 << 12;
/// Padding between rows of a transposed first operand, so that they do not share a few lines of the first-level cache.
const TRANSPOSED_PAD: usize = 16;

/// A packed second operand of a product.
#[derive(Clone, Copy)]
pub(in super::super) struct PackedMatrix<'a> {
    /// The layout of its panels.
    pub(in super::super) layout: PanelLayout,
    /// The packed elements.
    pub(in super::super) data: &'a [f32],
}

/// A second operand. If it is unpacked, each group of panels is packed when it is needed and stays in the cache. This
/// suits products that compute all rows in one call, so that nothing is packed twice.
#[derive(Clone, Copy)]
pub(in super::super) enum RhsOperand<'a> {
    /// Packed before.
    Packed(PackedMatrix<'a>),
    /// Unpacked in memory.
    Unpacked(PanelLayout, GemmMatrix<'a>),
}

impl RhsOperand<'_> {
    /// Returns the layout of its panels.
    pub(super) fn layout(&self) -> PanelLayout {
        match self {
            RhsOperand::Packed(packed) => packed.layout,
            RhsOperand::Unpacked(layout, _) => *layout,
        }
    }
}

/// The columns of a product that one call computes.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct PanelRange {
    /// First panel.
    pub(in super::super) first: usize,
    /// One past the last panel.
    pub(in super::super) end: usize,
}

/// The product `c = a b` for a range of panels of `b`.
pub(in super::super) struct PanelProduct<'p, 'c> {
    /// Rows of the result, each with the columns of all panels in the range.
    pub(in super::super) c: &'p mut [&'c mut [f32]],
    /// The first operand: as many rows as `c`, and the depth of `b` as columns.
    pub(in super::super) a: LhsOperand<'p>,
    /// The second operand.
    pub(in super::super) b: RhsOperand<'p>,
    /// The range of panels.
    pub(in super::super) panels: PanelRange,
    /// Whether the product is added to `c`.
    pub(in super::super) add: bool,
    /// The epilogue of the elements, if any. Its channels start at the first column of the range.
    pub(in super::super) epilogue: Option<BoundBiasClamp<'p>>,
    /// Buffers for panels of an unpacked `b` and for rows of `a` that are not contiguous.
    pub(in super::super) words: &'p mut GemmScratch,
}

impl PanelProduct<'_, '_> {
    /// Computes the product.
    pub(in super::super) fn run(self) {
        vector::run(self);
    }
}

impl VectorWork for PanelProduct<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let PanelProduct { c, a, b, panels, add, epilogue: ends, words } = self;
        let layout = b.layout();
        if layout.depth == 0 {
            return write_empty_product(c, add, ends);
        }
        let [packed, turned] = words;
        for first in layout.block_starts() {
            let depth = layout.block_depth(first);
            let last = first + depth == layout.depth;
            let left = &LhsBlock::new(a, c.len(), [first, depth], turned);
            let ends = ends.filter(|_| last);
            let together = (L2_ELEMENTS / (depth * layout.panel_columns())).max(1);
            let mut panel = panels.first;
            while panel < panels.end {
                cancel::check();
                let vectors = layout.vectors_of_panel(panel);
                let mut end = (panel + together).min(panels.end);
                if layout.vectors_of_panel(end - 1) != vectors {
                    end -= 1;
                }
                let b = match b {
                    RhsOperand::Packed(b) => &b.data[layout.panels_range(first, panel..end)],
                    RhsOperand::Unpacked(_, b) if layout.is_already_packed(b) => {
                        &b.data[layout.panels_range(first, panel..end)]
                    }
                    RhsOperand::Unpacked(_, b) => {
                        let len = layout.panels_range(first, panel..end).len();
                        let out = buffer::<f32>(packed, len);
                        pack_panels(layout, first, panel..end, b, out);
                        out
                    }
                };
                let add = add || first > 0;
                let mut step =
                    PanelStep { c: &mut *c, left, b, layout, depth, add, epilogue: ends, base: panels.first };
                match vectors {
                    1 => step.run_panels::<S, 1>(s, panel..end),
                    2 => step.run_panels::<S, 2>(s, panel..end),
                    3 if S::WIDE >= 3 => step.run_panels::<S, 3>(s, panel..end),
                    4 if S::WIDE >= 4 => step.run_panels::<S, 4>(s, panel..end),
                    _ => unreachable!("a panel has at most as many vectors as a tile"),
                }
                panel = end;
            }
        }
    }
}

/// Writes a product of depth 0.
fn write_empty_product(c: &mut [&mut [f32]], add: bool, ends: Option<BoundBiasClamp<'_>>) {
    for row in c {
        for (column, out) in row.iter_mut().enumerate() {
            let sum = if add { *out } else { 0.0 };
            *out = ends.map_or(sum, |ends| ends.channel(column).apply(sum));
        }
    }
}

/// The first operand of a product.
#[derive(Clone, Copy)]
pub(in super::super) enum LhsOperand<'a> {
    /// A matrix.
    Matrix(GemmMatrix<'a>),
    /// Rows gathered from memory. Row `i` is the concatenation of the segments that begin at `bases[i] + offset` for
    /// each of `runs`. The lengths of the segments add up to the depth.
    Gathered {
        /// The memory.
        data: &'a [f32],
        /// Base of each row.
        bases: &'a [u32],
        /// Segments of every row.
        runs: &'a [RowSegment],
    },
    /// Transposed rows: the elements of all rows at depth `d` are contiguous from `bases[d]` on.
    Transposed {
        /// The memory.
        data: &'a [f32],
        /// Base of each depth.
        bases: &'a [u32],
    },
}

/// A segment of memory that is part of every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct RowSegment {
    /// Offset in elements from a row's base.
    pub(in super::super) offset: usize,
    /// Length in elements.
    pub(in super::super) len: usize,
}

/// The first operand's part of one block of depth.
enum LhsBlock<'a> {
    Rows { data: &'a [f32], stride: usize, runs: [RowSegment; 1] },
    Columns { data: &'a [f32], stride: usize },
    Gathered { data: &'a [f32], bases: &'a [u32], runs: Vec<RowSegment> },
    Scattered { data: &'a [f32], bases: &'a [u32], offsets: Vec<u32>, span: usize },
    Transposed { data: &'a [f32], bases: &'a [u32] },
}

impl<'a> LhsBlock<'a> {
    fn new(a: LhsOperand<'a>, rows: usize, [first, depth]: [usize; 2], words: &'a mut AlignedBuffer) -> LhsBlock<'a> {
        let a = match a {
            LhsOperand::Matrix(a) => a.skip_columns(first),
            LhsOperand::Gathered { data, bases, runs } => {
                let runs = clip_segments(runs, first, depth);
                if depth >= SEGMENT_LENGTH_MIN * runs.len() {
                    return LhsBlock::Gathered { data, bases, runs };
                }
                let span = runs.iter().map(|run| run.offset + run.len).max().unwrap_or(0);
                let offsets = runs.iter().flat_map(|run| run.offset..run.offset + run.len);
                return LhsBlock::Scattered { data, bases, offsets: offsets.map(|at| at as u32).collect(), span };
            }
            LhsOperand::Transposed { data, bases } => {
                return LhsBlock::Transposed { data, bases: &bases[first..][..depth] };
            }
        };
        if a.column == 1 {
            return LhsBlock::Rows { data: a.data, stride: a.row, runs: [RowSegment { offset: 0, len: depth }] };
        }
        if a.row == 1 && a.column * depth <= L1_ELEMENTS {
            return LhsBlock::Columns { data: a.data, stride: a.column };
        }
        // Copy the elements so that depths are close together: strided depths would share few cache lines.
        let stride = (rows + TILE_ROWS_MAX).next_multiple_of(2 * TRANSPOSED_PAD) + TRANSPOSED_PAD;
        let turned = buffer::<f32>(words, stride * depth);
        if a.row == 1 {
            vector::run(CopyStridedRows { from: a.data, row: a.column, len: rows, out: &mut *turned, below: stride });
        } else {
            for (at, out) in turned.chunks_exact_mut(stride).enumerate() {
                let from = &a.data[at * a.column..];
                for (row, out) in out[..rows].iter_mut().enumerate() {
                    *out = from[row * a.row];
                }
            }
        }
        LhsBlock::Columns { data: turned, stride }
    }

    /// Returns the product of a tile of rows with a panel.
    #[inline(always)]
    fn accumulate_tile<S: VectorIsa, const H: usize, const W: usize>(
        &self,
        s: S,
        row: usize,
        b: &[f32],
        depth: usize,
    ) -> TileSums<S, H, W> {
        let sums = [[s.splat(0.0); W]; H];
        match self {
            LhsBlock::Rows { data, stride, runs } => {
                let rows = std::array::from_fn(|at| if at < H { (row + at) * stride } else { 0 });
                accumulate_segments(s, sums, data, &rows, runs, b)
            }
            LhsBlock::Gathered { data, bases, runs } => {
                let bases: &[u32; H] = bases[row..].first_chunk().expect("a base for every row");
                let rows = std::array::from_fn(|at| if at < H { bases[at] as usize } else { 0 });
                accumulate_segments(s, sums, data, &rows, runs, b)
            }
            LhsBlock::Scattered { data, bases, offsets, span } => {
                let bases: &[u32; H] = bases[row..].first_chunk().expect("a base for every row");
                let rows = std::array::from_fn(|at| if at < H { bases[at] as usize } else { 0 });
                accumulate(s, sums, &LhsTile::Scattered { data, rows, offsets, span: *span }, b, depth)
            }
            LhsBlock::Columns { data, stride } => {
                accumulate(s, sums, &LhsTile::Columns { data: &data[row..], stride: *stride }, b, depth)
            }
            LhsBlock::Transposed { data, bases } => {
                accumulate(s, sums, &LhsTile::Transposed { data: &data[row..], bases }, b, depth)
            }
        }
    }
}

/// Adds the products of rows along their segments.
#[inline(always)]
fn accumulate_segments<S: VectorIsa, const H: usize, const W: usize>(
    s: S,
    mut sums: TileSums<S, H, W>,
    data: &[f32],
    rows: &[usize; TILE_ROWS_MAX],
    runs: &[RowSegment],
    mut b: &[f32],
) -> TileSums<S, H, W> {
    for run in runs {
        let (now, later) = b.split_at(run.len * W * S::LANES);
        let data = &data[run.offset..];
        sums = accumulate(s, sums, &LhsTile::Rows { data, rows: *rows }, now, run.len);
        b = later;
    }
    sums
}

/// Returns the parts of `runs` within `depth` elements from `first` on.
fn clip_segments(runs: &[RowSegment], first: usize, depth: usize) -> Vec<RowSegment> {
    let mut at = 0;
    let mut part = Vec::with_capacity(runs.len());
    for run in runs {
        let (low, high) = (first.max(at), (first + depth).min(at + run.len));
        if low < high {
            part.push(RowSegment { offset: run.offset + low - at, len: high - low });
        }
        at += run.len;
    }
    part
}

/// A range of panels of one block of depth.
struct PanelStep<'s, 'p, 'c> {
    c: &'s mut [&'c mut [f32]],
    left: &'s LhsBlock<'s>,
    /// The packed panels.
    b: &'s [f32],
    layout: PanelLayout,
    depth: usize,
    add: bool,
    epilogue: Option<BoundBiasClamp<'p>>,
    /// The panel of the rows' first column.
    base: usize,
}

impl PanelStep<'_, '_, '_> {
    /// Multiplies all rows with panels of `W` vectors, which stay in the cache.
    #[inline(always)]
    fn run_panels<S: VectorIsa, const W: usize>(&mut self, s: S, panels: std::ops::Range<usize>) {
        let rows = self.c.len();
        let bands = rows.div_ceil(S::height(W));
        let mut row = 0;
        for band in 0..bands {
            // Bands have nearly the same height: a band of few rows would wait for the latency of each multiply-add.
            let height = (rows - row).div_ceil(bands - band);
            match height {
                1 => self.run_band::<S, 1, W>(s, row, panels.clone()),
                2 => self.run_band::<S, 2, W>(s, row, panels.clone()),
                3 => self.run_band::<S, 3, W>(s, row, panels.clone()),
                4 => self.run_band::<S, 4, W>(s, row, panels.clone()),
                5 => self.run_band::<S, 5, W>(s, row, panels.clone()),
                6 => self.run_band::<S, 6, W>(s, row, panels.clone()),
                7 if S::height(W) >= 7 => self.run_band::<S, 7, W>(s, row, panels.clone()),
                8 if S::height(W) >= 8 => self.run_band::<S, 8, W>(s, row, panels.clone()),
                9 if S::height(W) >= 9 => self.run_band::<S, 9, W>(s, row, panels.clone()),
                10 if S::height(W) >= 10 => self.run_band::<S, 10, W>(s, row, panels.clone()),
                11 if S::height(W) >= 11 => self.run_band::<S, 11, W>(s, row, panels.clone()),
                12 if S::height(W) >= 12 => self.run_band::<S, 12, W>(s, row, panels.clone()),
                _ => unreachable!("no band is higher than a tile"),
            }
            row += height;
        }
    }

    #[inline(always)]
    fn run_band<S: VectorIsa, const H: usize, const W: usize>(
        &mut self,
        s: S,
        row: usize,
        panels: std::ops::Range<usize>,
    ) {
        let layout = self.layout;
        let blocks = self.b.chunks_exact(self.depth * W * S::LANES);
        for (panel, b) in panels.zip(blocks) {
            let sums: TileSums<S, H, W> = self.left.accumulate_tile(s, row, b, self.depth);
            let column = (panel - self.base) * layout.panel_columns();
            let columns = (W * S::LANES).min(layout.columns - panel * layout.panel_columns());
            let rows = &mut self.c[row..row + H];
            TileDestination { rows, column, columns, add: self.add, epilogue: self.epilogue }.write(s, &sums);
        }
    }
}
