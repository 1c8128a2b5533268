//! Packing of the second operand of a product. The layout is blocks of depth; in each block, panels of columns; in each
//! panel, the columns of one depth contiguously. Padding columns are zeros.

use super::matrix::GemmMatrix;
use crate::vector::{self, TRANSPOSE_SIDE, VectorIsa, VectorWork};

/// Maximum depth of a block. A panel of it and a tile's rows stay in the caches next to the processor.
const BLOCK_DEPTH_MAX: usize = 384;

/// Rows that are prefetched ahead of the one being packed. They arrive within some hundred nanoseconds of copying.
const PREFETCH_ROWS: usize = 8;

/// The layout of a packed `depth x columns` matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct PanelLayout {
    /// Rows.
    pub(in super::super) depth: usize,
    /// Columns.
    pub(in super::super) columns: usize,
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// Vectors of every panel but the last.
    pub(super) panel_vectors: usize,
}

impl PanelLayout {
    /// Returns the layout for the vectors of this processor.
    pub(in super::super) fn new(depth: usize, columns: usize) -> PanelLayout {
        let (lanes, wide) = vector::lanes();
        PanelLayout { depth, columns, lanes, panel_vectors: wide }
    }

    /// Returns the columns of every panel but the last.
    pub(in super::super) fn panel_columns(&self) -> usize {
        self.lanes * self.panel_vectors
    }

    /// Returns the number of panels.
    pub(in super::super) fn panels(&self) -> usize {
        self.columns.div_ceil(self.panel_columns())
    }

    /// Returns the vectors of a panel.
    pub(super) fn vectors_of_panel(&self, panel: usize) -> usize {
        (self.columns - panel * self.panel_columns()).div_ceil(self.lanes).min(self.panel_vectors)
    }

    /// Returns the columns of all panels, including padding.
    fn padded_columns(&self) -> usize {
        self.columns.next_multiple_of(self.lanes)
    }

    /// Returns the number of elements.
    pub(in super::super) fn len(&self) -> usize {
        self.depth * self.padded_columns()
    }

    /// Returns the depth of every block but the last. It depends only on the depth of the matrix, and blocks are nearly
    /// equal.
    fn block_depth_max(&self) -> usize {
        self.depth.div_ceil(self.depth.div_ceil(BLOCK_DEPTH_MAX).max(1)).max(1)
    }

    /// Returns the first depths of the blocks.
    pub(super) fn block_starts(&self) -> impl Iterator<Item = usize> {
        (0..self.depth).step_by(self.block_depth_max())
    }

    /// Returns the depth of the block that begins at depth `first`.
    pub(super) fn block_depth(&self, first: usize) -> usize {
        self.block_depth_max().min(self.depth - first)
    }

    /// Returns the range of a panel of the block that begins at depth `first`.
    pub(super) fn panel_range(&self, first: usize, panel: usize) -> std::ops::Range<usize> {
        let depth = self.block_depth(first);
        let start = first * self.padded_columns() + panel * self.panel_columns() * depth;
        start..start + depth * self.vectors_of_panel(panel) * self.lanes
    }
}

impl PanelLayout {
    /// Returns whether `b` already has this layout in memory: one panel without padding.
    pub(super) fn is_already_packed(&self, b: GemmMatrix<'_>) -> bool {
        b.column == 1 && b.row == self.columns && self.padded_columns() == self.columns && self.panels() == 1
    }

    /// Returns the range of several panels of the block that begins at depth `first`.
    pub(super) fn panels_range(&self, first: usize, panels: std::ops::Range<usize>) -> std::ops::Range<usize> {
        self.panel_range(first, panels.start).start..self.panel_range(first, panels.end - 1).end
    }
}

/// One panel of one block, to be packed.
pub(in super::super) struct PackTarget<'a> {
    layout: PanelLayout,
    first: usize,
    panel: usize,
    out: &'a mut [f32],
}

/// One panel of one block: its position in the matrix and its memory.
pub(in super::super) struct PackTargetView<'a> {
    /// First depth.
    pub(in super::super) first: usize,
    /// First column.
    pub(in super::super) column: usize,
    /// Columns without padding.
    pub(in super::super) columns: usize,
    /// Elements of one depth, which are contiguous. Those after `columns` must be zeros.
    pub(in super::super) width: usize,
    /// The memory of all depths, one after the other.
    pub(in super::super) out: &'a mut [f32],
}

/// Returns all panels of a packed matrix. They can be packed in any order.
pub(in super::super) fn split_panels(layout: PanelLayout, out: &mut [f32]) -> Vec<PackTarget<'_>> {
    let mut rest = &mut out[..layout.len()];
    let mut parts = Vec::new();
    for first in layout.block_starts() {
        for panel in 0..layout.panels() {
            let (out, tail) = rest.split_at_mut(layout.panel_range(first, panel).len());
            rest = tail;
            parts.push(PackTarget { layout, first, panel, out });
        }
    }
    parts
}

impl<'a> PackTarget<'a> {
    /// Returns the target for a panel of the block that begins at depth `first`, with `out` as its memory.
    pub(super) fn new(layout: PanelLayout, first: usize, panel: usize, out: &'a mut [f32]) -> PackTarget<'a> {
        PackTarget { layout, first, panel, out }
    }

    /// Returns its position in the matrix and its memory.
    pub(in super::super) fn view(self) -> PackTargetView<'a> {
        let PackTarget { layout, first, panel, out } = self;
        let column = panel * layout.panel_columns();
        let columns = layout.panel_columns().min(layout.columns - column);
        PackTargetView { first, column, columns, width: layout.vectors_of_panel(panel) * layout.lanes, out }
    }

