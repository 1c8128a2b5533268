//! Moving elements: reshapes, slices, paddings, repetitions.

use super::Operand;
use crate::bindings::graphs as raw;
use crate::bindings::graphs::PaddingMode;
use crate::error::{Error, Result};

/// Moving elements.
impl Operand {
    /// The same elements in row-major order under another shape.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn reshape(&self, shape: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.reshape(&self.raw, shape))
    }

    /// Dimensions from `axis` on made one: `[b, c, h, w]` and 1 give `[b, c * h * w]`.
    ///
    /// # Errors
    /// `Shape` if there is no such axis; `Built`.
    pub fn flatten(&self, axis: usize) -> Result<Self> {
        let mut shape = self.shape();
        let Some(tail) = shape.get(axis..) else {
            let what = format!("what is flattened from axis {axis}");
            return Err(Error::Shape { what, expected: "of a higher rank", given: shape });
        };
        let size = tail.iter().product();
        shape.truncate(axis);
        shape.push(size);
        self.reshape(&shape)
    }

    /// Axes reordered: result axis `i` is axis `permutation[i]`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn transpose(&self, permutation: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.transpose(&self.raw, Some(permutation)))
    }

    /// Dimensions of size 1 repeated, aligned at the last dimension.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn expand(&self, shape: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.expand(&self.raw, shape))
    }

    /// `sizes[i]` elements from `starts[i]` along each axis.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn slice(&self, starts: &[u32], sizes: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.slice(&self.raw, starts, sizes, None))
    }

    /// Every `strides[i]`-th element of windows of `sizes[i]` elements from `starts[i]` along each axis.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn slice_strided(&self, starts: &[u32], sizes: &[u32], strides: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.slice(&self.raw, starts, sizes, Some(strides)))
    }

    /// Cut along `axis` into parts of these sizes.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn split(&self, sizes: &[u32], axis: u32) -> Result<Vec<Self>> {
        self.graph.add_operands(|builder| builder.split(&self.raw, sizes, axis))
    }

    /// Elements added before and after along each axis.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn pad(&self, beginning: &[u32], ending: &[u32], mode: PaddingMode) -> Result<Self> {
        self.graph.add_operand(|builder| builder.pad(&self.raw, beginning, ending, mode))
    }

    /// Order reversed along `axes`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn reverse(&self, axes: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.reverse(&self.raw, Some(axes)))
    }

    /// Repeated as often as `repetitions` says along each axis.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn tile(&self, repetitions: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.tile(&self.raw, repetitions))
    }

    /// Of the last two dimensions' matrices, what lies on and above the `diagonal`-th diagonal; zeros elsewhere. Diagonal
    /// 0 is the main one, positive ones lie above it.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn upper_triangular(&self, diagonal: i32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.triangular(&self.raw, true, diagonal))
    }

    /// Of the last two dimensions' matrices, what lies on and below the `diagonal`-th diagonal; zeros elsewhere. Diagonal
    /// 0 is the main one, positive ones lie above it.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn lower_triangular(&self, diagonal: i32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.triangular(&self.raw, false, diagonal))
    }
}

/// Joined along `axis`.
///
/// # Errors
/// `Host` if shapes or data types disagree; `Shape` if there is nothing to join; `Built`.
pub fn concat(operands: &[&Operand], axis: u32) -> Result<Operand> {
    let Some(first) = operands.first() else {
        let what = "what is joined".to_owned();
        return Err(Error::Shape { what, expected: "at least one operand", given: Vec::new() });
    };
    let raw: Vec<&raw::Operand> = operands.iter().map(|operand| operand.raw()).collect();
    first.graph.add_operand(|builder| builder.concat(&raw, axis))
}
