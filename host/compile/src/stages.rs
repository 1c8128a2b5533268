//! The intermediate results of the compiler's passes, for display: from a verified graph to a program.

use std::collections::BTreeSet;

use saggar_tensor::{Graph, InterruptCheck, NodeId, VerifiedGraph};

use crate::error::CompileError;
use crate::fuse::KernelDraft;
use crate::program::Program;
use crate::target::CompileTarget;

/// The intermediate results of compiling one graph.
#[derive(Clone, Debug)]
pub struct CompileStages {
    /// The graph that is fused: simplified, with the target's channel layout, and with the copies that outputs and
    /// assignments need. It is meant for its text form; not every such graph would pass verification.
    pub simplified: Graph,
    /// Fused groups in execution order, one for each kernel of the program.
    pub groups: Vec<FusedGroup>,
    /// The program, scheduled and with buffers assigned.
    pub program: Program,
}

/// The nodes of [`CompileStages::simplified`] that one kernel computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FusedGroup {
    /// The kernel's label: its family, and the plugin's labels of its nodes.
    pub label: String,
    /// Computed nodes, in the graph's order. Several groups can compute the same cheap node.
    pub nodes: Vec<NodeId>,
    /// Nodes read from memory.
    pub reads: Vec<NodeId>,
    /// Nodes written to memory.
    pub writes: Vec<NodeId>,
}

/// Compiles as [`crate::compile`] does, and returns the intermediate results too.
///
/// # Errors
/// As [`crate::compile`].
///
/// # Panics
/// As [`crate::compile`].
pub fn compile_stages(graph: &VerifiedGraph, target: &CompileTarget) -> Result<CompileStages, CompileError> {
    let mut seen: Option<(Graph, Vec<FusedGroup>)> = None;
    let program = crate::run_passes(graph, target, &InterruptCheck::never(), &mut |graph, drafts| {
        let groups = drafts.iter().map(|draft| fused_group(graph, draft)).collect();
        seen = Some((graph.clone(), groups));
    })?;
    // `run_passes` always calls the callback before it returns a program.
    let (simplified, groups) = seen.unwrap_or_default();
    Ok(CompileStages { simplified, groups, program })
}

fn fused_group(graph: &Graph, draft: &KernelDraft) -> FusedGroup {
    let mut nodes = draft.roots.clone();
    let mut open: Vec<NodeId> = draft.roots.iter().copied().collect();
    while let Some(node) = open.pop() {
        for &input in &graph.node(node).inputs {
            if !draft.loads.contains(&input) && nodes.insert(input) {
                open.push(input);
            }
        }
    }
    let sorted = |nodes: &BTreeSet<NodeId>| nodes.iter().copied().collect();
    FusedGroup {
        label: draft.label(graph),
        nodes: sorted(&nodes),
        reads: sorted(&draft.loads),
        writes: sorted(&draft.roots),
    }
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, nn, verify};

    use super::*;

    #[test]
    fn groups_list_the_nodes_that_their_kernels_compute() {
        let mut builder = GraphBuilder::new();
        let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
        let x = builder.input("x", float(&[4, 8])).unwrap();
        let w = builder.variable("w", float(&[8, 3])).unwrap();
        let product = nn::linear(&mut builder, x, w, None).unwrap();
        let relu = nn::relu(&mut builder, product).unwrap();
        builder.output("y", relu).unwrap();
        let graph = verify(builder.finish()).unwrap();
        let stages = compile_stages(&graph, &CompileTarget::cpu()).unwrap();
        assert_eq!(stages.program, crate::compile(&graph, &CompileTarget::cpu()).unwrap());
        assert_eq!(stages.groups.len(), stages.program.kernels.len());
        let [group] = &stages.groups[..] else { panic!("{:?}", stages.groups) };
        let names = |nodes: &[NodeId]| -> Vec<&str> {
            nodes.iter().map(|&node| stages.simplified.node(node).op.name()).collect()
        };
        assert!(names(&group.nodes).contains(&"matmul"), "{:?}", names(&group.nodes));
        assert!(group.nodes.len() > 1, "the product and what follows it: {:?}", names(&group.nodes));
        assert_eq!(names(&group.reads), ["input", "variable"]);
        assert_eq!(group.writes.len(), 1);
    }
}
