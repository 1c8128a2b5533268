//! Elements chosen by other elements' values.

use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Combine, Scalar};

use super::binary::{binary, less};
use super::expression::immediate;
use super::unary::cast;
use crate::program::ValueId;
use crate::wgsl::writer::{Parts, Writer};

/// Names the index stored at `at` of `indices`, counted from the end if negative and clamped into `size`, `name`.
fn chosen(w: &mut Writer<'_>, indices: ValueId, at: &str, size: usize, name: &str) {
    let dtype = w.value(indices).descriptor.dtype;
    let wide = w.wide_integers();
    let number = |number: usize| immediate(wide, Scalar::Int(number as i128), dtype);
    let (zero, size, last) = (number(0), number(size), number(size.saturating_sub(1)));
    let element = w.element(indices, at);
    // Clamped in the indices' own type: what a narrower one would leave of a large index may lie inside.
    let inside = if dtype.is_signed_integer() {
        w.line(format!("let {name}_stored = {element};"));
        let stored = format!("{name}_stored");
        let (from_end, is_from_end) =
            (binary(wide, Binary::Add, dtype, &stored, &size), less(wide, dtype, &stored, &zero));
        w.line(format!("let {name}_counted = select({stored}, {from_end}, {is_from_end});"));
        w.line(format!("let {name}_above = {};", binary(wide, Binary::Max, dtype, &format!("{name}_counted"), &zero)));
        binary(wide, Binary::Min, dtype, &format!("{name}_above"), &last)
    } else {
        binary(wide, Binary::Min, dtype, &element, &last)
    };
    w.line(format!("let {name} = {};", cast(wide, dtype, DType::U32, &inside)));
}

/// `[before, d, after]` by indices `[count]` to `[before, count, after]`.
pub(super) fn gather(
    w: &mut Writer<'_>,
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
    w.each(results);
    let names = w.coordinates(&[before, count, after], "id", "c", &[]);
    chosen(w, indices, &names[1], size, "place");
    let from = w.element(input, &format!("({} * {size}u + place) * {after}u + {}", names[0], names[2]));
    w.assign(output, "id", &from)
}

/// What a scatter does.
struct Scatter {
    dims: [usize; 3],
    combine: Combine,
    base: Option<ValueId>,
    indices: ValueId,
    updates: ValueId,
    output: ValueId,
    /// How many indices there are.
    count: usize,
}

/// Every update combined into its place, in the order of the indices.
pub(super) fn scatter(
    w: &mut Writer<'_>,
    dims: [usize; 3],
    (combine, base): (Combine, Option<ValueId>),
    [indices, updates, output]: [ValueId; 3],
) {
    let [before, size, after] = dims;
    let results = before * size * after;
    if results == 0 {
        return;
    }
    let count = w.value(indices).descriptor.shape.elements();
    let scatter = Scatter { dims, combine, base, indices, updates, output, count };
    // A table of words for the way from an update to the next one of its place has to fit into a binding.
    if count < 2 || results <= count || count * 4 > w.tuning.window_bytes {
        return looked_through(w, &scatter);
    }
    match w.parts(count, "u32") {
        Parts::Written(number) => chained(w, &scatter, number),
        Parts::Read(number) => walked(w, &scatter, number),
    }
}

/// Where results are few: each looks through the indices.
fn looked_through(w: &mut Writer<'_>, scatter: &Scatter) {
    let &Scatter { dims, count, .. } = scatter;
    let [before, size, after] = dims;
    w.each(before * size * after);
    let names = w.coordinates(&dims, "id", "c", &[]);
    let first = scatter.first(w);
    w.line(format!("var place = {first};"));
    w.open_loop("i", count);
    chosen(w, scatter.indices, "i", size, "at");
    let combined = scatter.combined(w, &format!("({} * {count}u + i) * {after}u + {}", names[0], names[2]));
    w.line(format!("if (at == {}) {{ place = {combined}; }}", names[1]));
    w.close();
    w.store(scatter.output, "id", "place")
}

/// The bit of an update that another one of its place comes before.
const LATER: &str = "0x80000000u";

/// The first of two passes: every result as it is without updates; and for every update the number of the next one of its
/// place, or as many as there are, and whether it is the first.
fn chained(w: &mut Writer<'_>, scatter: &Scatter, chain: usize) {
    let &Scatter { dims, count, .. } = scatter;
    let results: usize = dims.iter().product();
    w.each(results);
    let first = scatter.first(w);
    w.store(scatter.output, "id", &first);
    w.open(format!("if (id < {count}u)"));
    chosen(w, scatter.indices, "id", dims[1], "own");
    w.line(format!("var next = {count}u;\nvar later = 0u;"));
    w.open_loop("i", count);
    chosen(w, scatter.indices, "i", dims[1], "other");
    w.open("if (other == own)");
    w.line(format!("if (i < id) {{ later = {LATER}; }}"));
    w.line(format!("if (i > id && next == {count}u) {{ next = i; }}"));
    w.close();
    w.close();
    w.line(format!("b{chain}[id] = next | later;"));
    w.close();
}

/// The second: the first update of each place goes from one to the next, and combines them.
fn walked(w: &mut Writer<'_>, scatter: &Scatter, chain: usize) {
    let &Scatter { dims: [before, size, after], count, .. } = scatter;
    w.each(before * count * after);
    let names = w.coordinates(&[before, count, after], "id", "c", &[]);
    w.line(format!("var i = {};", names[1]));
    w.line(format!("if ((b{chain}[i] & {LATER}) != 0u) {{ return; }}"));
    chosen(w, scatter.indices, "i", size, "at");
    w.line(format!("let to = ({} * {size}u + at) * {after}u + {};", names[0], names[2]));
    let first = w.element(scatter.output, "to");
    w.line(format!("var place = {first};"));
    w.open_for(format!("for (; i < {count}u; i = b{chain}[i] & ~{LATER})"), count);
    let combined = scatter.combined(w, &format!("({} * {count}u + i) * {after}u + {}", names[0], names[2]));
    w.line(format!("place = {combined};"));
    w.close();
    w.store(scatter.output, "to", "place")
}

impl Scatter {
    /// Element `id` of the results as it is without updates.
    fn first(&self, w: &mut Writer<'_>) -> String {
        match self.base {
            Some(base) => w.element(base, "id"),
            None => {
                let dtype = w.value(self.updates).descriptor.dtype;
                immediate(w.wide_integers(), Scalar::Int(0), dtype)
            }
        }
    }

    /// `place` with the update at `index`.
    fn combined(&self, w: &mut Writer<'_>, index: &str) -> String {
        let dtype = w.value(self.updates).descriptor.dtype;
        let update = w.element(self.updates, index);
        // Of half precision only what is stored is rounded.
        let computed = if dtype.is_float() { DType::F32 } else { dtype };
        let by = |op| binary(w.wide_integers(), op, computed, "place", &update);
        match self.combine {
            Combine::Add => by(Binary::Add),
            Combine::Mul => by(Binary::Mul),
            Combine::Min => by(Binary::Min),
            Combine::Max => by(Binary::Max),
            Combine::Replace => update,
        }
    }
}
