//! Converts option records of the WIT package to the tensor crate's, with WebNN's defaults.

#![deny(clippy::wildcard_enum_match_arm)]

use saggar_tensor::op::{Conv2d, ScatterCombine};
use saggar_tensor::{Descriptor, nn};

use crate::bindings::graphs::{
    Conv2dFilterOperandLayout, Conv2dOptions, ConvTranspose2dFilterOperandLayout, ConvTranspose2dOptions, GemmOptions,
    GruWeightLayout, InputOperandLayout, InterpolationMode, LstmWeightLayout, Pool2dOptions,
    RecurrentNetworkActivation, RecurrentNetworkDirection, ReduceOptions, Resample2dOptions, RoundingType,
    ScatterReduction,
};
use crate::convert::to_usizes;
use crate::host_error::HostError;

/// Converts height and width.
fn height_and_width(value: Option<(u32, u32)>, default: [usize; 2]) -> [usize; 2] {
    value.map_or(default, |(height, width)| [height as usize, width as usize])
}

/// Converts padding: top, bottom, left, right.
fn padding(value: Option<(u32, u32, u32, u32)>) -> [usize; 4] {
    value.map_or([0; 4], |(top, bottom, left, right)| [top, bottom, left, right].map(|size| size as usize))
}

pub(super) fn input_layout(layout: Option<InputOperandLayout>) -> nn::InputLayout {
    match layout {
        None | Some(InputOperandLayout::Nchw) => nn::InputLayout::Nchw,
        Some(InputOperandLayout::Nhwc) => nn::InputLayout::Nhwc,
    }
}

fn filter_layout(layout: Option<Conv2dFilterOperandLayout>) -> nn::FilterLayout {
    match layout {
        None | Some(Conv2dFilterOperandLayout::Oihw) => nn::FilterLayout::Oihw,
        Some(Conv2dFilterOperandLayout::Hwio) => nn::FilterLayout::Hwio,
        Some(Conv2dFilterOperandLayout::Ohwi) => nn::FilterLayout::Ohwi,
        Some(Conv2dFilterOperandLayout::Ihwo) => nn::FilterLayout::Ihwo,
    }
}

/// Converts convolution options. Defaults: no padding, strides and dilations 1, one group, nchw, oihw.
pub(super) fn conv2d(options: &Conv2dOptions) -> nn::Conv2dOptions {
    let conv = Conv2d {
        padding: padding(options.padding),
        strides: height_and_width(options.strides, [1, 1]),
        dilations: height_and_width(options.dilations, [1, 1]),
        groups: options.groups.unwrap_or(1) as usize,
    };
    nn::Conv2dOptions {
        conv,
        input_layout: input_layout(options.input_layout),
        filter_layout: filter_layout(options.filter_layout),
    }
}

/// Converts pooling options. Defaults: the whole image as window, no padding, strides and dilations 1, nchw, floor.
pub(super) fn pool2d(options: &Pool2dOptions) -> nn::Pool2dOptions {
    nn::Pool2dOptions {
        window: options.window_dimensions.map(|window| height_and_width(Some(window), [1, 1])),
        padding: padding(options.padding),
        strides: height_and_width(options.strides, [1, 1]),
        dilations: height_and_width(options.dilations, [1, 1]),
        layout: input_layout(options.layout),
        rounding: match options.output_shape_rounding {
            None | Some(RoundingType::Floor) => nn::PoolRounding::Floor,
            Some(RoundingType::Ceil) => nn::PoolRounding::Ceil,
        },
        output_sizes: options.output_sizes.map(|sizes| height_and_width(Some(sizes), [1, 1])),
    }
}

/// Converts gemm options. Defaults: factors 1, nothing transposed.
pub(super) fn gemm(options: &GemmOptions) -> nn::GemmOptions {
    nn::GemmOptions {
        alpha: options.alpha.map_or(1.0, f64::from),
        beta: options.beta.map_or(1.0, f64::from),
        transpose_a: options.a_transpose.unwrap_or(false),
        transpose_b: options.b_transpose.unwrap_or(false),
    }
}

/// Returns the axes and whether they are kept with size 1. Defaults: all `rank` axes, not kept.
pub(super) fn reduce_axes(options: &ReduceOptions, rank: usize) -> (Vec<usize>, bool) {
    let axes = options.axes.as_deref().map_or_else(|| (0..rank).collect(), to_usizes);
    (axes, options.keep_dimensions.unwrap_or(false))
}

