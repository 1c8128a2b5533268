//! WGSL for gather and scatter: elements selected by index tensors.

use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, Scalar, ScatterCombine};

use super::binary::{binary_expression, less_expression};
use super::literal::scalar_literal;
use super::unary::cast_expression;
use crate::wgsl::writer::{PassBuffer, ShaderWriter};
use saggar_compile::program::ValueId;

/// Declares the variable `name`: the index stored at `at` of `indices`, counted from the end if negative and clamped
/// into `size`.
fn name_clamped_index(w: &mut ShaderWriter<'_>, indices: ValueId, at: &str, size: usize, name: &str) {
    let dtype = w.value(indices).descriptor.dtype;
    let wide = w.wide_integers();
    let number = |number: usize| scalar_literal(wide, Scalar::Int(number as i128), dtype);
    let (zero, size, last) = (number(0), number(size), number(size.saturating_sub(1)));
    let element = w.element(indices, at);
    // Clamped in the indices' data type: converting a large index to a narrower type first could bring it into range.
    let inside = if dtype.is_signed_integer() {
        w.line(format!("let {name}_stored = {element};"));
        let stored = format!("{name}_stored");
        let (from_end, is_from_end) = (
            binary_expression(wide, BinaryOp::Add, dtype, &stored, &size),
            less_expression(wide, dtype, &stored, &zero),
        );
        w.line(format!("let {name}_counted = select({stored}, {from_end}, {is_from_end});"));
        w.line(format!(
            "let {name}_above = {};",
            binary_expression(wide, BinaryOp::Max, dtype, &format!("{name}_counted"), &zero)
        ));
        binary_expression(wide, BinaryOp::Min, dtype, &format!("{name}_above"), &last)
    } else {
        binary_expression(wide, BinaryOp::Min, dtype, &element, &last)
    };
    w.line(format!("let {name} = {};", cast_expression(wide, dtype, DType::U32, &inside)));
}

/// Writes a gather: `[before, d, after]` by indices `[count]` to `[before, count, after]`.
pub(super) fn gather(
    w: &mut ShaderWriter<'_>,
    [before, size, after]: [usize; 3],
    input: ValueId,
    indices: ValueId,
    output: ValueId,
) {
    let count = w.value(indices).descriptor.shape.elements();
    let results = before * count * after;
    if results == 0 {
        return;
    }
    w.invocation_per_element(results);
    let names = w.coordinates(&[before, count, after], "id", "c", &[]);
    name_clamped_index(w, indices, &names[1], size, "place");
    let from = w.element(input, &format!("({} * {size}u + place) * {after}u + {}", names[0], names[2]));
    w.assign(output, "id", &from)
}

/// The description of a scatter.
struct ScatterShader {
    dims: [usize; 3],
    combine: ScatterCombine,
    base: Option<ValueId>,
    indices: ValueId,
    updates: ValueId,
    output: ValueId,
    /// Number of indices.
    count: usize,
}

/// Writes a scatter: combines every update into the element at its index, in the order of the indices.
pub(super) fn scatter(
    w: &mut ShaderWriter<'_>,
    dims: [usize; 3],
    (combine, base): (ScatterCombine, Option<ValueId>),
    [indices, updates, output]: [ValueId; 3],
) {
    let [before, size, after] = dims;
    let results = before * size * after;
    if results == 0 {
        return;
    }
    let count = w.value(indices).descriptor.shape.elements();
    let scatter = ScatterShader { dims, combine, base, indices, updates, output, count };
    // The link table has one word per update, and must fit into one binding.
    if count < 2 || results <= count || count * 4 > w.tuning.window_bytes {
        return scatter_by_scanning_indices(w, &scatter);
    }
    match w.pass_buffer(count, "u32") {
        PassBuffer::Written(number) => link_updates(w, &scatter, number),
        PassBuffer::Read(number) => apply_linked_updates(w, &scatter, number),
    }
}

