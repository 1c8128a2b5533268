//! Fused matmuls by workgroups. Each workgroup takes some rows of the matrix and processes the columns tile by tile,
//! with the factors staged in workgroup memory. Every lane has a block of the current tile and a block of the sums.

use saggar_tensor::DType;
use saggar_tensor::op::ReduceKind;

use super::{FusedMatMul, LOWEST, exp_expression, masked_score};
use crate::wgsl::contract::{MatMulOperand, MatrixTileOperand};
use crate::wgsl::reduce::{combine_expression, fold_identity};
use crate::wgsl::tile::lane_tile::{SharedTile, multiply_accumulate};
use crate::wgsl::tile::staging::StagedOperand;
use crate::wgsl::tile::{TileOperand as _, depth_loop};
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::limits::FUSED_MATMUL_TILE_ROWS;
use saggar_compile::program::{FusedConsumer, ProductOperand};

/// Rows of a workgroup, and columns of a tile.
const SIDE: usize = FUSED_MATMUL_TILE_ROWS;
/// Depth of the staged parts of the factors.
const DEPTH: usize = 16;
/// Lanes down and across a tile, each with four rows and four columns.
const ACROSS: usize = SIDE / 4;
const LANES: usize = ACROSS * ACROSS;
/// Vectors from one column of a tile to the next in workgroup memory; one more than needed, to avoid bank conflicts.
const PITCH: usize = ACROSS + 1;

