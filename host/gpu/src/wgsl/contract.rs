//! WGSL for matrix products: register tiles read directly from storage, or tiles staged in workgroup memory.

use super::expression::finish_function;
use super::tile::{self, ContiguousAxis, ElementGroup, TileOperand, TileOutput};
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::{Epilogue, ValueId};

/// One factor of a matrix product.
pub(super) struct MatMulOperand {
    pub(super) value: ValueId,
    pub(super) transposed: bool,
    pub(super) batch_stride: usize,
}

/// Writes `batch` products of `m x k` and `k x n`.
pub(super) fn mat_mul(
    w: &mut ShaderWriter<'_>,
    sizes: [usize; 4],
    a: &MatMulOperand,
    b: &MatMulOperand,
    epilogue: &Epilogue,
) {
    let [batch, m, n, k] = sizes;
    if batch * m * n == 0 {
        return;
    }
    let finished = MatMulOutput { sizes: [batch, m, n], epilogue };
    let Some(plan) = tile::tile_plan(w, sizes, [a.value, b.value]) else {
        finished.begin(w);
        return untiled_matmul(w, sizes, a, b);
    };
    let [a, b] = [
        MatrixTileOperand::new(w, a, strides(a, m, k), m, k),
        // `b` is k x n unless transposed, so its strides are in reverse order.
        MatrixTileOperand::new(w, b, if b.transposed { [k, 1] } else { [1, n] }, n, k),
    ];
    tile::tiled_product(w, sizes, &plan, [&a, &b], &finished)
}

/// Returns the strides along the operand's outer dimension and along `k`, in elements.
fn strides(operand: &MatMulOperand, outer: usize, k: usize) -> [usize; 2] {
    if operand.transposed { [1, outer] } else { [k, 1] }
}

fn scaled_index(name: &str, factor: usize) -> String {
    if factor == 1 { name.to_owned() } else { format!("{name} * {factor}u") }
}

fn batch_offset(operand: &MatMulOperand) -> String {
    if operand.batch_stride == 0 { String::new() } else { format!("batch * {}u + ", operand.batch_stride) }
}

/// Writes a product in which each invocation computes up to 4 x 4 elements (8 x 8 on a CPU). Its columns are `columns`
/// elements from each other, so that neighbouring lanes read neighbouring elements.
fn untiled_matmul(w: &mut ShaderWriter<'_>, [batch, m, n, k]: [usize; 4], a: &MatMulOperand, b: &MatMulOperand) {
    // Few results need more lanes instead of larger tiles.
    let side = match batch * m * n {
        ..0x400 => 1,
        // On a CPU, loads cost more than register spills of a large tile.
        0x4000.. if !w.tuning.workgroup_memory => 8,
        _ => 4,
    };
    let (height, width) = (side.min(m), side.min(n));
    let (rows, columns) = (m.div_ceil(height), n.div_ceil(width));
    w.invocation_per_element(batch * rows * columns);
    w.line(format!("let column = id % {columns}u;"));
    w.line(format!("let row = ((id / {columns}u) % {rows}u) * {height}u;"));
    w.line(format!("let batch = id / {}u;", rows * columns));
    let [a_row, a_step] = strides(a, m, k);
    // `b` is k x n unless transposed, so its strides are in reverse order.
    let [b_column, b_step] = if b.transposed { [k, 1] } else { [1, n] };
    for i in 0..height {
        let clamped = format!("min(row + {i}u, {}u)", m - 1);
        w.line(format!("var a{i} = {}{};", batch_offset(a), scaled_index(&clamped, a_row)));
    }
    for j in 0..width {
        let clamped = format!("min(column + {}u, {}u)", j * columns, n - 1);
        w.line(format!("var f{j} = {}{};", batch_offset(b), scaled_index(&clamped, b_column)));
    }
    for i in 0..height {
        for j in 0..width {
            w.line(format!("var sum{i}{j} = 0.0;"));
        }
    }
    if k > 0 {
        w.open_loop("i", k);
        for j in 0..width {
            let element = w.element(b.value, &format!("f{j}"));
            w.line(format!("let y{j} = {element};"));
            w.line(format!("f{j} += {b_step}u;"));
        }
        for i in 0..height {
            let element = w.element(a.value, &format!("a{i}"));
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
}

/// A matrix as a tile operand. `side` is the stride between rows of the first factor or columns of the second, and
/// `depth` the stride along `k`, in elements; one of them is 1.
pub(super) struct MatrixTileOperand<'a> {
    operand: &'a MatMulOperand,
    strides: [usize; 2],
    in_quads: bool,
}

impl MatrixTileOperand<'_> {
    /// Creates the operand of a product; its side has length `size`.
    pub(super) fn new<'a>(
        w: &ShaderWriter<'_>,
        operand: &'a MatMulOperand,
        strides: [usize; 2],
        size: usize,
        k: usize,
    ) -> MatrixTileOperand<'a> {
        let neighbours = if strides[1] == 1 { k } else { size };
        let whole = neighbours.is_multiple_of(4) && operand.batch_stride.is_multiple_of(4);
        MatrixTileOperand { operand, strides, in_quads: whole && w.has_vectors(operand.value) }
    }
}

impl TileOperand for MatrixTileOperand<'_> {
    fn contiguous_axis(&self) -> ContiguousAxis {
        if self.strides[1] == 1 { ContiguousAxis::Depth } else { ContiguousAxis::Side }
    }

    fn in_quads(&self) -> bool {
        self.in_quads
    }

    fn side(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        w.line(format!("let {name} = {}{};", batch_offset(self.operand), scaled_index(at, self.strides[0])));
    }

    fn depth(&self, w: &mut ShaderWriter<'_>, at: &str, name: &str) {
        w.line(format!("let {name} = {};", scaled_index(at, self.strides[1])));
    }

    fn elements(
        &self,
        w: &mut ShaderWriter<'_>,
        side: &str,
        depth: &str,
        group: ElementGroup,
    ) -> (String, Option<String>) {
        (group.read(w, self.operand.value, &format!("{side} + {depth}")), None)
    }
}

/// The results of a product, stored by an epilogue over `[batch, m, n]`.
struct MatMulOutput<'a> {
    sizes: [usize; 3],
    epilogue: &'a Epilogue,
}

impl TileOutput for MatMulOutput<'_> {
    fn begin(&self, w: &mut ShaderWriter<'_>) {
        finish_function(w, self.epilogue, &self.sizes)
    }

    fn column(&self, _: &mut ShaderWriter<'_>, _: &str) {}

    fn store(&self, w: &mut ShaderWriter<'_>, row: &str, column: &str, sum: &str) {
        let [_, m, n] = self.sizes;
        let linear = format!("(batch * {m}u + {row}) * {n}u + {column}");
        w.line(format!("finish(batch, {row}, {column}, {linear}, {sum});"));
    }
}
