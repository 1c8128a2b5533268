//! Products of a tile by lanes: each has a block of sums in registers.

use super::staged::Staged;
use super::{Results, Tile};
use crate::wgsl::ShaderError;
use crate::wgsl::writer::Writer;

/// Names a lane's place in the tile and its sums, each of `lane` rows and columns.
pub(super) fn begin(w: &mut Writer<'_>, tile: &Tile, lane: [usize; 2]) {
    let across = tile.sides[1] / lane[1];
    w.line(format!("let down = lane / {across}u;\nlet across = lane % {across}u;"));
    for row in 0..lane[0] {
        (0..lane[1] / 4).for_each(|quad| w.line(format!("var sum{row}_{quad} = vec4<f32>();")));
    }
}

/// Adds the products of the staged parts to the sums.
pub(super) fn multiply(w: &mut Writer<'_>, tile: &Tile, lane: [usize; 2], [first, second]: [&Staged<'_>; 2]) {
    let quads = lane.map(|side| side / 4);
    w.open_loop("i", tile.depth);
    // A lane's quads are as far from each other as its neighbours' take, so that lanes read neighbouring vectors.
    for (name, staged, quads, place) in [("x", first, quads[0], "down"), ("y", second, quads[1], "across")] {
        let apart = staged.side / 4 / quads;
        for quad in 0..quads {
            w.line(format!(
                "let {name}{quad} = tile_{}[i * {}u + {}u + {place}];",
                staged.name,
                staged.pitch(),
                quad * apart
            ));
        }
    }
    for row in 0..lane[0] {
        for quad in 0..quads[1] {
            w.line(format!("sum{row}_{quad} += x{}[{}] * y{quad};", row / 4, row % 4));
        }
    }
    w.close();
}

/// Hands each sum of a lane to `results`.
pub(super) fn store(
    w: &mut Writer<'_>,
    tile: &Tile,
    lane: [usize; 2],
    sizes: [usize; 2],
    results: &dyn Results,
) -> Result<(), ShaderError> {
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
            results.store(w, "row", "column", &format!("sum{row}_{}[{}]", column / 4, column % 4))?;
            w.close();
            w.close();
        }
        w.close();
        w.close();
    }
    Ok(())
}
