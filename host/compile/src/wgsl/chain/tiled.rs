//! Chains by workgroups: each has some rows of the matrix and goes through its columns, whose factors it stages in the memory
//! that its lanes share. Every lane has a block of the piece at hand, and of the sums.

use saggar_tensor::DType;
use saggar_tensor::op::ReduceKind;

use super::{Chain, LOWEST, exp, hidden};
use crate::limits::CHAIN_ROWS;
use crate::program::{End, Factor};
use crate::wgsl::contract::{Matrix, Operand};
use crate::wgsl::reduce::{combine, identity};
use crate::wgsl::tile::lanes::{Shared, multiply};
use crate::wgsl::tile::staged::Staged;
use crate::wgsl::tile::{Factor as _, along_depth};
use crate::wgsl::writer::Writer;

/// Rows of a workgroup, and columns of a piece.
const SIDE: usize = CHAIN_ROWS;
/// How far along the depth the staged parts of the factors reach.
const DEPTH: usize = 16;
/// Lanes down and across a piece, each with four rows and four columns of it.
const ACROSS: usize = SIDE / 4;
const LANES: usize = ACROSS * ACROSS;
/// Vectors from one column of a piece to the next, in the memory that lanes share: neighbours' do not meet in one bank.
const PITCH: usize = ACROSS + 1;

pub(super) fn chain(w: &mut Writer<'_>, chain: &Chain<'_>) {
    let (rows, columns) = (chain.rows(), chain.columns());
    let quads = match chain.end {
        End::Fold(_) => 0,
        End::Product { columns, .. } => columns.div_ceil(SIDE).next_power_of_two(),
    };
    declare(w, quads);
    let tiles = rows.div_ceil(SIDE);
    w.dispatch(chain.batch() * tiles, LANES as u32);
    w.line(format!("if (tile >= {}u) {{ return; }}", chain.batch() * tiles));
    w.line(format!("let batch = tile / {tiles}u;\nlet top = (tile % {tiles}u) * {SIDE}u;"));
    let place = match subgroup(w) {
        Some(size) => {
            w.name_subgroups();
            w.line(format!("let place = subgroup * {size}u + lane_of_subgroup;"));
            "place"
        }
        None => "lane",
    };
    w.line(format!("let down = {place} / {ACROSS}u;\nlet across = {place} % {ACROSS}u;"));
    let [links, results] = chain.coordinates(w);
    begin(w, chain, quads);
    w.open_for(format!("for (var left = 0u; left < {columns}u; left += {SIDE}u)"), columns.div_ceil(SIDE));
    pieces(w, chain);
    elements(w, chain, &links);
    match chain.end {
        End::Fold(kind) => {
            for row in 0..4 {
                for column in 0..4 {
                    let next = combine(
                        w.wide_integers(),
                        kind,
                        DType::F32,
                        &format!("folded[{row}]"),
                        &format!("at{row}_{column}"),
                    );
                    w.line(format!("folded[{row}] = {next};"));
                }
            }
        }
        End::Product { factor, columns: n, .. } => {
            if chain.softmax.is_some() {
                weigh(w, quads);
            }
            add(w, &factor, [columns, n], quads);
        }
    }
    w.close();
    match chain.end {
        End::Fold(kind) => finish_rows(w, chain, kind, &results),
        End::Product { columns: n, .. } => finish_sums(w, chain, n, quads, &results),
    }
}

/// Declares the memory that lanes share: parts of two factors, the piece, and a vector for each lane.
fn declare(w: &mut Writer<'_>, quads: usize) {
    let wide = ACROSS * quads.max(1) + 1;
    w.global(format!("var<workgroup> tile_a: array<vec4<f32>, {}>;", DEPTH * PITCH));
    w.global(format!("var<workgroup> tile_b: array<vec4<f32>, {}>;", DEPTH * wide));
    if quads > 0 {
        w.global(format!("var<workgroup> piece: array<vec4<f32>, {}>;", SIDE * PITCH));
    }
    if subgroup(w).is_none() {
        w.global(format!("var<workgroup> of_lanes: array<vec4<f32>, {LANES}>;"));
    }
}

/// Names what a lane keeps from piece to piece.
fn begin(w: &mut Writer<'_>, chain: &Chain<'_>, quads: usize) {
    if let End::Fold(kind) = chain.end {
        w.line(format!("var folded = vec4<f32>({});", identity(w.wide_integers(), kind, DType::F32)));
    }
    for row in 0..4 {
        (0..quads).for_each(|quad| w.line(format!("var sum{row}_{quad} = vec4<f32>();")));
    }
    if chain.softmax.is_some() {
        w.line(format!("var largest = vec4<f32>({LOWEST});\nvar total = vec4<f32>();"));
    }
}

