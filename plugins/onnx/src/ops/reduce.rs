//! Rules of reductions, orders and running sums.

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{ConstantTensor, GraphValue, checked_size};

/// The maximum number of pairs compared to order elements. Beyond it, the largest elements are selected one by one.
const PAIRS_MAX: usize = 1 << 22;
/// The maximum number of elements selected one by one.
const SELECTIONS_MAX: usize = 128;

/// Builds Reduce*. The axes are an attribute in older versions and an operand in newer ones.
pub(super) fn reduce(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axes = call.ints_attribute_or_input("axes", 1)?.unwrap_or_default();
    if axes.is_empty() && call.flag("noop_with_empty_axes", false) {
        return single_result(reduce_with(g, call.op, x, &[]));
    }
    let axes = if axes.is_empty() { (0..x.rank()).collect() } else { x.axes(&axes)? };
    let result = reduce_with(g, call.op, x, &axes)?;
    single_result(if call.flag("keepdims", true) { Ok(result) } else { g.squeeze(&result, &axes) })
}

fn reduce_with(g: &mut FoldingGraph, op: &str, x: &GraphValue, axes: &[usize]) -> ValueResult {
    let mut over = |op: ReductionOperator, x: &GraphValue| {
        if axes.is_empty() { Ok(x.clone()) } else { g.reduce(op, x, axes) }
    };
    match op {
        "ReduceSum" => over(ReductionOperator::Sum, x),
        "ReduceMean" if !x.elem().is_float() => {
            let sum = over(ReductionOperator::Sum, x)?;
            let count: usize = axes.iter().map(|&axis| x.shape()[axis]).product();
            let count = g.scalar_like(&sum, count as f64);
            g.div(&sum, &count)
        }
        "ReduceMean" => over(ReductionOperator::Mean, x),
        "ReduceMax" => over(ReductionOperator::Max, x),
        "ReduceMin" => over(ReductionOperator::Min, x),
        "ReduceProd" => over(ReductionOperator::Product, x),
        "ReduceL1" => {
            let sizes = if x.elem().is_unsigned() { x.clone() } else { g.abs(x)? };
            reduce_with(g, "ReduceSum", &sizes, axes)
        }
        "ReduceL2" => {
            let sum = reduce_with(g, "ReduceSumSquare", x, axes)?;
            if sum.elem().is_float() {
                return g.sqrt(&sum);
            }
            let wide = g.cast(&sum, ElementType::Float32)?;
            let root = g.sqrt(&wide)?;
            g.cast(&root, sum.elem())
        }
        "ReduceSumSquare" => {
            let squares = g.mul(x, x)?;
            reduce_with(g, "ReduceSum", &squares, axes)
        }
        "ReduceLogSum" => {
            let sum = over(ReductionOperator::Sum, x)?;
            g.log(&sum)
        }
        "ReduceLogSumExp" if axes.is_empty() => Ok(x.clone()),
        "ReduceLogSumExp" if x.is_empty() => {
            // An empty sum gives the logarithm of 0.
            let sum = over(ReductionOperator::Sum, x)?;
            g.log(&sum)
        }
        "ReduceLogSumExp" => over(ReductionOperator::LogSumExp, x),
        other => Err(Error::unsupported(format!("operator {other}"))),
    }
}

/// Builds ArgMax and ArgMin. Of equal elements the first is chosen, or the last if the attribute says so.
pub(super) fn arg_extremum(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", 0))?;
    let largest = call.op == "ArgMax";
    let found = if call.flag("select_last_index", false) {
        let reversed = g.reverse(x, &[axis])?;
        let found = g.arg_extremum(largest, &reversed, axis)?;
        let last = g.scalar_like(&found, x.dim(axis)? as f64 - 1.0);
        g.sub(&last, &found)?
    } else {
        g.arg_extremum(largest, x, axis)?
    };
    single_result(if call.flag("keepdims", true) { Ok(found) } else { g.squeeze(&found, &[axis]) })
}

/// Builds CumSum.
pub(super) fn cumulative_sum(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.known_scalar(1, "the axis", 0.0)? as i64)?;
    single_result(g.cumulative_sum(x, axis, call.flag("exclusive", false), call.flag("reverse", false)))
}

/// Builds CumProd, one product after the other.
pub(super) fn cumulative_product(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.known_scalar(1, "the axis", 0.0)? as i64)?;
    let count = x.dim(axis)?;
    if count > SELECTIONS_MAX {
        return Err(Error::unsupported(format!("CumProd over more than {SELECTIONS_MAX} elements")));
    }
    let (exclusive, reversed) = (call.flag("exclusive", false), call.flag("reverse", false));
    let x = if reversed { g.reverse(x, &[axis])? } else { x.clone() };
    let mut parts: Vec<GraphValue> = Vec::new();
    let mut product: Option<GraphValue> = None;
    for i in 0..count {
        let part = g.narrow(&x, axis, i, 1)?;
        let next = match &product {
            Some(product) => g.mul(product, &part)?,
            None => part.clone(),
        };
        if exclusive {
            let before = product.take();
            parts.push(match before {
                Some(before) => before,
                None => g.fill(x.elem(), part.shape(), 1.0)?,
            });
        } else {
            parts.push(next.clone());
        }
        product = Some(next);
    }
    let result = g.concat(&parts, axis)?;
    single_result(if reversed { g.reverse(&result, &[axis]) } else { Ok(result) })
}

