//! Fusion: decides which nodes become which kernels.
//!
//! First, each node gets a separate kernel if it must be in memory, or if several kernels need it and it is expensive
//! to compute. All other work is fused into its readers; movements become views. Then kernels are merged while limits
//! and order allow it. Values are still nodes here: `buffer_assignment` places them, and `schedule` orders the kernels.

mod body;
mod builder;
mod coalesce;
mod emit;
mod expression_limits;
mod fused_matmul_search;
mod fusion_kind;
mod group;
mod iteration_space;
mod materialization;
mod matmul_operands;
mod merge;

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::{Graph, InterruptCheck, NodeId};

use emit::FusionFailure;
use fusion_kind::FusionKind;
pub(crate) use fusion_kind::{is_external, read_variable, reshape_base};
use group::{FusionContext, FusionGroup};

use crate::error::CompileError;
use crate::label::op_name;
use crate::layout::GraphWithLayout;
use crate::limits::{FUSE_ROUNDS_MAX, LABELS_MAX, PROGRAM_INSTRUCTIONS_MAX};
use crate::optimization::Optimization;
use crate::program::KernelBody;
use crate::target::CompileTarget;

/// A kernel whose values are nodes.
#[derive(Clone, Debug)]
pub(crate) struct KernelDraft {
    /// The computation; a `ValueId` is the number of a node.
    pub(crate) body: KernelBody,
    /// The kernel's main node; `None` if the kernel is a map.
    pub(crate) anchor: Option<NodeId>,
    /// Nodes stored.
    pub(crate) roots: BTreeSet<NodeId>,
    /// Nodes read from memory.
    pub(crate) loads: BTreeSet<NodeId>,
}

impl KernelDraft {
    /// Returns the kernel's family and the labels of the nodes that it computes.
    pub(crate) fn label(&self, graph: &Graph) -> String {
        let mut label = String::from(self.body.family());
        let mut named: Vec<&str> = Vec::new();
        for node in self.anchor.iter().chain(&self.roots) {
            if let Some(name) = graph.node(*node).label.as_deref()
                && !named.contains(&name)
                && named.len() < LABELS_MAX
            {
                named.push(name);
            }
        }
        for (at, name) in named.iter().enumerate() {
            label.push_str(if at == 0 { ": " } else { ", " });
            label.push_str(name);
        }
        label
    }
}

/// Nodes that kernels must leave in memory.
pub(crate) struct RequiredNodes {
    /// Outputs and assigned values. Each is a separate node, and neither a source nor a reshape.
    pub(crate) nodes: BTreeSet<NodeId>,
    /// The variable that each assigned node is assigned to.
    pub(crate) assigned: BTreeMap<NodeId, u32>,
}

