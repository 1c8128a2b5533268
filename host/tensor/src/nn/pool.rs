//! Pooling with WebNN's layouts and rounding modes.

use super::conv::{InputLayout, from_nchw, to_nchw};
use super::f32_compute::in_f32;
use super::reduce::safe_sqrt;
use super::{check_rank, fill_like};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{Pool2d, PoolKind, Scalar};
use crate::{Descriptor, Shape};

/// Rounding of the number of windows along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolRounding {
    /// Only windows that fit the padded image.
    #[default]
    Floor,
    /// One more window, which can exceed the padded image but begins in the image or in its leading padding.
    Ceil,
}

/// Options of pooling: WebNN's `MLPool2dOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool2dOptions {
    /// Height and width of the window; `None` means the whole image (global pooling).
    pub window: Option<[usize; 2]>,
    /// Padding: top, bottom, left, right.
    pub padding: [usize; 4],
    /// Strides: height, width.
    pub strides: [usize; 2],
    /// Dilations: height, width.
    pub dilations: [usize; 2],
    /// Layout of input and result.
    pub layout: InputLayout,
    /// Rounding of the output's size.
    pub rounding: PoolRounding,
    /// Height and width of the result, each equal to one of the two roundings; overrides `rounding`.
    pub output_sizes: Option<[usize; 2]>,
}

impl Default for Pool2dOptions {
    fn default() -> Pool2dOptions {
        Pool2dOptions {
            window: None,
            padding: [0; 4],
            strides: [1, 1],
            dilations: [1, 1],
            layout: InputLayout::Nchw,
            rounding: PoolRounding::Floor,
            output_sizes: None,
        }
    }
}

/// Returns the largest element of each window. Float.
///
/// Shape: `[n, c, h, w]` -> `[n, c, oh, ow]`, in the layout. Source: WebNN `maxPool2d`.
///
/// # Errors
/// Returns `Rank`, `DType`, `AttributeRange`, `WindowTooLarge`, `UnknownNode` or `TooManyNodes`.
pub fn max_pool2d(g: &mut GraphBuilder, x: NodeId, options: Pool2dOptions) -> Result<NodeId, GraphError> {
    pool_in_nchw(g, "max-pool2d", x, options, |g, x, pool| g.pool2d(x, PoolKind::Max, pool))
}

/// Returns the mean of each window without padding. Float.
///
/// Shape: `[n, c, h, w]` -> `[n, c, oh, ow]`, in the layout. Source: WebNN `averagePool2d`.
///
/// # Errors
/// Returns `Rank`, `DType`, `AttributeRange`, `WindowTooLarge`, `UnknownNode` or `TooManyNodes`.
pub fn average_pool2d(g: &mut GraphBuilder, x: NodeId, options: Pool2dOptions) -> Result<NodeId, GraphError> {
    pool_in_nchw(g, "average-pool2d", x, options, |g, x, pool| {
        in_f32(g, x, |g, x| {
            let Descriptor { dtype, shape } = g.descriptor(x).clone();
            let sum = g.pool2d(x, PoolKind::Sum, pool)?;
            let count = if pool.padding == [0; 4] {
                fill_like(g, sum, (pool.window[0] * pool.window[1]) as f64)?
            } else {
                // The number of elements of each window is its sum over an image of ones.
                let one_image = Descriptor::new(dtype, Shape::new([1, 1, shape[2], shape[3]])?);
                let ones = g.fill(one_image, Scalar::Float(1.0))?;
                g.pool2d(ones, PoolKind::Sum, pool)?
            };
            g.div(sum, count)
        })
    })
}

/// Returns the square root of the sum of squares of each window; its gradient at zero is defined as 0. Float.
///
/// Shape: `[n, c, h, w]` -> `[n, c, oh, ow]`, in the layout. Source: WebNN `l2Pool2d`.
///
/// # Errors
/// Returns `Rank`, `DType`, `AttributeRange`, `WindowTooLarge`, `UnknownNode` or `TooManyNodes`.
pub fn l2_pool2d(g: &mut GraphBuilder, x: NodeId, options: Pool2dOptions) -> Result<NodeId, GraphError> {
    pool_in_nchw(g, "l2-pool2d", x, options, |g, x, pool| {
        in_f32(g, x, |g, x| {
            let squares = g.mul(x, x)?;
            let sum = g.pool2d(squares, PoolKind::Sum, pool)?;
            safe_sqrt(g, sum)
        })
    })
}

/// Transposes `x` to `[n, c, h, w]`, calls `build` with it and the primitive's geometry, and transposes the result
/// back.
fn pool_in_nchw(
    g: &mut GraphBuilder,
    op: &'static str,
    x: NodeId,
    options: Pool2dOptions,
    build: impl FnOnce(&mut GraphBuilder, NodeId, Pool2d) -> Result<NodeId, GraphError>,
) -> Result<NodeId, GraphError> {
    check_rank(g, op, "input", x, 4)?;
    let x = to_nchw(g, x, options.layout)?;
    let pool = pool_geometry(op, &g.descriptor(x).shape, &options)?;
    let y = build(g, x, pool)?;
    from_nchw(g, y, options.layout)
}

/// Returns the primitive's geometry for an image `[n, c, h, w]`; an additional window becomes padding at the end.
/// Invalid attributes are passed on, so that inference reports them.
fn pool_geometry(op: &'static str, shape: &Shape, options: &Pool2dOptions) -> Result<Pool2d, GraphError> {
    let Pool2dOptions { window, mut padding, strides, dilations, .. } = *options;
    let window = window.unwrap_or([shape[2], shape[3]]);
    for axis in 0..2 {
        let ends = [padding[2 * axis], padding[2 * axis + 1]];
        let Some(fit) = WindowFit::new(shape[2 + axis], ends, window[axis], strides[axis], dilations[axis]) else {
            continue;
        };
        let more = match options.output_sizes {
            None => options.rounding == PoolRounding::Ceil,
            Some(sizes) => {
                let most = fit.windows + usize::from(fit.ceil_padding.is_some());
                if !(fit.windows..=most).contains(&sizes[axis]) {
                    let (least, got) = (fit.windows, sizes[axis]);
                    return Err(GraphError::AttributeRange { op, attribute: "output-sizes", least, most, got });
                }
                sizes[axis] > fit.windows
            }
        };
        if let (true, Some(high)) = (more, fit.ceil_padding) {
            padding[2 * axis + 1] = high;
        }
    }
    Ok(Pool2d { window, padding, strides, dilations })
}

/// How windows fit along an axis.
struct WindowFit {
    /// Number of windows inside the padded image.
    windows: usize,
    /// Trailing padding with which one more window fits, if that window begins in the image or in its leading padding;
    /// else `None`.
    ceil_padding: Option<usize>,
}

impl WindowFit {
    /// Returns `None` if no window fits or numbers overflow.
    fn new(size: usize, [low, high]: [usize; 2], window: usize, stride: usize, dilation: usize) -> Option<WindowFit> {
        let extent = window.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
        let begin = size.checked_add(low)?;
        let free = begin.checked_add(high)?.checked_sub(extent)?;
        let windows = free.checked_div(stride)?.checked_add(1)?;
        let start = windows.checked_mul(stride)?;
        let more = if free.is_multiple_of(stride) || start >= begin {
            None
        } else {
            start.checked_add(extent)?.checked_sub(begin)
        };
        Some(WindowFit { windows, ceil_padding: more })
    }
}
