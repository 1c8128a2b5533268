//! How a node and its operator set are named.

use crate::proto::NodeProto;

/// Returns the canonical name of an operator set's domain.
pub fn normalized_domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// Formats a node's name for errors.
pub fn node_place(node: &NodeProto) -> String {
    let name = if node.name.is_empty() { node.output.iter().find(|name| !name.is_empty()) } else { Some(&node.name) };
    let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
    match normalized_domain(&node.domain) {
        "" => format!("node{name} ({})", node.op_type),
        domain => format!("node{name} ({domain}.{})", node.op_type),
    }
}
