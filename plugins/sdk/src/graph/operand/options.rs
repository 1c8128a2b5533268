//! Default options. An absent option has WebNN's default, which the host applies.

use crate::bindings::graphs::{
    Conv2dOptions, ConvTranspose2dOptions, GemmOptions, Pool2dOptions, ReduceOptions, Resample2dOptions,
};

macro_rules! nothing_by_default {
    ($($options:ident { $($field:ident),* })*) => { $(
        /// WebNN's defaults.
        impl Default for $options {
            fn default() -> Self {
                Self { $($field: None),* }
            }
        }
    )* };
}
nothing_by_default! {
    Conv2dOptions { padding, strides, dilations, groups, input_layout, filter_layout }
    ConvTranspose2dOptions {
        padding, strides, dilations, output_padding, output_sizes, groups, input_layout, filter_layout
    }
    Pool2dOptions { window_dimensions, padding, strides, dilations, layout, output_shape_rounding, output_sizes }
    Resample2dOptions { mode, scales, sizes, axes }
    GemmOptions { alpha, beta, a_transpose, b_transpose }
    ReduceOptions { axes, keep_dimensions }
}
