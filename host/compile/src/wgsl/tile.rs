//! Products by tiles that a workgroup stages in the memory its lanes share, while what the next tiles need is already on its
//! way from storage into registers.
//!
//! What is multiplied is for the factors to say ([`Factor`]), and where sums go for the results ([`Results`]): so products of
//! matrices, convolutions and both adjoints of a convolution are one kernel. Each sum is one chain of multiply-adds along the
//! depth, whichever tile is chosen. Sizes that no tile divides are filled up with zeros, which change no sum.
//!
//! A deep product of few results would keep few lanes busy. Its depth is cut in parts, by the sizes alone: one pass computes
//! the parts' sums, a second one adds them up in their order.

use super::{ShaderError, Tuning};
use crate::wgsl::writer::{Parts, Writer};

/// What a workgroup computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Rows and columns.
    sides: [usize; 2],
    /// How far along the depth the staged parts of the factors reach.
    depth: usize,
    /// Rows and columns of one lane, in blocks of four.
    lane: [usize; 2],
    /// Multiply-adds in the time of one of the largest tile, in percent: a lane with fewer sums reads more for each.
    efficiency: usize,
}

/// From the one with most work for each element read to the one that small products fill.
const TILES: [Tile; 4] = [
    Tile { sides: [128, 128], depth: 8, lane: [8, 8], efficiency: 100 },
    Tile { sides: [64, 64], depth: 16, lane: [8, 4], efficiency: 75 },
    Tile { sides: [32, 128], depth: 16, lane: [8, 4], efficiency: 75 },
    Tile { sides: [32, 32], depth: 16, lane: [4, 4], efficiency: 50 },
];

/// A part of a depth is at least so long.
const PART_MIN: usize = 256;

/// Products with fewer rows, columns or depth would leave most of a tile empty.
const SIDE_MIN: usize = 16;

/// The way of a factor's neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Rows of the first factor, columns of the second.
    Side,
    /// The depth.
    Depth,
}

/// What is multiplied: elements at a place along the product's side (a row for the first factor, a column for the second)
/// and a place along its depth, of the product whose number is `batch` in the shader.
pub(super) trait Factor {
    /// Which places' elements are neighbours, so that neighbouring lanes read those.
    fn along(&self) -> Along;

    /// Whether four neighbours that begin at a multiple of four are always one vector in memory.
    fn in_quads(&self) -> bool;

