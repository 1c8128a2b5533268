//! Matrix products: tiles in registers straight from storage, or staged through workgroup memory.

use std::fmt::Write as _;

use super::ShaderError;
use super::expression::finish_function;
use crate::program::{Epilogue, ValueId};
use crate::wgsl::writer::Writer;

/// One factor.
pub(super) struct Operand {
    pub(super) value: ValueId,
    pub(super) transposed: bool,
    pub(super) batch_stride: usize,
}

/// Rows and columns of the tile that one workgroup of 256 lanes stages; each lane has 4 x 4 of it.
const TILE: usize = 64;
/// How far along `k` a staged tile reaches.
const DEPTH: usize = 16;

/// `batch` products of `m x k` and `k x n`.
pub(super) fn mat_mul(
    w: &mut Writer<'_>,
    sizes: [usize; 4],
    a: &Operand,
    b: &Operand,
    epilogue: &Epilogue,
) -> Result<(), ShaderError> {
    let [batch, m, n, k] = sizes;
    if batch * m * n == 0 {
        return Ok(());
    }
    finish_function(w, epilogue, &[batch, m, n])?;
    // Smaller products would leave most of a staged tile empty.
    if w.tuning.workgroup_memory && m >= TILE / 4 && n >= TILE / 4 && k >= DEPTH {
        staged(w, sizes, a, b)
    } else {
        direct(w, sizes, a, b)
    }
}

/// Elements between neighbours along the operand's own outer dimension and along `k`.
fn strides(operand: &Operand, outer: usize, k: usize) -> [usize; 2] {
    if operand.transposed { [1, outer] } else { [k, 1] }
}

fn times(name: &str, factor: usize) -> String {
    if factor == 1 { name.to_owned() } else { format!("{name} * {factor}u") }
}

fn batch_offset(operand: &Operand) -> String {
    if operand.batch_stride == 0 { String::new() } else { format!("batch * {}u + ", operand.batch_stride) }
}

/// One invocation computes up to 4 x 4 elements. Its columns are `columns` apart, so that neighbouring lanes read
/// neighbouring elements.
fn direct(w: &mut Writer<'_>, [batch, m, n, k]: [usize; 4], a: &Operand, b: &Operand) -> Result<(), ShaderError> {
    // Few results want more lanes instead of larger tiles.
    let side = match batch * m * n {
        ..0x400 => 1,
        // On a processor, loads are dearer than a tile too large for its registers.
        0x4000.. if !w.tuning.workgroup_memory => 8,
        _ => 4,
    };
    let (height, width) = (side.min(m), side.min(n));
    let (rows, columns) = (m.div_ceil(height), n.div_ceil(width));
    w.each(batch * rows * columns);
    w.line(format!("let column = id % {columns}u;"));
    w.line(format!("let row = ((id / {columns}u) % {rows}u) * {height}u;"));
    w.line(format!("let batch = id / {}u;", rows * columns));
    let [a_row, a_step] = strides(a, m, k);
    // `b` is k x n unless transposed, so its strides are the other way round.
    let [b_column, b_step] = if b.transposed { [k, 1] } else { [1, n] };
    for i in 0..height {
        let clamped = format!("min(row + {i}u, {}u)", m - 1);
        w.line(format!("var a{i} = {}{};", batch_offset(a), times(&clamped, a_row)));
    }
    for j in 0..width {
        let clamped = format!("min(column + {}u, {}u)", j * columns, n - 1);
        w.line(format!("var f{j} = {}{};", batch_offset(b), times(&clamped, b_column)));
    }
    for i in 0..height {
        for j in 0..width {
            w.line(format!("var sum{i}{j} = 0.0;"));
        }
    }
    if k > 0 {
        w.open_loop("i", k);
        for j in 0..width {
            let element = w.element(b.value, &format!("f{j}"))?;
            w.line(format!("let y{j} = {element};"));
            w.line(format!("f{j} += {b_step}u;"));
        }
        for i in 0..height {
            let element = w.element(a.value, &format!("a{i}"))?;
            w.line(format!("let x{i} = {element};"));
            w.line(format!("a{i} += {a_step}u;"));
            for j in 0..width {
                w.line(format!("sum{i}{j} += x{i} * y{j};"));
            }
        }
        w.close();
    }
    let sums: Vec<String> = (0..height * width).map(|i| format!("sum{}{}", i / width, i % width)).collect();
    w.line(format!("var sums = array<f32, {}>({});", sums.len(), sums.join(", ")));
    w.open_loop("i", height);
    w.open_loop("j", width);
    w.line(format!("let y = row + i;\nlet x = column + j * {columns}u;"));
    w.open(format!("if (y < {m}u && x < {n}u)"));
    w.line(format!("finish(batch, y, x, (batch * {m}u + y) * {n}u + x, sums[i * {width}u + j]);"));
    (0..3).for_each(|_| w.close());
    Ok(())
}

