//! Transposed convolution: the adjoint of a convolution, as a separate operator.

use super::check_rank;
use super::conv::{InputLayout, add_bias, from_nchw, to_nchw};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Conv2d, ConvolutionOp, Op};

/// Axis order of a transposed convolution's filter: input channels, output channels, height and width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransposeFilterLayout {
    /// `[i, o, h, w]`.
    #[default]
    Iohw,
    /// `[h, w, o, i]`.
    Hwoi,
    /// `[o, h, w, i]`.
    Ohwi,
}

/// Options of a transposed convolution: WebNN's `MLConvTranspose2dOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTranspose2dOptions {
    /// Padding removed from the result, strides, dilations, groups.
    pub conv: Conv2d,
    /// Height and width added at the end of the result; each smaller than its stride.
    pub output_padding: [usize; 2],
    /// Height and width of the result; override `output_padding`.
    pub output_sizes: Option<[usize; 2]>,
    /// Layout of input and result.
    pub input_layout: InputLayout,
    /// Layout of the filter.
    pub filter_layout: TransposeFilterLayout,
}

impl Default for ConvTranspose2dOptions {
    fn default() -> ConvTranspose2dOptions {
        ConvTranspose2dOptions {
            conv: Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 },
            output_padding: [0, 0],
            output_sizes: None,
            input_layout: InputLayout::Nchw,
            filter_layout: TransposeFilterLayout::Iohw,
        }
    }
}

/// Returns the transposed convolution plus `bias [o]`: each element of `x` adds a multiple of the filter to the result.
/// Float.
///
/// Shape: `x [n, i, h, w]`, filter `[i, o/groups, kh, kw]` -> `[n, o, oh, ow]`, each in its layout, with `oh = (h - 1)
/// * stride + dilation * (kh - 1) + 1 - top - bottom + output padding`. Source: WebNN `convTranspose2d`.
///
/// # Errors
/// Returns `Rank`, `DType`, `DTypesDiffer`, `Dimension`, `Groups`, `WindowTooLarge`, `InvalidShape`, `UnknownNode`
/// or `TooManyNodes`; `AttributeRange`, for `output_padding` and `output_sizes` too.
pub fn conv_transpose2d(
    g: &mut GraphBuilder,
    x: NodeId,
    filter: NodeId,
    bias: Option<NodeId>,
    options: ConvTranspose2dOptions,
) -> Result<NodeId, GraphError> {
    let op = "conv-transpose2d";
    check_rank(g, op, "input", x, 4)?;
    check_rank(g, op, "filter", filter, 4)?;
    let x = to_nchw(g, x, options.input_layout)?;
    let filter = match options.filter_layout {
        TransposeFilterLayout::Iohw => filter,
        TransposeFilterLayout::Hwoi => g.transpose(filter, &[3, 2, 0, 1])?,
        TransposeFilterLayout::Ohwi => g.transpose(filter, &[3, 0, 1, 2])?,
    };
    let mut size = [0; 2];
    for (axis, size) in size.iter_mut().enumerate() {
        let dims = (g.descriptor(x).shape[2 + axis], g.descriptor(filter).shape[2 + axis]);
        *size = output_size(op, dims, axis, &options)?;
    }
    let adjoint = Op::Convolution(ConvolutionOp::Conv2dInputGrad { conv: options.conv, size });
    let y = g.add_node(adjoint, &[x, filter])?;
    let y = add_bias(g, op, y, bias)?;
    from_nchw(g, y, options.input_layout)
}

/// Returns the result's size along one image axis.
fn output_size(
    op: &'static str,
    (size, window): (usize, usize),
    axis: usize,
    options: &ConvTranspose2dOptions,
) -> Result<usize, GraphError> {
    let (stride, dilation) = (options.conv.strides[axis], options.conv.dilations[axis]);
    let refuse = |attribute: &'static str, least: usize, most: usize, got: usize| {
        Err(GraphError::AttributeRange { op, attribute, least, most, got })
    };
    if stride == 0 {
        return refuse("strides", 1, usize::MAX, 0);
    }
    let spread = size.saturating_sub(1).saturating_mul(stride);
    let extent = window.saturating_sub(1).saturating_mul(dilation).saturating_add(1);
    let padding = options.conv.padding[2 * axis].saturating_add(options.conv.padding[2 * axis + 1]);
    let Some(least) = spread.saturating_add(extent).checked_sub(padding) else {
        return refuse("padding", 0, spread.saturating_add(extent), padding);
    };
    let most = least.saturating_add(stride - 1);
    match options.output_sizes {
        Some(sizes) if !(least..=most).contains(&sizes[axis]) => refuse("output-sizes", least, most, sizes[axis]),
        Some(sizes) => Ok(sizes[axis]),
        None if options.output_padding[axis] >= stride => {
            refuse("output-padding", 0, stride - 1, options.output_padding[axis])
        }
        None => Ok(least.saturating_add(options.output_padding[axis])),
    }
}