/// Returns kernels that compute everything in `claims`, in topological order. `pinned` variables are not written in
/// place.
///
/// # Errors
/// Returns `Interrupted` if interrupted, and `ProgramTooLarge` if the kernels exceed a limit.
pub(crate) fn fuse(
    layout: &GraphWithLayout,
    claims: &RequiredNodes,
    pinned: &BTreeSet<u32>,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<KernelDraft>, CompileError> {
    let graph = &layout.graph;
    // Without fusion, every element-wise result is in memory. Movements stay views.
    let is_fused = target.without.enables(Optimization::Fusion);
    let mut forced = if is_fused { BTreeSet::new() } else { elementwise_nodes(graph) };
    let mut round = 0;
    loop {
        let chains = fused_matmul_search::find_fused_matmuls(graph, &claims.nodes, &forced, target, interrupt)?;
        let context = FusionContext {
            graph,
            stored: materialization::materialized_nodes(graph, &claims.nodes, &forced, &chains, target, interrupt)?,
            chains: &chains,
            assigned: &claims.assigned,
            required: &claims.nodes,
            pinned,
            channels_last: &layout.channels_last,
            target,
            interrupt,
        };
        let mut missing = BTreeSet::new();
        let (groups, failed) = single_node_groups(&context, &mut missing)?;
        let Some(&first) = failed.first() else {
            let groups = group::remove_unread_softmax_rows(&context, remove_unused_groups(&context, groups))?;
            let merged = if is_fused { merge::merge_groups(&context, groups)? } else { groups };
            let draft = |FusionGroup { anchor, roots, loads, body, .. }| KernelDraft { body, anchor, roots, loads };
            return Ok(merged.into_iter().map(draft).collect());
        };
        // Materializing nodes for one kernel changes which nodes are materialized for others, so the rounds could
        // continue forever without a limit.
        if round >= FUSE_ROUNDS_MAX {
            missing.extend(unstored_ancestors(&context, &failed));
            missing.extend(kernel_nodes(&context));
        }
        let before = forced.len();
        forced.extend(missing);
        if forced.len() == before {
            let (op, label) = op_name(graph, first);
            let what = "a kernel can be built once its operands are in memory";
            return Err(CompileError::Internal { pass: "fusion", place: format!("{op} '{label}'"), what });
        }
        round += 1;
    }
}

fn elementwise_nodes(graph: &Graph) -> BTreeSet<NodeId> {
    let nodes = (0..graph.nodes.len() as u32).map(NodeId);
    nodes.filter(|&node| matches!(fusion_kind::fusion_kind(&graph.node(node).op), FusionKind::Elementwise(_))).collect()
}

/// Returns a kernel for each node that needs one, and the nodes whose kernel cannot be built until the nodes in
/// `missing` are in memory.
fn single_node_groups(
    context: &FusionContext<'_>,
    missing: &mut BTreeSet<NodeId>,
) -> Result<(Vec<FusionGroup>, Vec<NodeId>), CompileError> {
    let (mut groups, mut failed) = (Vec::new(), Vec::new());
    let mut instructions = 0;
    for node in kernel_nodes(context) {
        context.interrupt.check()?;
        match single_node_group(context, node, missing) {
            Some(group) => {
                instructions += group.body.instruction_count();
                groups.push(group);
            }
            None => failed.push(node),
        }
        if instructions > PROGRAM_INSTRUCTIONS_MAX {
            return Err(CompileError::ProgramTooLarge { what: "instructions", limit: PROGRAM_INSTRUCTIONS_MAX });
        }
    }
    Ok((groups, failed))
}

/// Returns the nodes that need a kernel; nodes without elements need none.
fn kernel_nodes(context: &FusionContext<'_>) -> Vec<NodeId> {
    let nodes = (0..context.graph.nodes.len()).filter(|&at| context.stored[at]).map(|at| NodeId(at as u32));
    nodes
        .filter(|&node| !is_external(context.graph, node) && context.graph.descriptor(node).shape.elements() > 0)
        .filter(|node| !context.chains.absorbed_folds.contains(node))
        .collect()
}

/// Removes groups that no required value depends on. A group can become unused because only a part of a moved tensor is
/// read.
fn remove_unused_groups(context: &FusionContext<'_>, groups: Vec<FusionGroup>) -> Vec<FusionGroup> {
    let mut maker = vec![None; context.graph.nodes.len()];
    for (at, group) in groups.iter().enumerate() {
        group.roots.iter().for_each(|root| maker[root.index()] = Some(at));
    }
    let mut is_used = vec![false; groups.len()];
    let mut open: Vec<NodeId> = context.required.iter().copied().collect();
    while let Some(node) = open.pop() {
        if let Some(at) = maker[node.index()]
            && !std::mem::replace(&mut is_used[at], true)
        {
            open.extend(&groups[at].loads);
        }
    }
    groups.into_iter().zip(is_used).filter_map(|(group, is_used)| is_used.then_some(group)).collect()
}

/// Returns all ancestors of `nodes` that are not in memory, down to nodes in memory.
fn unstored_ancestors(context: &FusionContext<'_>, nodes: &[NodeId]) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut open = nodes.to_vec();
    while let Some(node) = open.pop() {
        let inputs = context.graph.node(node).inputs.iter().map(|&input| reshape_base(context.graph, input));
        open.extend(inputs.filter(|input| !context.stored[input.index()] && found.insert(*input)));
    }
    found
}

/// Returns the kernel that stores only `node`, or adds to `missing` the nodes that must be in memory for it.
fn single_node_group(context: &FusionContext<'_>, node: NodeId, missing: &mut BTreeSet<NodeId>) -> Option<FusionGroup> {
    let anchor = match fusion_kind::fusion_kind(&context.graph.node(node).op) {
        FusionKind::Anchor | FusionKind::Standalone => Some(node),
        FusionKind::External | FusionKind::Elementwise(_) | FusionKind::Movement => None,
    };
    let nodes: BTreeSet<NodeId> = [node].into_iter().chain(context.chains.softmax_rows(node)).collect();
    match group::build_group(context, anchor, nodes.clone(), nodes) {
        Ok(group) if group::value_count(context, &group) <= group.body.values_max(context.target) => Some(group),
        Err(FusionFailure::Store(other)) if other != node && !context.stored[other.index()] => {
            missing.insert(other);
            None
        }
        Ok(_) | Err(FusionFailure::Store(_) | FusionFailure::Split { .. } | FusionFailure::Refused) => {
            let inputs = context.graph.node(node).inputs.iter().map(|&input| reshape_base(context.graph, input));
            missing.extend(inputs.filter(|input| !context.stored[input.index()]));
            // A node that is forced into memory cannot be part of a fused matmul, even if it was already stored for
            // another reason.
            missing.extend(context.chains.consumers.get(&node).map(|end| end.matrix));
            None
        }
    }
}
