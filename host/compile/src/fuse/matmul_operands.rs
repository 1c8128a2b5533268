//! Operands of matrix products read in place: transposed, shared by batches, or reshaped.

use saggar_tensor::{Graph, NodeId};

use super::emit::{movement_source_coordinates, reshape_source_coordinates};
use super::fusion_kind::reshape_base;
use super::iteration_space::{AffineExpr, ElementAccess, IterationSpace};
use crate::limits::MATRIX_MOVEMENTS_MAX;

/// A matrix operand as stored in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixView {
    /// The node in memory.
    pub(super) node: NodeId,
    /// Whether rows and columns are exchanged.
    pub(super) transposed: bool,
    /// Elements from one batch to the next.
    pub(super) batch_stride: usize,
}

/// Returns the view of the operand `node [b.., rows, columns]` through as many of its movements as matrices allow.
pub(super) fn matrix_view(graph: &Graph, node: NodeId) -> MatrixView {
    let shape = &graph.descriptor(node).shape;
    let space = IterationSpace::new(shape);
    let rank = space.dims.len();
    let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
    let batch: usize = shape[..rank - 2].iter().product();
    let stride = if batch == 1 { 0 } else { rows * columns };
    let mut best = MatrixView { node: reshape_base(graph, node), transposed: false, batch_stride: stride };
    if shape.elements() == 0 {
        return best;
    }
    let mut access =
        ElementAccess { coordinates: (0..rank).map(|axis| space.axis(axis)).collect(), bounds: Vec::new() };
    let mut at = node;
    for _ in 0..MATRIX_MOVEMENTS_MAX {
        let Some(movement) = graph.node(at).op.as_movement() else { break };
        if !movement.is_rearrangement() {
            break;
        }
        let coordinates = if graph.node(at).op.is_reshape() {
            let Ok(coordinates) = reshape_source_coordinates(graph, at, &access, &space) else { break };
            coordinates
        } else {
            movement_source_coordinates(graph, at, &access, rank)
        };
        access.coordinates = coordinates;
        at = graph.node(at).inputs[0];
        let shape = &graph.descriptor(at).shape;
        if let Some((transposed, batch_stride)) = matrix_layout(&access.position(shape, rank), &space.dims) {
            let needed = if batch_stride == 0 { rows * columns } else { batch * rows * columns };
            if shape.elements() == needed {
                best = MatrixView { node: reshape_base(graph, at), transposed, batch_stride };
            }
        }
    }
    best
}

/// Returns whether the matrices at `position` are transposed, and the elements between batches. Returns `None` if they
/// are not dense matrices.
fn matrix_layout(position: &AffineExpr, dims: &[usize]) -> Option<(bool, usize)> {
    let rank = dims.len();
    let (rows, columns) = (dims[rank - 2], dims[rank - 1]);
    let (row, column) = (position.strides[rank - 2], position.strides[rank - 1]);
    let plain = (rows == 1 || row == columns as i64) && (columns == 1 || column == 1);
    let turned = (columns == 1 || column == rows as i64) && (rows == 1 || row == 1);
    if position.offset != 0 || !(plain || turned) {
        return None;
    }
    let mut batch = (1, 0);
    for dim in (0..rank - 2).rev().filter(|&dim| dims[dim] != 1) {
        let stride = position.strides[dim];
        if batch.0 == 1 {
            batch = (dims[dim] as i64, stride);
        } else if stride == batch.1 * batch.0 {
            batch.0 *= dims[dim] as i64;
        } else {
            return None;
        }
    }
    Some((!plain, usize::try_from(batch.1).ok()?))
}
