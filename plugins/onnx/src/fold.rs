//! Constant folding of operators. A function returns `None` for an operator that it does not fold; the graph computes
//! it.

use crate::backend::{ElementwiseBinary, ElementwiseUnary, ReductionOperator};
use crate::elem::ElementType;
use crate::error::Result;
use crate::value::{ConstantElements, ConstantTensor, broadcast_shapes};

/// Returns the row-major strides of a shape.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Calls `position` with the coordinates of each element of a tensor of this shape, in row-major order.
pub fn map_positions<T>(shape: &[usize], mut position: impl FnMut(&[usize]) -> T) -> Vec<T> {
    let count: usize = shape.iter().product();
    let mut at = vec![0; shape.len()];
    let mut results = Vec::with_capacity(count);
    for _ in 0..count {
        results.push(position(&at));
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    results
}

/// Returns the offset of coordinates with the given strides. Coordinates are aligned at the last axis.
fn offset(at: &[usize], shape: &[usize], strides: &[usize]) -> usize {
    let skipped = at.len() - shape.len();
    at[skipped..]
        .iter()
        .zip(shape)
        .zip(strides)
        .map(|((&i, &dim), &stride)| if dim == 1 { 0 } else { i * stride })
        .sum()
}

/// Gathers the elements of `x` at `positions`. A position of `None` gives `fill`.
fn pick_elements(x: &ConstantTensor, shape: Vec<usize>, positions: &[Option<usize>], fill: f64) -> ConstantTensor {
    let data = match x.data() {
        ConstantElements::Float(values) => {
            ConstantElements::Float(positions.iter().map(|p| p.map_or(fill, |p| values[p])).collect())
        }
        ConstantElements::Int(values) => {
            ConstantElements::Int(positions.iter().map(|p| p.map_or(fill as i64, |p| values[p])).collect())
        }
    };
    ConstantTensor::new(x.elem, shape, data)
}

/// Applies an elementwise operator with one operand.
pub fn unary(op: ElementwiseUnary, x: &ConstantTensor) -> Option<ConstantTensor> {
    let data = match x.data() {
        ConstantElements::Float(values) => {
            ConstantElements::Float(values.iter().map(|&v| fold_float_unary(op, v)).collect::<Option<_>>()?)
        }
        ConstantElements::Int(values) => {
            ConstantElements::Int(values.iter().map(|&v| fold_int_unary(op, v)).collect::<Option<_>>()?)
        }
    };
    Some(ConstantTensor::new(x.elem, x.shape.clone(), data))
}

fn fold_float_unary(op: ElementwiseUnary, x: f64) -> Option<f64> {
    Some(match op {
        ElementwiseUnary::Abs => x.abs(),
        ElementwiseUnary::Neg => -x,
        ElementwiseUnary::Sign if x == 0.0 || x.is_nan() => x,
        ElementwiseUnary::Sign => x.signum(),
        ElementwiseUnary::Ceil => x.ceil(),
        ElementwiseUnary::Floor => x.floor(),
        ElementwiseUnary::RoundEven => x.round_ties_even(),
        ElementwiseUnary::Exp => x.exp(),
        ElementwiseUnary::Log => x.ln(),
        ElementwiseUnary::Sqrt => x.sqrt(),
        ElementwiseUnary::Reciprocal => x.recip(),
        ElementwiseUnary::Sin => x.sin(),
        ElementwiseUnary::Cos => x.cos(),
        ElementwiseUnary::Tan => x.tan(),
        ElementwiseUnary::Tanh => x.tanh(),
        ElementwiseUnary::Relu => x.max(0.0),
        ElementwiseUnary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        ElementwiseUnary::Softsign => x / (1.0 + x.abs()),
        ElementwiseUnary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        ElementwiseUnary::Erf | ElementwiseUnary::Gelu | ElementwiseUnary::LogicalNot => return None,
    })
}

fn fold_int_unary(op: ElementwiseUnary, x: i64) -> Option<i64> {
    match op {
        ElementwiseUnary::Abs => Some(x.wrapping_abs()),
        ElementwiseUnary::Neg => Some(x.wrapping_neg()),
        ElementwiseUnary::Sign => Some(x.signum()),
        ElementwiseUnary::Relu => Some(x.max(0)),
        ElementwiseUnary::LogicalNot => Some(i64::from(x == 0)),
        _ => None,
    }
}

/// Applies an elementwise operator with two operands of one type.
///
/// # Errors
/// Returns `Invalid` if the shapes do not broadcast.
pub fn binary(op: ElementwiseBinary, a: &ConstantTensor, b: &ConstantTensor) -> Result<Option<ConstantTensor>> {
    let shape = broadcast_shapes(&a.shape, &b.shape)?;
    let (strides_a, strides_b) = (strides(&a.shape), strides(&b.shape));
    let pairs = map_positions(&shape, |at| (offset(at, &a.shape, &strides_a), offset(at, &b.shape, &strides_b)));
    let truth = |values: Vec<bool>| {
        let data = ConstantElements::Int(values.into_iter().map(i64::from).collect());
        Some(ConstantTensor::new(ElementType::Bool, shape.clone(), data))
    };
    Ok(match (a.data(), b.data()) {
        (ConstantElements::Float(x), ConstantElements::Float(y)) => {
            if let Some(compare) = comparison_of::<f64>(op) {
                return Ok(truth(pairs.iter().map(|&(i, j)| compare(&x[i], &y[j])).collect()));
            }
            let values = pairs.iter().map(|&(i, j)| fold_float_binary(op, x[i], y[j])).collect::<Option<Vec<_>>>();
            values.map(|values| ConstantTensor::new(a.elem, shape, ConstantElements::Float(values)))
        }
        (ConstantElements::Int(x), ConstantElements::Int(y)) => {
            // Values above `i64::MAX` are stored wrapped, which changes their order.
            if a.elem == ElementType::Uint64 && x.iter().chain(y).any(|&v| v < 0) {
                return Ok(None);
            }
            if let Some(compare) = comparison_of::<i64>(op) {
                return Ok(truth(pairs.iter().map(|&(i, j)| compare(&x[i], &y[j])).collect()));
            }
            let logical = matches!(op, ElementwiseBinary::And | ElementwiseBinary::Or | ElementwiseBinary::Xor);
            let values = pairs.iter().map(|&(i, j)| fold_int_binary(op, x[i], y[j])).collect::<Option<Vec<_>>>();
            let elem = if logical { ElementType::Bool } else { a.elem };
            values.map(|values| ConstantTensor::new(elem, shape, ConstantElements::Int(values)))
        }
        _ => None,
    })
}

fn comparison_of<T: PartialOrd>(op: ElementwiseBinary) -> Option<fn(&T, &T) -> bool> {
    Some(match op {
        ElementwiseBinary::Equal => T::eq,
        ElementwiseBinary::Greater => T::gt,
        ElementwiseBinary::GreaterOrEqual => T::ge,
        ElementwiseBinary::Lesser => T::lt,
        ElementwiseBinary::LesserOrEqual => T::le,
        _ => return None,
    })
}

fn fold_float_binary(op: ElementwiseBinary, x: f64, y: f64) -> Option<f64> {
    let with_nan = |value: f64| if x.is_nan() || y.is_nan() { f64::NAN } else { value };
    Some(match op {
        ElementwiseBinary::Add => x + y,
        ElementwiseBinary::Sub => x - y,
        ElementwiseBinary::Mul => x * y,
        ElementwiseBinary::Div => x / y,
        ElementwiseBinary::Pow => x.powf(y),
        ElementwiseBinary::Max => with_nan(x.max(y)),
        ElementwiseBinary::Min => with_nan(x.min(y)),
        _ => return None,
    })
}

fn fold_int_binary(op: ElementwiseBinary, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        ElementwiseBinary::Add => x.wrapping_add(y),
        ElementwiseBinary::Sub => x.wrapping_sub(y),
        ElementwiseBinary::Mul => x.wrapping_mul(y),
        // Division by 0 gives 0, as on the host.
        ElementwiseBinary::Div => x.checked_div(y).unwrap_or(0),
        ElementwiseBinary::Max => x.max(y),
        ElementwiseBinary::Min => x.min(y),
        ElementwiseBinary::And => i64::from(x != 0 && y != 0),
        ElementwiseBinary::Or => i64::from(x != 0 || y != 0),
        ElementwiseBinary::Xor => i64::from((x != 0) != (y != 0)),
        _ => return None,
    })
}