pub(super) fn fused_matmul_by_tiles(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>) {
    let (rows, columns) = (chain.rows(), chain.columns());
    let quads = match chain.consumer {
        FusedConsumer::Fold(_) => 0,
        FusedConsumer::Product { columns, .. } => columns.div_ceil(SIDE).next_power_of_two(),
    };
    declare_shared_memory(w, quads);
    let tiles = rows.div_ceil(SIDE);
    w.dispatch(chain.batch() * tiles, LANES as u32);
    w.line(format!("if (tile >= {}u) {{ return; }}", chain.batch() * tiles));
    w.line(format!("let batch = tile / {tiles}u;\nlet top = (tile % {tiles}u) * {SIDE}u;"));
    let place = match subgroup_size(w) {
        Some(size) => {
            w.enable_subgroups();
            w.line(format!("let place = subgroup * {size}u + lane_of_subgroup;"));
            "place"
        }
        None => "lane",
    };
    w.line(format!("let down = {place} / {ACROSS}u;\nlet across = {place} % {ACROSS}u;"));
    let [links, results] = chain.coordinates(w);
    declare_lane_variables(w, chain, quads);
    w.open_for(format!("for (var left = 0u; left < {columns}u; left += {SIDE}u)"), columns.div_ceil(SIDE));
    product_tiles(w, chain);
    score_tile(w, chain, &links);
    match chain.consumer {
        FusedConsumer::Fold(kind) => {
            for row in 0..4 {
                for column in 0..4 {
                    let next = combine_expression(
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
        FusedConsumer::Product { factor, columns: n, .. } => {
            if chain.softmax.is_some() {
                online_softmax(w, quads);
            }
            accumulate_tile(w, &factor, [columns, n], quads);
        }
    }
    w.close();
    match chain.consumer {
        FusedConsumer::Fold(kind) => finish_rows(w, chain, kind, &results),
        FusedConsumer::Product { columns: n, .. } => finish_sums(w, chain, n, quads, &results),
    }
}

/// Declares the workgroup memory: parts of two factors, the tile, and a vector for each lane.
fn declare_shared_memory(w: &mut ShaderWriter<'_>, quads: usize) {
    let wide = ACROSS * quads.max(1) + 1;
    w.global(format!("var<workgroup> tile_a: array<vec4<f32>, {}>;", DEPTH * PITCH));
    w.global(format!("var<workgroup> tile_b: array<vec4<f32>, {}>;", DEPTH * wide));
    if quads > 0 {
        w.global(format!("var<workgroup> piece: array<vec4<f32>, {}>;", SIDE * PITCH));
    }
    if subgroup_size(w).is_none() {
        w.global(format!("var<workgroup> of_lanes: array<vec4<f32>, {LANES}>;"));
    }
}

/// Declares the variables that a lane keeps from tile to tile.
fn declare_lane_variables(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>, quads: usize) {
    if let FusedConsumer::Fold(kind) = chain.consumer {
        w.line(format!("var folded = vec4<f32>({});", fold_identity(w.wide_integers(), kind, DType::F32)));
    }
    for row in 0..4 {
        (0..quads).for_each(|quad| w.line(format!("var sum{row}_{quad} = vec4<f32>();")));
    }
    if chain.softmax.is_some() {
        w.line(format!("var largest = vec4<f32>({LOWEST});\nvar total = vec4<f32>();"));
    }
}

/// Computes the products' elements of a lane's block, in `product{number}_{row}_0`.
fn product_tiles(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>) {
    let (rows, columns) = (chain.rows(), chain.columns());
    for (number, product) in chain.products.iter().enumerate() {
        let depth = product.depth;
        (0..4).for_each(|row| w.line(format!("var product{number}_{row}_0 = vec4<f32>();")));
        let [a, b] = [matmul_operand(&product.a), matmul_operand(&product.b)];
        let a = MatrixTileOperand::new(w, &a, if a.transposed { [1, rows] } else { [depth, 1] }, rows, depth);
        let b = MatrixTileOperand::new(w, &b, if b.transposed { [depth, 1] } else { [1, columns] }, columns, depth);
        let first = staged_operand(&a, "a", "top", [SIDE, rows]);
        let second = staged_operand(&b, "b", "left", [SIDE, columns]);
        w.open("");
        first.name_lane_places(w);
        second.name_lane_places(w);
        w.line(format!("let begin = 0u;\nlet end = {depth}u;"));
        depth_loop(w, [depth, depth], &[&first, &second], |w| {
            let sides = [first.shared_tile("tile_a", 1, "down"), second.shared_tile("tile_b", 1, "across")];
            multiply_accumulate(w, &format!("product{number}_"), DEPTH, [&sides[0], &sides[1]]);
        });
        w.close();
    }
}

/// Computes the matrix elements of a lane's block, in `at{row}_{column}`; neutral elements outside the matrix.
fn score_tile(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>, batch: &[String]) {
    let (rows, columns) = (chain.rows(), chain.columns());
    let nothing = match chain.consumer {
        FusedConsumer::Fold(kind) => fold_identity(w.wide_integers(), kind, DType::F32),
        FusedConsumer::Product { .. } if chain.softmax.is_some() => masked_score(),
        FusedConsumer::Product { .. } => "0.0".to_owned(),
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

/// Returns the subgroup size if lanes across a tile read each other's registers, or `None` if they use workgroup
/// memory.
fn subgroup_size(w: &ShaderWriter<'_>) -> Option<usize> {
    w.tuning.subgroup.filter(|&size| size >= ACROSS && LANES.is_multiple_of(size))
}

/// Computes weights from scores: exponentials of the difference to the largest so far, to which the sums are rescaled.
fn online_softmax(w: &mut ShaderWriter<'_>, quads: usize) {
    let largest = |row: usize| format!("max(max(at{row}_0, at{row}_1), max(at{row}_2, at{row}_3))");
    reduce_across_lanes(w, "wide", &row_vector(largest), &|a, b| format!("max({a}, {b})"));
    w.line("let larger = max(largest, wide);");
    let scale = row_vector(|row| exp_expression(&format!("largest[{row}] - larger[{row}]")));
    w.line(format!("let scale = {scale};\nlargest = larger;"));
    for row in 0..4 {
        for column in 0..4 {
            w.line(format!("at{row}_{column} = {};", exp_expression(&format!("at{row}_{column} - largest[{row}]"))));
        }
        (0..quads).for_each(|quad| w.line(format!("sum{row}_{quad} *= scale[{row}];")));
    }
    let sum = |row: usize| format!("at{row}_0 + at{row}_1 + at{row}_2 + at{row}_3");
    reduce_across_lanes(w, "weight", &row_vector(sum), &|a, b| format!("{a} + {b}"));
    w.line("total = total * scale + weight;");
}

fn row_vector(of_row: impl Fn(usize) -> String) -> String {
    format!("vec4<f32>({}, {}, {}, {})", of_row(0), of_row(1), of_row(2), of_row(3))
}

/// Combines the values of all lanes across each row in a fixed order, and leaves the result in `name` of each lane.
fn reduce_across_lanes(w: &mut ShaderWriter<'_>, name: &str, own: &str, combined: &dyn Fn(&str, &str) -> String) {
    w.line(format!("var {name} = {own};"));
    if subgroup_size(w).is_some() {
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
    // Wait before the memory is overwritten.
    w.line("workgroupBarrier();");
}

/// Multiplies the tile by the factor and adds the products to the sums.
fn accumulate_tile(w: &mut ShaderWriter<'_>, factor: &ProductOperand, [k, n]: [usize; 2], quads: usize) {
    for column in 0..4 {
        let rows: Vec<String> = (0..4).map(|row| format!("at{row}_{column}")).collect();
        w.line(format!("piece[(across * 4u + {column}u) * {PITCH}u + down] = vec4<f32>({});", rows.join(", ")));
    }
    let operand = matmul_operand(factor);
    let matrix = MatrixTileOperand::new(w, &operand, if operand.transposed { [k, 1] } else { [1, n] }, n, k);
    let second = staged_operand(&matrix, "b", "0u", [quads * SIDE, n]);
    w.open("");
    second.name_lane_places(w);
    w.line(format!("let begin = left;\nlet end = min(left + {SIDE}u, {k}u);"));
    depth_loop(w, [SIDE, k], &[&second], |w| {
        let first =
            SharedTile { array: "piece", depth: "(start - left + i)", pitch: PITCH, quads: 1, apart: 0, place: "down" };
        multiply_accumulate(w, "sum", DEPTH, [&first, &second.shared_tile("tile_b", quads, "across")]);
    });
    w.close();
}

/// Combines the lanes' partial reductions of each row, and writes the row's epilogue.
fn finish_rows(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>, kind: ReduceKind, batch: &[String]) {
    let wide = w.wide_integers();
    let combined = |a: &str, b: &str| {
        row_vector(|row| combine_expression(wide, kind, DType::F32, &format!("{a}[{row}]"), &format!("{b}[{row}]")))
    };
    reduce_across_lanes(w, "all", "folded", &combined);
    w.open("if (across == 0u)");
    for row in 0..4 {
        w.open("");
        w.line(format!("let row = top + down * 4u + {row}u;"));
        w.open(row_guard("row", chain.rows()));
        chain.finish_row(w, batch, "row", &format!("all[{row}]"));
        w.close();
        w.close();
    }
    w.close();
}

/// Writes the epilogue of each sum of a lane.
fn finish_sums(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>, n: usize, quads: usize, batch: &[String]) {
    for row in 0..4 {
        w.open("");
        w.line(format!("let row = top + down * 4u + {row}u;"));
        w.open(row_guard("row", chain.rows()));
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

/// Returns `if (...)` with the condition that a row is inside the matrix, or an empty string if every row of the tiles
/// is.
fn row_guard(name: &str, rows: usize) -> String {
    if rows.is_multiple_of(SIDE) { String::new() } else { format!("if ({name} < {rows}u)") }
}

fn matmul_operand(factor: &ProductOperand) -> MatMulOperand {
    let ProductOperand { value, transposed, batch_stride } = *factor;
    MatMulOperand { value, transposed, batch_stride }
}

fn staged_operand<'a>(
    factor: &'a MatrixTileOperand<'a>,
    name: &'static str,
    origin: &'static str,
    [side, size]: [usize; 2],
) -> StagedOperand<'a> {
    let in_quads = factor.in_quads();
    StagedOperand { factor, name, origin, side, size, depth: DEPTH, lanes: LANES, in_quads, halves: false }
}
