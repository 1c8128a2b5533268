//! Rules of matrix products and Einsum.

use std::collections::BTreeMap;

use super::{RuleResult, single_result};
use crate::backend::ReductionOperator;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{GraphValue, broadcast_shapes};

/// The maximum number of products of 8-bit numbers that a `float32` sums without rounding: each is below 2^16 and the
/// sum below 2^24.
const EXACT_TERMS_MAX: usize = 256;

/// Returns the matrix product with numpy's rules: a 1-D operand is treated as a matrix, and the added axis is removed
/// from the result.
pub(super) fn matmul(g: &mut FoldingGraph, a: &GraphValue, b: &GraphValue) -> ValueResult {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Error::invalid("a matrix product of a scalar"));
    }
    let row = if a.rank() == 1 { g.unsqueeze(a, 0)? } else { a.clone() };
    let column = if b.rank() == 1 { g.unsqueeze(b, 1)? } else { b.clone() };
    let (inner_a, inner_b) = (row.shape()[row.rank() - 1], column.shape()[column.rank() - 2]);
    if inner_a != inner_b {
        return Err(Error::invalid(format!("{:?} and {:?} cannot be multiplied", a.shape(), b.shape())));
    }
    let product = g.matmul(&row, &column)?;
    let last = product.rank() - 1;
    let mut gone = Vec::new();
    if a.rank() == 1 {
        gone.push(last - 1);
    }
    if b.rank() == 1 {
        gone.push(last);
    }
    g.squeeze(&product, &gone)
}

/// Builds MatMul.
pub(super) fn mat_mul(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    single_result(matmul(g, call.input(0)?, call.input(1)?))
}

/// Builds Gemm: `alpha * a * b + beta * c`.
pub(super) fn gemm(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.rank() != 2 || b.rank() != 2 {
        return Err(Error::invalid(format!("Gemm takes matrices, not {:?} and {:?}", a.shape(), b.shape())));
    }
    let a = if call.flag("transA", false) { g.swap_axes(a, 0, 1)? } else { a.clone() };
    let b = if call.flag("transB", false) { g.swap_axes(b, 0, 1)? } else { b.clone() };
    let (alpha, beta) = (call.float("alpha", 1.0), call.float("beta", 1.0));
    let mut result = matmul(g, &a, &b)?;
    if alpha != 1.0 {
        result = g.mul_scalar(&result, alpha)?;
    }
    if let Some(c) = call.optional(2)
        && beta != 0.0
    {
        let c = if beta == 1.0 { c.clone() } else { g.mul_scalar(c, beta)? };
        result = g.add(&result, &c)?;
    }
    single_result(Ok(result))
}

/// Returns `x` minus its zero point, as `float32`. A 1-D zero point lies along `axis`.
pub(super) fn subtract_zero_point(
    g: &mut FoldingGraph,
    x: &GraphValue,
    zero: Option<&GraphValue>,
    axis: usize,
) -> ValueResult {
    let wide = g.cast(x, ElementType::Float32)?;
    let Some(zero) = zero else { return Ok(wide) };
    let zero = g.cast(zero, ElementType::Float32)?;
    let zero = match zero.rank() {
        1 if zero.len() > 1 => {
            let mut shape = vec![1; x.rank()];
            shape[axis] = zero.len();
            g.reshape(&zero, &shape)?
        }
        1 => g.squeeze(&zero, &[0])?,
        _ => zero,
    };
    g.sub(&wide, &zero)
}

