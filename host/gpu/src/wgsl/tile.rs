//! Tiled matrix products with software pipelining: a workgroup stages tiles in workgroup memory while the next tiles
//! are loaded from storage into registers.
//!
//! [`TileOperand`] defines the factors and [`TileOutput`] the destination of the sums. So matrix products, convolutions
//! and both adjoints of a convolution are one kernel. Each sum is one sequence of multiply-adds along the depth,
//! independent of the tile. Sizes that are not multiples of a tile are padded with zeros, which change no sum.
//!
//! A deep product with few results would keep few lanes busy. Its depth is split (split-K), by the sizes alone: one
//! pass computes the partial sums, and a second pass adds them in order.
//!
//! Factors of 16-bit floats are multiplied by cooperative matrices if the adapter supports them
//! ([`TileMethod::CooperativeMatrix`]).

mod cooperative_matrix;
pub(super) mod lane_tile;
pub(super) mod staging;

use std::fmt;

use super::shader::{CooperativeMatrix, ShaderCandidate, ShaderTuning};
use crate::wgsl::writer::{PassBuffer, ShaderWriter};
use cooperative_matrix::SubgroupGrid;
use saggar_compile::program::ValueId;
use staging::StagedOperand;

/// The tile of a workgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkgroupTile {
    /// Rows and columns.
    sides: [usize; 2],
    /// Depth of the staged parts of the factors.
    depth: usize,
    method: TileMethod,
    /// Throughput in percent of the largest tile by lanes: a lane with fewer sums reads more per sum.
    efficiency: usize,
}

/// How a tile's products are accumulated.
#[derive(Clone, Copy, Debug)]
enum TileMethod {
    /// By lanes, each with this number of rows and columns, in blocks of four.
    Lanes([usize; 2]),
    /// By subgroups, with cooperative matrices.
    CooperativeMatrix(SubgroupGrid),
}

/// Tiles, from the one with most work per element read to the one that small products fill.
const TILES: [WorkgroupTile; 4] = [
    WorkgroupTile { sides: [128, 128], depth: 8, method: TileMethod::Lanes([8, 8]), efficiency: 100 },
    WorkgroupTile { sides: [64, 64], depth: 16, method: TileMethod::Lanes([8, 4]), efficiency: 75 },
    WorkgroupTile { sides: [32, 128], depth: 16, method: TileMethod::Lanes([8, 4]), efficiency: 75 },
    WorkgroupTile { sides: [32, 32], depth: 16, method: TileMethod::Lanes([4, 4]), efficiency: 50 },
];

/// Shortest part of a split depth.
const PART_MIN: usize = 256;

/// Fewest rows, columns and depth of a tiled product; with fewer, most of a tile would be empty.
const SIDE_MIN: usize = 16;

/// The axis along which a factor is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContiguousAxis {
    /// Rows of the first factor, columns of the second.
    Side,
    /// The depth.
    Depth,
}

/// How many neighbouring elements of a factor are read at once, and in which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementGroup {
    /// One `f32`.
    Single,
    /// A `vec4<f32>`.
    Quad,
    /// A `vec4<f16>`, from a value that is stored as halves.
    HalfQuad,
}

impl ElementGroup {
    /// Returns the elements of `value` that begin at `index`.
    pub(super) fn read(self, w: &mut ShaderWriter<'_>, value: ValueId, index: &str) -> String {
        match self {
            ElementGroup::Single => w.element(value, index),
            ElementGroup::Quad => w.vector(value, index),
            ElementGroup::HalfQuad => w.memory_vector(value, index),
        }
    }
}

/// A factor of a tiled product. An element is addressed by its position along the side (the row of the first factor,
/// the column of the second) and along the depth, for the product whose number is `batch` in the shader.
pub(super) trait TileOperand {
    /// Returns the contiguous axis, along which neighbouring lanes read.
    fn contiguous_axis(&self) -> ContiguousAxis;

    /// Returns whether four neighbours that begin at a multiple of four are always one vector in memory.
    fn in_quads(&self) -> bool;

