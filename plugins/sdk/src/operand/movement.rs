//! Moving elements: reshapes, slices, paddings, selections.

use super::Operand;
use crate::bindings::graphs::PaddingMode;
use crate::bindings::tensors::DataType;
use crate::error::{Error, Result};

/// Moving elements.
impl Operand {
    /// The same elements in row-major order under another shape.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn reshape(&self, shape: &[u32]) -> Result<Self> {
        self.graph.make(|builder| builder.reshape(&self.raw, shape))
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
        self.graph.make(|builder| builder.transpose(&self.raw, Some(permutation)))
    }

    /// Dimensions of size 1 repeated, aligned at the last dimension.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn expand(&self, shape: &[u32]) -> Result<Self> {
        self.graph.make(|builder| builder.expand(&self.raw, shape))
    }

    /// `sizes[i]` elements from `starts[i]` along each axis.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn slice(&self, starts: &[u32], sizes: &[u32]) -> Result<Self> {
        self.graph.make(|builder| builder.slice(&self.raw, starts, sizes, None))
    }

    /// Cut along `axis` into parts of these sizes.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn split(&self, sizes: &[u32], axis: u32) -> Result<Vec<Self>> {
        self.graph.make_many(|builder| builder.split(&self.raw, sizes, axis))
    }

    /// Elements added before and after along each axis.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn pad(&self, beginning: &[u32], ending: &[u32], mode: PaddingMode) -> Result<Self> {
        self.graph.make(|builder| builder.pad(&self.raw, beginning, ending, mode))
    }

    /// Order reversed along `axes`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn reverse(&self, axes: &[u32]) -> Result<Self> {
        self.graph.make(|builder| builder.reverse(&self.raw, Some(axes)))
    }

    /// Slices along `axis`, chosen by `indices` of an integer type.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn gather(&self, indices: &Self, axis: u32) -> Result<Self> {
        self.graph.make(|builder| builder.gather(&self.raw, &indices.raw, axis))
    }

    /// `self` are indices: 1 at the index and 0 elsewhere, along a new last dimension of size `depth`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn one_hot(&self, depth: u32, data_type: DataType) -> Result<Self> {
        self.graph.make(|builder| builder.one_hot(&self.raw, depth, data_type))
    }
}
