//! Fewer elements along axes, orders and running sums.

use super::{Outcome, one};
use crate::backend::Reduction;
use crate::call::Call;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::graph::{Built, Graph};
use crate::value::{Constant, Value, size};

/// Pairs of elements that are compared to order them; beyond it, the largest are taken one by one.
const PAIRS_MAX: usize = 1 << 22;
/// How many are taken one by one at most.
const PICKS_MAX: usize = 128;

/// Reduce*: axes are an attribute in older versions and an operand in newer ones.
pub(super) fn reduce(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axes = call.ints_of("axes", 1)?.unwrap_or_default();
    if axes.is_empty() && call.flag("noop_with_empty_axes", false) {
        return one(folded(g, call.op, x, &[]));
    }
    let axes = if axes.is_empty() { (0..x.rank()).collect() } else { x.axes(&axes)? };
    let result = folded(g, call.op, x, &axes)?;
    one(if call.flag("keepdims", true) { Ok(result) } else { g.squeeze(&result, &axes) })
}

fn folded(g: &mut Graph, op: &str, x: &Value, axes: &[usize]) -> Built {
    let mut over = |op: Reduction, x: &Value| {
        if axes.is_empty() { Ok(x.clone()) } else { g.reduce(op, x, axes) }
    };
    match op {
        "ReduceSum" => over(Reduction::Sum, x),
        "ReduceMean" if !x.elem().is_float() => {
            let sum = over(Reduction::Sum, x)?;
            let count: usize = axes.iter().map(|&axis| x.shape()[axis]).product();
            let count = g.like(&sum, count as f64);
            g.div(&sum, &count)
        }
        "ReduceMean" => over(Reduction::Mean, x),
        "ReduceMax" => over(Reduction::Max, x),
        "ReduceMin" => over(Reduction::Min, x),
        "ReduceProd" => over(Reduction::Product, x),
        "ReduceL1" => {
            let sizes = if x.elem().is_unsigned() { x.clone() } else { g.abs(x)? };
            folded(g, "ReduceSum", &sizes, axes)
        }
        "ReduceL2" => {
            let sum = folded(g, "ReduceSumSquare", x, axes)?;
            if sum.elem().is_float() {
                return g.sqrt(&sum);
            }
            let wide = g.cast(&sum, Elem::Float32)?;
            let root = g.sqrt(&wide)?;
            g.cast(&root, sum.elem())
        }
        "ReduceSumSquare" => {
            let squares = g.mul(x, x)?;
            folded(g, "ReduceSum", &squares, axes)
        }
        "ReduceLogSum" => {
            let sum = over(Reduction::Sum, x)?;
            g.log(&sum)
        }
        "ReduceLogSumExp" if axes.is_empty() => Ok(x.clone()),
        "ReduceLogSumExp" if x.is_empty() => {
            // Of nothing: the logarithm of 0.
            let sum = over(Reduction::Sum, x)?;
            g.log(&sum)
        }
        "ReduceLogSumExp" => over(Reduction::LogSumExp, x),
        other => Err(Error::unsupported(format!("operator {other}"))),
    }
}

/// ArgMax and ArgMin; the last of equals where asked for.
pub(super) fn arg(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", 0))?;
    let largest = call.op == "ArgMax";
    let found = if call.flag("select_last_index", false) {
        let reversed = g.reverse(x, &[axis])?;
        let found = g.arg(largest, &reversed, axis)?;
        let last = g.like(&found, x.dim(axis)? as f64 - 1.0);
        g.sub(&last, &found)?
    } else {
        g.arg(largest, x, axis)?
    };
    one(if call.flag("keepdims", true) { Ok(found) } else { g.squeeze(&found, &[axis]) })
}

/// CumSum.
pub(super) fn cumulative_sum(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axis = x.axis(call.known_scalar(1, "the axis", 0.0)? as i64)?;
    one(g.cumulative_sum(x, axis, call.flag("exclusive", false), call.flag("reverse", false)))
}

/// CumProd: one product after the other.
pub(super) fn cumulative_product(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axis = x.axis(call.known_scalar(1, "the axis", 0.0)? as i64)?;
    let count = x.dim(axis)?;
    if count > PICKS_MAX {
        return Err(Error::unsupported(format!("CumProd over more than {PICKS_MAX} elements")));
    }
    let (exclusive, reversed) = (call.flag("exclusive", false), call.flag("reverse", false));
    let x = if reversed { g.reverse(x, &[axis])? } else { x.clone() };
    let mut parts: Vec<Value> = Vec::new();
    let mut product: Option<Value> = None;
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
    one(if reversed { g.reverse(&result, &[axis]) } else { Ok(result) })
}