    /// Writes the values that depend only on the position `at` along the side, in names that end in `name`.
    fn side(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str);

    /// Writes the values that depend only on the position `at` along the depth, in names that end in `name`.
    fn depth(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str);

    /// Returns the elements that begin at the named side and depth. Also returns the condition under which they are in
    /// memory (otherwise they are zero), or `None` if they always are. Never called for positions outside the product's
    /// sizes, nor for vectors unless [`Self::in_quads`].
    fn elements(
        &self,
        w: &mut ShaderWriter<'_>,
        side: &str,
        depth: &str,
        group: ElementGroup,
    ) -> (String, Option<String>);
}

/// The destination of a tiled product's sums.
pub(super) trait TileOutput {
    /// Writes what the other methods need at module scope. Called before the kernel's other values are bound.
    fn begin(&self, w: &mut ShaderWriter<'_>);

    /// Writes the values that depend only on `column`.
    fn column(&self, w: &mut ShaderWriter<'_>, column: &str);

    /// Writes the epilogue of the sum at `row` and the column named last.
    fn store(&self, w: &mut ShaderWriter<'_>, row: &str, column: &str, sum: &str);
}

/// The plan of a tiled product: tile and depth split.
#[derive(Clone, Copy, Debug)]
pub(super) struct TilePlan {
    tile: WorkgroupTile,
    /// Number of parts of the depth, and the length of each part except the last.
    parts: usize,
    part: usize,
}

/// Returns the plan for `[batch, m, n, k]` of these two values, or `None` if the product is too small for every tile.
pub(super) fn tile_plan(w: &mut ShaderWriter<'_>, sizes: [usize; 4], factors: [ValueId; 2]) -> Option<TilePlan> {
    let [_, m, n, k] = sizes;
    if !w.tuning.workgroup_memory || m.min(n).min(k) < SIDE_MIN {
        return None;
    }
    let halves = factors.iter().all(|&factor| w.is_half(factor));
    let by_matrices = w
        .tuning
        .cooperative_matrix
        .filter(|_| halves)
        .into_iter()
        .flat_map(cooperative_matrix::cooperative_matrix_tiles);
    let plans = TILES.into_iter().chain(by_matrices).map(|tile| TilePlan::new(tile, sizes, w.tuning));
    let mut plans: Vec<TilePlan> = plans.collect();
    let time = |plan: &TilePlan| plan.estimated_time(sizes, w.tuning.workgroups_at_once);
    // The sort is stable, so the best candidate by estimated time comes first and ties keep their order.
    plans.sort_by_key(time);
    let ways =
        plans.iter().map(|plan| ShaderCandidate { name: plan.tile.to_string(), estimated_time: time(plan) }).collect();
    let chosen = w.select_candidate(ways);
    plans.into_iter().nth(chosen)
}

impl fmt::Display for WorkgroupTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = self.sides;
        match self.method {
            TileMethod::Lanes(_) => write!(f, "lanes {rows}x{columns}"),
            TileMethod::CooperativeMatrix(grid) => write!(f, "matrices {rows}x{columns}x{} in {grid}", self.depth),
        }
    }
}

impl TilePlan {
    fn new(tile: WorkgroupTile, sizes: [usize; 4], tuning: ShaderTuning) -> TilePlan {
        let [batch, m, n, k] = sizes;
        let whole = TilePlan { tile, parts: 1, part: k };
        let parts = (tuning.workgroups_at_once / tile.workgroups(sizes)).min(k / PART_MIN);
        if !tuning.split_k || parts < 2 || batch * m * n * parts * 4 > tuning.window_bytes {
            return whole;
        }
        let part = k.div_ceil(parts).next_multiple_of(tile.depth);
        TilePlan { tile, parts: k.div_ceil(part), part }
    }

