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
