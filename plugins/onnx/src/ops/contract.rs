//! Matrix products and sums of products.

use std::collections::BTreeMap;

use super::{Outcome, one};
use crate::backend::Reduction;
use crate::call::Call;
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::graph::{Built, Graph};
use crate::value::{Value, broadcast};

/// Products of 8-bit numbers that a `float32` sums without rounding: each is below 2^16 and the sum below 2^24.
const EXACT_TERMS: usize = 256;

/// The product as numpy has it: operands of one dimension become matrices for its time.
pub(super) fn matmul(g: &mut Graph, a: &Value, b: &Value) -> Built {
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

/// MatMul.
pub(super) fn mat_mul(g: &mut Graph, call: &Call) -> Outcome {
    one(matmul(g, call.input(0)?, call.input(1)?))
}

/// Gemm: `alpha * a * b + beta * c`.
pub(super) fn gemm(g: &mut Graph, call: &Call) -> Outcome {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.rank() != 2 || b.rank() != 2 {
        return Err(Error::invalid(format!("Gemm takes matrices, not {:?} and {:?}", a.shape(), b.shape())));
    }
    let a = if call.flag("transA", false) { g.swap(a, 0, 1)? } else { a.clone() };
    let b = if call.flag("transB", false) { g.swap(b, 0, 1)? } else { b.clone() };
    let (alpha, beta) = (call.float("alpha", 1.0), call.float("beta", 1.0));
    let mut result = matmul(g, &a, &b)?;
    if alpha != 1.0 {
        result = g.times(&result, alpha)?;
    }
    if let Some(c) = call.optional(2)
        && beta != 0.0
    {
        let c = if beta == 1.0 { c.clone() } else { g.times(c, beta)? };
        result = g.add(&result, &c)?;
    }
    one(Ok(result))
}

/// `x` less its zero point, as `float32`; `axis` is where a zero point of one dimension lies.
pub(super) fn centred(g: &mut Graph, x: &Value, zero: Option<&Value>, axis: usize) -> Built {
    let wide = g.cast(x, Elem::Float32)?;
    let Some(zero) = zero else { return Ok(wide) };
    let zero = g.cast(zero, Elem::Float32)?;
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

/// The exact product of matrices of small integers held as `float32`; `int32`.
fn exact_product(g: &mut Graph, a: &Value, b: &Value) -> Built {
    let (last, above) = (a.rank() - 1, b.rank().saturating_sub(2));
    let inner = a.shape()[last];
    let mut sum: Option<Value> = None;
    for start in (0..inner.max(1)).step_by(EXACT_TERMS) {
        let size = (inner - start).min(EXACT_TERMS);
        let (left, right) = (g.narrow(a, last, start, size)?, g.narrow(b, above, start, size)?);
        let part = matmul(g, &left, &right)?;
        let part = g.cast(&part, Elem::Int32)?;
        sum = Some(match sum {
            Some(sum) => g.add(&sum, &part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Error::invalid("a matrix product of nothing"))
}

/// MatMulInteger.
pub(super) fn mat_mul_integer(g: &mut Graph, call: &Call) -> Outcome {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let a = centred(g, a, call.optional(2), a.rank().saturating_sub(2))?;
    let b = centred(g, b, call.optional(3), b.rank().saturating_sub(1))?;
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Error::invalid("a matrix product of a scalar"));
    }
    one(exact_product(g, &a, &b))
}

/// QLinearMatMul: the integer product, requantized.
pub(super) fn q_linear_mat_mul(g: &mut Graph, call: &Call) -> Outcome {
    let (a, b) = (call.input(0)?, call.input(3)?);
    let (scale_a, scale_b, scale) = (call.input(1)?, call.input(4)?, call.input(6)?);
    let left = centred(g, a, call.optional(2), a.rank().saturating_sub(2))?;
    let right = centred(g, b, call.optional(5), b.rank().saturating_sub(1))?;
    let product = exact_product(g, &left, &right)?;
    let product = g.cast(&product, Elem::Float32)?;
    // A scale a row of `a` or a column of `b`.
    let upright = |g: &mut Graph, scale: &Value| {
        if scale.rank() == 1 && scale.len() > 1 { g.unsqueeze(scale, 1) } else { Ok(scale.clone()) }
    };
    let scale_a = upright(g, scale_a)?;
    let factor = super::quantize::ratio(g, &scale_a, scale_b, scale)?;
    let scaled = g.mul(&product, &factor)?;
    one(super::quantize::rounded(g, &scaled, call.input(7)?))
}

/// What an Einsum's axes are called: a letter, or a place in the ellipsis counted from its end.
type Label = u32;

/// Einsum, by matrix products of two operands at a time. Source: ONNX Einsum-12.
pub(super) fn einsum(g: &mut Graph, call: &Call) -> Outcome {
    let equation: String = call.string("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let operands = call.all()?;
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
        labelled.push(diagonals(g, operand.clone(), labels(term, operand.rank())?)?);
    }
    let dims = label_dims(&labelled)?;
    let output = output_labels(right.as_deref(), &left, &labelled)?;
    let mut rest = labelled.into_iter();
    let mut result = rest.next().ok_or_else(|| Error::invalid("there are no operands"))?;
    let rest: Vec<_> = rest.collect();
    for (i, next) in rest.iter().enumerate() {
        let later =
            |label: &Label| output.contains(label) || rest[i + 1..].iter().any(|(_, labels)| labels.contains(label));
        result = contract(g, result, next.clone(), &dims, later)?;
    }
    let (value, from) = summed(g, result, |label| output.contains(label))?;
    let permutation = output.iter().map(|label| from.iter().position(|l| l == label)).collect::<Option<Vec<_>>>();
    let permutation = permutation.ok_or_else(|| Error::invalid(format!("`{equation}` gives what no operand has")))?;
    one(g.transpose(&value, &permutation))
}

fn labels(term: &str, rank: usize) -> Result<Vec<Label>> {
    let letters = |text: &str| {
        text.chars()
            .map(|c| if c.is_ascii_alphabetic() { Ok(c as Label) } else { Err(()) })
            .collect::<std::result::Result<Vec<_>, _>>()
    };
    let wrong = || Error::invalid(format!("`{term}` does not describe {rank} dimensions"));
    let (before, after) = term.split_once("...").map_or((term, None), |(before, after)| (before, Some(after)));
    let mut labels = letters(before).map_err(|()| wrong())?;
    if let Some(after) = after {
        let after = letters(after).map_err(|()| wrong())?;
        let hidden = rank.checked_sub(labels.len() + after.len()).ok_or_else(wrong)?;
        labels.extend((0..hidden as Label).rev());
        labels.extend(after);
    }
    if labels.len() == rank { Ok(labels) } else { Err(wrong()) }
}

/// Axes of one label taken together: only where all coordinates are equal.
fn diagonals(g: &mut Graph, mut value: Value, mut labels: Vec<Label>) -> Result<(Value, Vec<Label>)> {
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
        value = g.gather(&flat, &crate::value::Constant::ints(places).into(), last - 1)?;
        let label = labels[i];
        labels = order[..last - 1].iter().map(|&axis| labels[axis]).collect();
        labels.push(label);
    }
    Ok((value, labels))
}

fn label_dims(labelled: &[(Value, Vec<Label>)]) -> Result<BTreeMap<Label, usize>> {
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

/// What the result's axes are; where the equation does not say it, the ellipsis and each letter that stands once, sorted.
fn output_labels(right: Option<&str>, left: &str, labelled: &[(Value, Vec<Label>)]) -> Result<Vec<Label>> {
    let hidden =
        labelled.iter().flat_map(|(_, labels)| labels).filter(|&&l| l < 'A' as Label).max().map_or(0, |&l| l + 1);
    match right {
        Some(right) => {
            let ellipsis = if right.contains("...") { hidden as usize } else { 0 };
            labels(right, right.chars().filter(char::is_ascii_alphabetic).count() + ellipsis)
        }
        None => {
            let once = |c: &char| c.is_ascii_alphabetic() && left.matches(*c).count() == 1;
            let mut letters: Vec<Label> = left.chars().filter(once).map(|c| c as Label).collect();
            letters.sort_unstable();
            Ok((0..hidden).rev().chain(letters).collect())
        }
    }
}

/// Summed over the labels that nothing needs.
fn summed(
    g: &mut Graph,
    (value, labels): (Value, Vec<Label>),
    needed: impl Fn(&Label) -> bool,
) -> Result<(Value, Vec<Label>)> {
    let gone: Vec<usize> = (0..labels.len()).filter(|&axis| !needed(&labels[axis])).collect();
    if gone.is_empty() {
        return Ok((value, labels));
    }
    let sum = g.reduce(Reduction::Sum, &value, &gone)?;
    let sum = g.squeeze(&sum, &gone)?;
    Ok((sum, labels.into_iter().filter(|label| needed(label)).collect()))
}

/// Two operands as one: labels that both have and nothing needs later are summed over by a matrix product.
fn contract(
    g: &mut Graph,
    a: (Value, Vec<Label>),
    b: (Value, Vec<Label>),
    dims: &BTreeMap<Label, usize>,
    later: impl Fn(&Label) -> bool,
) -> Result<(Value, Vec<Label>)> {
    let (in_a, in_b) = (a.1.clone(), b.1.clone());
    let a = summed(g, a, |label| later(label) || in_b.contains(label))?;
    let b = summed(g, b, |label| later(label) || in_a.contains(label))?;
    let both: Vec<Label> = a.1.iter().filter(|label| b.1.contains(label)).copied().collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = both.iter().partition(|label| later(label));
    let only = |labels: &[Label]| labels.iter().filter(|label| !both.contains(label)).copied().collect::<Vec<_>>();
    let (left, right) = (only(&a.1), only(&b.1));
    let count = |labels: &[Label]| labels.iter().map(|label| dims[label]).product::<usize>();
    let mut arranged = |(value, labels): (Value, Vec<Label>), groups: [&[Label]; 3]| {
        let order = groups.concat();
        let permutation: Vec<usize> = order.iter().filter_map(|label| labels.iter().position(|l| l == label)).collect();
        let moved = g.transpose(&value, &permutation)?;
        let full: Vec<usize> = order.iter().map(|label| dims[label]).collect();
        let full = g.expand(&moved, &broadcast(&full, moved.shape())?)?;
        g.reshape(&full, &[count(groups[0]), count(groups[1]), count(groups[2])])
    };
    let x = arranged(a, [&batch, &left, &inner])?;
    let y = arranged(b, [&batch, &inner, &right])?;
    let product = g.matmul(&x, &y)?;
    let labels = [batch, left, right].concat();
    let shape: Vec<usize> = labels.iter().map(|label| dims[label]).collect();
    Ok((g.reshape(&product, &shape)?, labels))
}