/// A workgroup computes a 64 x 64 tile from 64 x 16 and 16 x 64 tiles in workgroup memory.
fn staged(w: &mut Writer<'_>, [batch, m, n, k]: [usize; 4], a: &Operand, b: &Operand) -> Result<(), ShaderError> {
    let (rows, columns) = (m.div_ceil(TILE), n.div_ceil(TILE));
    w.global(format!("var<workgroup> tile_a: array<vec4<f32>, {}>;", TILE * DEPTH / 4));
    w.global(format!("var<workgroup> tile_b: array<vec4<f32>, {}>;\n", TILE * DEPTH / 4));
    w.dispatch(batch * rows * columns, 256);
    w.line(format!("let batch = tile / {}u;", rows * columns));
    w.line(format!("let top = ((tile / {columns}u) % {rows}u) * {TILE}u;"));
    w.line(format!("let left = (tile % {columns}u) * {TILE}u;"));
    w.line("let down = lane / 16u;");
    w.line("let across = lane % 16u;");
    for i in 0..4 {
        w.line(format!("var sum{i} = vec4<f32>(0.0);"));
    }
    w.open_for(format!("for (var start = 0u; start < {k}u; start += {DEPTH}u)"), k.div_ceil(DEPTH));
    stage(w, a, "tile_a", "top", [m, k, batch])?;
    stage(w, b, "tile_b", "left", [n, k, batch])?;
    w.line("workgroupBarrier();");
    w.open_loop("i", DEPTH);
    w.line(format!("let x = tile_a[i * {}u + down];", TILE / 4));
    w.line(format!("let y = tile_b[i * {}u + across];", TILE / 4));
    for i in 0..4 {
        w.line(format!("sum{i} += x[{i}] * y;"));
    }
    w.close();
    w.line("workgroupBarrier();");
    w.close();
    w.open(format!("if (batch < {batch}u)"));
    for i in 0..4 {
        for j in 0..4 {
            let (row, column) = (format!("(top + down * 4u + {i}u)"), format!("(left + across * 4u + {j}u)"));
            let linear = format!("(batch * {m}u + {row}) * {n}u + {column}");
            let mut text = format!("if ({row} < {m}u && {column} < {n}u)");
            let _ = write!(text, " {{ finish(batch, {row}, {column}, {linear}, sum{i}[{j}]); }}");
            w.line(text);
        }
    }
    w.close();
    Ok(())
}

/// Fills `tile` (16 rows along `k` of 64 elements along the operand's outer dimension) with what starts at `outer` and
/// `start`, zeros past the edges. Each lane loads four elements, neighbouring lanes neighbouring ones of storage.
fn stage(
    w: &mut Writer<'_>,
    operand: &Operand,
    tile: &str,
    outer: &str,
    [size, k, batch]: [usize; 3],
) -> Result<(), ShaderError> {
    // The first factor is stored with `k` innermost unless transposed, the second only if transposed.
    let first = tile == "tile_a";
    let k_innermost = operand.transposed != first;
    w.open_for("for (var part = 0u; part < 4u; part += 1u)", 4);
    w.line("let slot = part * 256u + lane;");
    let at = if k_innermost {
        w.line(format!("let deep = slot % {DEPTH}u;"));
        w.line(format!("let wide = slot / {DEPTH}u;"));
        format!("({outer} + wide) * {k}u + start + deep")
    } else {
        w.line(format!("let deep = slot / {TILE}u;"));
        w.line(format!("let wide = slot % {TILE}u;"));
        format!("(start + deep) * {size}u + {outer} + wide")
    };
    let element = w.element(operand.value, &format!("{}{at}", batch_offset(operand)))?;
    w.line("var value = 0.0;");
    let guard = format!("{outer} + wide < {size}u && start + deep < {k}u && batch < {batch}u");
    w.line(format!("if ({guard}) {{ value = {element}; }}"));
    w.line(format!("{tile}[deep * {}u + wide / 4u][wide % 4u] = value;", TILE / 4));
    w.close();
    Ok(())
}
