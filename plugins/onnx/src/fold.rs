//! Operators on tensors known now. What is not computed here (`None`) is left to the graph.

use crate::backend::{Binary, Reduction, Unary};
use crate::elem::Elem;
use crate::error::Result;
use crate::value::{Constant, Data, broadcast};

/// Row-major strides of a shape.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// `position` of each element of a tensor of this shape, in row-major order, from its coordinates.
pub fn each<T>(shape: &[usize], mut position: impl FnMut(&[usize]) -> T) -> Vec<T> {
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

/// The offset of coordinates, with the given strides; coordinates are aligned at the last axis.
fn offset(at: &[usize], shape: &[usize], strides: &[usize]) -> usize {
    let skipped = at.len() - shape.len();
    at[skipped..]
        .iter()
        .zip(shape)
        .zip(strides)
        .map(|((&i, &dim), &stride)| if dim == 1 { 0 } else { i * stride })
        .sum()
}

/// The elements of `x` at these positions, `fill` where there is none.
fn pick(x: &Constant, shape: Vec<usize>, positions: &[Option<usize>], fill: f64) -> Constant {
    let data = match x.data() {
        Data::Float(values) => Data::Float(positions.iter().map(|p| p.map_or(fill, |p| values[p])).collect()),
        Data::Int(values) => Data::Int(positions.iter().map(|p| p.map_or(fill as i64, |p| values[p])).collect()),
    };
    Constant::new(x.elem, shape, data)
}

/// One operand, element by element.
pub fn unary(op: Unary, x: &Constant) -> Option<Constant> {
    let data = match x.data() {
        Data::Float(values) => Data::Float(values.iter().map(|&v| float_unary(op, v)).collect::<Option<_>>()?),
        Data::Int(values) => Data::Int(values.iter().map(|&v| int_unary(op, v)).collect::<Option<_>>()?),
    };
    Some(Constant::new(x.elem, x.shape.clone(), data))
}

fn float_unary(op: Unary, x: f64) -> Option<f64> {
    Some(match op {
        Unary::Abs => x.abs(),
        Unary::Neg => -x,
        Unary::Sign if x == 0.0 || x.is_nan() => x,
        Unary::Sign => x.signum(),
        Unary::Ceil => x.ceil(),
        Unary::Floor => x.floor(),
        Unary::RoundEven => x.round_ties_even(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => x.recip(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Tanh => x.tanh(),
        Unary::Relu => x.max(0.0),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Softsign => x / (1.0 + x.abs()),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Erf | Unary::Gelu | Unary::LogicalNot => return None,
    })
}

fn int_unary(op: Unary, x: i64) -> Option<i64> {
    match op {
        Unary::Abs => Some(x.wrapping_abs()),
        Unary::Neg => Some(x.wrapping_neg()),
        Unary::Sign => Some(x.signum()),
        Unary::Relu => Some(x.max(0)),
        Unary::LogicalNot => Some(i64::from(x == 0)),
        _ => None,
    }
}

/// Two operands of one type, element by element.
///
/// # Errors
/// `Invalid` if the shapes do not fit.
pub fn binary(op: Binary, a: &Constant, b: &Constant) -> Result<Option<Constant>> {
    let shape = broadcast(&a.shape, &b.shape)?;
    let (strides_a, strides_b) = (strides(&a.shape), strides(&b.shape));
    let pairs = each(&shape, |at| (offset(at, &a.shape, &strides_a), offset(at, &b.shape, &strides_b)));
    let truth = |values: Vec<bool>| {
        let data = Data::Int(values.into_iter().map(i64::from).collect());
        Some(Constant::new(Elem::Bool, shape.clone(), data))
    };
    Ok(match (a.data(), b.data()) {
        (Data::Float(x), Data::Float(y)) => {
            if let Some(compare) = comparison::<f64>(op) {
                return Ok(truth(pairs.iter().map(|&(i, j)| compare(&x[i], &y[j])).collect()));
            }
            let values = pairs.iter().map(|&(i, j)| float_binary(op, x[i], y[j])).collect::<Option<Vec<_>>>();
            values.map(|values| Constant::new(a.elem, shape, Data::Float(values)))
        }
        (Data::Int(x), Data::Int(y)) => {
            // Above the largest int64 the order of what is kept is another one.
            if a.elem == Elem::Uint64 && x.iter().chain(y).any(|&v| v < 0) {
                return Ok(None);
            }
            if let Some(compare) = comparison::<i64>(op) {
                return Ok(truth(pairs.iter().map(|&(i, j)| compare(&x[i], &y[j])).collect()));
            }
            let logical = matches!(op, Binary::And | Binary::Or | Binary::Xor);
            let values = pairs.iter().map(|&(i, j)| int_binary(op, x[i], y[j])).collect::<Option<Vec<_>>>();
            let elem = if logical { Elem::Bool } else { a.elem };
            values.map(|values| Constant::new(elem, shape, Data::Int(values)))
        }
        _ => None,
    })
}

fn comparison<T: PartialOrd>(op: Binary) -> Option<fn(&T, &T) -> bool> {
    Some(match op {
        Binary::Equal => T::eq,
        Binary::Greater => T::gt,
        Binary::GreaterOrEqual => T::ge,
        Binary::Lesser => T::lt,
        Binary::LesserOrEqual => T::le,
        _ => return None,
    })
}

fn float_binary(op: Binary, x: f64, y: f64) -> Option<f64> {
    let with_nan = |value: f64| if x.is_nan() || y.is_nan() { f64::NAN } else { value };
    Some(match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Pow => x.powf(y),
        Binary::Max => with_nan(x.max(y)),
        Binary::Min => with_nan(x.min(y)),
        _ => return None,
    })
}

fn int_binary(op: Binary, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        // As on the host.
        Binary::Div => x.checked_div(y).unwrap_or(0),
        Binary::Max => x.max(y),
        Binary::Min => x.min(y),
        Binary::And => i64::from(x != 0 && y != 0),
        Binary::Or => i64::from(x != 0 || y != 0),
        Binary::Xor => i64::from((x != 0) != (y != 0)),
        _ => return None,
    })
}

