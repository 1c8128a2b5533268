//! Elements chosen and written by index. An index may have any integer type; a negative one counts from the end, and one
//! beyond an end means that end.

use super::Operand;
use crate::bindings::graphs::ScatterReduction;
use crate::bindings::tensors::DataType;
use crate::error::Result;

/// Elements chosen and written by index.
impl Operand {
    /// Slices along `axis`, chosen by `indices` of an integer type.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn gather(&self, indices: &Self, axis: u32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gather(&self.raw, &indices.raw, axis))
    }

    /// Along `axis` the element that the index in the same place names. Ranks are equal.
    ///
    /// Shape: `[2, 5]`, indices `[2, 3]`, axis 1 -> `[2, 3]`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn gather_elements(&self, indices: &Self, axis: u32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gather_elements(&self.raw, &indices.raw, axis))
    }

    /// The last dimension of `indices` names places along the first axes.
    ///
    /// Shape: `[d.., r..]`, indices `[i.., k]` with as many `d` as `k` says -> `[i.., r..]`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn gather_nd(&self, indices: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gather_nd(&self.raw, &indices.raw))
    }

    /// The operand, with each of `updates` combined into the place that [`Operand::gather_elements`] would read.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn scatter_elements(
        &self,
        indices: &Self,
        updates: &Self,
        axis: u32,
        reduction: ScatterReduction,
    ) -> Result<Self> {
        self.graph
            .add_operand(|builder| builder.scatter_elements(&self.raw, &indices.raw, &updates.raw, axis, reduction))
    }

    /// The operand, with each of `updates` combined into the place that [`Operand::gather_nd`] would read.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn scatter_nd(&self, indices: &Self, updates: &Self, reduction: ScatterReduction) -> Result<Self> {
        self.graph.add_operand(|builder| builder.scatter_nd(&self.raw, &indices.raw, &updates.raw, reduction))
    }

    /// `self` are indices: 1 at the index and 0 elsewhere, along a new last dimension of size `depth`.
    ///
    /// # Errors
    /// `Host`; `Built`.
    pub fn one_hot(&self, depth: u32, data_type: DataType) -> Result<Self> {
        self.graph.add_operand(|builder| builder.one_hot(&self.raw, depth, data_type))
    }
}
