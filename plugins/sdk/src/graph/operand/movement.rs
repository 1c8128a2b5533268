//! Data movement: reshape, slice, pad, repeat.

use super::Operand;
use crate::bindings::graphs as raw;
use crate::bindings::graphs::PaddingMode;
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};

/// Data movement.
impl Operand {
    /// Returns the same elements, in row-major order, with another shape.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn reshape(&self, shape: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.reshape(&self.raw, shape))
    }

    /// Merges the dimensions from `axis` on. Shape: `[b, c, h, w]`, axis 1 -> `[b, c * h * w]`.
    ///
    /// # Errors
    /// Returns `Shape` if the rank is less than `axis`, and `Built` after the graph was built.
    #[track_caller]
    pub fn flatten(&self, axis: usize) -> Result<Self> {
        let mut shape = self.shape();
        let Some(tail) = shape.get(axis..) else {
            let what = format!("an operand flattened from axis {axis}");
            return Err(Error::Shape { what, expected: "of a higher rank", given: shape }).at_caller();
        };
        let size = tail.iter().product();
        shape.truncate(axis);
        shape.push(size);
        self.reshape(&shape)
    }

    /// Permutes the axes: axis `i` of the result is axis `permutation[i]` of the operand.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn transpose(&self, permutation: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.transpose(&self.raw, Some(permutation)))
    }

    /// Broadcasts to a shape: dimensions are aligned at the last one, and those of size 1 are repeated.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn expand(&self, shape: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.expand(&self.raw, shape))
    }

    /// Returns `sizes[i]` elements from `starts[i]` along each axis.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn slice(&self, starts: &[u32], sizes: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.slice(&self.raw, starts, sizes, None))
    }

    /// Returns every `strides[i]`-th of the `sizes[i]` elements from `starts[i]` along each axis.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn slice_strided(&self, starts: &[u32], sizes: &[u32], strides: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.slice(&self.raw, starts, sizes, Some(strides)))
    }

    /// Splits along `axis` into parts of these sizes.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn split(&self, sizes: &[u32], axis: u32) -> Result<Vec<Self>> {
        self.graph.add_operands(|builder| builder.split(&self.raw, sizes, axis))
    }

    /// Adds `beginning[i]` elements before and `ending[i]` elements after along each axis.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn pad(&self, beginning: &[u32], ending: &[u32], mode: PaddingMode) -> Result<Self> {
        self.graph.add_operand(|builder| builder.pad(&self.raw, beginning, ending, mode))
    }

    /// Reverses the order along `axes`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn reverse(&self, axes: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.reverse(&self.raw, Some(axes)))
    }

    /// Repeats the tensor `repetitions[i]` times along each axis.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn tile(&self, repetitions: &[u32]) -> Result<Self> {
        self.graph.add_operand(|builder| builder.tile(&self.raw, repetitions))
    }

    /// Keeps the elements on and above the `diagonal`-th diagonal of the matrices in the last two dimensions, and sets
    /// the others to 0. Diagonal 0 is the main one; positive ones are above it.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn upper_triangular(&self, diagonal: i32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.triangular(&self.raw, true, diagonal))
    }

    /// Keeps the elements on and below the `diagonal`-th diagonal of the matrices in the last two dimensions, and sets
    /// the others to 0. Diagonal 0 is the main one; positive ones are above it.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn lower_triangular(&self, diagonal: i32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.triangular(&self.raw, false, diagonal))
    }
}

/// Concatenates along `axis`.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(a: &Operand, b: &Operand) -> Result<()> {
/// let joined = concat(&[a, b], 1)?; // [batch, 3], [batch, 5] -> [batch, 8]
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Shape` if `operands` is empty, `Host` if shapes or data types do not match, and `Built` after the graph was
/// built.
#[track_caller]
pub fn concat(operands: &[&Operand], axis: u32) -> Result<Operand> {
    let Some(first) = operands.first() else {
        let what = "the list of operands to concatenate".to_owned();
        return Err(Error::Shape { what, expected: "at least one operand", given: Vec::new() }).at_caller();
    };
    let raw: Vec<&raw::Operand> = operands.iter().map(|operand| operand.raw()).collect();
    first.graph.add_operand(|builder| builder.concat(&raw, axis))
}