/// The products' elements of a lane's block, in `product{number}_{row}_0`.
fn pieces(w: &mut Writer<'_>, chain: &Chain<'_>) {
    let (rows, columns) = (chain.rows(), chain.columns());
    for (number, product) in chain.products.iter().enumerate() {
        let depth = product.depth;
        (0..4).for_each(|row| w.line(format!("var product{number}_{row}_0 = vec4<f32>();")));
        let [a, b] = [operand(&product.a), operand(&product.b)];
        let a = Matrix::new(w, &a, if a.transposed { [1, rows] } else { [depth, 1] }, rows, depth);
        let b = Matrix::new(w, &b, if b.transposed { [depth, 1] } else { [1, columns] }, columns, depth);
        let first = staged(&a, "a", "top", [SIDE, rows]);
        let second = staged(&b, "b", "left", [SIDE, columns]);
        w.open("");
        first.places(w);
        second.places(w);
        w.line(format!("let begin = 0u;\nlet end = {depth}u;"));
        along_depth(w, [depth, depth], &[&first, &second], |w| {
            let sides = [first.shared("tile_a", 1, "down"), second.shared("tile_b", 1, "across")];
            multiply(w, &format!("product{number}_"), DEPTH, [&sides[0], &sides[1]]);
        });
        w.close();
    }
}

/// The matrix's elements of a lane's block, in `at{row}_{column}`; what changes nothing past its sides.
fn elements(w: &mut Writer<'_>, chain: &Chain<'_>, batch: &[String]) {
    let (rows, columns) = (chain.rows(), chain.columns());
    let nothing = match chain.end {
        End::Fold(kind) => identity(w.wide_integers(), kind, DType::F32),
        End::Product { .. } if chain.softmax.is_some() => hidden(),
        End::Product { .. } => "0.0".to_owned(),
    };
    for row in 0..4 {
        for column in 0..4 {
            let (y, x) = (format!("top + down * 4u + {row}u"), format!("left + across * 4u + {column}u"));
            let products: Vec<String> =
                (0..chain.products.len()).map(|number| format!("product{number}_{row}_0[{column}]")).collect();
            let element = chain.element(batch, &y, &x, &products);
            let mut inside = Vec::new();
            if !rows.is_multiple_of(SIDE) {
                inside.push(format!("{y} < {rows}u"));
            }
            if !columns.is_multiple_of(SIDE) {
                inside.push(format!("{x} < {columns}u"));
            }
            if inside.is_empty() {
                w.line(format!("var at{row}_{column} = {element};"));
            } else {
                w.line(format!("var at{row}_{column} = {nothing};"));
                w.line(format!("if ({}) {{ at{row}_{column} = {element}; }}", inside.join(" && ")));
            }
        }
    }
}

/// Lanes of the subgroups by which lanes across a piece read each other's registers; none where they share memory for that.
fn subgroup(w: &Writer<'_>) -> Option<usize> {
    w.tuning.subgroup.filter(|&size| size >= ACROSS && LANES.is_multiple_of(size))
}

/// Makes weights of scores: exponentials less the largest so far, to which the sums are scaled.
fn weigh(w: &mut Writer<'_>, quads: usize) {
    let largest = |row: usize| format!("max(max(at{row}_0, at{row}_1), max(at{row}_2, at{row}_3))");
    exchange(w, "wide", &vector(largest), &|a, b| format!("max({a}, {b})"));
    w.line("let larger = max(largest, wide);");
    let scale = vector(|row| exp(&format!("largest[{row}] - larger[{row}]")));
    w.line(format!("let scale = {scale};\nlargest = larger;"));
    for row in 0..4 {
        for column in 0..4 {
            w.line(format!("at{row}_{column} = {};", exp(&format!("at{row}_{column} - largest[{row}]"))));
        }
        (0..quads).for_each(|quad| w.line(format!("sum{row}_{quad} *= scale[{row}];")));
    }
    let sum = |row: usize| format!("at{row}_0 + at{row}_1 + at{row}_2 + at{row}_3");
    exchange(w, "weight", &vector(sum), &|a, b| format!("{a} + {b}"));
    w.line("total = total * scale + weight;");
}

fn vector(of_row: impl Fn(usize) -> String) -> String {
    format!("vec4<f32>({}, {}, {}, {})", of_row(0), of_row(1), of_row(2), of_row(3))
}

