//! Tile products by cooperative matrices: a subgroup multiplies and accumulates small matrices in one operation, with
//! factors of 16-bit floats and sums of 32 bits. The driver decides which lane holds which element, so factors are
//! staged as halves, and sums are stored through workgroup memory.
//!
//! Source: VK_KHR_cooperative_matrix; in WGSL, naga's extension `wgpu_cooperative_matrix`.

use std::fmt;

use super::staging::{self, StagedOperand};
use super::{CooperativeMatrix, TileMethod, TileOutput, WorkgroupTile};
use crate::wgsl::writer::ShaderWriter;

/// How a tile's small matrices are distributed over the subgroups of a workgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubgroupGrid {
    matrix: CooperativeMatrix,
    /// Number of subgroups down and across.
    subgroups: [usize; 2],
    /// Small matrices per subgroup, down and across.
    matrices_per_subgroup: [usize; 2],
}

/// A tile's subgroups and small matrices per subgroup, down and across; small matrices along the depth of the staged
/// parts; throughput in percent of the largest tile by lanes.
type TileChoice = ([usize; 2], [usize; 2], usize, usize);

/// The tiles, in the order in which they are preferred among those of equal estimated time. The throughput follows
/// published comparisons of such operations with multiply-adds of lanes on the same adapter: five to ten times as many.
const CHOICES: [TileChoice; 5] = [
    ([2, 2], [4, 4], 4, 500),
    ([2, 4], [4, 4], 2, 500),
    ([2, 2], [4, 4], 2, 500),
    ([2, 4], [4, 2], 2, 500),
    ([2, 2], [2, 2], 2, 300),
];

/// Returns the tiles that fit into the adapter's workgroup memory.
pub(super) fn cooperative_matrix_tiles(of: CooperativeMatrix) -> impl Iterator<Item = WorkgroupTile> {
    CHOICES.into_iter().filter_map(move |(groups, each, deep, efficiency)| {
        let sides = [0, 1].map(|side| groups[side] * each[side] * of.side);
        let depth = deep * of.side;
        let staged: usize = sides.iter().map(|&side| staging::half_bytes_max(side, depth)).sum();
        let sums = groups[0] * groups[1] * of.side * of.side * size_of::<f32>();
        (staged + sums <= of.shared_bytes).then_some(WorkgroupTile {
            sides,
            depth,
            method: TileMethod::CooperativeMatrix(SubgroupGrid {
                matrix: of,
                subgroups: groups,
                matrices_per_subgroup: each,
            }),
            efficiency,
        })
    })
}

impl fmt::Display for SubgroupGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = self.matrices_per_subgroup.map(|each| each * self.matrix.side);
        write!(f, "{rows}x{columns}")
    }
}

impl SubgroupGrid {
    /// Returns the lanes of all subgroups.
    pub(super) fn lanes(&self) -> usize {
        self.subgroups[0] * self.subgroups[1] * self.matrix.subgroup
    }

    /// Returns the elements of a small matrix.
    fn elements(&self) -> usize {
        self.matrix.side * self.matrix.side
    }

    /// Returns the type of a small matrix: of `f16` with the role `A` or `B`, or of `f32` with the role `C`.
    fn matrix_type(&self, scalar: &str, role: &str) -> String {
        let side = self.matrix.side;
        format!("coop_mat{side}x{side}<{scalar}, {role}>")
    }

    fn sum_positions(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let [down, across] = self.matrices_per_subgroup;
        (0..down).flat_map(move |row| (0..across).map(move |column| [row, column]))
    }

    /// Declares the workgroup memory through which sums are stored: one small matrix per subgroup.
    pub(super) fn declare_shared_memory(&self, w: &mut ShaderWriter<'_>) {
        w.enable("f16");
        w.enable("wgpu_cooperative_matrix");
        w.enable_subgroups();
        let elements = self.subgroups[0] * self.subgroups[1] * self.elements();
        w.global(format!("var<workgroup> sums: array<f32, {elements}>;"));
    }

    /// Names the origin of a subgroup's part of the tile, and its sums.
    pub(super) fn declare_sums(&self, w: &mut ShaderWriter<'_>) {
        let [rows, columns] = self.matrices_per_subgroup.map(|each| each * self.matrix.side);
        let groups = self.subgroups[1];
        w.line(format!("let down = subgroup / {groups}u * {rows}u;"));
        w.line(format!("let across = subgroup % {groups}u * {columns}u;"));
        let kind = self.matrix_type("f32", "C");
        self.sum_positions().for_each(|[row, column]| w.line(format!("var sum{row}_{column} = {kind}();")));
    }

    /// Adds the products of the staged parts to the sums.
    pub(super) fn multiply_accumulate(
        &self,
        w: &mut ShaderWriter<'_>,
        depth: usize,
        [first, second]: [&StagedOperand<'_>; 2],
    ) {
        let side = self.matrix.side;
        w.open_for(format!("for (var i = 0u; i < {depth}u; i += {side}u)"), depth / side);
        let factors = [("x", "A", "down", first), ("y", "B", "across", second)];
        for ((name, role, place, staged), each) in factors.into_iter().zip(self.matrices_per_subgroup) {
            let (kind, pitch) = (self.matrix_type("f16", role), staged.pitch());
            for at in 0..each {
                let (from, along_depth) = staged.half_element(&format!("{place} + {}u", at * side), "i");
                // `coopLoadT` reads rows, `coopLoad` columns. The depth is a row of the first factor and a column of
                // the second.
                let load = if along_depth == (role == "A") { "coopLoadT" } else { "coopLoad" };
                w.line(format!("let {name}{at} = {load}<{kind}>(&{from}, {pitch}u);"));
            }
        }
        for [row, column] in self.sum_positions() {
            w.line(format!("sum{row}_{column} = coopMultiplyAdd(x{row}, y{column}, sum{row}_{column});"));
        }
        w.close();
    }

    /// Passes each sum to `results`, one small matrix of each subgroup at a time.
    pub(super) fn store_sums(
        &self,
        w: &mut ShaderWriter<'_>,
        tile: &WorkgroupTile,
        sizes: [usize; 2],
        results: &dyn TileOutput,
    ) {
        let (side, elements, lanes) = (self.matrix.side, self.elements(), self.matrix.subgroup);
        for [row, column] in self.sum_positions() {
            w.line(format!("coopStoreT(sum{row}_{column}, &sums[subgroup * {elements}u], {side}u);"));
            w.line("workgroupBarrier();");
            let each = format!("for (var i = lane_of_subgroup; i < {elements}u; i += {lanes}u)");
            w.open_for(each, elements.div_ceil(lanes));
            w.line(format!("let column = left + across + {}u + i % {side}u;", column * side));
            w.open(tile.guard(1, sizes[1], "column"));
            results.column(w, "column");
            w.line(format!("let row = top + down + {}u + i / {side}u;", row * side));
            w.open(tile.guard(0, sizes[0], "row"));
            results.store(w, "row", "column", &format!("sums[subgroup * {elements}u + i]"));
            (0..3).for_each(|_| w.close());
            w.line("workgroupBarrier();");
        }
    }
}
