//! WGSL for reductions, and for the index of the first largest or smallest element.
//!
//! A reduction has one of two forms, chosen by its sizes. With many results or short reductions, one invocation
//! computes each result. Otherwise a workgroup computes a few results: its lanes reduce strided parts, then combine
//! them in a tree of fixed shape.

use saggar_tensor::DType;
use saggar_tensor::op::{ReduceKind, Scalar};

use super::binary;
use super::expression::{EvaluationPoint, needed_coordinates, write_epilogue, write_expr};
use super::literal::scalar_literal;
use super::wide_integer::WideIntegers;
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::expr::{Instruction, ScalarExpr};
use saggar_compile::program::{Epilogue, ValueId};

/// The description of a reduction, as in `KernelBody::Fold`.
pub(super) struct FoldDescription<'a> {
    pub(super) kind: ReduceKind,
    pub(super) outer: &'a [usize],
    pub(super) inner: &'a [usize],
    pub(super) prologue: &'a ScalarExpr,
    pub(super) epilogue: &'a Epilogue,
}

/// Lanes of a workgroup that reduces cooperatively: `rows` lanes share a result, and `columns` neighbouring results
/// share the workgroup.
#[derive(Clone, Copy)]
struct FoldLanes {
    rows: usize,
    columns: usize,
}

/// Elements that one accumulator takes before it is added to the next. Keeps long sums accurate.
const CHUNK: usize = 64;

pub(super) fn fold_kernel(w: &mut ShaderWriter<'_>, fold: &FoldDescription<'_>) {
    let count: usize = fold.outer.iter().product();
    let length: usize = fold.inner.iter().product();
    if count == 0 {
        return;
    }
    match fold_lanes(w, fold, count, length) {
        Some(lanes) => workgroup_fold(w, fold, count, length, lanes),
        None => serial_fold(w, fold, count, length),
    }
}

fn fold_lanes(w: &ShaderWriter<'_>, fold: &FoldDescription<'_>, count: usize, length: usize) -> Option<FoldLanes> {
    // On a CPU, barriers cost more, and few results already keep it busy.
    let (length_min, count_max) = if w.tuning.workgroup_memory { (128, 1 << 17) } else { (1024, 1 << 12) };
    if length < length_min || count > count_max {
        return None;
    }
    let lanes = if length >= 2048 && w.tuning.workgroup_memory { 256 } else { 64 };
    // Neighbouring results whose operands are adjacent in memory are read together.
    let columns = if is_coalesced(fold) { 16.min(count.next_power_of_two()) } else { 1 };
    Some(FoldLanes { rows: lanes / columns, columns })
}

/// Returns whether neighbouring results load adjacent elements.
fn is_coalesced(fold: &FoldDescription<'_>) -> bool {
    let Some(last) = fold.outer.iter().rposition(|&dim| dim > 1) else { return false };
    fold.prologue.instructions.iter().any(|(instruction, _)| match instruction {
        Instruction::Load { view, .. } => view.strides[last].abs() == 1,
        Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Random { .. }
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => false,
    })
}

/// Returns the data type of the reduced elements.
fn folded_dtype(fold: &FoldDescription<'_>) -> DType {
    fold.prologue.instructions.last().map_or(DType::F32, |(_, dtype)| *dtype)
}

/// Returns the result of reducing zero elements, as a WGSL expression.
pub(super) fn fold_identity(wide: WideIntegers, kind: ReduceKind, dtype: DType) -> String {
    let [smallest, largest] = match dtype {
        DType::F32 | DType::F16 => [Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)],
        DType::I8 => [Scalar::Int(-128), Scalar::Int(127)],
        DType::U8 => [Scalar::Int(0), Scalar::Int(255)],
        DType::I32 => [Scalar::Int(i32::MIN.into()), Scalar::Int(i32::MAX.into())],
        DType::U32 => [Scalar::Int(0), Scalar::Int(u32::MAX.into())],
        DType::I64 => [Scalar::Int(i64::MIN.into()), Scalar::Int(i64::MAX.into())],
        DType::U64 => [Scalar::Int(0), Scalar::Int(u64::MAX.into())],
    };
    let value = match kind {
        ReduceKind::Sum => Scalar::Int(0),
        ReduceKind::Product => Scalar::Int(1),
        ReduceKind::Max => smallest,
        ReduceKind::Min => largest,
    };
    scalar_literal(wide, value, dtype)
}

