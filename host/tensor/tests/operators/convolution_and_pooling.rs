//! Convolutions, pooling and resampling.

use saggar_tensor::nn::{
    self, Conv2dOptions, ConvTranspose2dOptions, FilterLayout, InputLayout, Pool2dOptions, PoolRounding,
    Resample2dOptions, ResampleInterpolation, TransposeFilterLayout,
};
use saggar_tensor::op::Conv2d;
use saggar_tensor::{GraphBuilder, NodeId};

use super::{NodeResult, OperatorEntry};

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("conv2d", &[&[2, 5, 4, 4], &[2, 3, 2, 6], &[6]], |g, x| {
        let conv = Conv2d { padding: [1, 0, 0, 2], strides: [2, 1], dilations: [1, 1], groups: 2 };
        let (input_layout, filter_layout) = (InputLayout::Nhwc, FilterLayout::Hwio);
        nn::conv2d(g, x[0], x[1], Some(x[2]), Conv2dOptions { conv, input_layout, filter_layout })
    }),
    ("conv2d, dilated", &[&[1, 2, 6, 5], &[3, 2, 2, 2]], |g, x| {
        let conv = Conv2d { padding: [0, 1, 2, 0], strides: [1, 2], dilations: [3, 2], groups: 1 };
        nn::conv2d(g, x[0], x[1], None, Conv2dOptions { conv, ..Conv2dOptions::default() })
    }),
    ("conv2d, ohwi", &[&[1, 2, 4, 4], &[3, 2, 2, 2]], |g, x| filters(g, x, FilterLayout::Ohwi)),
    ("conv2d, ihwo", &[&[1, 2, 4, 4], &[2, 2, 2, 3]], |g, x| filters(g, x, FilterLayout::Ihwo)),
    ("conv-transpose2d", &[&[2, 2, 3, 3], &[2, 3, 2, 2], &[3]], |g, x| {
        nn::conv_transpose2d(g, x[0], x[1], Some(x[2]), ConvTranspose2dOptions::default())
    }),
    ("conv-transpose2d, strided", &[&[1, 2, 3, 2], &[2, 2, 3, 2]], |g, x| {
        let conv = Conv2d { padding: [1, 0, 0, 1], strides: [3, 2], dilations: [1, 2], groups: 1 };
        let output_padding = [2, 1];
        nn::conv_transpose2d(g, x[0], x[1], None, ConvTranspose2dOptions { conv, output_padding, ..options() })
    }),
    ("conv-transpose2d, grouped", &[&[1, 3, 2, 4], &[2, 2, 3, 4], &[6]], |g, x| {
        let conv = Conv2d { padding: [0; 4], strides: [2, 1], dilations: [1, 1], groups: 2 };
        let (input_layout, filter_layout) = (InputLayout::Nhwc, TransposeFilterLayout::Hwoi);
        let options = ConvTranspose2dOptions { conv, input_layout, filter_layout, ..options() };
        nn::conv_transpose2d(g, x[0], x[1], Some(x[2]), options)
    }),
    ("conv-transpose2d, sized", &[&[1, 2, 2, 2], &[3, 2, 2, 2]], |g, x| {
        let conv = Conv2d { padding: [0; 4], strides: [2, 3], dilations: [1, 1], groups: 1 };
        let (output_sizes, filter_layout) = (Some([5, 7]), TransposeFilterLayout::Ohwi);
        nn::conv_transpose2d(
            g,
            x[0],
            x[1],
            None,
            ConvTranspose2dOptions { conv, output_sizes, filter_layout, ..options() },
        )
    }),
    ("average-pool2d", &[&[1, 2, 5, 5]], |g, x| nn::average_pool2d(g, x[0], ceiled())),
    ("average-pool2d, dilated", &[&[1, 2, 5, 6]], |g, x| nn::average_pool2d(g, x[0], dilated())),
    ("average-pool2d, global", &[&[2, 3, 2, 4]], |g, x| nn::average_pool2d(g, x[0], Pool2dOptions::default())),
    ("max-pool2d", &[&[1, 2, 5, 5]], |g, x| nn::max_pool2d(g, x[0], ceiled())),
    ("max-pool2d, dilated", &[&[1, 5, 6, 2]], |g, x| {
        nn::max_pool2d(g, x[0], Pool2dOptions { layout: InputLayout::Nhwc, ..dilated() })
    }),
    ("max-pool2d, global", &[&[2, 3, 2, 4]], |g, x| nn::max_pool2d(g, x[0], Pool2dOptions::default())),
    ("l2-pool2d", &[&[1, 2, 5, 5]], |g, x| nn::l2_pool2d(g, x[0], ceiled())),
    ("l2-pool2d, dilated", &[&[1, 2, 5, 6]], |g, x| nn::l2_pool2d(g, x[0], dilated())),
    ("resample2d", &[&[1, 2, 3, 4]], |g, x| {
        nn::resample2d(g, x[0], &Resample2dOptions { sizes: Some([5, 2]), ..Resample2dOptions::default() })
    }),
    ("resample2d, linear", &[&[1, 2, 3, 4]], |g, x| {
        let (mode, scales) = (ResampleInterpolation::Linear, [2.0, 0.5]);
        nn::resample2d(g, x[0], &Resample2dOptions { mode, scales, ..Resample2dOptions::default() })
    }),
    ("resample2d, linear along other axes", &[&[3, 2, 4, 1]], |g, x| {
        let (mode, sizes, axes) = (ResampleInterpolation::Linear, Some([5, 7]), [2, 0]);
        nn::resample2d(g, x[0], &Resample2dOptions { mode, sizes, axes, ..Resample2dOptions::default() })
    }),
];

fn filters(g: &mut GraphBuilder, x: &[NodeId], filter_layout: FilterLayout) -> NodeResult {
    nn::conv2d(g, x[0], x[1], None, Conv2dOptions { filter_layout, ..Conv2dOptions::default() })
}

fn options() -> ConvTranspose2dOptions {
    ConvTranspose2dOptions::default()
}

fn ceiled() -> Pool2dOptions {
    Pool2dOptions {
        window: Some([2, 3]),
        padding: [1, 0, 0, 1],
        strides: [2, 2],
        rounding: PoolRounding::Ceil,
        ..Pool2dOptions::default()
    }
}

fn dilated() -> Pool2dOptions {
    Pool2dOptions { window: Some([2, 2]), padding: [1, 1, 2, 0], dilations: [2, 3], ..Pool2dOptions::default() }
}
