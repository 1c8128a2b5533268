//! Verification of untrusted graphs.
//!
//! Verification checks everything from scratch, independent of the graph's origin: order, operands, inferred
//! descriptors, ports, names, constants, assignments and limits. Later stages accept only a [`VerifiedGraph`], so they
//! need no further checks.

use std::collections::HashSet;
use std::ops::Deref;

use crate::builder::{check_name, infer_at, port_descriptor};
use crate::error::{GraphError, NameKind};
use crate::graph::{Graph, GraphNode, NodeId};
use crate::limits::{GRAPH_CONSTANT_BYTES_MAX, GRAPH_NODES_MAX, GRAPH_OPERANDS_MAX, GRAPH_OUTPUTS_MAX, NAME_BYTES_MAX};
use crate::op::SourceOp;
use crate::{Descriptor, GraphPort, InterruptCheck};

/// A graph that satisfies every invariant of [`Graph`] and every limit of [`crate::limits`].
///
/// Only [`verify`] creates one, and it is immutable.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedGraph(Graph);

impl VerifiedGraph {
    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.0
    }

    /// Returns the graph for modification; it must be verified again afterwards.
    pub fn into_graph(self) -> Graph {
        self.0
    }
}

impl Deref for VerifiedGraph {
    type Target = Graph;
    fn deref(&self) -> &Graph {
        &self.0
    }
}

/// Checks the whole `graph`, in time proportional to its nodes and ports.
///
/// # Errors
/// Returns the first error found: limits first, then ports, nodes in order (with the node as the place), outputs and
/// assignments.
pub fn verify(graph: Graph) -> Result<VerifiedGraph, GraphError> {
    verify_interruptible(graph, &InterruptCheck::never())
}

/// Verifies as [`verify`] does, and stops when `interrupt` fires.
///
/// # Errors
/// As [`verify`], and `InterruptedError`.
pub fn verify_interruptible(graph: Graph, interrupt: &InterruptCheck<'_>) -> Result<VerifiedGraph, GraphError> {
    check_limits(&graph)?;
    check_ports(NameKind::Input, &graph.inputs)?;
    check_ports(NameKind::Variable, &graph.variables)?;
    for index in 0..graph.nodes.len() {
        interrupt.check()?;
        check_node(&graph, index).map_err(|error| error.at(node_place(index, &graph.nodes[index])))?;
    }
    check_outputs(&graph)?;
    check_assignments(&graph)?;
    Ok(VerifiedGraph(graph))
}

fn node_place(index: usize, node: &GraphNode) -> String {
    match &node.label {
        // A label that is too long is refused, but not repeated in the message.
        Some(label) if label.len() <= NAME_BYTES_MAX => format!("node {index}, {label}"),
        Some(_) | None => format!("node {index}"),
    }
}

fn check_limits(graph: &Graph) -> Result<(), GraphError> {
    if graph.nodes.len() > GRAPH_NODES_MAX {
        return Err(GraphError::TooManyNodes);
    }
    if graph.nodes.iter().map(|node| node.inputs.len()).fold(0, usize::saturating_add) > GRAPH_OPERANDS_MAX {
        return Err(GraphError::TooManyOperands);
    }
    let most = graph.inputs.len().max(graph.variables.len()).max(graph.constants.len());
    if most > GRAPH_NODES_MAX {
        return Err(GraphError::TooManyPorts);
    }
    if graph.outputs.len() > GRAPH_OUTPUTS_MAX {
        return Err(GraphError::TooManyOutputs);
    }
    let bytes = graph.constants.iter().map(|constant| constant.len()).fold(0, usize::saturating_add);
    if bytes > GRAPH_CONSTANT_BYTES_MAX {
        return Err(GraphError::TooManyConstantBytes { bytes });
    }
    Ok(())
}

fn check_ports(kind: NameKind, ports: &[GraphPort]) -> Result<(), GraphError> {
    check_names(kind, ports.iter().map(|port| port.name.as_str()))
}

/// Checks that names are distinct and not too long.
fn check_names<'a>(kind: NameKind, names: impl Iterator<Item = &'a str>) -> Result<(), GraphError> {
    let mut seen = HashSet::new();
    for name in names {
        check_name(kind, name)?;
        if !seen.insert(name) {
            return Err(GraphError::NameTaken { kind, name: name.to_owned() });
        }
    }
    Ok(())
}

fn check_node(graph: &Graph, index: usize) -> Result<(), GraphError> {
    let node = &graph.nodes[index];
    let declared = match node.op.as_source() {
        Some(source) => Some(check_source(graph, source, &node.descriptor)?),
        None => None,
    };
    // Operands must be earlier nodes, which have been checked, so there can be no cycle.
    let inferred = infer_at(&graph.nodes[..index], &node.op, &node.inputs, declared.as_ref())?;
    if inferred != node.descriptor {
        return Err(GraphError::Declared { op: node.op.name(), declared: node.descriptor.clone(), inferred });
    }
    match &node.label {
        Some(label) => check_name(NameKind::Label, label),
        None => Ok(()),
    }
}

/// Returns the declared descriptor of a source: its port's, or else its own.
fn check_source(graph: &Graph, source: &SourceOp, own: &Descriptor) -> Result<Descriptor, GraphError> {
    match source {
        SourceOp::Input(number) => port_descriptor(source.name(), &graph.inputs, *number),
        SourceOp::Variable(number) => port_descriptor(source.name(), &graph.variables, *number),
        SourceOp::Constant(number) => {
            let count = graph.constants.len();
            let Some(bytes) = graph.constants.get(*number as usize) else {
                return Err(GraphError::UnknownPort { op: source.name(), number: *number, count });
            };
            if bytes.len() != own.bytes() {
                return Err(GraphError::ConstantBytes { descriptor: own.clone(), got: bytes.len() });
            }
            Ok(own.clone())
        }
        SourceOp::Fill(_) | SourceOp::Iota { .. } | SourceOp::Random { .. } => Ok(own.clone()),
    }
}

fn check_outputs(graph: &Graph) -> Result<(), GraphError> {
    check_names(NameKind::Output, graph.outputs.iter().map(|(name, _)| name.as_str()))?;
    graph.outputs.iter().try_for_each(|&(_, id)| check_exists(graph, id).map(|_| ()))
}

fn check_assignments(graph: &Graph) -> Result<(), GraphError> {
    let mut assigned = HashSet::new();
    for &(number, id) in &graph.assignments {
        let expected = port_descriptor("variable", &graph.variables, number)?;
        let got = &check_exists(graph, id)?.descriptor;
        let name = &graph.variables[number as usize].name;
        if *got != expected {
            return Err(GraphError::AssignMismatch { name: name.clone(), expected, got: got.clone() });
        }
        if !assigned.insert(number) {
            return Err(GraphError::AssignedTwice { name: name.clone() });
        }
    }
    Ok(())
}

fn check_exists(graph: &Graph, id: NodeId) -> Result<&GraphNode, GraphError> {
    let nodes = graph.nodes.len();
    graph.nodes.get(id.index()).ok_or(GraphError::UnknownNode { id: id.0, nodes })
}

#[cfg(test)]
mod tests;