    /// Packs the elements that `element` returns for each depth and column.
    pub(in super::super) fn pack_with(self, element: impl Fn(usize, usize) -> f32) {
        let PackTargetView { first, column, columns, width, out } = self.view();
        for (depth, out) in out.chunks_exact_mut(width).enumerate() {
            for (at, out) in out[..columns].iter_mut().enumerate() {
                *out = element(first + depth, column + at);
            }
            out[columns..].fill(0.0);
        }
    }

    /// Packs the panel from `b`, which is `depth x columns`.
    pub(in super::super) fn pack(self, b: GemmMatrix<'_>) {
        let PackTarget { layout, first, panel, out } = self;
        let column = panel * layout.panel_columns();
        let columns = layout.panel_columns().min(layout.columns - column);
        let width = layout.vectors_of_panel(panel) * layout.lanes;
        if b.column == 1 {
            vector::run(PackRows { layout, first, panels: panel..panel + 1, b, out });
        } else {
            pack_transposed(b.skip_rows(first).skip_columns(column), columns, width, out);
        }
    }
}

/// Packs a range of panels of a block of depth from `b`.
pub(super) fn pack_panels(
    layout: PanelLayout,
    first: usize,
    panels: std::ops::Range<usize>,
    b: GemmMatrix<'_>,
    out: &mut [f32],
) {
    if b.column == 1 {
        return vector::run(PackRows { layout, first, panels, b, out });
    }
    let mut rest = out;
    for panel in panels {
        let (part, later) = rest.split_at_mut(layout.panel_range(first, panel).len());
        rest = later;
        PackTarget::new(layout, first, panel, part).pack(b);
    }
}

/// Packs panels from a matrix with contiguous rows, all panels of a depth at a time, so that memory is read in order.
struct PackRows<'a> {
    layout: PanelLayout,
    first: usize,
    panels: std::ops::Range<usize>,
    b: GemmMatrix<'a>,
    out: &'a mut [f32],
}

impl VectorWork for PackRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let PackRows { layout, first, panels, b, out } = self;
        let depths = layout.block_depth(first);
        let left = panels.start * layout.panel_columns();
        let columns = (panels.end * layout.panel_columns()).min(layout.columns) - left;
        let b = b.skip_rows(first).skip_columns(left);
        for depth in 0..depths {
            // Hardware prefetching starts over with every row, and rows are short.
            if depth + PREFETCH_ROWS < depths {
                let ahead = &b.data[(depth + PREFETCH_ROWS) * b.row..][..columns];
                vector::prefetch(bytemuck::cast_slice(ahead));
            }
            let (mut row, mut rest) = (&b.data[depth * b.row..][..columns], &mut *out);
            while !row.is_empty() {
                let (from, later) = row.split_at(layout.panel_columns().min(row.len()));
                row = later;
                let width = from.len().next_multiple_of(layout.lanes);
                let (out, later) = rest.split_at_mut(depths * width);
                rest = later;
                let out = &mut out[depth * width..][..width];
                for at in (0..width).step_by(S::LANES) {
                    s.store(&mut out[at..], s.load_some(&from[at..]));
                }
            }
        }
    }
}

/// Packs a panel from a matrix whose rows are not contiguous.
fn pack_transposed(b: GemmMatrix<'_>, columns: usize, width: usize, out: &mut [f32]) {
    if b.row == 1 {
        return vector::run(PackTransposed { b, columns, width, out });
    }
    for (depth, out) in out.chunks_exact_mut(width).enumerate() {
        for (column, out) in out[..columns].iter_mut().enumerate() {
            *out = b.data[depth * b.row + column * b.column];
        }
        out[columns..].fill(0.0);
    }
}

/// Transposes a matrix of contiguous columns, square by square.
struct PackTransposed<'a> {
    b: GemmMatrix<'a>,
    columns: usize,
    width: usize,
    out: &'a mut [f32],
}

impl VectorWork for PackTransposed<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let PackTransposed { b, columns, width, out } = self;
        for (at, out) in out.chunks_mut(TRANSPOSE_SIDE * width).enumerate() {
            let depths = out.len() / width;
            for first in (0..columns).step_by(TRANSPOSE_SIDE) {
                let from = &b.data[at * TRANSPOSE_SIDE + first * b.column..];
                if depths == TRANSPOSE_SIDE && first + TRANSPOSE_SIDE <= columns {
                    s.transpose(from, b.column, &mut out[first..], width);
                    continue;
                }
                for column in 0..TRANSPOSE_SIDE.min(columns - first) {
                    for depth in 0..depths {
                        out[depth * width + first + column] = from[column * b.column + depth];
                    }
                }
            }
            for out in out.chunks_exact_mut(width) {
                out[columns..].fill(0.0);
            }
        }
    }
}

/// Packs all of `b`.
pub(in super::super) fn pack(layout: PanelLayout, b: GemmMatrix<'_>, out: &mut [f32]) {
    split_panels(layout, out).into_iter().for_each(|part| part.pack(b));
}

/// Copies rows of `len` elements to rows that are `below` elements apart.
pub(super) struct CopyStridedRows<'a> {
    /// Elements, starting with the first of the first row.
    pub(super) from: &'a [f32],
    /// Elements from one row to the next.
    pub(super) row: usize,
    /// Elements of a row.
    pub(super) len: usize,
    /// The destination.
    pub(super) out: &'a mut [f32],
    /// Elements from one row of the destination to the next.
    pub(super) below: usize,
}

impl VectorWork for CopyStridedRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let CopyStridedRows { from, row, len, out, below } = self;
        for (at, out) in out.chunks_exact_mut(below).enumerate() {
            let (from, out) = (&from[at * row..][..len], &mut out[..len]);
            for at in (0..len).step_by(S::LANES) {
                s.store_some(&mut out[at..], s.load_some(&from[at..]));
            }
        }
    }
}
