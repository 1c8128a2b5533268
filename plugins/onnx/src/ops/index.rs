//! Rules of gather and scatter operators.

use super::{RuleResult, single_result};
use crate::backend::ScatterMode;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantElements, ConstantTensor, GraphValue, checked_size};

/// Returns the indices with negative ones counted from the end.
fn nonnegative_indices(g: &mut FoldingGraph, indices: &GraphValue, dim: usize) -> ValueResult {
    let indices = g.cast(indices, ElementType::Int64)?;
    let negative = g.lesser(&indices, &g.scalar_like(&indices, 0.0))?;
    let moved = g.add_scalar(&indices, dim as f64)?;
    g.select(&negative, &moved, &indices)
}

/// Builds Gather.
pub(super) fn gather(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", 0))?;
    single_result(g.gather(x, call.input(1)?, axis))
}

/// Builds GatherElements.
pub(super) fn gather_elements(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", 0))?;
    let indices = nonnegative_indices(g, call.input(1)?, x.dim(axis)?)?;
    single_result(g.gather_elements(x, &indices, axis))
}

/// Returns the coordinates in the last dimension of `indices`, with negative ones counted from the end.
fn nonnegative_coordinates(g: &mut FoldingGraph, indices: &GraphValue, dims: &[usize]) -> ValueResult {
    let indices = g.cast(indices, ElementType::Int64)?;
    let sizes = ConstantTensor::ints(dims.iter().map(|&dim| dim as i64).collect()).into();
    let negative = g.lesser(&indices, &g.scalar_like(&indices, 0.0))?;
    let moved = g.add(&indices, &sizes)?;
    g.select(&negative, &moved, &indices)
}

/// Builds GatherND. Leading dimensions can be a batch.
pub(super) fn gather_nd(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let batch = checked_size(call.int("batch_dims", 0), "batch_dims")?;
    let k = coordinate_count(x, indices, batch)?;
    let indices = nonnegative_coordinates(g, indices, &x.shape()[batch..batch + k])?;
    if batch == 0 {
        return single_result(g.gather_nd(x, &indices));
    }
    // The position in the batch becomes one more coordinate.
    let count: usize = x.shape()[..batch].iter().product();
    let flat = g.reshape(x, &[&[count], &x.shape()[batch..]].concat())?;
    let per_item: usize = indices.shape()[batch..indices.rank() - 1].iter().product();
    let places = g.reshape(&indices, &[count, per_item, k])?;
    let item = g.iota(ElementType::Int64, &[count, per_item, 1], 0)?;
    let places = g.concat(&[item, places], 2)?;
    let chosen = g.gather_nd(&flat, &places)?;
    single_result(g.reshape(&chosen, &[&indices.shape()[..indices.rank() - 1], &x.shape()[batch + k..]].concat()))
}

/// Returns the number of coordinates in the last dimension of `indices`.
fn coordinate_count(x: &GraphValue, indices: &GraphValue, batch: usize) -> Result<usize> {
    let wrong = || Error::invalid(format!("indices {:?} of {:?}", indices.shape(), x.shape()));
    let k = *indices.shape().last().ok_or_else(wrong)?;
    if batch + k <= x.rank() && batch < indices.rank() { Ok(k) } else { Err(wrong()) }
}

fn scatter_mode(call: &OperatorCall) -> Result<ScatterMode> {
    Ok(match &*call.string("reduction", "none") {
        "none" => ScatterMode::Replace,
        "add" => ScatterMode::Add,
        "mul" => ScatterMode::Mul,
        "min" => ScatterMode::Min,
        "max" => ScatterMode::Max,
        other => return Err(Error::invalid(format!("`reduction` is `{other}`"))),
    })
}

/// Builds ScatterElements and Scatter.
pub(super) fn scatter_elements(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, updates) = (call.input(0)?, call.input(2)?);
    let axis = x.axis(call.int("axis", 0))?;
    let indices = nonnegative_indices(g, call.input(1)?, x.dim(axis)?)?;
    single_result(g.scatter_elements(x, &indices, updates, axis, scatter_mode(call)?))
}

/// Builds ScatterND.
pub(super) fn scatter_nd(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, indices, updates) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let k = coordinate_count(x, indices, 0)?;
    let indices = nonnegative_coordinates(g, indices, &x.shape()[..k])?;
    single_result(g.scatter_nd(x, &indices, updates, scatter_mode(call)?))
}

/// Builds TensorScatter: writes an update into a cache, at a separate position for each item of the batch. Source: ONNX
/// 24.
pub(super) fn tensor_scatter(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (cache, update) = (call.input(0)?, call.input(1)?);
    let axis = cache.axis(call.int("axis", -2))?;
    let (most, steps) = (cache.dim(axis)?, update.dim(axis)?);
    let mut shape = vec![1; cache.rank()];
    shape[axis] = steps;
    let step = g.iota(ElementType::Int64, &[steps], 0)?;
    let mut places = g.reshape(&step, &shape)?;
    if let Some(start) = call.optional(2) {
        shape[axis] = 1;
        shape[0] = start.len();
        let start = g.cast(start, ElementType::Int64)?;
        let start = g.reshape(&start, &shape)?;
        places = g.add(&places, &start)?;
    }
    if call.choice("mode", &["linear", "circular"])? == "circular" {
        let size: GraphValue =
            ConstantTensor::new(ElementType::Int64, Vec::new(), ConstantElements::Int(vec![most as i64])).into();
        let turns = g.div(&places, &size)?;
        let whole = g.mul(&turns, &size)?;
        places = g.sub(&places, &whole)?;
    }
    let places = g.expand(&places, update.shape())?;
    single_result(g.scatter_elements(cache, &places, update, axis, ScatterMode::Replace))
}
