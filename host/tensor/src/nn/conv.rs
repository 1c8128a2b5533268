//! Convolution with WebNN's layouts, and bias. Other layouts are transposed to the primitive's.

use super::check_rank;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Conv2d;

/// Axis order of an image tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputLayout {
    /// `[n, c, h, w]`.
    #[default]
    Nchw,
    /// `[n, h, w, c]`.
    Nhwc,
}

/// Axis order of a filter: output channels, input channels, height and width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterLayout {
    /// `[o, i, h, w]`.
    #[default]
    Oihw,
    /// `[h, w, i, o]`.
    Hwio,
    /// `[o, h, w, i]`.
    Ohwi,
    /// `[i, h, w, o]`.
    Ihwo,
}

/// Geometry and layouts of a convolution: WebNN's `MLConv2dOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dOptions {
    /// Padding, strides, dilations, groups.
    pub conv: Conv2d,
    /// Layout of input and result.
    pub input_layout: InputLayout,
    /// Layout of the filter.
    pub filter_layout: FilterLayout,
}

impl Default for Conv2dOptions {
    fn default() -> Conv2dOptions {
        Conv2dOptions {
            conv: Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 },
            input_layout: InputLayout::Nchw,
            filter_layout: FilterLayout::Oihw,
        }
    }
}

/// Returns the cross-correlation of images with filters, plus `bias [o]`. Float.
///
/// Shape: `x [n, c, h, w]`, filter `[o, c/groups, kh, kw]` -> `[n, o, oh, ow]`, each in its layout. Source: WebNN
/// `conv2d`.
///
/// # Errors
/// Returns `Rank`, `DType`, `DTypesDiffer`, `Dimension`, `Groups`, `AttributeRange`, `WindowTooLarge`,
/// `InvalidShape`, `UnknownNode` or `TooManyNodes`.
pub fn conv2d(
    g: &mut GraphBuilder,
    x: NodeId,
    filter: NodeId,
    bias: Option<NodeId>,
    options: Conv2dOptions,
) -> Result<NodeId, GraphError> {
    let op = "conv2d";
    check_rank(g, op, "input", x, 4)?;
    check_rank(g, op, "filter", filter, 4)?;
    let x = to_nchw(g, x, options.input_layout)?;
    let filter = match options.filter_layout {
        FilterLayout::Oihw => filter,
        FilterLayout::Hwio => g.transpose(filter, &[3, 2, 0, 1])?,
        FilterLayout::Ohwi => g.transpose(filter, &[0, 3, 1, 2])?,
        FilterLayout::Ihwo => g.transpose(filter, &[3, 0, 1, 2])?,
    };
    let y = g.conv2d(x, filter, options.conv)?;
    let y = add_bias(g, op, y, bias)?;
    from_nchw(g, y, options.input_layout)
}

/// Returns `y [n, o, h, w]` plus `bias [o]`, or `y` if there is no bias.
pub(super) fn add_bias(
    g: &mut GraphBuilder,
    op: &'static str,
    y: NodeId,
    bias: Option<NodeId>,
) -> Result<NodeId, GraphError> {
    let Some(bias) = bias else { return Ok(y) };
    check_rank(g, op, "bias", bias, 1)?;
    let expected = g.descriptor(y).shape[1];
    let got = g.descriptor(bias);
    if got.shape[0] != expected {
        return Err(GraphError::Dimension { op, operand: "bias", axis: 0, expected, got: got.clone() });
    }
    let bias = g.reshape(bias, &[1, expected, 1, 1])?;
    g.add(y, bias)
}

pub(super) fn to_nchw(g: &mut GraphBuilder, x: NodeId, layout: InputLayout) -> Result<NodeId, GraphError> {
    match layout {
        InputLayout::Nchw => Ok(x),
        InputLayout::Nhwc => g.transpose(x, &[0, 3, 1, 2]),
    }
}

pub(super) fn from_nchw(g: &mut GraphBuilder, x: NodeId, layout: InputLayout) -> Result<NodeId, GraphError> {
    match layout {
        InputLayout::Nchw => Ok(x),
        InputLayout::Nhwc => g.transpose(x, &[0, 2, 3, 1]),
    }
}