/// Returns `yes` where `condition` is not 0, else `no`.
///
/// # Errors
/// Returns `Invalid` if the shapes do not broadcast.
pub fn select(condition: &ConstantTensor, yes: &ConstantTensor, no: &ConstantTensor) -> Result<ConstantTensor> {
    let shape = broadcast_shapes(&broadcast_shapes(&condition.shape, &yes.shape)?, &no.shape)?;
    let condition = expand(condition, &shape).integers();
    let (yes, no) = (expand(yes, &shape), expand(no, &shape));
    let data = match (yes.data(), no.data()) {
        (ConstantElements::Float(x), ConstantElements::Float(y)) => ConstantElements::Float(
            condition.iter().enumerate().map(|(i, &c)| if c != 0 { x[i] } else { y[i] }).collect(),
        ),
        _ => {
            let (x, y) = (yes.integers(), no.integers());
            ConstantElements::Int(
                condition.iter().enumerate().map(|(i, &c)| if c != 0 { x[i] } else { y[i] }).collect(),
            )
        }
    };
    Ok(ConstantTensor::new(yes.elem, shape, data))
}

/// Converts the elements to another type. Floats are truncated and clamped to the range of an integer type.
pub fn cast(x: &ConstantTensor, elem: ElementType) -> ConstantTensor {
    let data = match (x.data(), elem.is_float()) {
        (ConstantElements::Float(values), true) => ConstantElements::Float(values.clone()),
        (ConstantElements::Float(values), false) if elem == ElementType::Bool => {
            ConstantElements::Int(values.iter().map(|&v| i64::from(v != 0.0)).collect())
        }
        (ConstantElements::Float(values), false) => {
            let [least, most] = elem.range();
            ConstantElements::Int(values.iter().map(|&v| v.clamp(least, most) as i64).collect())
        }
        (ConstantElements::Int(values), true) => ConstantElements::Float(values.iter().map(|&v| v as f64).collect()),
        (ConstantElements::Int(values), false) => ConstantElements::Int(values.clone()),
    };
    ConstantTensor::new(elem, x.shape.clone(), data)
}

