//! Graph builder: infers and checks nodes as they are added, so an error is reported where it is made.
//!
//! The convenience methods follow WebNN: element-wise operators broadcast like numpy, matrix products broadcast their
//! batch dimensions, and reductions can drop the reduced axes. They insert the movements that primitives need.
//!
//! The builder does not merge equal nodes. `gradients` distinguishes operands by node, so two operands with the same
//! computation must remain two nodes. The compiler merges them.

mod binary;
mod contract;
mod convolution;
mod index;
mod movement;
mod nan_guard;
mod reduce;
mod source;
mod unary;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{GraphError, NameKind};
use crate::graph::{Graph, GraphNode, NodeId};
use crate::infer::infer;
use crate::limits::{GRAPH_NODES_MAX, GRAPH_OPERANDS_MAX, GRAPH_OUTPUTS_MAX, NAME_BYTES_MAX, OPERANDS_MAX};
use crate::op::{Op, SourceOp};
use crate::{Descriptor, Shape};

/// A graph under construction. It is within every limit of [`crate::limits`] at any time.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    graph: Graph,
    input_names: HashSet<String>,
    variables: HashMap<String, NodeId>,
    output_names: HashSet<String>,
    assigned: HashSet<u32>,
    constant_bytes: usize,
    operands: usize,
}

impl GraphBuilder {
    /// Creates an empty graph.
    pub fn new() -> GraphBuilder {
        GraphBuilder::default()
    }

