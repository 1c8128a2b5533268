//! Two-dimensional convolutions, pooling, and their adjoints. Layout NCHW, filters OIHW; other layouts transpose first.
//! Float data types. The family is closed under differentiation except for `MaxPool2dGrad`.

use serde::{Deserialize, Serialize};

/// Geometry of a two-dimensional convolution. Output size: `(in + low + high - dilation*(k-1) - 1) / stride + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    /// Padding: top, bottom, left, right (WebNN: beginning and ending height, beginning and ending width).
    pub padding: [usize; 4],
    /// Step of the window: height, width; at least 1.
    pub strides: [usize; 2],
    /// Distance between the filter's taps: height, width; at least 1.
    pub dilations: [usize; 2],
    /// Channel groups; divides input and output channels.
    pub groups: usize,
}

/// Geometry of a two-dimensional pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool2d {
    /// Window: height, width; at least 1.
    pub window: [usize; 2],
    /// Padding: top, bottom, left, right; each smaller than the window's extent. Padding is ignored.
    pub padding: [usize; 4],
    /// Step of the window: height, width; at least 1.
    pub strides: [usize; 2],
    /// Distance between the window's taps: height, width; at least 1.
    pub dilations: [usize; 2],
}

impl Pool2d {
    /// Returns whether windows are disjoint tiles: every element of a plane of this height and width is in exactly one
    /// window, and no window exceeds the plane.
    pub fn is_tiling(&self, size: [usize; 2]) -> bool {
        let whole = |axis: usize| {
            self.strides[axis] == self.window[axis]
                && (self.dilations[axis] == 1 || self.window[axis] == 1)
                && size[axis].is_multiple_of(self.window[axis])
        };
        self.padding == [0; 4] && whole(0) && whole(1)
    }
}

/// How a pooling window is combined. (An average is a composite: a sum divided by a count, which is also a sum.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolKind {
    /// Largest.
    Max,
    /// Sum.
    Sum,
}

/// A windowed operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConvolutionOp {
    /// `[n, c, h, w]`, filter `[o, c/groups, kh, kw]` -> `[n, o, oh, ow]`. Cross-correlation, as WebNN's `conv2d`.
    Conv2d(Conv2d),
    /// Adjoint of `Conv2d` with respect to its input: `dy [n, o, oh, ow]`, filter `[o, c/groups, kh, kw]` -> `[n, c, h,
    /// w]`.
    Conv2dInputGrad {
        /// The forward operator's geometry.
        conv: Conv2d,
        /// `h`, `w` of the forward input.
        size: [usize; 2],
    },
    /// Adjoint of `Conv2d` with respect to its filter: `x [n, c, h, w]`, `dy [n, o, oh, ow]` -> `[o, c/groups, kh,
    /// kw]`.
    Conv2dFilterGrad {
        /// The forward operator's geometry.
        conv: Conv2d,
        /// `kh`, `kw` of the forward filter.
        window: [usize; 2],
    },
    /// Pooling: `[n, c, h, w]` -> `[n, c, oh, ow]`.
    Pool2d {
        /// Kind of pooling.
        kind: PoolKind,
        /// Geometry of the windows.
        pool: Pool2d,
    },
    /// Gradient of max pooling: `x [n, c, h, w]`, `dy [n, c, oh, ow]` -> `[n, c, h, w]`; each window's `dy` goes to its
    /// first largest element in row-major order.
    MaxPool2dGrad(Pool2d),
    /// Adjoint of sum pooling: `dy [n, c, oh, ow]` -> `[n, c, h, w]`.
    SumPool2dGrad {
        /// The forward operator's geometry.
        pool: Pool2d,
        /// `h`, `w` of the forward input.
        size: [usize; 2],
    },
}

impl ConvolutionOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            ConvolutionOp::Conv2d(_) => "conv2d",
            ConvolutionOp::Conv2dInputGrad { .. } => "conv2d-input-grad",
            ConvolutionOp::Conv2dFilterGrad { .. } => "conv2d-filter-grad",
            ConvolutionOp::Pool2d { kind: PoolKind::Max, .. } => "max-pool2d",
            ConvolutionOp::Pool2d { kind: PoolKind::Sum, .. } => "sum-pool2d",
            ConvolutionOp::MaxPool2dGrad(_) => "max-pool2d-grad",
            ConvolutionOp::SumPool2dGrad { .. } => "sum-pool2d-grad",
        }
    }

    pub(super) fn prototypes() -> [ConvolutionOp; 7] {
        let (padding, one) = ([0; 4], [1, 1]);
        let conv = Conv2d { padding, strides: one, dilations: one, groups: 1 };
        let pool = Pool2d { window: one, padding, strides: one, dilations: one };
        [
            ConvolutionOp::Conv2d(conv),
            ConvolutionOp::Conv2dInputGrad { conv, size: one },
            ConvolutionOp::Conv2dFilterGrad { conv, window: one },
            ConvolutionOp::Pool2d { kind: PoolKind::Max, pool },
            ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool },
            ConvolutionOp::MaxPool2dGrad(pool),
            ConvolutionOp::SumPool2dGrad { pool, size: one },
        ]
    }

    /// Returns the geometry of a convolution or of its adjoint, or `None` for pooling.
    pub const fn conv(&self) -> Option<&Conv2d> {
        match self {
            ConvolutionOp::Conv2d(conv)
            | ConvolutionOp::Conv2dInputGrad { conv, .. }
            | ConvolutionOp::Conv2dFilterGrad { conv, .. } => Some(conv),
            ConvolutionOp::Pool2d { .. } | ConvolutionOp::MaxPool2dGrad(_) | ConvolutionOp::SumPool2dGrad { .. } => {
                None
            }
        }
    }

    /// Returns which operand is a filter, or `None` if no operand is one.
    pub const fn filter_operand(&self) -> Option<usize> {
        match self {
            ConvolutionOp::Conv2d(_) | ConvolutionOp::Conv2dInputGrad { .. } => Some(1),
            ConvolutionOp::Conv2dFilterGrad { .. }
            | ConvolutionOp::Pool2d { .. }
            | ConvolutionOp::MaxPool2dGrad(_)
            | ConvolutionOp::SumPool2dGrad { .. } => None,
        }
    }

    /// Returns whether the result is the gradient of a filter.
    pub const fn is_filter_grad(&self) -> bool {
        matches!(self, ConvolutionOp::Conv2dFilterGrad { .. })
    }

    /// Returns whether the operator is a sum of products of two operands: a convolution or an adjoint of one.
    pub const fn is_contraction(&self) -> bool {
        self.conv().is_some()
    }
}