/// Reduces `axes`, which stay with size 1.
pub fn reduce(op: ReductionOperator, x: &ConstantTensor, axes: &[usize]) -> Option<ConstantTensor> {
    let shape: Vec<usize> =
        x.shape.iter().enumerate().map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim }).collect();
    let to = strides(&shape);
    let targets = map_positions(&x.shape, |at| offset(at, &shape, &to));
    let count: usize = shape.iter().product();
    let data = match x.data() {
        ConstantElements::Float(values) => {
            let start = match op {
                ReductionOperator::Sum => 0.0,
                ReductionOperator::Product => 1.0,
                ReductionOperator::Max => f64::NEG_INFINITY,
                ReductionOperator::Min => f64::INFINITY,
                ReductionOperator::Mean | ReductionOperator::LogSumExp => return None,
            };
            let mut results = vec![start; count];
            for (&value, &target) in values.iter().zip(&targets) {
                results[target] = fold_float_binary(combining_op(op)?, results[target], value)?;
            }
            ConstantElements::Float(results)
        }
        ConstantElements::Int(_) if x.is_empty() => return None,
        ConstantElements::Int(values) => {
            let mut results: Vec<Option<i64>> = vec![None; count];
            for (&value, &target) in values.iter().zip(&targets) {
                results[target] = match results[target] {
                    None => Some(value),
                    Some(result) => fold_int_binary(combining_op(op)?, result, value),
                };
            }
            ConstantElements::Int(results.into_iter().collect::<Option<_>>()?)
        }
    };
    Some(ConstantTensor::new(x.elem, shape, data))
}

