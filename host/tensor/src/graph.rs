//! The graph: an arena of nodes in topological order (a node's operands come before it), and what it is connected to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::op::Op;
use crate::shape::Descriptor;

/// A node's place in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A primitive operator applied to earlier nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphNode {
    /// What is computed.
    pub op: Op,
    /// From which nodes, all of them earlier in the arena.
    pub inputs: Vec<NodeId>,
    /// Data type and shape of the result.
    pub descriptor: Descriptor,
    /// The plugin's name for it, for error messages.
    #[serde(with = "label")]
    pub label: Option<Arc<str>>,
}

/// A label as text: serde's own way of shared text would need a feature that every user of serde would get.
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

/// A named tensor that the caller gives or the graph keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphPort {
    /// The name, unique among the graph's ports of its kind.
    pub name: String,
    /// Data type and shape.
    pub descriptor: Descriptor,
}

/// A computation for concrete shapes. Hostile until [`crate::verify()`] has returned it as a `VerifiedGraph`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// In topological order.
    pub nodes: Vec<GraphNode>,
    /// What a dispatch is given, addressed by `SourceOp::Input`.
    pub inputs: Vec<GraphPort>,
    /// State that outlives a dispatch, addressed by `SourceOp::Variable`.
    pub variables: Vec<GraphPort>,
    /// Dense little-endian bytes, addressed by `SourceOp::Constant`. They are not serialized with the graph: whoever sends one
    /// sends them beside it.
    #[serde(skip)]
    pub constants: Vec<Arc<[u8]>>,
    /// What a dispatch returns.
    pub outputs: Vec<(String, NodeId)>,
    /// When a dispatch completes, variable `.0` holds node `.1`. At most one assignment a variable.
    pub assignments: Vec<(u32, NodeId)>,
}

impl Graph {
    /// The node at `id`.
    pub fn node(&self, id: NodeId) -> &GraphNode {
        &self.nodes[id.index()]
    }

    /// Data type and shape of the node at `id`.
    pub fn descriptor(&self, id: NodeId) -> &Descriptor {
        &self.node(id).descriptor
    }
}
