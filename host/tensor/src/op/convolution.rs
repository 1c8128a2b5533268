//! Sliding windows in two dimensions, and their adjoints. Layout NCHW, filters OIHW; other layouts transpose first.
//! Float data types. The family is closed under differentiation but for `MaxPool2dGrad`.

use serde::{Deserialize, Serialize};

/// Geometry of a two-dimensional convolution. Output size: `(in + low + high - dilation*(k-1) - 1) / stride + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    /// Padding: top, bottom, left, right (WebNN: beginning and ending height, beginning and ending width).
    pub padding: [usize; 4],
    /// Step of the window: height, width; at least 1.
    pub strides: [usize; 2],
    /// Distance of the filter's taps: height, width; at least 1.
    pub dilations: [usize; 2],
    /// Channel groups; divides input and output channels.
    pub groups: usize,
}

/// Geometry of a two-dimensional pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool2d {
    /// Window: height, width; at least 1.
    pub window: [usize; 2],
    /// Padding: top, bottom, left, right; each below the window's extent. Padded places take no part.
    pub padding: [usize; 4],
    /// Step of the window: height, width; at least 1.
    pub strides: [usize; 2],
    /// Distance of the window's taps: height, width; at least 1.
    pub dilations: [usize; 2],
}

impl Pool2d {
    /// Whether every element of planes of this height and width lies under exactly one window, and all of each window
    /// inside.
    pub fn is_tiling(&self, size: [usize; 2]) -> bool {
        let whole = |axis: usize| {
            self.strides[axis] == self.window[axis]
                && (self.dilations[axis] == 1 || self.window[axis] == 1)
                && size[axis].is_multiple_of(self.window[axis])
        };
        self.padding == [0; 4] && whole(0) && whole(1)
    }
}

/// How a pooling window is combined. (An average is a sum over a count, both sums: a composite.)
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
    /// Adjoint of `Conv2d` in its input: `dy [n, o, oh, ow]`, filter `[o, c/groups, kh, kw]` -> `[n, c, h, w]`.
    Conv2dInputGrad {
        /// The forward operator's geometry.
        conv: Conv2d,
        /// `h`, `w` of the forward input.
        size: [usize; 2],
    },
    /// Adjoint of `Conv2d` in its filter: `x [n, c, h, w]`, `dy [n, o, oh, ow]` -> `[o, c/groups, kh, kw]`.
    Conv2dFilterGrad {
        /// The forward operator's geometry.
        conv: Conv2d,
        /// `kh`, `kw` of the forward filter.
        window: [usize; 2],
    },
    /// `[n, c, h, w]` -> `[n, c, oh, ow]`.
    Pool2d {
        /// How.
        kind: PoolKind,
        /// Over which windows.
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
