//! Rules of operators whose values follow from shapes and attributes.

use super::{RuleResult, single_result};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::tensor;
use crate::value::{ConstantElements, ConstantTensor, checked_size, element_count, normalize_axis};

/// Builds Constant from its attributes other than `value`.
pub fn constant(call: &OperatorCall) -> ValueResult {
    let constant = |elem, data: ConstantElements, shape: Vec<usize>| Ok(ConstantTensor::new(elem, shape, data).into());
    if let Some(attribute) = call.attribute("value_float") {
        return constant(ElementType::Float32, ConstantElements::Float(vec![f64::from(attribute.f)]), Vec::new());
    }
    if let Some(values) = call.floats("value_floats") {
        let shape = vec![values.len()];
        return constant(ElementType::Float32, ConstantElements::Float(values), shape);
    }
    if let Some(attribute) = call.attribute("value_int") {
        return constant(ElementType::Int64, ConstantElements::Int(vec![attribute.i]), Vec::new());
    }
    if let Some(values) = call.ints("value_ints") {
        return constant(ElementType::Int64, ConstantElements::Int(values.to_vec()), vec![values.len()]);
    }
    match call.attributes.first() {
        Some(attribute) => Err(Error::unsupported(format!("a constant by `{}`", attribute.name))),
        None => Err(Error::invalid("a constant without a value")),
    }
}

/// Builds ConstantOfShape.
pub(super) fn constant_of_shape(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let shape = call.constant(0, "the shape of ConstantOfShape")?.integers();
    let shape = shape.iter().map(|&dim| checked_size(dim, "a dimension")).collect::<Result<Vec<_>>>()?;
    let (elem, value) = match call.tensor("value") {
        None => (ElementType::Float32, 0.0),
        Some(tensor) => {
            let stored = tensor::read_tensor(tensor, false)?;
            let value = stored.constant().map(|constant| constant.floats()).unwrap_or_default();
            (stored.elem, *value.first().ok_or_else(|| Error::invalid("a value without elements"))?)
        }
    };
    single_result(g.fill(elem, &shape, value))
}

/// Builds Shape, or the part of it between two axes.
pub(super) fn shape(_: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let rank = x.rank() as i64;
    let bound = |axis: i64| (if axis < 0 { axis.saturating_add(rank) } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (bound(call.int("start", 0)), bound(call.int("end", rank)));
    let dims = x.shape().get(start..end).unwrap_or_default();
    single_result(Ok(ConstantTensor::ints(dims.iter().map(|&dim| dim as i64).collect()).into()))
}

/// Builds Size: the number of elements.
pub(super) fn size_operator(_: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let count = call.input(0)?.len() as i64;
    single_result(Ok(ConstantTensor::new(ElementType::Int64, Vec::new(), ConstantElements::Int(vec![count])).into()))
}

/// Builds Range of constants. A `float16` range is computed in single precision.
pub(super) fn range(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (start, limit, step) = (
        call.constant(0, "the start of Range")?,
        call.constant(1, "the limit of Range")?,
        call.constant(2, "the step of Range")?,
    );
    let elem = start.elem;
    let first = |constant: &ConstantTensor| {
        constant.floats().first().copied().ok_or_else(|| Error::invalid("a number is missing"))
    };
    let (from, to, by) = (first(start)?, first(limit)?, first(step)?);
    if by == 0.0 || !(to - from).is_finite() {
        return Err(Error::invalid(format!("a range from {from} to {to} by {by}")));
    }
    let count = checked_size(((to - from) / by).ceil().clamp(0.0, 1e12) as i64, "the length of Range")?;
    let computed = if elem == ElementType::Float16 { ElementType::Float32 } else { elem };
    let counted = g.iota(computed, &[count], 0)?;
    let scaled = if by == 1.0 { counted } else { g.mul_scalar(&counted, by)? };
    let moved = if from == 0.0 { scaled } else { g.add_scalar(&scaled, from)? };
    single_result(g.cast(&moved, elem))
}

/// Builds EyeLike: ones on one diagonal.
pub(super) fn eye_like(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let [rows, columns] = *x.shape() else {
        return Err(Error::invalid(format!("EyeLike takes a matrix, not {:?}", x.shape())));
    };
    let elem = call.element_type("dtype")?.unwrap_or(x.elem());
    let (row, column) = (g.iota(ElementType::Int64, &[rows, 1], 0)?, g.iota(ElementType::Int64, &[1, columns], 1)?);
    let diagonal = g.add_scalar(&row, call.int("k", 0).clamp(-(1 << 40), 1 << 40) as f64)?;
    let hit = g.equal(&diagonal, &column)?;
    single_result(g.cast(&hit, elem))
}

/// Builds OneHot: one value at the index and another elsewhere, along a new axis.
pub(super) fn one_hot(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (indices, values) = (call.input(0)?, call.input(2)?);
    let depth = call.known_scalar(1, "the depth of OneHot", 1.0)?;
    let depth = checked_size(depth as i64, "the depth of OneHot")?;
    let axis = normalize_axis(call.int("axis", -1), indices.rank() + 1)?;
    let whole = g.cast(indices, ElementType::Int64)?;
    let negative = g.lesser(&whole, &g.scalar_like(&whole, 0.0))?;
    let moved = g.add_scalar(&whole, depth as f64)?;
    let whole = g.select(&negative, &moved, &whole)?;
    let apart = g.unsqueeze(&whole, axis)?;
    let mut shape = vec![1; apart.rank()];
    shape[axis] = depth;
    element_count(&shape)?;
    let places = g.iota(ElementType::Int64, &[depth], 0)?;
    let places = g.reshape(&places, &shape)?;
    let hit = g.equal(&apart, &places)?;
    let (off, on) = (g.index_axis(values, 0, 0)?, g.index_axis(values, 0, 1)?);
    single_result(g.select(&hit, &on, &off))
}

/// Builds BlackmanWindow, HannWindow and HammingWindow of a constant size. Source: ONNX 17.
pub(super) fn window(_: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let count = checked_size(call.known_scalar(0, "the size of a window", 1.0)? as i64, "the size of a window")?;
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
        Some(attribute) => ElementType::from_number(i32::try_from(attribute.i).unwrap_or(-1))?,
        None => ElementType::Float32,
    };
    let values: Vec<f64> = (0..count).map(at).collect();
    let numbers = ConstantTensor::new(ElementType::Float64, vec![count], ConstantElements::Float(values));
    single_result(Ok(crate::fold::cast(&numbers, elem).into()))
}
