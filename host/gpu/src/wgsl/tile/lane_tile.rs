//! Tile products by lanes: each lane has a block of sums in registers.

use super::{TileOutput, WorkgroupTile};
use crate::wgsl::writer::ShaderWriter;

/// Names a lane's position in the tile and its sums, of `lane` rows and columns.
pub(super) fn declare_sums(w: &mut ShaderWriter<'_>, tile: &WorkgroupTile, lane: [usize; 2]) {
    let across = tile.sides[1] / lane[1];
    w.line(format!("let down = lane / {across}u;\nlet across = lane % {across}u;"));
    for row in 0..lane[0] {
        (0..lane[1] / 4).for_each(|quad| w.line(format!("var sum{row}_{quad} = vec4<f32>();")));
    }
}

/// A factor's part in workgroup memory: vectors along its side, ordered by depth.
pub(in crate::wgsl) struct SharedTile<'a> {
    /// The array's name.
    pub(in crate::wgsl) array: &'a str,
    /// Expression of the depth in this array for depth `i` of the products.
    pub(in crate::wgsl) depth: &'a str,
    /// Vectors from one depth to the next.
    pub(in crate::wgsl) pitch: usize,
    /// Number of vectors of a lane. They are interleaved with those of its neighbours, so that neighbouring lanes read
    /// neighbouring vectors.
    pub(in crate::wgsl) quads: usize,
    pub(in crate::wgsl) apart: usize,
    /// Name of the lane's number among its neighbours.
    pub(in crate::wgsl) place: &'a str,
}

/// Adds the products of `depth` rows and columns to a lane's sums, which are named `{sum}{row}_{quad}`.
pub(in crate::wgsl) fn multiply_accumulate(
    w: &mut ShaderWriter<'_>,
    sum: &str,
    depth: usize,
    [x, y]: [&SharedTile<'_>; 2],
) {
    w.open_loop("i", depth);
    for (name, side) in [("x", x), ("y", y)] {
        for quad in 0..side.quads {
            let (array, at, pitch, place) = (side.array, side.depth, side.pitch, side.place);
            w.line(format!("let {name}{quad} = {array}[{at} * {pitch}u + {}u + {place}];", quad * side.apart));
        }
    }
    for row in 0..4 * x.quads {
        for quad in 0..y.quads {
            w.line(format!("{sum}{row}_{quad} += x{}[{}] * y{quad};", row / 4, row % 4));
        }
    }
    w.close();
}

/// Passes each sum of a lane to `results`.
pub(super) fn store_sums(
    w: &mut ShaderWriter<'_>,
    tile: &WorkgroupTile,
    lane: [usize; 2],
    sizes: [usize; 2],
    results: &dyn TileOutput,
) {
    let place = |side: usize, at: usize, origin: &str, name: &str| {
        let apart = tile.sides[side] / (lane[side] / 4);
        format!("{origin} + {}u + {name} * 4u", at / 4 * apart + at % 4)
    };
    let guard = |side: usize, name: &str| tile.guard(side, sizes[side], name);
    for column in 0..lane[1] {
        w.open("");
        w.line(format!("let column = {};", place(1, column, "left", "across")));
        w.open(guard(1, "column"));
        results.column(w, "column");
        for row in 0..lane[0] {
            w.open("");
            w.line(format!("let row = {};", place(0, row, "top", "down")));
            w.open(guard(0, "row"));
            results.store(w, "row", "column", &format!("sum{row}_{}[{}]", column / 4, column % 4));
            w.close();
            w.close();
        }
        w.close();
        w.close();
    }
}