/// `yes` where `condition` is not 0, else `no`.
///
/// # Errors
/// `Invalid` if the shapes do not fit.
pub fn select(condition: &Constant, yes: &Constant, no: &Constant) -> Result<Constant> {
    let shape = broadcast(&broadcast(&condition.shape, &yes.shape)?, &no.shape)?;
    let condition = expand(condition, &shape).integers();
    let (yes, no) = (expand(yes, &shape), expand(no, &shape));
    let data = match (yes.data(), no.data()) {
        (Data::Float(x), Data::Float(y)) => {
            Data::Float(condition.iter().enumerate().map(|(i, &c)| if c != 0 { x[i] } else { y[i] }).collect())
        }
        _ => {
            let (x, y) = (yes.integers(), no.integers());
            Data::Int(condition.iter().enumerate().map(|(i, &c)| if c != 0 { x[i] } else { y[i] }).collect())
        }
    };
    Ok(Constant::new(yes.elem, shape, data))
}

/// The elements as another type: floats are truncated and limited to an integer type.
pub fn cast(x: &Constant, elem: Elem) -> Constant {
    let data = match (x.data(), elem.is_float()) {
        (Data::Float(values), true) => Data::Float(values.clone()),
        (Data::Float(values), false) if elem == Elem::Bool => {
            Data::Int(values.iter().map(|&v| i64::from(v != 0.0)).collect())
        }
        (Data::Float(values), false) => {
            let [least, most] = elem.range();
            Data::Int(values.iter().map(|&v| v.clamp(least, most) as i64).collect())
        }
        (Data::Int(values), true) => Data::Float(values.iter().map(|&v| v as f64).collect()),
        (Data::Int(values), false) => Data::Int(values.clone()),
    };
    Constant::new(elem, x.shape.clone(), data)
}

/// Elements combined over `axes`, which stay with size 1.
pub fn reduce(op: Reduction, x: &Constant, axes: &[usize]) -> Option<Constant> {
    let shape: Vec<usize> =
        x.shape.iter().enumerate().map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim }).collect();
    let to = strides(&shape);
    let targets = each(&x.shape, |at| offset(at, &shape, &to));
    let count: usize = shape.iter().product();
    let data = match x.data() {
        Data::Float(values) => {
            let start = match op {
                Reduction::Sum => 0.0,
                Reduction::Product => 1.0,
                Reduction::Max => f64::NEG_INFINITY,
                Reduction::Min => f64::INFINITY,
                Reduction::Mean | Reduction::LogSumExp => return None,
            };
            let mut results = vec![start; count];
            for (&value, &target) in values.iter().zip(&targets) {
                results[target] = float_binary(combination(op)?, results[target], value)?;
            }
            Data::Float(results)
        }
        Data::Int(_) if x.is_empty() => return None,
        Data::Int(values) => {
            let mut results: Vec<Option<i64>> = vec![None; count];
            for (&value, &target) in values.iter().zip(&targets) {
                results[target] = match results[target] {
                    None => Some(value),
                    Some(result) => int_binary(combination(op)?, result, value),
                };
            }
            Data::Int(results.into_iter().collect::<Option<_>>()?)
        }
    };
    Some(Constant::new(x.elem, shape, data))
}

fn combination(op: Reduction) -> Option<Binary> {
    match op {
        Reduction::Sum => Some(Binary::Add),
        Reduction::Product => Some(Binary::Mul),
        Reduction::Max => Some(Binary::Max),
        Reduction::Min => Some(Binary::Min),
        Reduction::Mean | Reduction::LogSumExp => None,
    }
}

