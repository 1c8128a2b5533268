//! Rules of convolutions. The host computes 2-D convolutions; 1-D ones are computed as 2-D, and 3-D ones as a sum of
//! 2-D ones.

use super::{RuleResult, single_result};
use crate::backend::PlaneWindows;
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{GraphValue, checked_size};

/// The geometry of windows over any number of dimensions.
#[derive(Debug, Clone)]
pub(super) struct OnnxWindowGeometry {
    /// The window's size.
    pub window: Vec<usize>,
    /// The strides.
    pub strides: Vec<usize>,
    /// The dilations: the distances between taps.
    pub dilations: Vec<usize>,
    /// The padding before the image.
    pub low: Vec<usize>,
    /// The padding after the image.
    pub high: Vec<usize>,
}

impl OnnxWindowGeometry {
    /// Reads the geometry from the attributes of a windowed operator, for images of these sizes.
    ///
    /// # Errors
    /// Returns `Invalid` if an attribute is invalid; `Unsupported` for negative padding.
    pub(super) fn from_call(call: &OperatorCall, image: &[usize], window: Vec<usize>) -> Result<Self> {
        let n = image.len();
        let strides = call.sizes("strides", n, 1, 1)?;
        let dilations = call.sizes("dilations", n, 1, 1)?;
        let (mut low, mut high) = (vec![0; n], vec![0; n]);
        if window.len() != n || window.contains(&0) {
            return Err(Error::invalid(format!("a window {window:?} over {image:?}")));
        }
        match call.choice("auto_pad", &["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""])? {
            "NOTSET" | "" => {
                let pads = call.sizes("pads", 2 * n, 0, 0)?;
                low.copy_from_slice(&pads[..n]);
                high.copy_from_slice(&pads[n..]);
            }
            "VALID" => {}
            mode @ ("SAME_UPPER" | "SAME_LOWER") => {
                for axis in 0..n {
                    let extent = (window[axis] - 1).saturating_mul(dilations[axis]).saturating_add(1);
                    let out = image[axis].div_ceil(strides[axis]);
                    let covered = (out.max(1) - 1) * strides[axis] + extent;
                    let total = covered.saturating_sub(image[axis]);
                    let small = total / 2;
                    low[axis] = if mode == "SAME_UPPER" { small } else { total - small };
                    high[axis] = total - low[axis];
                }
            }
            other => return Err(Error::invalid(format!("`auto_pad` is `{other}`"))),
        }
        Ok(Self { window, strides, dilations, low, high })
    }

    /// Returns the number of windows along each axis.
    ///
    /// # Errors
    /// Returns `Invalid` if a window is larger than the padded image.
    pub(super) fn window_counts(&self, image: &[usize], ceil: bool) -> Result<Vec<usize>> {
        let count = |axis: usize| {
            let free = (image[axis] + self.low[axis] + self.high[axis]).checked_sub(self.extent(axis));
            let free =
                free.ok_or_else(|| Error::invalid(format!("a window of {} over {}", self.extent(axis), image[axis])))?;
            let stride = self.strides[axis];
            let count = if ceil { free.div_ceil(stride) } else { free / stride } + 1;
            // A window that would begin in the padding after the image does not count.
            Ok(if ceil && (count - 1) * stride >= image[axis] + self.low[axis] { count - 1 } else { count })
        };
        (0..image.len()).map(count).collect()
    }

    /// Returns the number of elements from a window's first tap to its last.
    pub(super) fn extent(&self, axis: usize) -> usize {
        (self.window[axis] - 1).saturating_mul(self.dilations[axis]).saturating_add(1)
    }

    /// Returns the geometry of the last two axes, height and width.
    pub(super) fn plane_windows(&self) -> PlaneWindows {
        let n = self.window.len();
        PlaneWindows {
            padding: [self.low[n - 2], self.high[n - 2], self.low[n - 1], self.high[n - 1]],
            strides: [self.strides[n - 2], self.strides[n - 1]],
            dilations: [self.dilations[n - 2], self.dilations[n - 1]],
        }
    }

    /// Adds an axis of size 1 before the only axis.
    #[must_use]
    pub(super) fn with_leading_axis(mut self) -> Self {
        for (list, value) in [
            (&mut self.window, 1),
            (&mut self.strides, 1),
            (&mut self.dilations, 1),
            (&mut self.low, 0),
            (&mut self.high, 0),
        ] {
            list.insert(0, value);
        }
        self
    }
}

/// Builds Conv.
pub(super) fn conv(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    single_result(convolve_by_attributes(g, call, call.input(0)?, call.input(1)?, call.optional(2)))
}

/// Convolves `x` `[n, c, d..]` with `filter` `[o, c / groups, k..]`, with the geometry of the call's attributes.
pub(super) fn convolve_by_attributes(
    g: &mut FoldingGraph,
    call: &OperatorCall,
    x: &GraphValue,
    filter: &GraphValue,
    bias: Option<&GraphValue>,
) -> ValueResult {
    let (Some(image), Some(window)) = (x.shape().get(2..), filter.shape().get(2..)) else {
        return Err(Error::invalid(format!("a convolution of {:?} with {:?}", x.shape(), filter.shape())));
    };
    if let Some(shape) = call.ints("kernel_shape").filter(|shape| !shape.is_empty())
        && !shape.iter().zip(window).all(|(&k, &w)| k == w as i64)
    {
        return Err(Error::invalid(format!("`kernel_shape` is {shape:?} and the filter {:?}", filter.shape())));
    }
    let geometry = OnnxWindowGeometry::from_call(call, image, window.to_vec())?;
    let groups = checked_size(call.int("group", 1), "group")?;
    convolve(g, x, filter, bias, &geometry, groups)
}

/// Convolves with this geometry.
pub(super) fn convolve(
    g: &mut FoldingGraph,
    x: &GraphValue,
    filter: &GraphValue,
    bias: Option<&GraphValue>,
    geometry: &OnnxWindowGeometry,
    groups: usize,
) -> ValueResult {
    match x.rank() {
        3 => {
            let (flat, filter) = (g.unsqueeze(x, 2)?, g.unsqueeze(filter, 2)?);
            let y = g.conv2d(&flat, &filter, bias, geometry.clone().with_leading_axis().plane_windows(), groups)?;
            g.squeeze(&y, &[2])
        }
        4 => g.conv2d(x, filter, bias, geometry.plane_windows(), groups),
        5 => convolve_3d(g, x, filter, bias, geometry, groups),
        rank => Err(Error::unsupported(format!("a convolution of {rank} dimensions"))),
    }
}

/// Convolves in 3-D: for each tap along the depth, the slices that it meets are convolved as a batch of images.
fn convolve_3d(
    g: &mut FoldingGraph,
    x: &GraphValue,
    filter: &GraphValue,
    bias: Option<&GraphValue>,
    geometry: &OnnxWindowGeometry,
    groups: usize,
) -> ValueResult {
    let &[n, c, d, h, w] = x.shape() else { return Err(Error::invalid("not of five dimensions")) };
    let depth = geometry.window_counts(&[d, h, w], false)?[0];
    let padded = g.pad(x, &[0, 0, geometry.low[0], 0, 0], &[0, 0, geometry.high[0], 0, 0], 0.0)?;
    let mut sum: Option<GraphValue> = None;
    for tap in 0..geometry.window[0] {
        let starts = [0, 0, tap * geometry.dilations[0], 0, 0];
        let slices = g.slice(&padded, &starts, &[n, c, depth, h, w], &[1, 1, geometry.strides[0], 1, 1])?;
        let images = g.transpose(&slices, &[0, 2, 1, 3, 4])?;
        let images = g.reshape(&images, &[n * depth, c, h, w])?;
        let plane = g.index_axis(filter, 2, tap)?;
        let bias = if tap == 0 { bias } else { None };
        let part = g.conv2d(&images, &plane, bias, geometry.plane_windows(), groups)?;
        sum = Some(match sum {
            Some(sum) => g.add(&sum, &part)?,
            None => part,
        });
    }
    let sum = sum.ok_or_else(|| Error::invalid("a filter without depth"))?;
    let &[_, o, oh, ow] = sum.shape() else { return Err(Error::invalid("not of four dimensions")) };
    let apart = g.reshape(&sum, &[n, depth, o, oh, ow])?;
    g.transpose(&apart, &[0, 2, 1, 3, 4])
}

/// Builds ConvTranspose of one, two or three dimensions.
pub(super) fn conv_transpose(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, filter, bias) = (call.input(0)?, call.input(1)?, call.optional(2));
    let (Some(image), Some(window)) = (x.shape().get(2..), filter.shape().get(2..)) else {
        return Err(Error::invalid(format!("a convolution of {:?} with {:?}", x.shape(), filter.shape())));
    };
    let groups = checked_size(call.int("group", 1), "group")?;
    let (geometry, sizes) = transposed_geometry(call, image, window)?;
    single_result(convolve_transposed(g, x, filter, bias, geometry, groups, &sizes))
}

