//! The graph: an array of nodes in topological order (operands come before the nodes that use them), with inputs,
//! variables, constants, outputs and assignments.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::op::Op;
use crate::shape::Descriptor;

/// The index of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A primitive operator applied to earlier nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphNode {
    /// The operator.
    pub op: Op,
    /// Operands, all of them earlier nodes.
    pub inputs: Vec<NodeId>,
    /// Data type and shape of the result.
    pub descriptor: Descriptor,
    /// The plugin's name for the node, for error messages.
    #[serde(with = "label")]
    pub label: Option<Arc<str>>,
}

/// Serializes a label as a string. serde's built-in support for `Arc<str>` needs a feature that every user of serde
/// would then get.
mod label {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(label: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
        label.as_deref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(Arc::from))
    }
}

/// A named tensor that the caller provides or the graph keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphPort {
    /// The name, unique among the graph's ports of its kind.
    pub name: String,
    /// Data type and shape.
    pub descriptor: Descriptor,
}

/// A computation for concrete shapes. Untrusted until [`crate::verify()`] has returned it as a `VerifiedGraph`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Nodes in topological order.
    pub nodes: Vec<GraphNode>,
    /// Inputs of a dispatch, addressed by `SourceOp::Input`.
    pub inputs: Vec<GraphPort>,
    /// State that persists between dispatches, addressed by `SourceOp::Variable`.
    pub variables: Vec<GraphPort>,
    /// Dense little-endian bytes, addressed by `SourceOp::Constant`. They are not serialized with the graph: the sender
    /// must transfer them separately.
    #[serde(skip)]
    pub constants: Vec<Arc<[u8]>>,
    /// Outputs of a dispatch, by name.
    pub outputs: Vec<(String, NodeId)>,
    /// Assignments: when a dispatch completes, variable `.0` takes the value of node `.1`. At most one assignment per
    /// variable.
    pub assignments: Vec<(u32, NodeId)>,
}

impl Graph {
    /// Returns the node at `id`.
    pub fn node(&self, id: NodeId) -> &GraphNode {
        &self.nodes[id.index()]
    }

    /// Returns data type and shape of the node at `id`.
    pub fn descriptor(&self, id: NodeId) -> &Descriptor {
        &self.node(id).descriptor
    }
}
