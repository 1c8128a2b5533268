//! Pooling in WebNN's layouts and roundings.

use super::conv::{InputLayout, from_nchw, to_nchw};
use super::{check_rank, like};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Pool, Pool2d, Scalar};
use crate::{Descriptor, Shape};

/// How the number of windows along an axis is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// Windows that fit the padded image.
    #[default]
    Floor,
    /// One more if it would reach past the end, but begins in the image or in its beginning padding.
    Ceil,
}

/// WebNN's `MLPool2dOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool2dOptions {
    /// Height and width of the window; `None` is the whole image (a global pooling).
    pub window: Option<[usize; 2]>,
    /// Top, bottom, left, right.
    pub padding: [usize; 4],
    /// Height, width.
    pub strides: [usize; 2],
    /// Height, width.
    pub dilations: [usize; 2],
    /// Layout of input and result.
    pub layout: InputLayout,
    /// How the output's size is rounded.
    pub rounding: Rounding,
}

impl Default for Pool2dOptions {
    fn default() -> Pool2dOptions {
        Pool2dOptions {
            window: None,
            padding: [0; 4],
            strides: [1, 1],
            dilations: [1, 1],
            layout: InputLayout::Nchw,
            rounding: Rounding::Floor,
        }
    }
}

/// The largest of each window. Float.
///
/// Shape: `[n, c, h, w]` -> `[n, c, oh, ow]`, in the layout. Source: WebNN `maxPool2d`.
///
/// # Errors
/// `Rank`; `DType`; `AttributeRange`; `WindowTooLarge`; `UnknownNode`; `TooManyNodes`.
pub fn max_pool2d(g: &mut GraphBuilder, x: NodeId, options: Pool2dOptions) -> Result<NodeId, GraphError> {
    check_rank(g, "max-pool2d", "input", x, 4)?;
    let x = to_nchw(g, x, options.layout)?;
    let pool = geometry(&g.descriptor(x).shape, &options);
    let y = g.pool2d(x, Pool::Max, pool)?;
    from_nchw(g, y, options.layout)
}

/// The mean of each window, padding not counted. Float.
///
/// Shape: `[n, c, h, w]` -> `[n, c, oh, ow]`, in the layout. Source: WebNN `averagePool2d`.
///
/// # Errors
/// `Rank`; `DType`; `AttributeRange`; `WindowTooLarge`; `UnknownNode`; `TooManyNodes`.
pub fn average_pool2d(g: &mut GraphBuilder, x: NodeId, options: Pool2dOptions) -> Result<NodeId, GraphError> {
    check_rank(g, "average-pool2d", "input", x, 4)?;
    let x = to_nchw(g, x, options.layout)?;
    let Descriptor { dtype, shape } = g.descriptor(x).clone();
    let pool = geometry(&shape, &options);
    let sum = g.pool2d(x, Pool::Sum, pool)?;
    let count = if pool.padding == [0; 4] {
        like(g, sum, (pool.window[0] * pool.window[1]) as f64)?
    } else {
        // How many elements each window has is its sum over an image of ones.
        let one_image = Descriptor::new(dtype, Shape::new([1, 1, shape[2], shape[3]])?);
        let ones = g.fill(one_image, Scalar::Float(1.0))?;
        g.pool2d(ones, Pool::Sum, pool)?
    };
    let mean = g.div(sum, count)?;
    from_nchw(g, mean, options.layout)
}

/// The primitive's geometry for an image `[n, c, h, w]`; rounding up is padding at the end. Attributes that make no
/// sense are passed on for inference to name.
fn geometry(shape: &Shape, options: &Pool2dOptions) -> Pool2d {
    let Pool2dOptions { window, mut padding, strides, dilations, layout: _, rounding } = *options;
    let window = window.unwrap_or([shape[2], shape[3]]);
    if rounding == Rounding::Ceil {
        for axis in 0..2 {
            let [low, high] = [padding[2 * axis], padding[2 * axis + 1]];
            let more = ceil_padding(shape[2 + axis], [low, high], window[axis], strides[axis], dilations[axis]);
            padding[2 * axis + 1] = more.unwrap_or(high);
        }
    }
    Pool2d { window, padding, strides, dilations }
}

/// The ending padding with which one more window fits, if one begins early enough. `None` also where numbers overflow.
fn ceil_padding(size: usize, [low, high]: [usize; 2], window: usize, stride: usize, dilation: usize) -> Option<usize> {
    let extent = window.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    let begin = size.checked_add(low)?;
    let free = begin.checked_add(high)?.checked_sub(extent)?;
    let start = free.checked_div(stride)?.checked_add(1)?.checked_mul(stride)?;
    if free.is_multiple_of(stride) || start >= begin { None } else { start.checked_add(extent)?.checked_sub(begin) }
}