/// Returns the exact product of matrices of small integers held as `float32`. DType: `int32`.
fn exact_product(g: &mut FoldingGraph, a: &GraphValue, b: &GraphValue) -> ValueResult {
    let (last, above) = (a.rank() - 1, b.rank().saturating_sub(2));
    let inner = a.shape()[last];
    let mut sum: Option<GraphValue> = None;
    for start in (0..inner.max(1)).step_by(EXACT_TERMS_MAX) {
        let size = (inner - start).min(EXACT_TERMS_MAX);
        let (left, right) = (g.narrow(a, last, start, size)?, g.narrow(b, above, start, size)?);
        let part = matmul(g, &left, &right)?;
        let part = g.cast(&part, ElementType::Int32)?;
        sum = Some(match sum {
            Some(sum) => g.add(&sum, &part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Error::invalid("a matrix product of nothing"))
}

/// Builds MatMulInteger.
pub(super) fn mat_mul_integer(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let a = subtract_zero_point(g, a, call.optional(2), a.rank().saturating_sub(2))?;
    let b = subtract_zero_point(g, b, call.optional(3), b.rank().saturating_sub(1))?;
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Error::invalid("a matrix product of a scalar"));
    }
    single_result(exact_product(g, &a, &b))
}

/// Builds QLinearMatMul: the integer product, requantized.
pub(super) fn q_linear_mat_mul(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (a, b) = (call.input(0)?, call.input(3)?);
    let (scale_a, scale_b, scale) = (call.input(1)?, call.input(4)?, call.input(6)?);
    let left = subtract_zero_point(g, a, call.optional(2), a.rank().saturating_sub(2))?;
    let right = subtract_zero_point(g, b, call.optional(5), b.rank().saturating_sub(1))?;
    let product = exact_product(g, &left, &right)?;
    let product = g.cast(&product, ElementType::Float32)?;
    // A 1-D scale of `a` has one number per row, so it becomes a column.
    let upright = |g: &mut FoldingGraph, scale: &GraphValue| {
        if scale.rank() == 1 && scale.len() > 1 { g.unsqueeze(scale, 1) } else { Ok(scale.clone()) }
    };
    let scale_a = upright(g, scale_a)?;
    let factor = super::quantize::ratio(g, &scale_a, scale_b, scale)?;
    let scaled = g.mul(&product, &factor)?;
    single_result(super::quantize::round_to_zero_point(g, &scaled, call.input(7)?))
}

/// The label of an Einsum axis: a letter, or a position in the ellipsis counted from its end.
type EinsumLabel = u32;

/// Builds Einsum from matrix products of two operands at a time. Source: ONNX Einsum-12.
pub(super) fn einsum(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let equation: String = call.string("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let operands = call.inputs()?;
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left.to_owned(), Some(right.to_owned())),
        None => (equation.clone(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        return Err(Error::invalid(format!("`{equation}` is not for {} operands", operands.len())));
    }
    let mut labelled = Vec::new();
    for (term, operand) in terms.iter().zip(&operands) {
        labelled.push(take_diagonals(g, operand.clone(), parse_labels(term, operand.rank())?)?);
    }
    let dims = label_dims(&labelled)?;
    let output = output_labels(right.as_deref(), &left, &labelled)?;
    let mut rest = labelled.into_iter();
    let mut result = rest.next().ok_or_else(|| Error::invalid("there are no operands"))?;
    let rest: Vec<_> = rest.collect();
    for (i, next) in rest.iter().enumerate() {
        let later = |label: &EinsumLabel| {
            output.contains(label) || rest[i + 1..].iter().any(|(_, labels)| labels.contains(label))
        };
        result = contract_pair(g, result, next.clone(), &dims, later)?;
    }
    let (value, from) = sum_over_unneeded(g, result, |label| output.contains(label))?;
    let permutation = output.iter().map(|label| from.iter().position(|l| l == label)).collect::<Option<Vec<_>>>();
    let permutation =
        permutation.ok_or_else(|| Error::invalid(format!("`{equation}` has an output label without operand")))?;
    single_result(g.transpose(&value, &permutation))
}

fn parse_labels(term: &str, rank: usize) -> Result<Vec<EinsumLabel>> {
    let letters = |text: &str| {
        text.chars()
            .map(|c| if c.is_ascii_alphabetic() { Ok(c as EinsumLabel) } else { Err(()) })
            .collect::<std::result::Result<Vec<_>, _>>()
    };
    let wrong = || Error::invalid(format!("`{term}` does not describe {rank} dimensions"));
    let (before, after) = term.split_once("...").map_or((term, None), |(before, after)| (before, Some(after)));
    let mut labels = letters(before).map_err(|()| wrong())?;
    if let Some(after) = after {
        let after = letters(after).map_err(|()| wrong())?;
        let hidden = rank.checked_sub(labels.len() + after.len()).ok_or_else(wrong)?;
        labels.extend((0..hidden as EinsumLabel).rev());
        labels.extend(after);
    }
    if labels.len() == rank { Ok(labels) } else { Err(wrong()) }
}

/// Merges axes with the same label by taking their diagonal.
fn take_diagonals(
    g: &mut FoldingGraph,
    mut value: GraphValue,
    mut labels: Vec<EinsumLabel>,
) -> Result<(GraphValue, Vec<EinsumLabel>)> {
    while let Some((i, j)) =
        (0..labels.len()).find_map(|i| (i + 1..labels.len()).find(|&j| labels[j] == labels[i]).map(|j| (i, j)))
    {
        let n = value.shape()[i];
        if value.shape()[j] != n {
            return Err(Error::invalid(format!("axes {i} and {j} of {:?} differ", value.shape())));
        }
        let last = value.rank() - 1;
        let mut order: Vec<usize> = (0..value.rank()).filter(|&axis| axis != i && axis != j).collect();
        order.extend([i, j]);
        let moved = g.transpose(&value, &order)?;
        let mut shape = moved.shape()[..last - 1].to_vec();
        shape.push(n * n);
        let flat = g.reshape(&moved, &shape)?;
        let places = (0..n).map(|k| (k * (n + 1)) as i64).collect();
        value = g.gather(&flat, &crate::value::ConstantTensor::ints(places).into(), last - 1)?;
        let label = labels[i];
        labels = order[..last - 1].iter().map(|&axis| labels[axis]).collect();
        labels.push(label);
    }
    Ok((value, labels))
}

fn label_dims(labelled: &[(GraphValue, Vec<EinsumLabel>)]) -> Result<BTreeMap<EinsumLabel, usize>> {
    let mut dims = BTreeMap::new();
    for (value, labels) in labelled {
        for (&label, &dim) in labels.iter().zip(value.shape()) {
            let known = dims.entry(label).or_insert(dim);
            if *known == 1 {
                *known = dim;
            } else if dim != *known && dim != 1 {
                return Err(Error::invalid(format!("an axis has {known} and {dim} elements")));
            }
        }
    }
    Ok(dims)
}

/// Returns the labels of the result's axes. Without an output term, these are the ellipsis and each letter that occurs
/// once, sorted.
fn output_labels(
    right: Option<&str>,
    left: &str,
    labelled: &[(GraphValue, Vec<EinsumLabel>)],
) -> Result<Vec<EinsumLabel>> {
    let hidden =
        labelled.iter().flat_map(|(_, labels)| labels).filter(|&&l| l < 'A' as EinsumLabel).max().map_or(0, |&l| l + 1);
    match right {
        Some(right) => {
            let ellipsis = if right.contains("...") { hidden as usize } else { 0 };
            parse_labels(right, right.chars().filter(char::is_ascii_alphabetic).count() + ellipsis)
        }
        None => {
            let once = |c: &char| c.is_ascii_alphabetic() && left.matches(*c).count() == 1;
            let mut letters: Vec<EinsumLabel> = left.chars().filter(once).map(|c| c as EinsumLabel).collect();
            letters.sort_unstable();
            Ok((0..hidden).rev().chain(letters).collect())
        }
    }
}

/// Sums over the labels for which `needed` is false.
fn sum_over_unneeded(
    g: &mut FoldingGraph,
    (value, labels): (GraphValue, Vec<EinsumLabel>),
    needed: impl Fn(&EinsumLabel) -> bool,
) -> Result<(GraphValue, Vec<EinsumLabel>)> {
    let gone: Vec<usize> = (0..labels.len()).filter(|&axis| !needed(&labels[axis])).collect();
    if gone.is_empty() {
        return Ok((value, labels));
    }
    let sum = g.reduce(ReductionOperator::Sum, &value, &gone)?;
    let sum = g.squeeze(&sum, &gone)?;
    Ok((sum, labels.into_iter().filter(|label| needed(label)).collect()))
}

/// Contracts two operands to one. Labels of both operands that `later` does not need are summed over by a matrix
/// product.
fn contract_pair(
    g: &mut FoldingGraph,
    a: (GraphValue, Vec<EinsumLabel>),
    b: (GraphValue, Vec<EinsumLabel>),
    dims: &BTreeMap<EinsumLabel, usize>,
    later: impl Fn(&EinsumLabel) -> bool,
) -> Result<(GraphValue, Vec<EinsumLabel>)> {
    let (in_a, in_b) = (a.1.clone(), b.1.clone());
    let a = sum_over_unneeded(g, a, |label| later(label) || in_b.contains(label))?;
    let b = sum_over_unneeded(g, b, |label| later(label) || in_a.contains(label))?;
    let both: Vec<EinsumLabel> = a.1.iter().filter(|label| b.1.contains(label)).copied().collect();
    let (batch, inner): (Vec<EinsumLabel>, Vec<EinsumLabel>) = both.iter().partition(|label| later(label));
    let only =
        |labels: &[EinsumLabel]| labels.iter().filter(|label| !both.contains(label)).copied().collect::<Vec<_>>();
    let (left, right) = (only(&a.1), only(&b.1));
    let count = |labels: &[EinsumLabel]| labels.iter().map(|label| dims[label]).product::<usize>();
    let mut arranged = |(value, labels): (GraphValue, Vec<EinsumLabel>), groups: [&[EinsumLabel]; 3]| {
        let order = groups.concat();
        let permutation: Vec<usize> = order.iter().filter_map(|label| labels.iter().position(|l| l == label)).collect();
        let moved = g.transpose(&value, &permutation)?;
        let full: Vec<usize> = order.iter().map(|label| dims[label]).collect();
        let full = g.expand(&moved, &broadcast_shapes(&full, moved.shape())?)?;
        g.reshape(&full, &[count(groups[0]), count(groups[1]), count(groups[2])])
    };
    let x = arranged(a, [&batch, &left, &inner])?;
    let y = arranged(b, [&batch, &inner, &right])?;
    let product = g.matmul(&x, &y)?;
    let labels = [batch, left, right].concat();
    let shape: Vec<usize> = labels.iter().map(|label| dims[label]).collect();
    Ok((g.reshape(&product, &shape)?, labels))
}
