//! Test cases under construction.

use super::GraphCase;
use super::values::{CaseRng, ValueDistribution, random_value};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::Op;
use saggar_tensor::{DType, GraphBuilder, NodeId};

/// Collects nodes, and the values of inputs and variables.
#[derive(Default)]
pub(super) struct CaseBuilder {
    pub(super) builder: GraphBuilder,
    inputs: Vec<InterpTensor>,
    input_nodes: Vec<NodeId>,
    variables: Vec<InterpTensor>,
}

impl CaseBuilder {
    pub(super) fn input(
        &mut self,
        random: &mut CaseRng,
        dtype: DType,
        dims: &[usize],
        values: ValueDistribution,
    ) -> NodeId {
        self.input_with_value(random_value(random, dtype, dims, values))
    }

    /// Adds an input with this value.
    pub(super) fn input_with_value(&mut self, value: InterpTensor) -> NodeId {
        let name = format!("x{}", self.inputs.len());
        let node = self.builder.input(&name, value.descriptor().clone()).expect("names are distinct");
        self.inputs.push(value);
        self.input_nodes.push(node);
        node
    }

    /// Adds a variable with this initial value.
    pub(super) fn variable(&mut self, value: InterpTensor) -> NodeId {
        let name = format!("v{}", self.variables.len());
        let node = self.builder.variable(&name, value.descriptor().clone()).expect("names are distinct");
        self.variables.push(value);
        node
    }

    pub(super) fn node(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.builder.add_node(op, inputs).expect("generated operands are valid")
    }

    pub(super) fn finish(mut self, name: impl Into<String>, outputs: &[NodeId], smooth: bool) -> GraphCase {
        for (position, &node) in outputs.iter().enumerate() {
            self.builder.output(&format!("y{position}"), node).expect("names are distinct");
        }
        GraphCase {
            name: name.into(),
            builder: self.builder,
            inputs: self.inputs,
            variables: self.variables,
            input_nodes: self.input_nodes,
            output_nodes: outputs.to_vec(),
            smooth,
        }
    }
}

/// Returns a case of one primitive on operands of these data types, dimensions and values.
pub(super) fn single_op_case(
    random: &mut CaseRng,
    name: impl Into<String>,
    op: Op,
    operands: &[(DType, &[usize], ValueDistribution)],
    smooth: bool,
) -> GraphCase {
    let mut draft = CaseBuilder::default();
    let nodes: Vec<NodeId> =
        operands.iter().map(|&(dtype, dims, values)| draft.input(random, dtype, dims, values)).collect();
    let output = draft.node(op, &nodes);
    draft.finish(name, &[output], smooth)
}
