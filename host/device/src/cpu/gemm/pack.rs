//! How the second operand of a product is laid out for tiles: blocks of depth, in each the panels of columns one after
//! the other, in each panel the columns of one depth side by side. Columns that there are not are zeros.

use super::GemmMatrix;
use crate::cpu::vector::{self, TRANSPOSE_SIDE, VectorIsa, VectorWork};

/// Depth of a block, at most: a panel of it and a tile's rows stay in the caches next to the processor.
const BLOCK_DEPTH_MAX: usize = 384;

/// Rows of the matrix that are asked for ahead of the one that is packed: they come while some hundred nanoseconds of
/// copying go by.
const PREFETCH_ROWS: usize = 8;

/// Where the elements of a packed `depth x columns` matrix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct PanelLayout {
    /// Rows.
    pub(in super::super) depth: usize,
    /// Columns.
    pub(in super::super) columns: usize,
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// Vectors of a panel but for the last one.
    pub(super) panel_vectors: usize,
}

impl PanelLayout {
    /// For the vectors of this processor.
    pub(in super::super) fn new(depth: usize, columns: usize) -> PanelLayout {
        let (lanes, wide) = vector::lanes();
        PanelLayout { depth, columns, lanes, panel_vectors: wide }
    }

    /// Columns of a panel but for the last one.
    pub(in super::super) fn panel_columns(&self) -> usize {
        self.lanes * self.panel_vectors
    }

    /// How many panels.
    pub(in super::super) fn panels(&self) -> usize {
        self.columns.div_ceil(self.panel_columns())
    }

    /// Vectors of a panel.
    pub(super) fn vectors_of_panel(&self, panel: usize) -> usize {
        (self.columns - panel * self.panel_columns()).div_ceil(self.lanes).min(self.panel_vectors)
    }

    /// Columns of all panels, with those that are zeros.
    fn padded_columns(&self) -> usize {
        self.columns.next_multiple_of(self.lanes)
    }

    /// Elements.
    pub(in super::super) fn len(&self) -> usize {
        self.depth * self.padded_columns()
    }

    /// Depth of the blocks but for the last one: nearly that of the last, by the depth of the matrix alone.
    fn block_depth_max(&self) -> usize {
        self.depth.div_ceil(self.depth.div_ceil(BLOCK_DEPTH_MAX).max(1)).max(1)
    }

    /// First depths of the blocks.
    pub(super) fn block_starts(&self) -> impl Iterator<Item = usize> {
        (0..self.depth).step_by(self.block_depth_max())
    }

    /// Depth of the block that begins there.
    pub(super) fn block_depth(&self, first: usize) -> usize {
        self.block_depth_max().min(self.depth - first)
    }

    /// A panel of the block that begins at depth `first`.
    pub(super) fn panel_range(&self, first: usize, panel: usize) -> std::ops::Range<usize> {
        let depth = self.block_depth(first);
        let start = first * self.padded_columns() + panel * self.panel_columns() * depth;
        start..start + depth * self.vectors_of_panel(panel) * self.lanes
    }
}

impl PanelLayout {
    /// Whether `b` lies in memory as its panels would: one panel without zeros.
    pub(super) fn is_already_packed(&self, b: GemmMatrix<'_>) -> bool {
        b.column == 1 && b.row == self.columns && self.padded_columns() == self.columns && self.panels() == 1
    }

    /// Panels of the block that begins at depth `first`.
    pub(super) fn panels_range(&self, first: usize, panels: std::ops::Range<usize>) -> std::ops::Range<usize> {
        self.panel_range(first, panels.start).start..self.panel_range(first, panels.end - 1).end
    }
}

/// One panel of one block, to be filled.
pub(in super::super) struct PackTarget<'a> {
    layout: PanelLayout,
    first: usize,
    panel: usize,
    out: &'a mut [f32],
}

/// One panel of one block, as it lies in the matrix and in memory.
pub(in super::super) struct PackTargetView<'a> {
    /// First depth.
    pub(in super::super) first: usize,
    /// First column.
    pub(in super::super) column: usize,
    /// Columns that there are.
    pub(in super::super) columns: usize,
    /// Elements of one depth, which lie side by side; those after the columns that there are must be zeros.
    pub(in super::super) width: usize,
    /// All depths, one after the other.
    pub(in super::super) out: &'a mut [f32],
}

/// The parts of a packed matrix, which may be filled in any order.
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
    /// A panel of the block that begins at depth `first`, in memory of its own.
    pub(super) fn new(layout: PanelLayout, first: usize, panel: usize, out: &'a mut [f32]) -> PackTarget<'a> {
        PackTarget { layout, first, panel, out }
    }

    /// Its place in the matrix, and its memory.
    pub(in super::super) fn view(self) -> PackTargetView<'a> {
        let PackTarget { layout, first, panel, out } = self;
        let column = panel * layout.panel_columns();
        let columns = layout.panel_columns().min(layout.columns - column);
        PackTargetView { first, column, columns, width: layout.vectors_of_panel(panel) * layout.lanes, out }
    }

    /// Fills it with the elements of each depth and column.
    pub(in super::super) fn pack_with(self, element: impl Fn(usize, usize) -> f32) {
        let PackTargetView { first, column, columns, width, out } = self.view();
        for (depth, out) in out.chunks_exact_mut(width).enumerate() {
            for (at, out) in out[..columns].iter_mut().enumerate() {
                *out = element(first + depth, column + at);
            }
            out[columns..].fill(0.0);
        }
    }

    /// Fills it from `b`, which is `depth x columns`.
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

/// Fills some panels of a block of depth from `b`.
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

/// Fills panels from a matrix whose rows are contiguous, all of them depth by depth: so that what lies side by side in
/// memory is read at once.
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
            // The processor's own prefetching begins anew with every row, and rows are short.
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

/// Fills a panel from a matrix whose columns are each contiguous, or neither columns nor rows are.
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

/// Turns a matrix of contiguous columns round, square by square.
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

/// Copies rows of `len` elements to rows that are `skip_rows` elements apart.
pub(super) struct CopyStridedRows<'a> {
    /// Elements, from the first row's first on.
    pub(super) from: &'a [f32],
    /// Elements from one row to the next.
    pub(super) row: usize,
    /// Elements of a row.
    pub(super) len: usize,
    /// Where they go.
    pub(super) out: &'a mut [f32],
    /// Elements from one row to the next there.
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