fn combining_op(op: ReductionOperator) -> Option<ElementwiseBinary> {
    match op {
        ReductionOperator::Sum => Some(ElementwiseBinary::Add),
        ReductionOperator::Product => Some(ElementwiseBinary::Mul),
        ReductionOperator::Max => Some(ElementwiseBinary::Max),
        ReductionOperator::Min => Some(ElementwiseBinary::Min),
        ReductionOperator::Mean | ReductionOperator::LogSumExp => None,
    }
}

/// Returns the cumulative sum along `axis`.
pub fn cumulative_sum(x: &ConstantTensor, axis: usize, exclusive: bool, reversed: bool) -> ConstantTensor {
    let step = strides(&x.shape)[axis];
    let mut order: Vec<usize> = (0..x.len()).collect();
    if reversed {
        order.reverse();
    }
    let position = |i: usize| (i / step) % x.shape[axis];
    let previous = |i: usize| match reversed {
        false => position(i).checked_sub(1).map(|_| i - step),
        true => (position(i) + 1 < x.shape[axis]).then_some(i + step),
    };
    let data = match x.data() {
        ConstantElements::Float(values) => {
            let mut sums = vec![0.0; values.len()];
            order.iter().for_each(|&i| sums[i] = values[i] + previous(i).map_or(0.0, |before| sums[before]));
            ConstantElements::Float(if exclusive { shift_sums(&sums, previous) } else { sums })
        }
        ConstantElements::Int(values) => {
            let mut sums = vec![0i64; values.len()];
            order.iter().for_each(|&i| sums[i] = values[i].wrapping_add(previous(i).map_or(0, |before| sums[before])));
            ConstantElements::Int(if exclusive { shift_sums(&sums, previous) } else { sums })
        }
    };
    ConstantTensor::new(x.elem, x.shape.clone(), data)
}

fn shift_sums<T: Copy + Default>(sums: &[T], previous: impl Fn(usize) -> Option<usize>) -> Vec<T> {
    (0..sums.len()).map(|i| previous(i).map_or(T::default(), |before| sums[before])).collect()
}

/// Returns the same elements with another shape of the same size.
pub fn reshape(x: &ConstantTensor, shape: &[usize]) -> ConstantTensor {
    ConstantTensor::new(x.elem, shape.to_vec(), x.data().clone())
}

/// Permutes the axes: axis `i` of the result is axis `permutation[i]`.
pub fn transpose(x: &ConstantTensor, permutation: &[usize]) -> ConstantTensor {
    let from = strides(&x.shape);
    let shape: Vec<usize> = permutation.iter().map(|&axis| x.shape[axis]).collect();
    let positions =
        map_positions(&shape, |at| Some(at.iter().zip(permutation).map(|(&i, &axis)| i * from[axis]).sum()));
    pick_elements(x, shape, &positions, 0.0)
}

/// Broadcasts dimensions of size 1.
pub fn expand(x: &ConstantTensor, shape: &[usize]) -> ConstantTensor {
    let from = strides(&x.shape);
    let positions = map_positions(shape, |at| Some(offset(at, &x.shape, &from)));
    pick_elements(x, shape.to_vec(), &positions, 0.0)
}