/// Builds the transposed convolution whose result has the sizes `sizes`.
pub(super) fn convolve_transposed(
    g: &mut FoldingGraph,
    x: &GraphValue,
    filter: &GraphValue,
    bias: Option<&GraphValue>,
    geometry: OnnxWindowGeometry,
    groups: usize,
    sizes: &[usize],
) -> ValueResult {
    match *sizes {
        [size] => {
            let (flat, filter) = (g.unsqueeze(x, 2)?, g.unsqueeze(filter, 2)?);
            let windows = geometry.with_leading_axis().plane_windows();
            let y = g.conv_transpose2d(&flat, &filter, bias, windows, groups, [1, size])?;
            g.squeeze(&y, &[2])
        }
        [height, width] => g.conv_transpose2d(x, filter, bias, geometry.plane_windows(), groups, [height, width]),
        [_, _, _] => convolve_transposed_3d(g, x, filter, bias, &geometry, groups, sizes),
        _ => Err(Error::unsupported(format!("a transposed convolution of {} dimensions", sizes.len()))),
    }
}

/// Returns the padding and the sizes of the result. If the size is given, or follows from `auto_pad`, the padding is
/// computed from it.
fn transposed_geometry(
    call: &OperatorCall,
    image: &[usize],
    window: &[usize],
) -> Result<(OnnxWindowGeometry, Vec<usize>)> {
    let n = image.len();
    let strides = call.sizes("strides", n, 1, 1)?;
    let dilations = call.sizes("dilations", n, 1, 1)?;
    let more = call.sizes("output_padding", n, 0, 0)?;
    let pads = call.sizes("pads", 2 * n, 0, 0)?;
    let mode = call.choice("auto_pad", &["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""])?;
    let given = call.ints("output_shape").filter(|shape| !shape.is_empty());
    let (mut low, mut high, mut sizes) = (pads[..n].to_vec(), pads[n..].to_vec(), vec![0; n]);
    for axis in 0..n {
        let reach = (window[axis].max(1) - 1).saturating_mul(dilations[axis]);
        let full = image[axis].saturating_sub(1).saturating_mul(strides[axis]);
        let full = full.saturating_add(reach).saturating_add(1).saturating_add(more[axis]);
        let wanted = match given {
            // The shape can include the batch and the channels.
            Some(shape) if shape.len() >= n => Some(checked_size(shape[shape.len() - n + axis], "output_shape")?),
            Some(shape) => return Err(Error::invalid(format!("`output_shape` is {shape:?}"))),
            None if mode.starts_with("SAME") => Some(image[axis].saturating_mul(strides[axis])),
            None => None,
        };
        if mode == "VALID" {
            (low[axis], high[axis]) = (0, 0);
        }
        sizes[axis] = match wanted {
            Some(wanted) => {
                let total = full.saturating_sub(wanted);
                let small = total / 2;
                low[axis] = if mode == "SAME_UPPER" { small } else { total - small };
                high[axis] = total - low[axis];
                wanted
            }
            None => full
                .checked_sub(low[axis] + high[axis])
                .ok_or_else(|| Error::invalid("paddings larger than the result"))?,
        };
    }
    Ok((OnnxWindowGeometry { window: window.to_vec(), strides, dilations, low, high }, sizes))
}

/// Builds the 3-D transposed convolution: each tap along the depth spreads the images over the result's depth.
fn convolve_transposed_3d(
    g: &mut FoldingGraph,
    x: &GraphValue,
    filter: &GraphValue,
    bias: Option<&GraphValue>,
    geometry: &OnnxWindowGeometry,
    groups: usize,
    sizes: &[usize],
) -> ValueResult {
    let &[n, c, d, h, w] = x.shape() else { return Err(Error::invalid("not of five dimensions")) };
    let images = g.transpose(x, &[0, 2, 1, 3, 4])?;
    let images = g.reshape(&images, &[n * d, c, h, w])?;
    let stride = geometry.strides[0];
    crate::value::element_count(&[d, stride])?;
    let full = d.saturating_sub(1) * stride + geometry.extent(0);
    let mut sum: Option<GraphValue> = None;
    for tap in 0..geometry.window[0] {
        let plane = g.index_axis(filter, 2, tap)?;
        let part = g.conv_transpose2d(&images, &plane, None, geometry.plane_windows(), groups, [sizes[1], sizes[2]])?;
        let o = part.dim(1)?;
        let apart = g.reshape(&part, &[n, d, 1, o, sizes[1], sizes[2]])?;
        // Adds zeros between the slices, then before and after them.
        let spaced = g.pad(&apart, &[0; 6], &[0, 0, stride - 1, 0, 0, 0], 0.0)?;
        let spaced = g.reshape(&spaced, &[n, d * stride, o, sizes[1], sizes[2]])?;
        let spaced = g.narrow(&spaced, 1, 0, (d * stride).saturating_sub(stride - 1))?;
        let before = tap * geometry.dilations[0];
        let after = full - before - spaced.dim(1)?;
        let placed = g.pad(&spaced, &[0, before, 0, 0, 0], &[0, after, 0, 0, 0], 0.0)?;
        sum = Some(match sum {
            Some(sum) => g.add(&sum, &placed)?,
            None => placed,
        });
    }
    let sum = sum.ok_or_else(|| Error::invalid("a filter without depth"))?;
    let missing = (geometry.low[0] + sizes[0]).saturating_sub(full);
    let sum = g.pad(&sum, &[0; 5], &[0, missing, 0, 0, 0], 0.0)?;
    let cropped = g.narrow(&sum, 1, geometry.low[0], sizes[0])?;
    let y = g.transpose(&cropped, &[0, 2, 1, 3, 4])?;
    match bias {
        Some(bias) => {
            let bias = g.reshape(bias, &[1, bias.len(), 1, 1, 1])?;
            g.add(&y, &bias)
        }
        None => Ok(y),
    }
}

/// Builds ConvInteger. The sums are exact in `float32` if a window has few taps. Otherwise the input channels are
/// summed in groups.
pub(super) fn conv_integer(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let x = super::contract::subtract_zero_point(g, x, call.optional(2), 1)?;
    let filter = super::contract::subtract_zero_point(g, filter, call.optional(3), 0)?;
    single_result(convolve_integers(g, call, &x, &filter))
}

/// Convolves small integers held as `float32`. DType: `int32`.
fn convolve_integers(g: &mut FoldingGraph, call: &OperatorCall, x: &GraphValue, filter: &GraphValue) -> ValueResult {
    let taps: usize = filter.shape().get(2..).unwrap_or_default().iter().product();
    let channels = filter.dim(1)?;
    let each = (256 / taps.max(1)).max(1);
    if channels <= each || call.int("group", 1) != 1 {
        if taps.saturating_mul(channels) > 256 {
            return Err(Error::unsupported("a grouped integer convolution of more than 256 taps"));
        }
        let y = convolve_by_attributes(g, call, x, filter, None)?;
        return g.cast(&y, ElementType::Int32);
    }
    let mut sum: Option<GraphValue> = None;
    for start in (0..channels).step_by(each) {
        let size = each.min(channels - start);
        let (x, filter) = (g.narrow(x, 1, start, size)?, g.narrow(filter, 1, start, size)?);
        let part = convolve_by_attributes(g, call, &x, &filter, None)?;
        let part = g.cast(&part, ElementType::Int32)?;
        sum = Some(match sum {
            Some(sum) => g.add(&sum, &part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Error::invalid("a convolution without channels"))
}

/// Builds QLinearConv: the integer convolution, requantized.
pub(super) fn q_linear_conv(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let (x, filter) = (call.input(0)?, call.input(3)?);
    let image = super::contract::subtract_zero_point(g, x, call.optional(2), 1)?;
    let taps = super::contract::subtract_zero_point(g, filter, call.optional(5), 0)?;
    let mut sum = convolve_integers(g, call, &image, &taps)?;
    let spread = |g: &mut FoldingGraph, value: &GraphValue| {
        let mut shape = vec![1; x.rank()];
        shape[1] = value.len();
        if value.len() == 1 { g.reshape(value, &[]) } else { g.reshape(value, &shape) }
    };
    if let Some(bias) = call.optional(8) {
        let bias = spread(g, bias)?;
        sum = g.add(&sum, &bias)?;
    }
    let sum = g.cast(&sum, ElementType::Float32)?;
    let (scale_x, scale_w, scale_y) =
        (spread(g, call.input(1)?)?, spread(g, call.input(4)?)?, spread(g, call.input(6)?)?);
    let factor = super::quantize::ratio(g, &scale_x, &scale_w, &scale_y)?;
    let scaled = g.mul(&sum, &factor)?;
    single_result(super::quantize::round_to_zero_point(g, &scaled, call.input(7)?))
}
