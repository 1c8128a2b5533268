//! Resampling of images to another size.

use super::check_rank;
use super::f32_compute::in_f32;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::limits::RESAMPLED_SIZE_MAX;
use crate::{DType, Descriptor, Shape};

/// Interpolation mode: WebNN's `MLInterpolationMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResampleInterpolation {
    /// The nearest element.
    #[default]
    Nearest,
    /// Linear interpolation between the two nearest elements.
    Linear,
}

/// Options of resampling: WebNN's `MLResample2dOptions`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resample2dOptions {
    /// Interpolation mode.
    pub mode: ResampleInterpolation,
    /// Scale factors along the axes; the sizes are rounded down.
    pub scales: [f64; 2],
    /// Sizes along the axes; override the factors.
    pub sizes: Option<[usize; 2]>,
    /// The resized axes.
    pub axes: [usize; 2],
}

impl Default for Resample2dOptions {
    fn default() -> Resample2dOptions {
        Resample2dOptions { mode: ResampleInterpolation::Nearest, scales: [1.0, 1.0], sizes: None, axes: [2, 3] }
    }
}

/// Resizes two axes of a four-dimensional tensor. Elements are at the centers of their cells, and positions beyond the
/// edge use the edge element. Float; for nearest, any data type.
///
/// Shape: `[n, c, h, w]`, axes 2 and 3, sizes `[h', w']` -> `[n, c, h', w']`. Source: WebNN `resample2d`.
///
/// # Errors
/// Returns `Rank`, `DType`, `AxisOutOfRange`, `AxisEmpty`, `InvalidShape`, `UnknownNode` or `TooManyNodes`;
/// `AxesUnsorted` for one axis twice; `AttributeRange` for a size of 0.
pub fn resample2d(g: &mut GraphBuilder, x: NodeId, options: &Resample2dOptions) -> NodeResult {
    let op = "resample2d";
    check_rank(g, op, "input", x, 4)?;
    if options.mode == ResampleInterpolation::Linear {
        super::check_float(g, op, "input", x)?;
    }
    let got = g.descriptor(x).clone();
    if options.axes[0] == options.axes[1] {
        return Err(GraphError::AxesUnsorted { op, axes: options.axes.to_vec() });
    }
    let mut sizes = [0; 2];
    for (position, &axis) in options.axes.iter().enumerate() {
        let Some(&size) = got.shape.get(axis) else { return Err(GraphError::AxisOutOfRange { op, axis, got }) };
        if size == 0 {
            return Err(GraphError::AxisEmpty { op, axis, got });
        }
        // A NaN or negative factor gives 0, and an infinite one exceeds every limit.
        let scaled = (size as f64 * options.scales[position]).floor() as usize;
        sizes[position] = options.sizes.map_or(scaled, |sizes| sizes[position]);
        let most = RESAMPLED_SIZE_MAX;
        if !(1..=most).contains(&sizes[position]) {
            let got = sizes[position];
            return Err(GraphError::AttributeRange { op, attribute: "sizes", least: 1, most, got });
        }
    }
    let resized = |g: &mut GraphBuilder, x: NodeId| {
        let first = resample_axis(g, x, options.axes[0], sizes[0], options.mode)?;
        resample_axis(g, first, options.axes[1], sizes[1], options.mode)
    };
    match options.mode {
        ResampleInterpolation::Nearest => resized(g, x),
        ResampleInterpolation::Linear => in_f32(g, x, resized),
    }
}

/// Returns `x` with another size along one axis.
fn resample_axis(g: &mut GraphBuilder, x: NodeId, axis: usize, size: usize, mode: ResampleInterpolation) -> NodeResult {
    let from = g.descriptor(x).shape[axis];
    if from == size {
        return Ok(x);
    }
    // Where the middle of each new cell lies, in cells of the old axis.
    let middles = (0..size).map(|place| (place as f64 + 0.5) * from as f64 / size as f64);
    let clamped = |place: f64| place.clamp(0.0, (from - 1) as f64);
    match mode {
        ResampleInterpolation::Nearest => {
            let places = middles.map(|middle| clamped(middle.floor()) as i32).collect::<Vec<_>>();
            let places = index_constant(g, &places)?;
            g.gather(x, places, axis)
        }
        ResampleInterpolation::Linear => {
            let points: Vec<f64> = middles.map(|middle| clamped(middle - 0.5)).collect();
            let low: Vec<i32> = points.iter().map(|point| point.floor() as i32).collect();
            let high: Vec<i32> = points.iter().map(|point| clamped(point.floor() + 1.0) as i32).collect();
            let (low_places, high) = (index_constant(g, &low)?, index_constant(g, &high)?);
            let (below, above) = (g.gather(x, low_places, axis)?, g.gather(x, high, axis)?);
            let share: Vec<u8> = points
                .iter()
                .zip(&low)
                .flat_map(|(point, &low)| ((point - f64::from(low)) as f32).to_le_bytes())
                .collect();
            let mut dims = vec![1; g.descriptor(x).shape.rank()];
            dims[axis] = size;
            let share = g.constant(Descriptor::new(DType::F32, Shape::new(dims)?), share)?;
            let difference = g.sub(above, below)?;
            let part = g.mul(difference, share)?;
            g.add(below, part)
        }
    }
}

fn index_constant(g: &mut GraphBuilder, places: &[i32]) -> NodeResult {
    let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    g.constant(Descriptor::new(DType::I32, Shape::new([places.len()])?), bytes)
}