/// Each element plus all before it along `axis`.
pub fn cumulative_sum(x: &Constant, axis: usize, exclusive: bool, reversed: bool) -> Constant {
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
        Data::Float(values) => {
            let mut sums = vec![0.0; values.len()];
            order.iter().for_each(|&i| sums[i] = values[i] + previous(i).map_or(0.0, |before| sums[before]));
            Data::Float(if exclusive { shifted(&sums, previous) } else { sums })
        }
        Data::Int(values) => {
            let mut sums = vec![0i64; values.len()];
            order.iter().for_each(|&i| sums[i] = values[i].wrapping_add(previous(i).map_or(0, |before| sums[before])));
            Data::Int(if exclusive { shifted(&sums, previous) } else { sums })
        }
    };
    Constant::new(x.elem, x.shape.clone(), data)
}

fn shifted<T: Copy + Default>(sums: &[T], previous: impl Fn(usize) -> Option<usize>) -> Vec<T> {
    (0..sums.len()).map(|i| previous(i).map_or(T::default(), |before| sums[before])).collect()
}

/// The same elements under another shape of the same size.
pub fn reshape(x: &Constant, shape: &[usize]) -> Constant {
    Constant::new(x.elem, shape.to_vec(), x.data().clone())
}

/// Result axis `i` is axis `permutation[i]`.
pub fn transpose(x: &Constant, permutation: &[usize]) -> Constant {
    let from = strides(&x.shape);
    let shape: Vec<usize> = permutation.iter().map(|&axis| x.shape[axis]).collect();
    let positions = each(&shape, |at| Some(at.iter().zip(permutation).map(|(&i, &axis)| i * from[axis]).sum()));
    pick(x, shape, &positions, 0.0)
}

/// Dimensions of size 1 repeated.
pub fn expand(x: &Constant, shape: &[usize]) -> Constant {
    let from = strides(&x.shape);
    let positions = each(shape, |at| Some(offset(at, &x.shape, &from)));
    pick(x, shape.to_vec(), &positions, 0.0)
}

/// `sizes[i]` elements from `starts[i]`, every `steps[i]`-th, along each axis.
pub fn slice(x: &Constant, starts: &[usize], sizes: &[usize], steps: &[usize]) -> Constant {
    let from = strides(&x.shape);
    let positions = each(sizes, |at| {
        Some(at.iter().enumerate().map(|(axis, &i)| (starts[axis] + i * steps[axis]) * from[axis]).sum())
    });
    pick(x, sizes.to_vec(), &positions, 0.0)
}

/// Joined along `axis`; other dimensions are equal.
pub fn concat(xs: &[&Constant], axis: usize) -> Constant {
    let mut shape = xs[0].shape.clone();
    shape[axis] = xs.iter().map(|x| x.shape[axis]).sum();
    let outer: usize = shape[..axis].iter().product();
    let chunk = |x: &Constant| x.shape[axis..].iter().product::<usize>();
    let data = if xs[0].elem.is_float() {
        let parts: Vec<(usize, Vec<f64>)> = xs.iter().map(|x| (chunk(x), x.floats())).collect();
        Data::Float(interleaved(&parts, outer))
    } else {
        let parts: Vec<(usize, Vec<i64>)> = xs.iter().map(|x| (chunk(x), x.integers())).collect();
        Data::Int(interleaved(&parts, outer))
    };
    Constant::new(xs[0].elem, shape, data)
}

fn interleaved<T: Copy>(parts: &[(usize, Vec<T>)], outer: usize) -> Vec<T> {
    let rows = (0..outer).flat_map(|i| parts.iter().map(move |(chunk, values)| &values[i * chunk..(i + 1) * chunk]));
    rows.flatten().copied().collect()
}

/// `value` added before and after along each axis.
pub fn pad(x: &Constant, low: &[usize], high: &[usize], value: f64) -> Constant {
    let from = strides(&x.shape);
    let shape: Vec<usize> = (0..low.len()).map(|axis| x.shape[axis] + low[axis] + high[axis]).collect();
    let positions = each(&shape, |at| {
        let inside = at
            .iter()
            .enumerate()
            .map(|(axis, &i)| i.checked_sub(low[axis]).filter(|&i| i < x.shape[axis]).map(|i| i * from[axis]));
        inside.sum::<Option<usize>>()
    });
    pick(x, shape, &positions, value)
}

/// Order reversed along `axes`.
pub fn reverse(x: &Constant, axes: &[usize]) -> Constant {
    let from = strides(&x.shape);
    let source = |axis: usize, i: usize| if axes.contains(&axis) { x.shape[axis] - 1 - i } else { i };
    let positions =
        each(&x.shape, |at| Some(at.iter().enumerate().map(|(axis, &i)| source(axis, i) * from[axis]).sum()));
    pick(x, x.shape.clone(), &positions, 0.0)
}

/// Slices along `axis` at indices that are within the dimension; negative ones count from the end.
pub fn gather(x: &Constant, indices: &Constant, axis: usize) -> Option<Constant> {
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
    Some(pick(x, shape, &positions, 0.0))
}