/// TopK: values and indices of the `k` largest or smallest, in order.
pub(super) fn top_k(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let axis = x.axis(call.int("axis", -1))?;
    let k = match call.maybe_int("k") {
        Some(k) => k,
        None => call.known_scalar(1, "how many TopK takes", 1.0)? as i64,
    };
    let k = size(k, "k")?;
    if k > x.dim(axis)? {
        return Err(Error::invalid(format!("{k} of {} elements", x.dim(axis)?)));
    }
    let largest = call.flag("largest", true);
    let last = x.rank() - 1;
    let moved = g.swap(x, axis, last)?;
    let n = x.dim(axis)?;
    let indices = if x.len().saturating_mul(n) <= PAIRS_MAX {
        by_rank(g, &moved, k, largest)?
    } else if k <= PICKS_MAX && x.elem().is_float() {
        one_by_one(g, &moved, k, largest)?
    } else {
        return Err(Error::unsupported(format!("the {k} largest of {n}")));
    };
    let values = g.gather_elements(&moved, &indices, last)?;
    Ok(vec![g.swap(&values, axis, last)?, g.swap(&indices, axis, last)?])
}

/// Along the last axis, the indices of the first `k` in order: an element's rank is how many come before it.
fn by_rank(g: &mut Graph, x: &Value, k: usize, largest: bool) -> Built {
    let rank = x.rank();
    let n = x.shape()[rank - 1];
    let (each, other) = (g.unsqueeze(x, rank)?, g.unsqueeze(x, rank - 1)?);
    let before = if largest { g.greater(&other, &each)? } else { g.lesser(&other, &each)? };
    let equal = g.equal(&other, &each)?;
    let earlier = {
        let (row, column) = (g.iota(Elem::Int32, &[n, 1], 0)?, g.iota(Elem::Int32, &[1, n], 1)?);
        g.lesser(&column, &row)?
    };
    let tied = g.and(&equal, &earlier)?;
    let before = g.or(&before, &tied)?;
    let before = g.cast(&before, Elem::Int32)?;
    let ranks = g.reduce(Reduction::Sum, &before, &[rank])?;
    let ranks = g.swap(&ranks, rank - 1, rank)?;
    let wanted = g.iota(Elem::Int32, &[k, 1], 0)?;
    let hit = g.equal(&ranks, &wanted)?;
    let hit = g.cast(&hit, Elem::Int32)?;
    let places = g.iota(Elem::Int32, &[n], 0)?;
    let places = g.mul(&hit, &places)?;
    let found = g.reduce(Reduction::Sum, &places, &[rank])?;
    let found = g.squeeze(&found, &[rank])?;
    g.cast(&found, Elem::Int64)
}

/// The same, taking the best and leaving it out, `k` times.
fn one_by_one(g: &mut Graph, x: &Value, k: usize, largest: bool) -> Built {
    let last = x.rank() - 1;
    let n = x.shape()[last];
    let places = g.iota(Elem::Int64, &[n], 0)?;
    let worst = g.like(x, if largest { f64::NEG_INFINITY } else { f64::INFINITY });
    let mut rest = x.clone();
    let mut found = Vec::with_capacity(k);
    for _ in 0..k {
        let best = g.arg(largest, &rest, last)?;
        let taken = g.equal(&places, &best)?;
        rest = g.select(&taken, &worst, &rest)?;
        found.push(best);
    }
    g.concat(&found, last)
}

/// NonZero of what is known now.
pub(super) fn non_zero(_: &mut Graph, call: &Call) -> Outcome {
    let x = call.constant(0, "what NonZero is of")?;
    let values = x.floats();
    let coordinates: Vec<Vec<usize>> = crate::fold::each(&x.shape, <[usize]>::to_vec)
        .into_iter()
        .zip(&values)
        .filter(|(_, v)| **v != 0.0)
        .map(|(at, _)| at)
        .collect();
    let rows = (0..x.shape.len()).flat_map(|axis| coordinates.iter().map(move |at| at[axis] as i64)).collect();
    let data = crate::value::Data::Int(rows);
    one(Ok(Constant::new(Elem::Int64, vec![x.shape.len(), coordinates.len()], data).into()))
}

/// Compress: slices where a condition, known now, holds.
pub(super) fn compress(g: &mut Graph, call: &Call) -> Outcome {
    let x = call.input(0)?;
    let condition = call.constant(1, "the condition of Compress")?.integers();
    let kept: Vec<i64> = (0..condition.len()).filter(|&i| condition[i] != 0).map(|i| i as i64).collect();
    let (x, axis) = match call.maybe_int("axis") {
        Some(axis) => (x.clone(), x.axis(axis)?),
        None => (g.reshape(x, &[x.len()])?, 0),
    };
    if condition.len() > x.dim(axis)? {
        return Err(Error::invalid(format!("a condition of {} for {} slices", condition.len(), x.dim(axis)?)));
    }
    one(g.gather(&x, &Constant::ints(kept).into(), axis))
}

/// The operand's axes from `axis` on, which what is normalised goes over.
pub(super) fn trailing(x: &Value, axis: i64) -> Result<Vec<usize>> {
    Ok((x.axis(axis)?..x.rank()).collect())
}