pub(super) fn combine_expression(wide: WideIntegers, kind: ReduceKind, dtype: DType, a: &str, b: &str) -> String {
    // Floats are rounded to their data type once, when the reduced element is first used.
    let accumulator_dtype = if dtype.is_float() { DType::F32 } else { dtype };
    binary::binary_expression(wide, kind.combine(), accumulator_dtype, a, b)
}

/// Names the outer coordinates that prologue or epilogue need.
fn outer_coordinates(w: &mut ShaderWriter<'_>, fold: &FoldDescription<'_>) -> Vec<String> {
    let rank = fold.outer.len();
    let dims = [fold.outer, fold.inner].concat();
    let mut needed = needed_coordinates(fold.prologue, &dims, false);
    needed.truncate(rank);
    let after = needed_coordinates(&fold.epilogue.expr, fold.outer, true);
    needed.iter_mut().zip(after).for_each(|(needed, after)| *needed |= after);
    w.coordinates(fold.outer, "id", "c", &needed)
}

/// Writes the prologue at `coordinates` of outer and inner dimensions, and returns the name of its result.
fn write_prologue(w: &mut ShaderWriter<'_>, fold: &FoldDescription<'_>, coordinates: &[String]) -> String {
    let dims = [fold.outer, fold.inner].concat();
    let point = EvaluationPoint { dims: &dims, coordinates, linear: None, accumulated: &[], prefix: "p" };
    write_expr(w, fold.prologue, &point);
    format!("p{}", fold.prologue.instructions.len().saturating_sub(1))
}

fn serial_fold(w: &mut ShaderWriter<'_>, fold: &FoldDescription<'_>, count: usize, length: usize) {
    w.invocation_per_element(count);
    let outer = outer_coordinates(w, fold);
    let scalar = w.scalar_type(folded_dtype(fold));
    w.line(format!("var total0: {scalar} = {};", fold_identity(w.wide_integers(), fold.kind, folded_dtype(fold))));
    if length > 0 {
        let loops: Vec<usize> = (0..fold.inner.len()).filter(|&axis| fold.inner[axis] != 1).collect();
        let mut coordinates = outer.clone();
        coordinates.resize(fold.outer.len() + fold.inner.len(), "0u".to_owned());
        serial_loops(w, fold, &loops, &mut coordinates, 0);
    }
    write_epilogue(w, fold.epilogue, fold.outer, &outer, "id", "total0")
}

/// Writes the loops over `axes` of the inner dimensions. Each loop has a separate total, which is combined into that of
/// the next outer loop.
fn serial_loops(
    w: &mut ShaderWriter<'_>,
    fold: &FoldDescription<'_>,
    axes: &[usize],
    coordinates: &mut Vec<String>,
    depth: usize,
) {
    let into = format!("total{depth}");
    let Some((&axis, rest)) = axes.split_first() else {
        let value = write_prologue(w, fold, coordinates);
        w.line(format!(
            "{into} = {};",
            combine_expression(w.wide_integers(), fold.kind, folded_dtype(fold), &into, &value)
        ));
        return;
    };
    let size = fold.inner[axis];
    let name = format!("i{axis}");
    coordinates[fold.outer.len() + axis].clone_from(&name);
    let partial = format!("total{}", depth + 1);
    let start = format!("var {partial} = {};", fold_identity(w.wide_integers(), fold.kind, folded_dtype(fold)));
    let merge =
        format!("{into} = {};", combine_expression(w.wide_integers(), fold.kind, folded_dtype(fold), &into, &partial));
    if rest.is_empty() && size > 2 * CHUNK {
        w.open_for(format!("for (var start = 0u; start < {size}u; start += {CHUNK}u)"), size.div_ceil(CHUNK));
        w.line(start);
        w.line(format!("let end = min(start + {CHUNK}u, {size}u);"));
        w.open_for(format!("for (var {name} = start; {name} < end; {name} += 1u)"), CHUNK);
        serial_loops(w, fold, rest, coordinates, depth + 1);
        w.close();
        w.line(merge);
        w.close();
    } else if rest.is_empty() {
        w.open_loop(&name, size);
        serial_loops(w, fold, rest, coordinates, depth);
        w.close();
    } else {
        w.open_loop(&name, size);
        w.line(start);
        serial_loops(w, fold, rest, coordinates, depth + 1);
        w.line(merge);
        w.close();
    }
}

