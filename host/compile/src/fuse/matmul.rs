//! Operands of matrix products read where they lie: transposed, shared by batches, or under another shape.

use saggar_tensor::op::{Movement, Op};
use saggar_tensor::{Graph, NodeId};

use super::emit::{through, through_reshape};
use super::kind::base;
use super::space::{Access, Affine, Space};
use crate::limits::MATRIX_MOVEMENTS_MAX;

/// A matrix operand as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    /// The node that lies there.
    pub(super) node: NodeId,
    /// Whether rows and columns have changed places.
    pub(super) transposed: bool,
    /// Elements between batches.
    pub(super) batch_stride: usize,
}

/// The operand `node [b.., rows, columns]` from as far below its movements as it can still be read as matrices.
pub(super) fn matrix(graph: &Graph, node: NodeId) -> Matrix {
    let shape = &graph.descriptor(node).shape;
    let space = Space::new(shape);
    let rank = space.dims.len();
    let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
    let batch: usize = shape[..rank - 2].iter().product();
    let stride = if batch == 1 { 0 } else { rows * columns };
    let mut best = Matrix { node: base(graph, node), transposed: false, batch_stride: stride };
    if shape.elements() == 0 {
        return best;
    }
    let mut access = Access { coordinates: (0..rank).map(|axis| space.axis(axis)).collect(), bounds: Vec::new() };
    let mut at = node;
    for _ in 0..MATRIX_MOVEMENTS_MAX {
        let Op::Movement(movement) = &graph.node(at).op else { break };
        let coordinates = match movement {
            Movement::Reshape(_) => match through_reshape(graph, at, &access, &space) {
                Ok(coordinates) => coordinates,
                Err(_) => break,
            },
            Movement::Broadcast(_) | Movement::Transpose(_) | Movement::Slice { .. } | Movement::Reverse(_) => {
                through(graph, at, &access, rank)
            }
            Movement::Pad { .. } | Movement::Concat { .. } => break,
        };
        access.coordinates = coordinates;
        at = graph.node(at).inputs[0];
        let shape = &graph.descriptor(at).shape;
        if let Some((transposed, batch_stride)) = read_as(&access.position(shape, rank), &space.dims) {
            let needed = if batch_stride == 0 { rows * columns } else { batch * rows * columns };
            if shape.elements() == needed {
                best = Matrix { node: base(graph, at), transposed, batch_stride };
            }
        }
    }
    best
}

/// Whether matrices at `position` are transposed, and how far apart; none where they are no dense matrices.
fn read_as(position: &Affine, dims: &[usize]) -> Option<(bool, usize)> {
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
