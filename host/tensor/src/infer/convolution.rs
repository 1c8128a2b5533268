//! Inference of windowed operators and their adjoints.

use super::{
    check_attribute_range, check_dimension, check_float, check_rank, check_same_dtype, expect_operands, new_descriptor,
};
use crate::Descriptor;
use crate::error::GraphError;
use crate::op::{Conv2d, ConvolutionOp, Pool2d};

pub(super) fn infer(convolution: &ConvolutionOp, inputs: &[&Descriptor]) -> Result<Descriptor, GraphError> {
    let op = convolution.name();
    match convolution {
        ConvolutionOp::Conv2d(conv) => conv2d(op, conv, expect_operands(op, inputs)?),
        ConvolutionOp::Conv2dInputGrad { conv, size } => {
            conv2d_input_grad(op, conv, *size, expect_operands(op, inputs)?)
        }
        ConvolutionOp::Conv2dFilterGrad { conv, window } => {
            conv2d_filter_grad(op, conv, *window, expect_operands(op, inputs)?)
        }
        ConvolutionOp::Pool2d { kind: _, pool } => pool2d(op, pool, expect_operands(op, inputs)?),
        ConvolutionOp::MaxPool2dGrad(pool) => max_pool2d_grad(op, pool, expect_operands(op, inputs)?),
        ConvolutionOp::SumPool2dGrad { pool, size } => sum_pool2d_grad(op, pool, *size, expect_operands(op, inputs)?),
    }
}

fn conv2d(op: &'static str, conv: &Conv2d, [x, filter]: [&Descriptor; 2]) -> Result<Descriptor, GraphError> {
    check_image(op, "input", x)?;
    check_image(op, "filter", filter)?;
    check_same_dtype(op, x, filter)?;
    let (channels, filters) = (x.shape[1], filter.shape[0]);
    check_groups(op, conv, "input", channels)?;
    check_groups(op, conv, "output", filters)?;
    check_dimension(op, "filter", filter, 1, channels / conv.groups)?;
    let [height, width] = output_size(op, conv, [x.shape[2], x.shape[3]], [filter.shape[2], filter.shape[3]])?;
    new_descriptor(x.dtype, vec![x.shape[0], filters, height, width])
}

fn conv2d_input_grad(
    op: &'static str,
    conv: &Conv2d,
    size: [usize; 2],
    [dy, filter]: [&Descriptor; 2],
) -> Result<Descriptor, GraphError> {
    check_image(op, "output gradient", dy)?;
    check_image(op, "filter", filter)?;
    check_same_dtype(op, dy, filter)?;
    check_dimension(op, "output gradient", dy, 1, filter.shape[0])?;
    check_groups(op, conv, "output", filter.shape[0])?;
    let output = output_size(op, conv, size, [filter.shape[2], filter.shape[3]])?;
    check_spatial_sizes(op, "output gradient", dy, output)?;
    // A saturated product exceeds every limit, so the shape is refused with a named error.
    let channels = filter.shape[1].saturating_mul(conv.groups);
    new_descriptor(dy.dtype, vec![dy.shape[0], channels, size[0], size[1]])
}

fn conv2d_filter_grad(
    op: &'static str,
    conv: &Conv2d,
    window: [usize; 2],
    [x, dy]: [&Descriptor; 2],
) -> Result<Descriptor, GraphError> {
    check_image(op, "input", x)?;
    check_image(op, "output gradient", dy)?;
    check_same_dtype(op, x, dy)?;
    check_dimension(op, "output gradient", dy, 0, x.shape[0])?;
    check_groups(op, conv, "input", x.shape[1])?;
    check_groups(op, conv, "output", dy.shape[1])?;
    let output = output_size(op, conv, [x.shape[2], x.shape[3]], window)?;
    check_spatial_sizes(op, "output gradient", dy, output)?;
    new_descriptor(x.dtype, vec![dy.shape[1], x.shape[1] / conv.groups, window[0], window[1]])
}