fn workgroup_fold(w: &mut ShaderWriter<'_>, fold: &FoldDescription<'_>, count: usize, length: usize, lanes: FoldLanes) {
    let dtype = folded_dtype(fold);
    let scalar = w.scalar_type(dtype);
    begin_tree(w, count, lanes, scalar, &fold_identity(w.wide_integers(), fold.kind, dtype));
    let outer = outer_coordinates(w, fold);
    w.open_for(format!("for (var i = row; i < {length}u; i += {}u)", lanes.rows), length.div_ceil(lanes.rows));
    let mut coordinates = outer.clone();
    let needed = needed_coordinates(fold.prologue, &[fold.outer, fold.inner].concat(), false);
    coordinates.extend(w.coordinates(fold.inner, "i", "i", &needed[fold.outer.len()..]));
    let value = write_prologue(w, fold, &coordinates);
    w.line(format!("total = {};", combine_expression(w.wide_integers(), fold.kind, dtype, "total", &value)));
    w.close();
    let wide = w.wide_integers();
    end_tree(w, count, lanes, scalar, |a, b| combine_expression(wide, fold.kind, dtype, a, b));
    let outer = outer_coordinates(w, fold);
    write_epilogue(w, fold.epilogue, fold.outer, &outer, "id", "total");
    w.close();
}

/// Starts a kernel whose workgroups reduce `count` results of WGSL type `kind`. Leaves a block open in which lane `row`
/// of result `id` reduces into `total`; [`end_tree`] closes it.
fn begin_tree(w: &mut ShaderWriter<'_>, count: usize, lanes: FoldLanes, kind: &str, identity: &str) {
    let FoldLanes { rows, columns } = lanes;
    let all = rows * columns;
    w.dispatch(count.div_ceil(columns), all as u32);
    let place = match subgroup_size(w, lanes, kind) {
        Some(size) => {
            w.enable_subgroups();
            w.global(format!("var<workgroup> partial: array<{kind}, {}>;\n", all / size * columns));
            w.line(format!("let place = subgroup * {size}u + lane_of_subgroup;"));
            "place"
        }
        None => {
            w.global(format!("var<workgroup> partial: array<{kind}, {all}>;\n"));
            "lane"
        }
    };
    if columns == 1 {
        w.line(format!("let row = {place};"));
        w.line("let id = tile;");
    } else {
        w.line(format!("let row = {place} / {columns}u;"));
        w.line(format!("let id = tile * {columns}u + {place} % {columns}u;"));
    }
    w.line(format!("var total: {kind} = {identity};"));
    w.open(format!("if (id < {count}u)"));
}

/// Returns the subgroup size if the reduction uses subgroups, or `None` if it uses only workgroup memory.
fn subgroup_size(w: &ShaderWriter<'_>, lanes: FoldLanes, kind: &str) -> Option<usize> {
    let all = lanes.rows * lanes.columns;
    let is_word = ["f32", "i32", "u32"].contains(&kind);
    w.tuning.subgroup.filter(|&size| is_word && all.is_multiple_of(size) && lanes.columns < size)
}

/// Combines the lanes' totals, in an order that depends only on the sizes. Leaves a block open in which one lane has
/// the result in `total`.
fn end_tree(
    w: &mut ShaderWriter<'_>,
    count: usize,
    lanes: FoldLanes,
    kind: &str,
    combine: impl Fn(&str, &str) -> String,
) {
    match subgroup_size(w, lanes, kind) {
        Some(size) => end_tree_by_subgroups(w, lanes, size, combine),
        None => end_tree_in_shared_memory(w, lanes, combine),
    }
    // Lanes of results past the end hold values that are never read.
    w.open(format!("if (row == 0u && id < {count}u)"));
    w.line("let total = whole;");
}