    /// Returns the estimated time in an arbitrary unit: multiply-adds of sequential workgroups, plus the addition of
    /// partial sums.
    fn estimated_time(&self, sizes: [usize; 4], workgroups_at_once: usize) -> usize {
        let [batch, m, n, _] = sizes;
        let rounds = (self.tile.workgroups(sizes) * self.parts).div_ceil(workgroups_at_once);
        let [rows, columns] = self.tile.sides;
        let sums = rounds * rows * columns * self.part * 100 / self.tile.efficiency;
        let parts = if self.parts > 1 { batch * m * n * self.parts * 16 / workgroups_at_once } else { 0 };
        sums + parts
    }
}

impl WorkgroupTile {
    fn lanes(&self) -> usize {
        match self.method {
            TileMethod::Lanes(lane) => self.sides[0] / lane[0] * (self.sides[1] / lane[1]),
            TileMethod::CooperativeMatrix(grid) => grid.lanes(),
        }
    }

    /// Returns `if (...)` with the condition that a position along a side is inside the product's `size`, or an empty
    /// string if every position of the tiles is.
    fn guard(&self, side: usize, size: usize, name: &str) -> String {
        let whole = size.is_multiple_of(self.sides[side]);
        if whole { String::new() } else { format!("if ({name} < {size}u)") }
    }

