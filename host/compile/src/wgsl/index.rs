//! Elements chosen by other elements' values.

use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Combine, Scalar};

use super::ShaderError;
use super::binary::binary;
use super::expression::immediate;
use super::unary::cast;
use crate::program::ValueId;
use crate::wgsl::writer::Writer;

/// Names the index stored at `at` of `indices`, counted from the end if negative and clamped into `size`, `name`.
fn chosen(w: &mut Writer<'_>, indices: ValueId, at: &str, size: usize, name: &str) -> Result<(), ShaderError> {
    let dtype = w.value(indices).descriptor.dtype;
    let number = |number: usize| immediate(Scalar::Int(number as i128), dtype);
    let (zero, size, last) = (number(0), number(size), number(size.saturating_sub(1)));
    let element = w.element(indices, at)?;
    // Clamped in the indices' own type: what a narrower one would leave of a large index may lie inside.
    let inside = if dtype.is_signed_integer() {
        w.line(format!("let {name}_stored = {element};"));
        w.line(format!("let {name}_counted = select({name}_stored, {name}_stored + {size}, {name}_stored < {zero});"));
        format!("clamp({name}_counted, {zero}, {last})")
    } else {
        format!("min({element}, {last})")
    };
    w.line(format!("let {name} = {};", cast(dtype, DType::U32, &inside)));
    Ok(())
}

/// `[before, d, after]` by indices `[count]` to `[before, count, after]`.
pub(super) fn gather(
    w: &mut Writer<'_>,
    [before, size, after]: [usize; 3],
    input: ValueId,
    indices: ValueId,
    output: ValueId,
) -> Result<(), ShaderError> {
    let count = w.value(indices).descriptor.shape.elements();
    let results = before * count * after;
    if results == 0 {
        return Ok(());
    }
    w.each(results);
    let names = w.coordinates(&[before, count, after], "id", "c", &[]);
    chosen(w, indices, &names[1], size, "place")?;
    let from = w.element(input, &format!("({} * {size}u + place) * {after}u + {}", names[0], names[2]))?;
    let to = w.element(output, "id")?;
    w.line(format!("{to} = {from};"));
    Ok(())
}

/// Every update combined into its place: each result looks through the indices in order.
pub(super) fn scatter(
    w: &mut Writer<'_>,
    [before, size, after]: [usize; 3],
    (combine, base): (Combine, Option<ValueId>),
    [indices, updates, output]: [ValueId; 3],
) -> Result<(), ShaderError> {
    let count = w.value(indices).descriptor.shape.elements();
    if before * size * after == 0 {
        return Ok(());
    }
    w.each(before * size * after);
    let names = w.coordinates(&[before, size, after], "id", "c", &[]);
    let dtype = w.value(updates).descriptor.dtype;
    let scalar = w.scalar(dtype)?;
    let first = match base {
        Some(base) => w.element(base, "id")?,
        None => format!("{scalar}(0)"),
    };
    w.line(format!("var place = {first};"));
    w.open_loop("i", count);
    chosen(w, indices, "i", size, "at")?;
    let update = w.element(updates, &format!("({} * {count}u + i) * {after}u + {}", names[0], names[2]))?;
    // Half precision is stored as words of single precision: only what is stored is rounded.
    let wide = if dtype.is_float() { DType::F32 } else { dtype };
    let combined = match combine {
        Combine::Replace => update,
        Combine::Add => binary(Binary::Add, wide, "place", &update),
        Combine::Mul => binary(Binary::Mul, wide, "place", &update),
        Combine::Min => binary(Binary::Min, wide, "place", &update),
        Combine::Max => binary(Binary::Max, wide, "place", &update),
    };
    w.line(format!("if (at == {}) {{ place = {combined}; }}", names[1]));
    w.close();
    w.store(output, "id", "place")
}