/// What all lanes across have of each row, combined in a fixed order, in `name` of each of them.
fn exchange(w: &mut Writer<'_>, name: &str, own: &str, combined: &dyn Fn(&str, &str) -> String) {
    w.line(format!("var {name} = {own};"));
    if subgroup(w).is_some() {
        for apart in [1, 2, 4] {
            w.line(format!("let {name}{apart} = subgroupShuffleXor({name}, {apart}u);"));
            w.line(format!("{name} = {};", combined(name, &format!("{name}{apart}"))));
        }
        return;
    }
    w.line(format!("of_lanes[across * {ACROSS}u + down] = {name};\nworkgroupBarrier();"));
    w.line(format!("{name} = of_lanes[down];"));
    w.open_for(format!("for (var i = 1u; i < {ACROSS}u; i += 1u)"), ACROSS);
    w.line(format!("{name} = {};", combined(name, &format!("of_lanes[i * {ACROSS}u + down]"))));
    w.close();
    // Before anything else is put there.
    w.line("workgroupBarrier();");
}

/// Multiplies the piece, and adds to the sums.
fn add(w: &mut Writer<'_>, factor: &Factor, [k, n]: [usize; 2], quads: usize) {
    for column in 0..4 {
        let rows: Vec<String> = (0..4).map(|row| format!("at{row}_{column}")).collect();
        w.line(format!("piece[(across * 4u + {column}u) * {PITCH}u + down] = vec4<f32>({});", rows.join(", ")));
    }
    let operand = operand(factor);
    let matrix = Matrix::new(w, &operand, if operand.transposed { [k, 1] } else { [1, n] }, n, k);
    let second = staged(&matrix, "b", "0u", [quads * SIDE, n]);
    w.open("");
    second.places(w);
    w.line(format!("let begin = left;\nlet end = min(left + {SIDE}u, {k}u);"));
    along_depth(w, [SIDE, k], &[&second], |w| {
        let first =
            Shared { array: "piece", depth: "(start - left + i)", pitch: PITCH, quads: 1, apart: 0, place: "down" };
        multiply(w, "sum", DEPTH, [&first, &second.shared("tile_b", quads, "across")]);
    });
    w.close();
}

/// Combines the lanes' folds of each row, and hands the row's to its end.
fn finish_rows(w: &mut Writer<'_>, chain: &Chain<'_>, kind: ReduceKind, batch: &[String]) {
    let wide = w.wide_integers();
    let combined = |a: &str, b: &str| {
        vector(|row| combine(wide, kind, DType::F32, &format!("{a}[{row}]"), &format!("{b}[{row}]")))
    };
    exchange(w, "all", "folded", &combined);
    w.open("if (across == 0u)");
    for row in 0..4 {
        w.open("");
        w.line(format!("let row = top + down * 4u + {row}u;"));
        w.open(guard("row", chain.rows()));
        chain.finish_row(w, batch, "row", &format!("all[{row}]"));
        w.close();
        w.close();
    }
    w.close();
}

/// Hands each sum of a lane to its end.
fn finish_sums(w: &mut Writer<'_>, chain: &Chain<'_>, n: usize, quads: usize, batch: &[String]) {
    for row in 0..4 {
        w.open("");
        w.line(format!("let row = top + down * 4u + {row}u;"));
        w.open(guard("row", chain.rows()));
        if chain.softmax.is_some() {
            w.open("if (across == 0u)");
            chain.store_row(w, "row", [&format!("largest[{row}]"), &format!("total[{row}]")]);
            w.close();
        }
        for at in 0..4 * quads {
            let (quad, place) = (at / 4, at % 4);
            w.open("");
            w.line(format!("let column = ({}u + across) * 4u + {place}u;", quad * ACROSS));
            w.open(if n.is_multiple_of(quads * SIDE) { String::new() } else { format!("if (column < {n}u)") });
            let weighed = if chain.softmax.is_some() { format!(" / total[{row}]") } else { String::new() };
            chain.finish_sum(w, batch, ["row", "column"], &format!("sum{row}_{quad}[{place}]{weighed}"));
            w.close();
            w.close();
        }
        w.close();
        w.close();
    }
}

/// The condition under which a row is one of the matrix's, where not all are.
fn guard(name: &str, rows: usize) -> String {
    if rows.is_multiple_of(SIDE) { String::new() } else { format!("if ({name} < {rows}u)") }
}

fn operand(factor: &Factor) -> Operand {
    let Factor { value, transposed, batch_stride } = *factor;
    Operand { value, transposed, batch_stride }
}

fn staged<'a>(
    factor: &'a Matrix<'a>,
    name: &'static str,
    origin: &'static str,
    [side, size]: [usize; 2],
) -> Staged<'a> {
    let in_quads = factor.in_quads();
    Staged { factor, name, origin, side, size, depth: DEPTH, lanes: LANES, in_quads, halves: false }
}
