//! Inference of windowed operators and their adjoints.

use super::{attribute, described, dimension, float, operands, rank, same_dtype};
use crate::Descriptor;
use crate::error::GraphError;
use crate::op::{Conv2d, Convolution, Pool2d};

pub(super) fn infer(convolution: &Convolution, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = convolution.name();
    match convolution {
        Convolution::Conv2d(conv) => conv2d(op, conv, operands(op, inputs)?),
        Convolution::Conv2dInputGrad { conv, size } => conv2d_input_grad(op, conv, *size, operands(op, inputs)?),
        Convolution::Conv2dFilterGrad { conv, window } => conv2d_filter_grad(op, conv, *window, operands(op, inputs)?),
        Convolution::Pool2d { kind: _, pool } => pool2d(op, pool, operands(op, inputs)?),
        Convolution::MaxPool2dGrad(pool) => max_pool2d_grad(op, pool, operands(op, inputs)?),
        Convolution::SumPool2dGrad { pool, size } => sum_pool2d_grad(op, pool, *size, operands(op, inputs)?),
    }
}

fn conv2d(op: &'static str, conv: &Conv2d, [x, filter]: [&Descriptor; 2]) -> Result<Descriptor, GraphError> {
    image(op, "input", x)?;
    image(op, "filter", filter)?;
    same_dtype(op, x, filter)?;
    let (channels, filters) = (x.shape[1], filter.shape[0]);
    groups(op, conv, "input", channels)?;
    groups(op, conv, "output", filters)?;
    dimension(op, "filter", filter, 1, channels / conv.groups)?;
    let [height, width] = output_size(op, conv, [x.shape[2], x.shape[3]], [filter.shape[2], filter.shape[3]])?;
    described(x.dtype, vec![x.shape[0], filters, height, width])
}

fn conv2d_input_grad(
    op: &'static str,
    conv: &Conv2d,
    size: [usize; 2],
    [dy, filter]: [&Descriptor; 2],
) -> Result<Descriptor, GraphError> {
    image(op, "output gradient", dy)?;
    image(op, "filter", filter)?;
    same_dtype(op, dy, filter)?;
    dimension(op, "output gradient", dy, 1, filter.shape[0])?;
    groups(op, conv, "output", filter.shape[0])?;
    let output = output_size(op, conv, size, [filter.shape[2], filter.shape[3]])?;
    spatial(op, "output gradient", dy, output)?;
    // A saturated product is past every limit, so the shape is refused by name.
    let channels = filter.shape[1].saturating_mul(conv.groups);
    described(dy.dtype, vec![dy.shape[0], channels, size[0], size[1]])
}

fn conv2d_filter_grad(
    op: &'static str,
    conv: &Conv2d,
    window: [usize; 2],
    [x, dy]: [&Descriptor; 2],
) -> Result<Descriptor, GraphError> {
    image(op, "input", x)?;
    image(op, "output gradient", dy)?;
    same_dtype(op, x, dy)?;
    dimension(op, "output gradient", dy, 0, x.shape[0])?;
    groups(op, conv, "input", x.shape[1])?;
    groups(op, conv, "output", dy.shape[1])?;
    let output = output_size(op, conv, [x.shape[2], x.shape[3]], window)?;
    spatial(op, "output gradient", dy, output)?;
    described(x.dtype, vec![dy.shape[1], x.shape[1] / conv.groups, window[0], window[1]])
}

fn pool2d(op: &'static str, pool: &Pool2d, [x]: [&Descriptor; 1]) -> Result<Descriptor, GraphError> {
    image(op, "input", x)?;
    let [height, width] = pooled_size(op, pool, [x.shape[2], x.shape[3]])?;
    described(x.dtype, vec![x.shape[0], x.shape[1], height, width])
}