/// Returns `sizes[i]` elements along axis `i`, from `starts[i]` on, every `steps[i]`-th.
pub fn slice(x: &ConstantTensor, starts: &[usize], sizes: &[usize], steps: &[usize]) -> ConstantTensor {
    let from = strides(&x.shape);
    let positions = map_positions(sizes, |at| {
        Some(at.iter().enumerate().map(|(axis, &i)| (starts[axis] + i * steps[axis]) * from[axis]).sum())
    });
    pick_elements(x, sizes.to_vec(), &positions, 0.0)
}

/// Concatenates along `axis`. The other dimensions are equal.
pub fn concat(xs: &[&ConstantTensor], axis: usize) -> ConstantTensor {
    let mut shape = xs[0].shape.clone();
    shape[axis] = xs.iter().map(|x| x.shape[axis]).sum();
    let outer: usize = shape[..axis].iter().product();
    let chunk = |x: &ConstantTensor| x.shape[axis..].iter().product::<usize>();
    let data = if xs[0].elem.is_float() {
        let parts: Vec<(usize, Vec<f64>)> = xs.iter().map(|x| (chunk(x), x.floats())).collect();
        ConstantElements::Float(interleave(&parts, outer))
    } else {
        let parts: Vec<(usize, Vec<i64>)> = xs.iter().map(|x| (chunk(x), x.integers())).collect();
        ConstantElements::Int(interleave(&parts, outer))
    };
    ConstantTensor::new(xs[0].elem, shape, data)
}

fn interleave<T: Copy>(parts: &[(usize, Vec<T>)], outer: usize) -> Vec<T> {
    let rows = (0..outer).flat_map(|i| parts.iter().map(move |(chunk, values)| &values[i * chunk..(i + 1) * chunk]));
    rows.flatten().copied().collect()
}

/// Pads each axis with `value` before and after.
pub fn pad(x: &ConstantTensor, low: &[usize], high: &[usize], value: f64) -> ConstantTensor {
    let from = strides(&x.shape);
    let shape: Vec<usize> = (0..low.len()).map(|axis| x.shape[axis] + low[axis] + high[axis]).collect();
    let positions = map_positions(&shape, |at| {
        let inside = at
            .iter()
            .enumerate()
            .map(|(axis, &i)| i.checked_sub(low[axis]).filter(|&i| i < x.shape[axis]).map(|i| i * from[axis]));
        inside.sum::<Option<usize>>()
    });
    pick_elements(x, shape, &positions, value)
}

/// Reverses the order along `axes`.
pub fn reverse(x: &ConstantTensor, axes: &[usize]) -> ConstantTensor {
    let from = strides(&x.shape);
    let source = |axis: usize, i: usize| if axes.contains(&axis) { x.shape[axis] - 1 - i } else { i };
    let positions =
        map_positions(&x.shape, |at| Some(at.iter().enumerate().map(|(axis, &i)| source(axis, i) * from[axis]).sum()));
    pick_elements(x, x.shape.clone(), &positions, 0.0)
}

/// Gathers slices along `axis` at indices within the dimension. Negative indices count from the end.
pub fn gather(x: &ConstantTensor, indices: &ConstantTensor, axis: usize) -> Option<ConstantTensor> {
    let size = x.shape[axis] as i64;
    let wanted = indices.integers();
    let wanted: Option<Vec<usize>> = wanted
        .iter()
        .map(|&i| usize::try_from(if i < 0 { i + size } else { i }).ok().filter(|&i| i < size as usize))
        .collect();
    let wanted = wanted?;
    let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
    let inner: usize = x.shape[axis + 1..].iter().product();
    let outer: usize = x.shape[..axis].iter().product();
    let mut positions = Vec::with_capacity(shape.iter().product());
    for before in 0..outer {
        for &index in &wanted {
            let start = (before * x.shape[axis] + index) * inner;
            positions.extend((start..start + inner).map(Some));
        }
    }
    Some(pick_elements(x, shape, &positions, 0.0))
}