/// Builds TopK: the values and indices of the `k` largest or smallest elements, in order.
pub(super) fn top_k(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", -1))?;
    let k = match call.optional_int("k") {
        Some(k) => k,
        None => call.known_scalar(1, "the k of TopK", 1.0)? as i64,
    };
    let k = checked_size(k, "k")?;
    if k > x.dim(axis)? {
        return Err(Error::invalid(format!("{k} of {} elements", x.dim(axis)?)));
    }
    let largest = call.flag("largest", true);
    let last = x.rank() - 1;
    let moved = g.swap_axes(x, axis, last)?;
    let n = x.dim(axis)?;
    let indices = if x.len().saturating_mul(n) <= PAIRS_MAX {
        top_k_by_rank(g, &moved, k, largest)?
    } else if k <= SELECTIONS_MAX && x.elem().is_float() {
        top_k_by_selection(g, &moved, k, largest)?
    } else {
        return Err(Error::unsupported(format!("the {k} largest of {n}")));
    };
    let values = g.gather_elements(&moved, &indices, last)?;
    Ok(vec![g.swap_axes(&values, axis, last)?, g.swap_axes(&indices, axis, last)?])
}

/// Returns the indices of the first `k` elements in order along the last axis. An element's rank is the number of
/// elements before it.
fn top_k_by_rank(g: &mut FoldingGraph, x: &GraphValue, k: usize, largest: bool) -> ValueResult {
    let rank = x.rank();
    let n = x.shape()[rank - 1];
    let (each, other) = (g.unsqueeze(x, rank)?, g.unsqueeze(x, rank - 1)?);
    let before = if largest { g.greater(&other, &each)? } else { g.lesser(&other, &each)? };
    let equal = g.equal(&other, &each)?;
    let earlier = {
        let (row, column) = (g.iota(ElementType::Int32, &[n, 1], 0)?, g.iota(ElementType::Int32, &[1, n], 1)?);
        g.lesser(&column, &row)?
    };
    let tied = g.and(&equal, &earlier)?;
    let before = g.or(&before, &tied)?;
    let before = g.cast(&before, ElementType::Int32)?;
    let ranks = g.reduce(ReductionOperator::Sum, &before, &[rank])?;
    let ranks = g.swap_axes(&ranks, rank - 1, rank)?;
    let wanted = g.iota(ElementType::Int32, &[k, 1], 0)?;
    let hit = g.equal(&ranks, &wanted)?;
    let hit = g.cast(&hit, ElementType::Int32)?;
    let places = g.iota(ElementType::Int32, &[n], 0)?;
    let places = g.mul(&hit, &places)?;
    let found = g.reduce(ReductionOperator::Sum, &places, &[rank])?;
    let found = g.squeeze(&found, &[rank])?;
    g.cast(&found, ElementType::Int64)
}

/// Returns the same as [`top_k_by_rank`]: selects the best element and removes it, `k` times.
fn top_k_by_selection(g: &mut FoldingGraph, x: &GraphValue, k: usize, largest: bool) -> ValueResult {
    let last = x.rank() - 1;
    let n = x.shape()[last];
    let places = g.iota(ElementType::Int64, &[n], 0)?;
    let worst = g.scalar_like(x, if largest { f64::NEG_INFINITY } else { f64::INFINITY });
    let mut rest = x.clone();
    let mut found = Vec::with_capacity(k);
    for _ in 0..k {
        let best = g.arg_extremum(largest, &rest, last)?;
        let is_best = g.equal(&places, &best)?;
        rest = g.select(&is_best, &worst, &rest)?;
        found.push(best);
    }
    g.concat(&found, last)
}

/// Builds NonZero of a constant.
pub(super) fn non_zero(_: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.constant(0, "the operand of NonZero")?;
    let values = x.floats();
    let coordinates: Vec<Vec<usize>> = crate::fold::map_positions(&x.shape, <[usize]>::to_vec)
        .into_iter()
        .zip(&values)
        .filter(|(_, v)| **v != 0.0)
        .map(|(at, _)| at)
        .collect();
    let rows = (0..x.shape.len()).flat_map(|axis| coordinates.iter().map(move |at| at[axis] as i64)).collect();
    let data = crate::value::ConstantElements::Int(rows);
    single_result(Ok(ConstantTensor::new(ElementType::Int64, vec![x.shape.len(), coordinates.len()], data).into()))
}

/// Builds Compress: keeps the slices where a constant condition is true.
pub(super) fn compress(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let condition = call.constant(1, "the condition of Compress")?.integers();
    let indices: Vec<i64> = (0..condition.len()).filter(|&i| condition[i] != 0).map(|i| i as i64).collect();
    let (x, axis) = match call.optional_int("axis") {
        Some(axis) => (x.clone(), x.axis(axis)?),
        None => (g.reshape(x, &[x.len()])?, 0),
    };
    if condition.len() > x.dim(axis)? {
        return Err(Error::invalid(format!("a condition of {} for {} slices", condition.len(), x.dim(axis)?)));
    }
    single_result(g.gather(&x, &ConstantTensor::ints(indices).into(), axis))
}

/// Returns the operand's axes from `axis` on, which a normalization covers.
pub(super) fn trailing_axes(x: &GraphValue, axis: i64) -> Result<Vec<usize>> {
    Ok((x.axis(axis)?..x.rank()).collect())
}