    /// Adds a primitive and returns its node. Operands must have exactly the data types and shapes that the operator
    /// takes: nothing is broadcast or converted.
    ///
    /// Inputs and variables must already exist. Other sources are added by their own methods, because their data type
    /// and shape cannot be inferred.
    ///
    /// # Errors
    /// Returns `TooManyNodes`, `TooManyOperands`, `OperandCount` or `UnknownOperand`; any error of [`infer`], with the
    /// operands' labels.
    pub fn add_node(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId, GraphError> {
        let declared = match op.as_source() {
            Some(SourceOp::Input(number)) => Some(port_descriptor(op.name(), &self.graph.inputs, *number)?),
            Some(SourceOp::Variable(number)) => Some(port_descriptor(op.name(), &self.graph.variables, *number)?),
            Some(_) | None => None,
        };
        self.push(op, inputs, declared)
    }

    fn push(&mut self, op: Op, inputs: &[NodeId], declared: Option<Descriptor>) -> Result<NodeId, GraphError> {
        let count = self.graph.nodes.len();
        if count >= GRAPH_NODES_MAX {
            return Err(GraphError::TooManyNodes);
        }
        if self.operands.saturating_add(inputs.len()) > GRAPH_OPERANDS_MAX {
            return Err(GraphError::TooManyOperands);
        }
        let descriptor = infer_at(&self.graph.nodes, &op, inputs, declared.as_ref())
            .map_err(|error| self.error_with_labels(error, inputs))?;
        self.operands += inputs.len();
        self.graph.nodes.push(GraphNode { op, inputs: inputs.to_vec(), descriptor, label: None });
        Ok(NodeId(count as u32))
    }

    /// Returns `error` with the labels of these operands, if any has one.
    fn error_with_labels(&self, error: GraphError, inputs: &[NodeId]) -> GraphError {
        let labels: Vec<&str> =
            inputs.iter().filter_map(|id| self.graph.nodes.get(id.index())?.label.as_deref()).collect();
        if labels.is_empty() || error.place().is_some() { error } else { error.at(labels.join(", ")) }
    }

    /// Returns a node's name, data type and shape for an error message: its label, the name of the input or variable, or
    /// the operator that computes it.
    ///
    /// # Panics
    /// Panics if `id` is not a node of this graph.
    pub fn describe_node(&self, id: NodeId) -> String {
        let node = self.graph.node(id);
        let name = match (&node.label, &node.op) {
            (Some(label), _) => format!("`{label}`"),
            (None, Op::Source(SourceOp::Input(number))) => {
                format!("input `{}`", self.graph.inputs[*number as usize].name)
            }
            (None, Op::Source(SourceOp::Variable(number))) => {
                format!("variable `{}`", self.graph.variables[*number as usize].name)
            }
            (None, op) => format!("a result of {}", op.name()),
        };
        format!("{name} {}", node.descriptor)
    }

    /// Sets the name of a node in error messages. A later name replaces an earlier one.
    ///
    /// # Errors
    /// Returns `UnknownNode` or `NameLength`.
    pub fn label(&mut self, id: NodeId, label: &str) -> Result<(), GraphError> {
        self.descriptor_of(id)?;
        check_name(NameKind::Label, label)?;
        self.graph.nodes[id.index()].label = Some(Arc::from(label));
        Ok(())
    }

    /// Makes a node an output of the graph. One node can be several outputs.
    ///
    /// # Errors
    /// Returns `UnknownNode`, `NameLength`, `NameTaken` or `TooManyOutputs`.
    pub fn output(&mut self, name: &str, id: NodeId) -> Result<(), GraphError> {
        self.descriptor_of(id)?;
        check_name(NameKind::Output, name)?;
        if self.graph.outputs.len() >= GRAPH_OUTPUTS_MAX {
            return Err(GraphError::TooManyOutputs);
        }
        if !self.output_names.insert(name.to_owned()) {
            return Err(GraphError::NameTaken { kind: NameKind::Output, name: name.to_owned() });
        }
        self.graph.outputs.push((name.to_owned(), id));
        Ok(())
    }

    /// Assigns `value` to the variable called `name` when a dispatch completes; reads in the same dispatch see the old
    /// value.
    ///
    /// # Errors
    /// Returns `UnknownVariable`, and the errors of [`GraphBuilder::assign_to`].
    pub fn assign(&mut self, name: &str, value: NodeId) -> Result<(), GraphError> {
        let Some(&variable) = self.variables.get(name) else {
            return Err(GraphError::UnknownVariable { name: name.to_owned() });
        };
        self.assign_to(variable, value)
    }

    /// Assigns as [`GraphBuilder::assign`] does, to the node that [`GraphBuilder::variable`] returned.
    ///
    /// # Errors
    /// Returns `UnknownNode`, `NotVariable` or `AssignedTwice`; `AssignMismatch` if data type or shape differ.
    pub fn assign_to(&mut self, variable: NodeId, value: NodeId) -> Result<(), GraphError> {
        self.descriptor_of(variable)?;
        let got = self.descriptor_of(value)?.clone();
        let Op::Source(SourceOp::Variable(number)) = self.graph.node(variable).op else {
            return Err(GraphError::NotVariable { id: variable.0 });
        };
        let port = &self.graph.variables[number as usize];
        if port.descriptor != got {
            let (name, expected) = (port.name.clone(), port.descriptor.clone());
            return Err(GraphError::AssignMismatch { name, expected, got });
        }
        if !self.assigned.insert(number) {
            return Err(GraphError::AssignedTwice { name: port.name.clone() });
        }
        self.graph.assignments.push((number, value));
        Ok(())
    }

    /// Returns the graph built so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns data type and shape of a node of this graph.
    ///
    /// # Panics
    /// Panics if `id` is not a node of this graph. Use [`GraphBuilder::descriptor_of`] for IDs from elsewhere.
    pub fn descriptor(&self, id: NodeId) -> &Descriptor {
        self.graph.descriptor(id)
    }

    /// Returns data type and shape of the node at `id`.
    ///
    /// # Errors
    /// Returns `UnknownNode` if there is no such node.
    pub fn descriptor_of(&self, id: NodeId) -> Result<&Descriptor, GraphError> {
        let nodes = self.graph.nodes.len();
        let node = self.graph.nodes.get(id.index()).ok_or(GraphError::UnknownNode { id: id.0, nodes })?;
        Ok(&node.descriptor)
    }

    fn shape_of(&self, id: NodeId) -> Result<Shape, GraphError> {
        Ok(self.descriptor_of(id)?.shape.clone())
    }

    /// Returns the finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }
}

/// Infers a node that follows `nodes`: its operands must be among them.
pub(crate) fn infer_at(
    nodes: &[GraphNode],
    op: &Op,
    inputs: &[NodeId],
    declared: Option<&Descriptor>,
) -> Result<Descriptor, GraphError> {
    if inputs.len() > OPERANDS_MAX {
        let (op, got) = (op.name(), inputs.len());
        return Err(GraphError::OperandCount { op, least: 0, most: OPERANDS_MAX, got });
    }
    let mut operands = Vec::with_capacity(inputs.len());
    for (position, id) in inputs.iter().enumerate() {
        let Some(node) = nodes.get(id.index()) else {
            let (op, nodes) = (op.name(), nodes.len());
            return Err(GraphError::UnknownOperand { op, position, id: id.0, nodes });
        };
        operands.push(&node.descriptor);
    }
    infer(op, &operands, declared)
}

/// Returns the descriptor of port `number`.
pub(crate) fn port_descriptor(
    op: &'static str,
    ports: &[crate::GraphPort],
    number: u32,
) -> Result<Descriptor, GraphError> {
    match ports.get(number as usize) {
        Some(port) => Ok(port.descriptor.clone()),
        None => Err(GraphError::UnknownPort { op, number, count: ports.len() }),
    }
}

/// Checks that a name has 1 to [`NAME_BYTES_MAX`] bytes.
pub(crate) fn check_name(kind: NameKind, name: &str) -> Result<(), GraphError> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(GraphError::NameLength { kind, bytes: name.len() })
}

#[cfg(test)]
mod tests;