/// Writes a scatter with few results: each result scans all indices.
fn scatter_by_scanning_indices(w: &mut ShaderWriter<'_>, scatter: &ScatterShader) {
    let &ScatterShader { dims, count, .. } = scatter;
    let [before, size, after] = dims;
    w.invocation_per_element(before * size * after);
    let names = w.coordinates(&dims, "id", "c", &[]);
    let first = scatter.initial_element(w);
    w.line(format!("var place = {first};"));
    w.open_loop("i", count);
    name_clamped_index(w, scatter.indices, "i", size, "at");
    let combined = scatter.combine_update(w, &format!("({} * {count}u + i) * {after}u + {}", names[0], names[2]));
    w.line(format!("if (at == {}) {{ place = {combined}; }}", names[1]));
    w.close();
    w.store(scatter.output, "id", "place")
}

/// The link bit of an update that is not the first one of its index.
const NOT_FIRST_BIT: &str = "0x80000000u";

/// Writes the first of two passes. It initializes every result without updates. For each update, it stores the number
/// of the next update of the same index (for the last one, the number of updates), and whether it is the first.
fn link_updates(w: &mut ShaderWriter<'_>, scatter: &ScatterShader, chain: usize) {
    let &ScatterShader { dims, count, .. } = scatter;
    let results: usize = dims.iter().product();
    w.invocation_per_element(results);
    let first = scatter.initial_element(w);
    w.store(scatter.output, "id", &first);
    w.open(format!("if (id < {count}u)"));
    name_clamped_index(w, scatter.indices, "id", dims[1], "own");
    w.line(format!("var next = {count}u;\nvar later = 0u;"));
    w.open_loop("i", count);
    name_clamped_index(w, scatter.indices, "i", dims[1], "other");
    w.open("if (other == own)");
    w.line(format!("if (i < id) {{ later = {NOT_FIRST_BIT}; }}"));
    w.line(format!("if (i > id && next == {count}u) {{ next = i; }}"));
    w.close();
    w.close();
    w.line(format!("b{chain}[id] = next | later;"));
    w.close();
}

/// Writes the second pass: the first update of each index follows the links and combines the updates.
fn apply_linked_updates(w: &mut ShaderWriter<'_>, scatter: &ScatterShader, chain: usize) {
    let &ScatterShader { dims: [before, size, after], count, .. } = scatter;
    w.invocation_per_element(before * count * after);
    let names = w.coordinates(&[before, count, after], "id", "c", &[]);
    w.line(format!("var i = {};", names[1]));
    w.line(format!("if ((b{chain}[i] & {NOT_FIRST_BIT}) != 0u) {{ return; }}"));
    name_clamped_index(w, scatter.indices, "i", size, "at");
    w.line(format!("let to = ({} * {size}u + at) * {after}u + {};", names[0], names[2]));
    let first = w.element(scatter.output, "to");
    w.line(format!("var place = {first};"));
    w.open_for(format!("for (; i < {count}u; i = b{chain}[i] & ~{NOT_FIRST_BIT})"), count);
    let combined = scatter.combine_update(w, &format!("({} * {count}u + i) * {after}u + {}", names[0], names[2]));
    w.line(format!("place = {combined};"));
    w.close();
    w.store(scatter.output, "to", "place")
}

impl ScatterShader {
    /// Returns element `id` of the results without updates.
    fn initial_element(&self, w: &mut ShaderWriter<'_>) -> String {
        match self.base {
            Some(base) => w.element(base, "id"),
            None => {
                let dtype = w.value(self.updates).descriptor.dtype;
                scalar_literal(w.wide_integers(), Scalar::Int(0), dtype)
            }
        }
    }

    /// Returns `place` combined with the update at `index`.
    fn combine_update(&self, w: &mut ShaderWriter<'_>, index: &str) -> String {
        let dtype = w.value(self.updates).descriptor.dtype;
        let update = w.element(self.updates, index);
        // For half precision, only the stored result is rounded.
        let computed = if dtype.is_float() { DType::F32 } else { dtype };
        let by = |op| binary_expression(w.wide_integers(), op, computed, "place", &update);
        match self.combine {
            ScatterCombine::Add => by(BinaryOp::Add),
            ScatterCombine::Mul => by(BinaryOp::Mul),
            ScatterCombine::Min => by(BinaryOp::Min),
            ScatterCombine::Max => by(BinaryOp::Max),
            ScatterCombine::Replace => update,
        }
    }
}
