//! Option records of the WIT package, with WebNN's defaults, as the tensor crate takes them.

#![deny(clippy::wildcard_enum_match_arm)]

use saggar_tensor::nn;
use saggar_tensor::op::Conv2d;

use crate::bindings::graphs::{
    Conv2dFilterOperandLayout, Conv2dOptions, GemmOptions, InputOperandLayout, Pool2dOptions, ReduceOptions,
    RoundingType,
};
use crate::convert::sizes;

/// Height and width.
fn pair(value: Option<(u32, u32)>, default: [usize; 2]) -> [usize; 2] {
    value.map_or(default, |(height, width)| [height as usize, width as usize])
}

/// Top, bottom, left, right.
fn padding(value: Option<(u32, u32, u32, u32)>) -> [usize; 4] {
    value.map_or([0; 4], |(top, bottom, left, right)| [top, bottom, left, right].map(|size| size as usize))
}

fn input_layout(layout: Option<InputOperandLayout>) -> nn::InputLayout {
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

/// Defaults: no padding, strides and dilations 1, one group, nchw, oihw.
pub(super) fn conv2d(options: &Conv2dOptions) -> nn::Conv2dOptions {
    let conv = Conv2d {
        padding: padding(options.padding),
        strides: pair(options.strides, [1, 1]),
        dilations: pair(options.dilations, [1, 1]),
        groups: options.groups.unwrap_or(1) as usize,
    };
    nn::Conv2dOptions {
        conv,
        input_layout: input_layout(options.input_layout),
        filter_layout: filter_layout(options.filter_layout),
    }
}

/// Defaults: the whole image, no padding, strides and dilations 1, nchw, floor.
pub(super) fn pool2d(options: &Pool2dOptions) -> nn::Pool2dOptions {
    nn::Pool2dOptions {
        window: options.window_dimensions.map(|window| pair(Some(window), [1, 1])),
        padding: padding(options.padding),
        strides: pair(options.strides, [1, 1]),
        dilations: pair(options.dilations, [1, 1]),
        layout: input_layout(options.layout),
        rounding: match options.output_shape_rounding {
            None | Some(RoundingType::Floor) => nn::Rounding::Floor,
            Some(RoundingType::Ceil) => nn::Rounding::Ceil,
        },
    }
}

/// Defaults: factors 1, nothing transposed.
pub(super) fn gemm(options: &GemmOptions) -> nn::GemmOptions {
    nn::GemmOptions {
        alpha: options.alpha.map_or(1.0, f64::from),
        beta: options.beta.map_or(1.0, f64::from),
        transpose_a: options.a_transpose.unwrap_or(false),
        transpose_b: options.b_transpose.unwrap_or(false),
    }
}

/// Axes and whether they stay. Defaults: all `rank` axes, dropped.
pub(super) fn reduce(options: &ReduceOptions, rank: usize) -> (Vec<usize>, bool) {
    let axes = options.axes.as_deref().map_or_else(|| (0..rank).collect(), sizes);
    (axes, options.keep_dimensions.unwrap_or(false))
}