/// Converts transposed convolution options. Defaults: no padding, strides and dilations 1, no output padding, one
/// group, nchw, iohw.
pub(super) fn conv_transpose2d(options: &ConvTranspose2dOptions) -> nn::ConvTranspose2dOptions {
    let conv = Conv2d {
        padding: padding(options.padding),
        strides: height_and_width(options.strides, [1, 1]),
        dilations: height_and_width(options.dilations, [1, 1]),
        groups: options.groups.unwrap_or(1) as usize,
    };
    nn::ConvTranspose2dOptions {
        conv,
        output_padding: height_and_width(options.output_padding, [0, 0]),
        output_sizes: options.output_sizes.map(|sizes| height_and_width(Some(sizes), [1, 1])),
        input_layout: input_layout(options.input_layout),
        filter_layout: match options.filter_layout {
            None | Some(ConvTranspose2dFilterOperandLayout::Iohw) => nn::TransposeFilterLayout::Iohw,
            Some(ConvTranspose2dFilterOperandLayout::Hwoi) => nn::TransposeFilterLayout::Hwoi,
            Some(ConvTranspose2dFilterOperandLayout::Ohwi) => nn::TransposeFilterLayout::Ohwi,
        },
    }
}

/// Converts resampling options. Defaults: nearest, factors 1, axes 2 and 3.
pub(super) fn resample2d(options: &Resample2dOptions) -> nn::Resample2dOptions {
    nn::Resample2dOptions {
        mode: match options.mode {
            None | Some(InterpolationMode::NearestNeighbor) => nn::ResampleInterpolation::Nearest,
            Some(InterpolationMode::Linear) => nn::ResampleInterpolation::Linear,
        },
        scales: options.scales.map_or([1.0, 1.0], |(first, second)| [first.into(), second.into()]),
        sizes: options.sizes.map(|sizes| height_and_width(Some(sizes), [1, 1])),
        axes: height_and_width(options.axes, [2, 3]),
    }
}

/// Converts how a scatter combines an update with the existing element.
pub(super) fn scatter_combine(reduction: ScatterReduction) -> ScatterCombine {
    match reduction {
        ScatterReduction::None => ScatterCombine::Replace,
        ScatterReduction::Add => ScatterCombine::Add,
        ScatterReduction::Mul => ScatterCombine::Mul,
        ScatterReduction::Min => ScatterCombine::Min,
        ScatterReduction::Max => ScatterCombine::Max,
    }
}

/// Converts a direction. Default: forward.
pub(super) fn direction(direction: Option<RecurrentNetworkDirection>) -> nn::RecurrentDirection {
    match direction {
        None | Some(RecurrentNetworkDirection::Forward) => nn::RecurrentDirection::Forward,
        Some(RecurrentNetworkDirection::Backward) => nn::RecurrentDirection::Backward,
        Some(RecurrentNetworkDirection::Both) => nn::RecurrentDirection::Both,
    }
}

/// Converts an activation.
pub(super) fn activation(activation: RecurrentNetworkActivation) -> nn::RecurrentActivation {
    match activation {
        RecurrentNetworkActivation::Relu => nn::RecurrentActivation::Relu,
        RecurrentNetworkActivation::Sigmoid => nn::RecurrentActivation::Sigmoid,
        RecurrentNetworkActivation::Tanh => nn::RecurrentActivation::Tanh,
    }
}

/// Converts the order of GRU weights. Default: update, reset, new.
pub(super) fn gru_layout(layout: Option<GruWeightLayout>) -> nn::GruLayout {
    match layout {
        None | Some(GruWeightLayout::Zrn) => nn::GruLayout::Zrn,
        Some(GruWeightLayout::Rzn) => nn::GruLayout::Rzn,
    }
}

/// Converts the order of LSTM weights. Default: input, output, forget, cell.
pub(super) fn lstm_layout(layout: Option<LstmWeightLayout>) -> nn::LstmLayout {
    match layout {
        None | Some(LstmWeightLayout::Iofg) => nn::LstmLayout::Iofg,
        Some(LstmWeightLayout::Ifgo) => nn::LstmLayout::Ifgo,
    }
}

/// Returns the starts of a slice and the number of elements along each axis. WebNN gives the size of the window, the
/// tensor crate takes the size of the result.
pub(super) fn slice_windows(
    descriptor: &Descriptor,
    starts: &[u32],
    windows: &[u32],
    strides: &[usize],
) -> Result<(Vec<usize>, Vec<usize>), HostError> {
    let rank = descriptor.shape.rank();
    if [starts.len(), windows.len(), strides.len()] != [rank; 3] {
        return Err(HostError::invalid(format!("slice: {descriptor} takes {rank} starts, sizes and strides")));
    }
    let (starts, windows) = (to_usizes(starts), to_usizes(windows));
    for (axis, &dim) in descriptor.shape.iter().enumerate() {
        // Cannot overflow: both were converted from 32 bits.
        if starts[axis] + windows[axis] > dim {
            let (start, size) = (starts[axis], windows[axis]);
            let message = format!("slice: {size} elements from {start} along axis {axis} are not within {descriptor}");
            return Err(HostError::invalid(message));
        }
    }
    // The builder refuses a stride of 0.
    let counts = windows.iter().zip(strides).map(|(&window, &stride)| window.div_ceil(stride.max(1))).collect();
    Ok((starts, counts))
}