    /// Writes what the place `at` along the side gives for all depths, in names that end in `name`.
    fn side(&self, w: &mut Writer<'_>, at: &str, name: &str);

    /// Writes what the place `at` along the depth gives for all sides, in names that end in `name`.
    fn depth(&self, w: &mut Writer<'_>, at: &str, name: &str);

    /// The element where both names were given, or, in quads, the vector that begins there; and the condition under which it
    /// is not zero but in memory, where there is one. Places past the product's sizes are not asked for.
    fn element(
        &self,
        w: &mut Writer<'_>,
        side: &str,
        depth: &str,
        in_quads: bool,
    ) -> Result<(String, Option<String>), ShaderError>;
}

/// Where sums go.
pub(super) trait Results {
    /// Writes what the others need at module scope. Called before the kernel's other values are bound.
    fn begin(&self, w: &mut Writer<'_>) -> Result<(), ShaderError>;

    /// Writes what `column` gives for all rows.
    fn column(&self, w: &mut Writer<'_>, column: &str);

    /// Writes the end of the sum at a row and the column named last.
    fn store(&self, w: &mut Writer<'_>, row: &str, column: &str, sum: &str) -> Result<(), ShaderError>;
}

/// How a product is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    tile: Tile,
    /// Parts of the depth, and how long each but the last is.
    parts: usize,
    part: usize,
}

/// The plan for `[batch, m, n, k]`; none where a product is too small for any.
pub(super) fn plan(w: &Writer<'_>, sizes: [usize; 4]) -> Option<Plan> {
    let [_, m, n, k] = sizes;
    if !w.tuning.workgroup_memory || m.min(n).min(k) < SIDE_MIN {
        return None;
    }
    let plans = TILES.iter().map(|tile| Plan::new(*tile, sizes, w.tuning));
    plans.min_by_key(|plan| plan.time(sizes, w.tuning.workgroups_at_once))
}

impl Plan {
    fn new(tile: Tile, sizes: [usize; 4], tuning: Tuning) -> Plan {
        let [batch, m, n, k] = sizes;
        let whole = Plan { tile, parts: 1, part: k };
        let parts = (tuning.workgroups_at_once / tile.workgroups(sizes)).min(k / PART_MIN);
        if parts < 2 || batch * m * n * parts * 4 > tuning.window_bytes {
            return whole;
        }
        let part = k.div_ceil(parts).next_multiple_of(tile.depth);
        Plan { tile, parts: k.div_ceil(part), part }
    }

    /// What it takes, in no unit: of multiply-adds in the workgroups that come one after the other, and of adding up parts.
    fn time(&self, sizes: [usize; 4], workgroups_at_once: usize) -> usize {
        let [batch, m, n, _] = sizes;
        let rounds = (self.tile.workgroups(sizes) * self.parts).div_ceil(workgroups_at_once);
        let [rows, columns] = self.tile.sides;
        let sums = rounds * rows * columns * self.part * 100 / self.tile.efficiency;
        let parts = if self.parts > 1 { batch * m * n * self.parts * 16 / workgroups_at_once } else { 0 };
        sums + parts
    }
}

impl Tile {
    fn lanes(&self) -> usize {
        self.sides[0] / self.lane[0] * (self.sides[1] / self.lane[1])
    }

    fn workgroups(&self, [batch, m, n, _]: [usize; 4]) -> usize {
        batch * m.div_ceil(self.sides[0]) * n.div_ceil(self.sides[1])
    }
}

/// One factor's part of a tile on its way through the registers of a workgroup's lanes.
struct Staged<'a> {
    factor: &'a dyn Factor,
    /// `a` or `b`, with which its names begin.
    name: &'static str,
    /// Where the tile begins along the side.
    origin: &'static str,
    /// Length of the tile's side, and of the whole product's.
    side: usize,
    size: usize,
    depth: usize,
    lanes: usize,
    in_quads: bool,
}

/// `batch` products of `m x k` and `k x n`.
pub(super) fn product(
    w: &mut Writer<'_>,
    sizes: [usize; 4],
    plan: &Plan,
    factors: [&dyn Factor; 2],
    results: &dyn Results,
) -> Result<(), ShaderError> {
    if plan.parts == 1 {
        results.begin(w)?;
        return tiles(w, sizes, plan, factors, results);
    }
    let [batch, m, n, _] = sizes;
    let sums = Sums { batch, m, n };
    let parts = w.parts(batch * m * n * plan.parts, "f32");
    match parts {
        Parts::Written(number) => tiles(w, sizes, plan, factors, &Partial { sums, number }),
        Parts::Read(number) => add_up(w, &sums, plan.parts, number, results),
    }
}

/// Sums of parts in the memory between the two passes: `[parts, batch, m, n]`.
struct Sums {
    batch: usize,
    m: usize,
    n: usize,
}

/// Where the first of two passes puts its sums.
struct Partial {
    sums: Sums,
    number: usize,
}

impl Results for Partial {
    fn begin(&self, _: &mut Writer<'_>) -> Result<(), ShaderError> {
        Ok(())
    }

    fn column(&self, _: &mut Writer<'_>, _: &str) {}

    fn store(&self, w: &mut Writer<'_>, row: &str, column: &str, sum: &str) -> Result<(), ShaderError> {
        let (Sums { batch, m, n }, number) = (&self.sums, self.number);
        w.line(format!("b{number}[((part * {batch}u + batch) * {m}u + {row}) * {n}u + {column}] = {sum};"));
        Ok(())
    }
}

/// Adds the parts of each sum up, and hands it to `results`.
fn add_up(
    w: &mut Writer<'_>,
    sums: &Sums,
    parts: usize,
    number: usize,
    results: &dyn Results,
) -> Result<(), ShaderError> {
    results.begin(w)?;
    let &Sums { batch, m, n } = sums;
    w.each(batch * m * n);
    w.line(format!("let batch = id / {}u;\nlet row = id / {n}u % {m}u;\nlet column = id % {n}u;", m * n));
    w.line("var total = 0.0;");
    w.open_loop("part", parts);
    w.line(format!("total += b{number}[part * {}u + id];", batch * m * n));
    w.close();
    results.column(w, "column");
    results.store(w, "row", "column", "total")
}

/// The pass over the tiles of the results, or of the parts of their sums.
fn tiles(
    w: &mut Writer<'_>,
    sizes: [usize; 4],
    plan: &Plan,
    [a, b]: [&dyn Factor; 2],
    results: &dyn Results,
) -> Result<(), ShaderError> {
    let ([batch, m, n, k], tile) = (sizes, &plan.tile);
    let [rows, columns] = [m.div_ceil(tile.sides[0]), n.div_ceil(tile.sides[1])];
    let (lanes, depth) = (tile.lanes(), tile.depth);
    let vectors = w.vectors_fit(2);
    let staged = |factor, name, origin, side, size, in_quads| Staged {
        factor,
        name,
        origin,
        side,
        size,
        depth,
        lanes,
        in_quads,
    };
    let first = staged(a, "a", "top", tile.sides[0], m, vectors && a.in_quads());
    let second = staged(b, "b", "left", tile.sides[1], n, vectors && b.in_quads());
    for factor in [&first, &second] {
        w.global(format!("var<workgroup> tile_{}: array<vec4<f32>, {}>;", factor.name, depth * factor.pitch()));
    }
    let workgroups = tile.workgroups(sizes);
    w.dispatch(workgroups * plan.parts, lanes as u32);
    // Nobody waits at a barrier for a workgroup that the grid has too many.
    w.line(format!("if (tile >= {}u) {{ return; }}", workgroups * plan.parts));
    if plan.parts > 1 {
        w.line(format!("let part = tile / {workgroups}u;\nlet batch = tile / {}u % {batch}u;", rows * columns));
        w.line(format!("let begin = part * {0}u;\nlet end = min(begin + {0}u, {k}u);", plan.part));
    } else {
        w.line(format!("let batch = tile / {}u;\nlet begin = 0u;\nlet end = {k}u;", rows * columns));
    }
    w.line(format!("let top = ((tile / {columns}u) % {rows}u) * {}u;", tile.sides[0]));
    w.line(format!("let left = (tile % {columns}u) * {}u;", tile.sides[1]));
    let across = tile.sides[1] / tile.lane[1];
    w.line(format!("let down = lane / {across}u;\nlet across = lane % {across}u;"));
    first.places(w);
    second.places(w);
    for row in 0..tile.lane[0] {
        (0..tile.lane[1] / 4).for_each(|quad| w.line(format!("var sum{row}_{quad} = vec4<f32>();")));
    }
    first.fetch(w, "begin", k)?;
    second.fetch(w, "begin", k)?;
    let steps = plan.part.div_ceil(depth);
    w.open_for(format!("for (var start = begin; start < end; start += {depth}u)"), steps);
    first.put(w);
    second.put(w);
    w.line("workgroupBarrier();");
    w.open(format!("if (start + {depth}u < end)"));
    w.line(format!("let next = start + {depth}u;"));
    first.fetch(w, "next", k)?;
    second.fetch(w, "next", k)?;
    w.close();
    multiply(w, tile, &first, &second);
    w.line("workgroupBarrier();");
    w.close();
    store(w, tile, [m, n], results)
}

/// Adds the products of the staged parts to the sums.
fn multiply(w: &mut Writer<'_>, tile: &Tile, first: &Staged<'_>, second: &Staged<'_>) {
    let quads = tile.lane.map(|side| side / 4);
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
    for row in 0..tile.lane[0] {
        for quad in 0..quads[1] {
            w.line(format!("sum{row}_{quad} += x{}[{}] * y{quad};", row / 4, row % 4));
        }
    }
    w.close();
}

/// Hands each sum of a lane to `results`.
fn store(w: &mut Writer<'_>, tile: &Tile, sizes: [usize; 2], results: &dyn Results) -> Result<(), ShaderError> {
    let place = |side: usize, at: usize, origin: &str, name: &str| {
        let apart = tile.sides[side] / (tile.lane[side] / 4);
        format!("{origin} + {}u + {name} * 4u", at / 4 * apart + at % 4)
    };
    let guard = |side: usize, name: &str| {
        let whole = sizes[side].is_multiple_of(tile.sides[side]);
        if whole { String::new() } else { format!("if ({name} < {}u)", sizes[side]) }
    };
    for column in 0..tile.lane[1] {
        w.open("");
        w.line(format!("let column = {};", place(1, column, "left", "across")));
        w.open(guard(1, "column"));
        results.column(w, "column");
        for row in 0..tile.lane[0] {
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

impl Staged<'_> {
    /// Elements that a lane reads at once.
    fn width(&self) -> usize {
        if self.in_quads { 4 } else { 1 }
    }

    /// How often a lane reads for one tile.
    fn parts(&self) -> usize {
        self.side * self.depth / (self.lanes * self.width())
    }

    /// Vectors from one depth of the tile to the next: one more than there are where lanes that write together would
    /// otherwise meet in one bank.
    fn pitch(&self) -> usize {
        match self.factor.along() {
            Along::Side => self.side / 4,
            Along::Depth => self.side / 4 + 1,
        }
    }

    /// The part whose place along the side is that of `part`, and the one whose place along the depth is.
    fn named(&self, part: usize) -> [usize; 2] {
        match self.factor.along() {
            Along::Side => [0, part],
            Along::Depth => [part, 0],
        }
    }

    /// Names the lane's places in the tile, `{name}_wide{part}` and `{name}_deep{part}`, and what the former give.
    fn places(&self, w: &mut Writer<'_>) {
        let (name, width) = (self.name, self.width());
        let length = match self.factor.along() {
            Along::Side => self.side / width,
            Along::Depth => self.depth / width,
        };
        let along = format!("(lane % {length}u) * {width}u");
        let across = |part: usize| format!("{}u + lane / {length}u", part * (self.lanes / length));
        let (wide, deep) = match self.factor.along() {
            Along::Side => (vec![along], (0..self.parts()).map(across).collect()),
            Along::Depth => ((0..self.parts()).map(across).collect(), vec![along]),
        };
        for (part, place) in deep.iter().enumerate() {
            w.line(format!("let {name}_deep{part} = {place};"));
        }
        for (part, place) in wide.iter().enumerate() {
            w.line(format!("let {name}_wide{part} = {place};"));
            w.line(format!("let {name}_side{part} = {} + {name}_wide{part};", self.origin));
            self.factor.side(w, &format!("{name}_side{part}"), &format!("{name}_s{part}"));
        }
        let kind = if self.in_quads { "vec4<f32>" } else { "f32" };
        for part in 0..self.parts() {
            w.line(format!("var {name}_part{part} = {kind}();"));
        }
    }

    /// Reads what the lane stages of the tile that begins at depth `start`.
    fn fetch(&self, w: &mut Writer<'_>, start: &str, k: usize) -> Result<(), ShaderError> {
        let name = self.name;
        w.open("");
        let depths = match self.factor.along() {
            Along::Side => self.parts(),
            Along::Depth => 1,
        };
        for part in 0..depths {
            w.line(format!("let {name}_at{part} = {start} + {name}_deep{part};"));
            self.factor.depth(w, &format!("{name}_at{part}"), &format!("{name}_d{part}"));
        }
        for part in 0..self.parts() {
            let [side, depth] = self.named(part);
            let (element, inside) =
                self.factor.element(w, &format!("{name}_s{side}"), &format!("{name}_d{depth}"), self.in_quads)?;
            let mut conditions = Vec::new();
            if !self.size.is_multiple_of(self.side) {
                conditions.push(format!("{name}_side{side} < {}u", self.size));
            }
            if !k.is_multiple_of(self.depth) {
                conditions.push(format!("{name}_at{depth} < {k}u"));
            }
            conditions.extend(inside);
            if conditions.is_empty() {
                w.line(format!("{name}_part{part} = {element};"));
            } else {
                let zero = if self.in_quads { "vec4<f32>()" } else { "0.0" };
                let conditions = conditions.join(" && ");
                w.line(format!("{name}_part{part} = {zero};"));
                w.line(format!("if ({conditions}) {{ {name}_part{part} = {element}; }}"));
            }
        }
        w.close();
        Ok(())
    }

    /// Puts what was fetched into the tile.
    fn put(&self, w: &mut Writer<'_>) {
        let (name, pitch) = (self.name, self.pitch());
        for part in 0..self.parts() {
            let [side, depth] = self.named(part);
            let (wide, deep) = (format!("{name}_wide{side}"), format!("{name}_deep{depth}"));
            match (self.factor.along(), self.in_quads) {
                (Along::Side, true) => {
                    w.line(format!("tile_{name}[{deep} * {pitch}u + {wide} / 4u] = {name}_part{part};"))
                }
                (Along::Depth, true) => (0..4).for_each(|i| {
                    let place = format!("({deep} + {i}u) * {pitch}u + {wide} / 4u");
                    w.line(format!("tile_{name}[{place}][{wide} % 4u] = {name}_part{part}[{i}];"));
                }),
                (Along::Side | Along::Depth, false) => {
                    w.line(format!("tile_{name}[{deep} * {pitch}u + {wide} / 4u][{wide} % 4u] = {name}_part{part};"));
                }
            }
        }
    }
}