fn max_pool2d_grad(op: &'static str, pool: &Pool2d, [x, dy]: [&Descriptor; 2]) -> Result<Descriptor, GraphError> {
    image(op, "input", x)?;
    image(op, "output gradient", dy)?;
    same_dtype(op, x, dy)?;
    dimension(op, "output gradient", dy, 0, x.shape[0])?;
    dimension(op, "output gradient", dy, 1, x.shape[1])?;
    spatial(op, "output gradient", dy, pooled_size(op, pool, [x.shape[2], x.shape[3]])?)?;
    Ok(x.clone())
}

fn sum_pool2d_grad(
    op: &'static str,
    pool: &Pool2d,
    size: [usize; 2],
    [dy]: [&Descriptor; 1],
) -> Result<Descriptor, GraphError> {
    image(op, "output gradient", dy)?;
    spatial(op, "output gradient", dy, pooled_size(op, pool, size)?)?;
    described(dy.dtype, vec![dy.shape[0], dy.shape[1], size[0], size[1]])
}

/// Four dimensions of a float type.
fn image(op: &'static str, operand: &'static str, descriptor: &Descriptor) -> Result<(), GraphError> {
    float(op, operand, descriptor)?;
    rank(op, operand, descriptor, 4)
}

fn spatial(
    op: &'static str,
    operand: &'static str,
    descriptor: &Descriptor,
    [height, width]: [usize; 2],
) -> Result<(), GraphError> {
    dimension(op, operand, descriptor, 2, height)?;
    dimension(op, operand, descriptor, 3, width)
}

fn groups(op: &'static str, conv: &Conv2d, operand: &'static str, channels: usize) -> Result<(), GraphError> {
    attribute(op, "groups", 1, conv.groups)?;
    if channels.is_multiple_of(conv.groups) {
        return Ok(());
    }
    Err(GraphError::Groups { op, operand, groups: conv.groups, channels })
}

fn output_size(
    op: &'static str,
    conv: &Conv2d,
    size: [usize; 2],
    window: [usize; 2],
) -> Result<[usize; 2], GraphError> {
    let mut output = [0; 2];
    for axis in 0..2 {
        let padding = [conv.padding[2 * axis], conv.padding[2 * axis + 1]];
        output[axis] = windows(op, size[axis], window[axis], padding, conv.strides[axis], conv.dilations[axis])?;
    }
    Ok(output)
}

fn pooled_size(op: &'static str, pool: &Pool2d, size: [usize; 2]) -> Result<[usize; 2], GraphError> {
    let mut output = [0; 2];
    for axis in 0..2 {
        let padding = [pool.padding[2 * axis], pool.padding[2 * axis + 1]];
        output[axis] = windows(op, size[axis], pool.window[axis], padding, pool.strides[axis], pool.dilations[axis])?;
        // A window must not lie in the padding alone at either end. `windows` has checked that this cannot overflow.
        let extent = pool.dilations[axis] * (pool.window[axis] - 1) + 1;
        for got in padding {
            if got >= extent {
                let most = extent - 1;
                return Err(GraphError::AttributeRange { op, attribute: "padding", least: 0, most, got });
            }
        }
    }
    Ok(output)
}

/// How many windows fit along one axis.
fn windows(
    op: &'static str,
    size: usize,
    window: usize,
    [low, high]: [usize; 2],
    stride: usize,
    dilation: usize,
) -> Result<usize, GraphError> {
    attribute(op, "size", 0, size)?;
    attribute(op, "window", 1, window)?;
    attribute(op, "padding", 0, low)?;
    attribute(op, "padding", 0, high)?;
    attribute(op, "stride", 1, stride)?;
    attribute(op, "dilation", 1, dilation)?;
    let padded = size + low + high;
    attribute(op, "padded size", 0, padded)?;
    match dilation.checked_mul(window - 1).and_then(|n| n.checked_add(1)) {
        Some(extent) if extent <= padded => Ok((padded - extent) / stride + 1),
        _ => Err(GraphError::WindowTooLarge { op, window, dilation, padded }),
    }
}