fn pool2d(op: &'static str, pool: &Pool2d, [x]: [&Descriptor; 1]) -> Result<Descriptor, GraphError> {
    check_image(op, "input", x)?;
    let [height, width] = pooled_size(op, pool, [x.shape[2], x.shape[3]])?;
    new_descriptor(x.dtype, vec![x.shape[0], x.shape[1], height, width])
}

fn max_pool2d_grad(op: &'static str, pool: &Pool2d, [x, dy]: [&Descriptor; 2]) -> Result<Descriptor, GraphError> {
    check_image(op, "input", x)?;
    check_image(op, "output gradient", dy)?;
    check_same_dtype(op, x, dy)?;
    check_dimension(op, "output gradient", dy, 0, x.shape[0])?;
    check_dimension(op, "output gradient", dy, 1, x.shape[1])?;
    check_spatial_sizes(op, "output gradient", dy, pooled_size(op, pool, [x.shape[2], x.shape[3]])?)?;
    Ok(x.clone())
}

fn sum_pool2d_grad(
    op: &'static str,
    pool: &Pool2d,
    size: [usize; 2],
    [dy]: [&Descriptor; 1],
) -> Result<Descriptor, GraphError> {
    check_image(op, "output gradient", dy)?;
    check_spatial_sizes(op, "output gradient", dy, pooled_size(op, pool, size)?)?;
    new_descriptor(dy.dtype, vec![dy.shape[0], dy.shape[1], size[0], size[1]])
}

/// Checks for four dimensions and a float type.
fn check_image(op: &'static str, operand: &'static str, descriptor: &Descriptor) -> Result<(), GraphError> {
    check_float(op, operand, descriptor)?;
    check_rank(op, operand, descriptor, 4)
}

fn check_spatial_sizes(
    op: &'static str,
    operand: &'static str,
    descriptor: &Descriptor,
    [height, width]: [usize; 2],
) -> Result<(), GraphError> {
    check_dimension(op, operand, descriptor, 2, height)?;
    check_dimension(op, operand, descriptor, 3, width)
}

fn check_groups(op: &'static str, conv: &Conv2d, operand: &'static str, channels: usize) -> Result<(), GraphError> {
    check_attribute_range(op, "groups", 1, conv.groups)?;
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
        output[axis] = window_count(op, size[axis], window[axis], padding, conv.strides[axis], conv.dilations[axis])?;
    }
    Ok(output)
}

fn pooled_size(op: &'static str, pool: &Pool2d, size: [usize; 2]) -> Result<[usize; 2], GraphError> {
    let mut output = [0; 2];
    for axis in 0..2 {
        let padding = [pool.padding[2 * axis], pool.padding[2 * axis + 1]];
        output[axis] =
            window_count(op, size[axis], pool.window[axis], padding, pool.strides[axis], pool.dilations[axis])?;
        // A window must not be entirely in the padding at either end. `window_count` has checked that this cannot
        // overflow.
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

/// Returns the number of windows that fit along one axis.
fn window_count(
    op: &'static str,
    size: usize,
    window: usize,
    [low, high]: [usize; 2],
    stride: usize,
    dilation: usize,
) -> Result<usize, GraphError> {
    check_attribute_range(op, "size", 0, size)?;
    check_attribute_range(op, "window", 1, window)?;
    check_attribute_range(op, "padding", 0, low)?;
    check_attribute_range(op, "padding", 0, high)?;
    check_attribute_range(op, "stride", 1, stride)?;
    check_attribute_range(op, "dilation", 1, dilation)?;
    let padded = size + low + high;
    check_attribute_range(op, "padded size", 0, padded)?;
    match dilation.checked_mul(window - 1).and_then(|n| n.checked_add(1)) {
        Some(extent) if extent <= padded => Ok((padded - extent) / stride + 1),
        _ => Err(GraphError::WindowTooLarge { op, window, dilation, padded }),
    }
}
