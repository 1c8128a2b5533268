//! Matrix products.

use super::GraphBuilder;
use super::binary::common_shape;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::{ContractOp, Op};
use crate::{Descriptor, Shape};

impl GraphBuilder {
    /// Returns the matrix product over the last two dimensions; batch dimensions broadcast. Float.
    ///
    /// Shape: `[b.., m, k]`, `[b.., k, n]` -> `[b.., m, n]`. `k = 0` gives zeros. Source: W3C WebNN, `matmul`.
    ///
    /// # Errors
    /// Returns `DType`, `DTypesDiffer`, `Broadcast`, `InnerDimensions`, `UnknownNode` or `TooManyNodes`; `Rank` below 2.
    pub fn matmul(&mut self, a: NodeId, b: NodeId) -> Result<NodeId, GraphError> {
        let op = ContractOp::MatMul { transpose_a: false, transpose_b: false };
        let (lhs, rhs) = (self.descriptor_of(a)?.clone(), self.descriptor_of(b)?.clone());
        check_matmul(op.name(), &lhs, &rhs).map_err(|error| self.error_with_labels(error, &[a, b]))?;
        let (batch_a, [m, k]) = split_batch_dims(&lhs.shape);
        let (batch_b, [_, n]) = split_batch_dims(&rhs.shape);
        if batch_b.iter().all(|&dim| dim == 1) && batch_a.len() >= batch_b.len() {
            // One matrix for the whole batch: a single tall product is faster on every device than many small ones.
            let rows = batch_a.iter().product::<usize>() * m;
            let flat_a = self.reshape(a, &[rows, k])?;
            let flat_b = self.reshape(b, &[k, n])?;
            let product = self.add_node(Op::Contract(op), &[flat_a, flat_b])?;
            return self.reshape(product, &[batch_a, &[m, n]].concat());
        }
        let batch =
            broadcast_batch_dims(op.name(), &lhs, &rhs).map_err(|error| self.error_with_labels(error, &[a, b]))?;
        let a = self.broadcast_to(a, Shape::new([&batch[..], &[m, k]].concat())?)?;
        let b = self.broadcast_to(b, Shape::new([&batch[..], &[k, n]].concat())?)?;
        self.add_node(Op::Contract(op), &[a, b])
    }
}

/// Checks operands early, because the movements before the product would report these errors less clearly or not at
/// all.
fn check_matmul(op: &'static str, lhs: &Descriptor, rhs: &Descriptor) -> Result<(), GraphError> {
    for (operand, descriptor) in [("a", lhs), ("b", rhs)] {
        if descriptor.shape.rank() < 2 {
            let got = descriptor.clone();
            return Err(GraphError::Rank { op, operand, least: 2, most: usize::MAX, got });
        }
    }
    if lhs.dtype != rhs.dtype {
        return Err(GraphError::DTypesDiffer { op, lhs: lhs.clone(), rhs: rhs.clone() });
    }
    let (_, [_, k]) = split_batch_dims(&lhs.shape);
    let (_, [rows, _]) = split_batch_dims(&rhs.shape);
    if rows != k {
        return Err(GraphError::InnerDimensions { op, lhs: k, rhs: rows });
    }
    broadcast_batch_dims(op, lhs, rhs).map(|_| ())
}

/// Returns the batch dimensions, and the last two dimensions.
fn split_batch_dims(shape: &Shape) -> (&[usize], [usize; 2]) {
    let (batch, matrix) = shape.split_at(shape.rank() - 2);
    (batch, [matrix[0], matrix[1]])
}

/// Returns the batch dimensions that both broadcast to.
fn broadcast_batch_dims(op: &'static str, lhs: &Descriptor, rhs: &Descriptor) -> Result<Shape, GraphError> {
    let of = |descriptor: &Descriptor| -> Result<Descriptor, GraphError> {
        Ok(Descriptor::new(descriptor.dtype, Shape::new(split_batch_dims(&descriptor.shape).0)?))
    };
    common_shape(op, &of(lhs)?, &of(rhs)?).map_err(|error| {
        if let GraphError::Broadcast { .. } = error {
            return GraphError::Broadcast { op, lhs: lhs.clone(), rhs: rhs.clone() };
        }
        error
    })
}