    fn workgroups(&self, [batch, m, n, _]: [usize; 4]) -> usize {
        batch * m.div_ceil(self.sides[0]) * n.div_ceil(self.sides[1])
    }
}

/// Writes `batch` products of `m x k` and `k x n`.
pub(super) fn tiled_product(
    w: &mut ShaderWriter<'_>,
    sizes: [usize; 4],
    plan: &TilePlan,
    factors: [&dyn TileOperand; 2],
    results: &dyn TileOutput,
) {
    if plan.parts == 1 {
        results.begin(w);
        return write_tiles(w, sizes, plan, factors, results);
    }
    let [batch, m, n, _] = sizes;
    let sums = SplitKSums { batch, m, n };
    let parts = w.pass_buffer(batch * m * n * plan.parts, "f32");
    match parts {
        PassBuffer::Written(number) => write_tiles(w, sizes, plan, factors, &SplitKOutput { sums, number }),
        PassBuffer::Read(number) => reduce_split_k(w, &sums, plan.parts, number, results),
    }
}

/// Partial sums in the memory between the two passes: `[parts, batch, m, n]`.
struct SplitKSums {
    batch: usize,
    m: usize,
    n: usize,
}

/// The destination of the first pass's partial sums.
struct SplitKOutput {
    sums: SplitKSums,
    number: usize,
}

impl TileOutput for SplitKOutput {
    fn begin(&self, _: &mut ShaderWriter<'_>) {}

    fn column(&self, _: &mut ShaderWriter<'_>, _: &str) {}

    fn store(&self, w: &mut ShaderWriter<'_>, row: &str, column: &str, sum: &str) {
        let (SplitKSums { batch, m, n }, number) = (&self.sums, self.number);
        w.line(format!("b{number}[((part * {batch}u + batch) * {m}u + {row}) * {n}u + {column}] = {sum};"));
    }
}

/// Writes the second pass: adds the partial sums in order, and passes each sum to `results`.
fn reduce_split_k(w: &mut ShaderWriter<'_>, sums: &SplitKSums, parts: usize, number: usize, results: &dyn TileOutput) {
    results.begin(w);
    let &SplitKSums { batch, m, n } = sums;
    w.invocation_per_element(batch * m * n);
    w.line(format!("let batch = id / {}u;\nlet row = id / {n}u % {m}u;\nlet column = id % {n}u;", m * n));
    w.line("var total = 0.0;");
    w.open_loop("part", parts);
    w.line(format!("total += b{number}[part * {}u + id];", batch * m * n));
    w.close();
    results.column(w, "column");
    results.store(w, "row", "column", "total")
}

/// Writes the pass over the tiles of the results, or of their partial sums.
fn write_tiles(
    w: &mut ShaderWriter<'_>,
    sizes: [usize; 4],
    plan: &TilePlan,
    [a, b]: [&dyn TileOperand; 2],
    results: &dyn TileOutput,
) {
    let ([batch, m, n, k], tile) = (sizes, &plan.tile);
    let [rows, columns] = [m.div_ceil(tile.sides[0]), n.div_ceil(tile.sides[1])];
    let (count, depth) = (tile.lanes(), tile.depth);
    let vectors = w.can_bind_vectors(2);
    let halves = match tile.method {
        TileMethod::Lanes(_) => false,
        TileMethod::CooperativeMatrix(_) => true,
    };
    let staged = |factor, name, origin, side, size, in_quads| StagedOperand {
        factor,
        name,
        origin,
        side,
        size,
        depth,
        lanes: count,
        in_quads,
        halves,
    };
    let first = staged(a, "a", "top", tile.sides[0], m, vectors && a.in_quads());
    let second = staged(b, "b", "left", tile.sides[1], n, vectors && b.in_quads());
    first.declare_shared_memory(w);
    second.declare_shared_memory(w);
    if let TileMethod::CooperativeMatrix(grid) = tile.method {
        grid.declare_shared_memory(w);
    }
    let workgroups = tile.workgroups(sizes);
    w.dispatch(workgroups * plan.parts, count as u32);
    // Workgroups beyond the grid can return early: no lane of another workgroup waits for them at a barrier.
    w.line(format!("if (tile >= {}u) {{ return; }}", workgroups * plan.parts));
    if plan.parts > 1 {
        w.line(format!("let part = tile / {workgroups}u;\nlet batch = tile / {}u % {batch}u;", rows * columns));
        w.line(format!("let begin = part * {0}u;\nlet end = min(begin + {0}u, {k}u);", plan.part));
    } else {
        w.line(format!("let batch = tile / {}u;\nlet begin = 0u;\nlet end = {k}u;", rows * columns));
    }
    w.line(format!("let top = ((tile / {columns}u) % {rows}u) * {}u;", tile.sides[0]));
    w.line(format!("let left = (tile % {columns}u) * {}u;", tile.sides[1]));
    match tile.method {
        TileMethod::Lanes(lane) => lane_tile::declare_sums(w, tile, lane),
        TileMethod::CooperativeMatrix(grid) => grid.declare_sums(w),
    }
    first.name_lane_places(w);
    second.name_lane_places(w);
    depth_loop(w, [plan.part, k], &[&first, &second], |w| match tile.method {
        TileMethod::Lanes([down, across]) => {
            let sides =
                [first.shared_tile("tile_a", down / 4, "down"), second.shared_tile("tile_b", across / 4, "across")];
            lane_tile::multiply_accumulate(w, "sum", depth, [&sides[0], &sides[1]]);
        }
        TileMethod::CooperativeMatrix(grid) => grid.multiply_accumulate(w, depth, [&first, &second]),
    });
    match tile.method {
        TileMethod::Lanes(lane) => lane_tile::store_sums(w, tile, lane, [m, n], results),
        TileMethod::CooperativeMatrix(grid) => grid.store_sums(w, tile, [m, n], results),
    }
}

/// Writes the loop along the depth `k` from `begin` to `end`, which are shader variables at most `length` apart. It
/// stages parts of the factors and calls `multiply` to use them, while the next parts are loaded.
pub(super) fn depth_loop(
    w: &mut ShaderWriter<'_>,
    [length, k]: [usize; 2],
    factors: &[&StagedOperand<'_>],
    multiply: impl FnOnce(&mut ShaderWriter<'_>),
) {
    let depth = factors[0].depth;
    factors.iter().for_each(|factor| factor.load_to_registers(w, "begin", k));
    w.open_for(format!("for (var start = begin; start < end; start += {depth}u)"), length.div_ceil(depth));
    factors.iter().for_each(|factor| factor.store_to_shared(w));
    w.line("workgroupBarrier();");
    w.open(format!("if (start + {depth}u < end)"));
    w.line(format!("let next = start + {depth}u;"));
    factors.iter().for_each(|factor| factor.load_to_registers(w, "next", k));
    w.close();
    multiply(w);
    w.line("workgroupBarrier();");
    w.close();
}