fn end_tree_in_shared_memory(
    w: &mut ShaderWriter<'_>,
    FoldLanes { rows, columns }: FoldLanes,
    combine: impl Fn(&str, &str) -> String,
) {
    w.line("partial[lane] = total;");
    w.close();
    w.line("workgroupBarrier();");
    w.open_for(format!("for (var rows = {}u; rows > 0u; rows = rows / 2u)", rows / 2), rows.ilog2() as usize);
    w.open("if (row < rows)");
    let other = if columns == 1 { "lane + rows".to_owned() } else { format!("lane + rows * {columns}u") };
    w.line(format!("partial[lane] = {};", combine("partial[lane]", &format!("partial[{other}]"))));
    w.close();
    w.line("workgroupBarrier();");
    w.close();
    w.line("let whole = partial[lane];");
}

/// Combines totals by subgroups: lanes of a subgroup read each other's registers, then one lane combines the subgroups'
/// totals in order. The subgroups' built-in sums are not used, because the driver chooses their order.
fn end_tree_by_subgroups(
    w: &mut ShaderWriter<'_>,
    FoldLanes { rows, columns }: FoldLanes,
    size: usize,
    combine: impl Fn(&str, &str) -> String,
) {
    w.close();
    let mut apart = columns;
    while apart < size {
        w.line(format!("let total{apart} = subgroupShuffleXor(total, {apart}u);"));
        w.line(format!("total = {};", combine("total", &format!("total{apart}"))));
        apart *= 2;
    }
    let subgroups = rows * columns / size;
    if subgroups == 1 {
        return w.line("let whole = total;");
    }
    let column = if columns == 1 { "0u".to_owned() } else { format!("place % {columns}u") };
    w.open(format!("if (lane_of_subgroup < {columns}u)"));
    w.line(format!("partial[subgroup * {columns}u + lane_of_subgroup] = total;"));
    w.close();
    w.line("workgroupBarrier();");
    w.line(format!("var whole = partial[{column}];"));
    w.open_for(format!("for (var i = 1u; i < {subgroups}u; i += 1u)"), subgroups);
    w.line(format!("whole = {};", combine("whole", &format!("partial[i * {columns}u + {column}]"))));
    w.close();
}

/// Writes the index of the first largest or smallest element along the middle dimension; the first NaN wins over all
/// numbers.
pub(super) fn arg_fold(
    w: &mut ShaderWriter<'_>,
    largest: bool,
    [before, length, after]: [usize; 3],
    input: ValueId,
    output: ValueId,
) {
    if before * after == 0 || length == 0 {
        return;
    }
    w.invocation_per_element(before * after);
    let start = if after == 1 {
        format!("id * {length}u")
    } else {
        format!("(id / {after}u) * {}u + id % {after}u", length * after)
    };
    w.line(format!("let start = {start};"));
    let first = w.element(input, "start");
    w.line(format!("var best = {first};"));
    w.line("var best_index = 0u;");
    w.open_for(format!("for (var i = 1u; i < {length}u; i += 1u)"), length);
    let element = w.element(input, &if after == 1 { "start + i".to_owned() } else { format!("start + i * {after}u") });
    w.line(format!("let value = {element};"));
    let dtype = w.value(input).descriptor.dtype;
    let (less, more) = if largest { ("best", "value") } else { ("value", "best") };
    let beats = binary::less_expression(w.wide_integers(), dtype, less, more);
    if dtype.is_float() {
        w.line(format!("let beats = select(0u, 1u, {beats});"));
        w.line("best = choose(beats, value, best);");
        w.line("best_index = select(best_index, i, beats != 0u);");
    } else {
        w.line(format!("if ({beats}) {{ best = value; best_index = i; }}"));
    }
    w.close();
    w.assign(output, "id", "i32(best_index)")
}
