//! Values that follow from shapes and attributes.

use super::{Outcome, one};
use crate::call::Call;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::graph::{Built, Graph};
use crate::tensor;
use crate::value::{Constant, Data, elements, normalized, size};

/// The attributes of Constant other than `value`.
pub fn constant(call: &Call) -> Built {
    let made = |elem, data: Data, shape: Vec<usize>| Ok(Constant::new(elem, shape, data).into());
    if let Some(attribute) = call.attribute("value_float") {
        return made(Elem::Float32, Data::Float(vec![f64::from(attribute.f)]), Vec::new());
    }
    if let Some(values) = call.floats("value_floats") {
        let shape = vec![values.len()];
        return made(Elem::Float32, Data::Float(values), shape);
    }
    if let Some(attribute) = call.attribute("value_int") {
        return made(Elem::Int64, Data::Int(vec![attribute.i]), Vec::new());
    }
    if let Some(values) = call.ints("value_ints") {
        return made(Elem::Int64, Data::Int(values.to_vec()), vec![values.len()]);
    }
    match call.attributes.first() {
        Some(attribute) => Err(Error::unsupported(format!("a constant by `{}`", attribute.name))),
        None => Err(Error::invalid("a constant without a value")),
    }
}

/// ConstantOfShape.
pub(super) fn constant_of_shape(g: &mut Graph, call: &Call) -> Outcome {
    let shape = call.constant(0, "the shape of ConstantOfShape")?.integers();
    let shape = shape.iter().map(|&dim| size(dim, "a dimension")).collect::<Result<Vec<_>>>()?;
    let (elem, value) = match call.tensor("value") {
        None => (Elem::Float32, 0.0),
        Some(tensor) => {
            let stored = tensor::read(tensor, false)?;
            let value = stored.constant().map(|constant| constant.floats()).unwrap_or_default();
            (stored.elem, *value.first().ok_or_else(|| Error::invalid("a value without elements"))?)
        }
    };
    one(g.fill(elem, &shape, value))
}

/// Shape, or the part of it between two axes.
pub(super) fn shape(_: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let rank = x.rank() as i64;
    let bound = |axis: i64| (if axis < 0 { axis.saturating_add(rank) } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (bound(call.int("start", 0)), bound(call.int("end", rank)));
    let dims = x.shape().get(start..end).unwrap_or_default();
    one(Ok(Constant::ints(dims.iter().map(|&dim| dim as i64).collect()).into()))
}

/// The number of elements.
pub(super) fn count(_: &mut Graph, call: &Call) -> Outcome {
    let count = call.input(0)?.len() as i64;
    one(Ok(Constant::new(Elem::Int64, Vec::new(), Data::Int(vec![count])).into()))
}

/// Range of numbers known now; those of `float16` are computed in single precision.
pub(super) fn range(g: &mut Graph, call: &Call) -> Outcome {
    let (start, limit, step) = (
        call.constant(0, "the start of Range")?,
        call.constant(1, "the limit of Range")?,
        call.constant(2, "the step of Range")?,
    );
    let elem = start.elem;
    let first =
        |constant: &Constant| constant.floats().first().copied().ok_or_else(|| Error::invalid("a number is missing"));
    let (from, to, by) = (first(start)?, first(limit)?, first(step)?);
    if by == 0.0 || !(to - from).is_finite() {
        return Err(Error::invalid(format!("a range from {from} to {to} by {by}")));
    }
    let count = size(((to - from) / by).ceil().clamp(0.0, 1e12) as i64, "the length of Range")?;
    let computed = if elem == Elem::Float16 { Elem::Float32 } else { elem };
    let counted = g.iota(computed, &[count], 0)?;
    let scaled = if by == 1.0 { counted } else { g.times(&counted, by)? };
    let moved = if from == 0.0 { scaled } else { g.plus(&scaled, from)? };
    one(g.cast(&moved, elem))
}

/// EyeLike: ones on one diagonal.
pub(super) fn eye(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let [rows, columns] = *x.shape() else {
        return Err(Error::invalid(format!("EyeLike takes a matrix, not {:?}", x.shape())));
    };
    let elem = call.elem("dtype")?.unwrap_or(x.elem());
    let (row, column) = (g.iota(Elem::Int64, &[rows, 1], 0)?, g.iota(Elem::Int64, &[1, columns], 1)?);
    let diagonal = g.plus(&row, call.int("k", 0).clamp(-(1 << 40), 1 << 40) as f64)?;
    let hit = g.equal(&diagonal, &column)?;
    one(g.cast(&hit, elem))
}

/// OneHot: two values, at the index and elsewhere, along a new axis.
pub(super) fn one_hot(g: &mut Graph, call: &Call) -> Outcome {
    let (indices, values) = (call.input(0)?, call.input(2)?);
    let depth = call.known_scalar(1, "the depth of OneHot", 1.0)?;
    let depth = size(depth as i64, "the depth of OneHot")?;
    let axis = normalized(call.int("axis", -1), indices.rank() + 1)?;
    let whole = g.cast(indices, Elem::Int64)?;
    let negative = g.lesser(&whole, &g.like(&whole, 0.0))?;
    let moved = g.plus(&whole, depth as f64)?;
    let whole = g.select(&negative, &moved, &whole)?;
    let apart = g.unsqueeze(&whole, axis)?;
    let mut shape = vec![1; apart.rank()];
    shape[axis] = depth;
    elements(&shape)?;
    let places = g.iota(Elem::Int64, &[depth], 0)?;
    let places = g.reshape(&places, &shape)?;
    let hit = g.equal(&apart, &places)?;
    let (off, on) = (g.at(values, 0, 0)?, g.at(values, 0, 1)?);
    one(g.select(&hit, &on, &off))
}

/// BlackmanWindow, HannWindow, HammingWindow of a size known now. Source: ONNX 17.
pub(super) fn window(_: &mut Graph, call: &Call) -> Outcome {
    let count = size(call.known_scalar(0, "the size of a window", 1.0)? as i64, "the size of a window")?;
    if count > 1 << 16 {
        return Err(Error::unsupported(format!("a window of {count}")));
    }
    let periodic = call.flag("periodic", true);
    let turn = 2.0 * std::f64::consts::PI / (if periodic { count as f64 } else { count as f64 - 1.0 });
    let [a, b, c] = match call.op {
        "BlackmanWindow" => [0.42, 0.5, 0.08],
        "HannWindow" => [0.5, 0.5, 0.0],
        _ => [25.0 / 46.0, 21.0 / 46.0, 0.0],
    };
    let at = |i: usize| a - b * (turn * i as f64).cos() + c * (2.0 * turn * i as f64).cos();
    let elem = match call.attribute("output_datatype") {
        Some(attribute) => Elem::from_number(i32::try_from(attribute.i).unwrap_or(-1))?,
        None => Elem::Float32,
    };
    let values: Vec<f64> = (0..count).map(at).collect();
    let numbers = Constant::new(Elem::Float64, vec![count], Data::Float(values));
    one(Ok(crate::fold::cast(&numbers, elem).into()))
}
