//! Adjoints of data-dependent selections: gathering and scattering are each other's; indices have none.

use super::Step;
use super::emit::shape_of;
use crate::NodeId;
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::op::{Index, Op};

pub(super) fn adjoint(
    g: &mut GraphBuilder,
    op: Index,
    step: &Step,
    operand: usize,
) -> Result<Option<NodeId>, GraphError> {
    let (op, inputs) = match (op, operand) {
        (Index::Gather { axis }, 0) => {
            let size = shape_of(g, step.inputs[0])[axis];
            (Index::ScatterAdd { axis, size }, [step.inputs[1], step.dy])
        }
        (Index::ScatterAdd { axis, size: _ }, 1) => (Index::Gather { axis }, [step.dy, step.inputs[0]]),
        (Index::Gather { .. } | Index::ScatterAdd { .. }, _) => return Ok(None),
    };
    g.add_node(Op::Index(op), &inputs).map(Some)
}
