//! Gather and scatter. Indices can have any integer type. A negative index counts from the end; an index outside the
//! axis is clamped.

use super::Operand;
use crate::bindings::graphs::ScatterReduction;
use crate::bindings::tensors::DataType;
use crate::error::Result;

/// Gather and scatter.
impl Operand {
    /// Selects slices along `axis` by `indices`.
    ///
    /// Shape: `[5, 3]`, indices `[2, 4]`, axis 0 -> `[2, 4, 3]`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn gather(&self, indices: &Self, axis: u32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gather(&self.raw, &indices.raw, axis))
    }

    /// Selects elements along `axis` by the index at the same position; the other coordinates are those of the
    /// position. Both operands have the same rank.
    ///
    /// Shape: `[2, 5]`, indices `[2, 3]`, axis 1 -> `[2, 3]`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn gather_elements(&self, indices: &Self, axis: u32) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gather_elements(&self.raw, &indices.raw, axis))
    }

    /// Selects slices by the coordinates in the last dimension of `indices`.
    ///
    /// Shape: `[d.., r..]`, indices `[i.., k]`, where `d..` are `k` dimensions -> `[i.., r..]`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn gather_nd(&self, indices: &Self) -> Result<Self> {
        self.graph.add_operand(|builder| builder.gather_nd(&self.raw, &indices.raw))
    }

    /// Returns `self` with each element of `updates` combined into the position that [`Operand::gather_elements`] would
    /// read.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
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

    /// Returns `self` with each slice of `updates` combined into the position that [`Operand::gather_nd`] would read.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn scatter_nd(&self, indices: &Self, updates: &Self, reduction: ScatterReduction) -> Result<Self> {
        self.graph.add_operand(|builder| builder.scatter_nd(&self.raw, &indices.raw, &updates.raw, reduction))
    }

    /// Returns 1 at the index and 0 elsewhere, along a new last dimension of size `depth`. `self` contains the indices.
    ///
    /// Shape: `[...]` of an integer type -> `[..., depth]` of `data_type`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses an operand, and `Built` after the graph was built.
    #[track_caller]
    pub fn one_hot(&self, depth: u32, data_type: DataType) -> Result<Self> {
        self.graph.add_operand(|builder| builder.one_hot(&self.raw, depth, data_type))
    }
}
